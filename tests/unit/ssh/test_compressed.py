"""A channel whose frames come as one zlib stream behind a plain hello: any cut, noise before it, an old agent."""

from __future__ import annotations

import asyncio
import json
import os
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rgt_box.streams.pipes import Outbox

from rgt_tui.model.protocol import Frame, Hello, Pong, Sample
from rgt_tui.ssh.channel import _Session, read_frame

HELLO = b'{"t":"hello","proto":1,"agent":"a","boot":"b","host":"h","python":"3","pid":1,"at":1,"zlib":true}\n'
OLD_HELLO = HELLO.replace(b',"zlib":true', b"")


def pongs(count: int) -> list[bytes]:
    return [b'{"t":"pong","id":%d,"at":1}\n' % number for number in range(count)]


def sent(frames: list[bytes], hello: bytes = HELLO) -> bytes:
    """What the agent's way out makes of frames."""
    read, write = os.pipe()
    outbox = Outbox(write)
    outbox.put(hello)
    if hello == HELLO:
        outbox.compress()
    for frame in frames:
        outbox.put(frame)
    outbox.flush()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


class Told:
    """What a channel makes of bytes."""

    def __init__(self, chunks: list[bytes], look: Callable[[_Session], None] = lambda _: None) -> None:
        self.frames: list[Frame] = []
        self.lines: list[bytes] = []
        self.bad = 0
        asyncio.run(self._take(chunks, look))

    async def _take(self, chunks: list[bytes], look: Callable[[_Session], None]) -> None:
        session = _Session(self.frames.append, self._count, self.lines.append, None)
        for chunk in chunks:
            session.data_received(chunk, None)
            look(session)
        self.ended = session.ended.result() if session.ended.done() else None

    def _count(self, bad: int) -> None:
        self.bad += bad

    @property
    def pongs(self) -> list[int]:
        return [frame.id for frame in self.frames if isinstance(frame, Pong)]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40), st.data())
def test_any_cut_gives_the_same_frames(noise: bytes, data: st.DataObject) -> None:
    noise = noise.replace(b"{", b".")
    stream, chunks = noise + sent(pongs(30)), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        chunks.append(stream[:size])
        stream = stream[size:]
    told = Told(chunks)
    assert isinstance(told.frames[0], Hello)
    assert told.pongs == list(range(30))
    assert told.ended is None
    assert told.bad == sum(map(bool, noise.split(b"\n")[:-1]))


def test_each_frame_comes_with_its_last_byte() -> None:
    for count in range(1, 6):
        stream = sent(pongs(count))
        assert Told([stream[n : n + 1] for n in range(len(stream))]).pongs == list(range(count))


def test_what_is_recorded_are_the_lines_as_the_agent_wrote_them() -> None:
    frames = pongs(9)
    assert [line + b"\n" for line in Told([sent(frames)]).lines] == [HELLO, *frames]


def test_an_agent_that_does_not_compress_is_understood() -> None:
    told = Told([sent(pongs(9), OLD_HELLO)])
    assert (told.pongs, told.bad, told.ended) == (list(range(9)), 0, None)


def test_only_the_first_hello_begins_a_stream() -> None:
    told = Told([OLD_HELLO + HELLO + b"".join(pongs(3))])
    assert (told.pongs, told.ended) == ([0, 1, 2], None)


DAMAGED = "ssh: the compressed stream from the box is damaged: "


@pytest.mark.parametrize("seed", range(40))
def test_damage_ends_the_channel_and_what_came_before_stands(seed: int) -> None:
    pick = random.Random(seed)
    texts = [pick.randbytes(99).hex().encode() for _ in range(20)]
    frames = [
        b'{"t":"event","boot":"b","seq":%d,"at":1,"text":"%s"}\n' % (n, text) for n, text in enumerate(texts)
    ]
    stream, place = bytearray(sent(frames)), len(sent(frames[:10])) + pick.randrange(100)
    stream[place : place + 8] = b"\xff" * 8
    told = Told([bytes(stream[n : n + 50]) for n in range(0, len(stream), 50)])
    assert [line + b"\n" for line in told.lines[1:10]] == frames[:9]
    assert str(told.ended).startswith(DAMAGED)
    assert len(told.lines) < 21


def test_a_line_that_is_no_json_ends_the_channel_and_an_unknown_frame_does_not() -> None:
    unknown = b'{"t":"of a newer agent"}\n'
    told = Told([sent([*pongs(1), unknown, *pongs(1), b"nonsense\n", *pongs(1)])])
    assert (told.pongs, told.bad, told.ended) == ([0, 0], 2, DAMAGED + "a line of it is not JSON")


def test_a_stream_that_ends_is_damaged() -> None:
    told = Told([HELLO + zlib.compress(b"".join(pongs(3))), *pongs(3)])
    assert told.pongs in ([], [0, 1, 2])
    assert told.ended == DAMAGED + "it ends while the agent still runs"


def test_what_is_no_stream_is_damaged() -> None:
    told = Told([HELLO, *pongs(3)])
    assert (told.pongs, told.bad) == ([], 0)
    assert "damaged" in str(told.ended)


def test_a_sample_that_hardly_changed_costs_hardly_a_byte() -> None:
    gpus = [
        {"index": index, "name": "RTX 4090", "util": 90.0, "vram_used": 21474836480} for index in range(8)
    ]
    frames = [
        json.dumps({"t": "sample", "boot": "b", "seq": seq, "at": seq, "gpus": gpus}).encode() + b"\n"
        for seq in range(1, 101)
    ]
    assert len(sent(frames)) < 100 * 30 + len(frames[0])
    assert [frame.seq for frame in Told([sent(frames)]).frames if isinstance(frame, Sample)] == list(
        range(1, 101)
    )


BIG = 10**30


def sample(**fields: Any) -> bytes:
    return json.dumps({"t": "sample", "boot": "b", "seq": 1, "at": 1.0} | fields).encode()


@pytest.mark.parametrize(
    "line",
    [
        sample(mem={"used": BIG}),
        sample(gpus=[{"index": 0, "name": "g", "vram_used": -BIG}]),
        b'{"t":"scalar","run":"r","source":"s","inode":1,"start":0,"end":1,"points":[[%d,null,null,{}]]}'
        % BIG,
        b'{"t":"ckpt","run":"r","at":1,"items":[{"path":"p","step":1,"bytes":%d,"at":1}]}' % BIG,
    ],
)
def test_a_number_without_bound_makes_no_frame(line: bytes) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        read_frame(line)
    assert isinstance(read_frame(sample(mem={"used": 2**62})), Sample)
