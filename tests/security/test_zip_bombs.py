"""A box may pack a gigabyte into a megabyte: it takes its turns, holds little memory, and keeps nobody waiting."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest

from rgt_tui.model import MAX_FRAME_BYTES, Frame, Pong
from rgt_tui.ssh import WatchChannel
from rgt_tui.ssh.channel import WAITING_BYTES, _FrameSession
from tests.unit.ssh.test_compressed import HELLO

PONG = b'{"t":"pong","id":1,"at":1}\n'
SIZE = 128 << 20
BLANK, SHORT = b"\n", b'{"t":"?"}\n'
"""Of these there are more lines than a test should wait for."""


EMPTY = zlib.compress(b"")
"""Of these packed lines that hold nothing there are as many as fit."""


def bomb(what: bytes) -> bytes:
    """A stream of `SIZE` bytes that are all alike, and a frame behind them."""
    if what == EMPTY:
        return EMPTY * (WAITING_BYTES // len(EMPTY)) + zlib.compress(PONG)
    packed = zlib.compressobj(9)
    block = what * ((1 << 20) // len(what))
    parts = [packed.compress(block) for _ in range(SIZE // len(block))]
    return b"".join([*parts, packed.compress(b"\n" + PONG), packed.flush()])


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize(
    "what",
    [b"\0", BLANK, SHORT, b"[" * 64, EMPTY],
    ids=["zeros", "blank", "short", "nested", "empty lines"],
)
def test_a_bomb_is_taken_in_by_turns_and_holds_no_memory(what: bytes) -> None:
    data = HELLO + bomb(what)
    assert len(data) < WAITING_BYTES * 4, "all of it is let in before a turn begins"

    async def turns() -> tuple[list[Frame], int, float]:
        frames: list[Frame] = []
        bad: list[int] = []
        session = _FrameSession(frames.append, bad.append, None, lambda: None)
        for piece in pieces(data, 32 << 10):
            session.data_received(piece, None)
        channel = WatchChannel(None, session)  # type: ignore[arg-type]
        longest, waits, ends = 0.0, True, time.monotonic() + (2 if what in (BLANK, SHORT) else 300)
        while waits and time.monotonic() < ends:
            begun = time.thread_time()
            waits = channel.apply_received(time.monotonic() + 0.002)
            longest = max(longest, time.thread_time() - begun)
        return frames, sum(bad), longest

    gc.disable()  # to walk through all that this process holds would be counted as a turn
    tracemalloc.start()
    try:
        frames, bad, longest = asyncio.run(turns())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert peak < len(data) + 6 * MAX_FRAME_BYTES
    assert longest < 0.25
    if what not in (BLANK, SHORT):
        assert bad == (what != EMPTY), "one line, longer than any frame"
        assert isinstance(frames[-1], Pong)


def test_a_giant_frame_is_left_out_and_the_next_one_comes() -> None:
    async def take() -> tuple[list[Frame], int]:
        frames: list[Frame] = []
        bad: list[int] = []
        session = _FrameSession(frames.append, bad.append, None, None)
        giant = b'{"t":"event","boot":"' + b"b" * (2 * MAX_FRAME_BYTES) + b'"}\n'
        data = b"".join(map(zlib.compress, (PONG, giant, PONG)))
        for piece in pieces(HELLO + data, 1):
            session.data_received(piece, None)
        return frames, sum(bad)

    frames, bad = asyncio.run(take())
    assert [type(frame) for frame in frames[1:]] == [Pong, Pong]
    assert bad == 1
