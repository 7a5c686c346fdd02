"""A channel whose lines come packed behind a plain hello: any cut, noise before it, an agent that does not pack."""

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
from rgt_box.streams.pipes import FrameOutbox, compress_frame

from rgt_tui.model import Frame, Hello, Pong, Sample
from rgt_tui.ssh import read_frame
from rgt_tui.ssh.channel import PackedLines, _FrameSession

HELLO = b'{"t":"hello","proto":1,"agent":"a","boot":"b","host":"h","python":"3","pid":1,"at":1,"packed_lines":true}\n'
PLAIN_HELLO = HELLO.replace(b',"packed_lines":true', b"")


def pongs(count: int) -> list[bytes]:
    return [b'{"t":"pong","id":%d,"at":1}\n' % number for number in range(count)]


def sent(frames: list[bytes], hello: bytes = HELLO) -> bytes:
    """What the agent's way out makes of frames."""
    read, write = os.pipe()
    outbox = FrameOutbox(write)
    outbox.add_frame(hello)
    if hello == HELLO:
        outbox.start_compression()
    for frame in frames:
        outbox.add_frame(frame)
    outbox.flush()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()


class Told:
    """What a channel makes of bytes."""

    def __init__(
        self, chunks: list[bytes], look: Callable[[_FrameSession], None] = lambda _: None
    ) -> None:
        self.frames: list[Frame] = []
        self.lines: list[bytes] = []
        self.bad = 0
        asyncio.run(self._take(chunks, look))

    async def _take(self, chunks: list[bytes], look: Callable[[_FrameSession], None]) -> None:
        session = _FrameSession(self.frames.append, self._count, self.lines.append, None)
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
    assert told.bad == 0, "what start-up files print is no frame that got lost"


def test_each_frame_comes_with_its_last_byte() -> None:
    for count in range(1, 6):
        stream = sent(pongs(count))
        assert Told([stream[n : n + 1] for n in range(len(stream))]).pongs == list(range(count))


def test_what_is_recorded_are_the_lines_as_the_agent_wrote_them() -> None:
    frames = pongs(9)
    assert [line + b"\n" for line in Told([sent(frames)]).lines] == [HELLO, *frames]


def test_an_agent_that_does_not_compress_is_understood() -> None:
    told = Told([sent(pongs(9), PLAIN_HELLO)])
    assert (told.pongs, told.bad, told.ended) == (list(range(9)), 0, None)


def test_only_the_first_hello_begins_a_stream() -> None:
    told = Told([PLAIN_HELLO + HELLO + b"".join(pongs(3))])
    assert (told.pongs, told.ended) == ([0, 1, 2], None)


DAMAGED = "ssh: the compressed stream from the box is damaged: "


@pytest.mark.parametrize("seed", range(20))
def test_damage_ends_the_channel_and_what_came_before_stands(seed: int) -> None:
    pick = random.Random(seed)
    texts = [pick.randbytes(99).hex().encode() for _ in range(20)]
    frames = [
        b'{"t":"event","boot":"b","seq":%d,"at":1,"text":"%s"}\n' % (n, text)
        for n, text in enumerate(texts)
    ]
    stream = bytearray(sent(frames))
    place = len(sent(frames[:10])) + pick.randrange(100)
    stream[place : place + 8] = b"\xff" * 8
    told = Told([bytes(stream[n : n + 50]) for n in range(0, len(stream), 50)])
    assert [line + b"\n" for line in told.lines[1:10]] == frames[:9]
    assert str(told.ended).startswith(DAMAGED)
    assert len(told.lines) < 21


def test_a_line_that_is_no_json_ends_the_channel_and_an_unknown_frame_does_not() -> None:
    unknown = b'{"t":"of a newer agent"}\n'
    told = Told([sent([*pongs(1), unknown, *pongs(1), b"nonsense\n", *pongs(1)])])
    assert (told.pongs, told.bad, told.ended) == ([0, 0], 2, DAMAGED + "a line of it is not JSON")


def test_what_is_no_stream_is_damaged() -> None:
    told = Told([HELLO, *pongs(3)])
    assert (told.pongs, told.bad) == ([], 0)
    assert "damaged" in str(told.ended)


def test_a_sample_that_hardly_changed_costs_hardly_a_byte() -> None:
    gpus = [
        {"index": index, "name": "RTX 4090", "util": 90.0, "vram_used": 21474836480}
        for index in range(8)
    ]
    frames = [sample(seq=seq, at=seq, gpus=gpus) + b"\n" for seq in range(1, 101)]
    assert len(sent(frames)) < 100 * 30 + len(frames[0])
    assert [
        frame.seq for frame in Told([sent(frames)]).frames if isinstance(frame, Sample)
    ] == list(range(1, 101))


TEXT = st.text(st.sampled_from("abcé\n\x00 0"), max_size=9000)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["sample", "log", "scalar", "found"]), TEXT), max_size=12)
)
def test_lines_of_every_kind_and_length_come_as_they_were_put(said: list[tuple[str, str]]) -> None:
    lines = [
        b'{"t":"%s","x":%s}\n' % (kind.encode(), json.dumps(text).encode()) for kind, text in said
    ]
    assert [line + b"\n" for line in Told([sent(lines)]).lines[1:]] == lines


def held(told: list[bytes]) -> list[bytes]:
    """What a channel holds of the past."""
    seen: list[list[bytes]] = []

    def look(session: _FrameSession) -> None:
        assert isinstance(session._unpacker, PackedLines)
        seen.append([line for _, line in session._unpacker._told.values()])

    Told([sent(told)], look)
    return seen[-1]


def test_of_the_past_a_line_of_each_kind_is_held_and_none_that_is_long() -> None:
    first, newest, long = (
        b'{"t":"sample","x":"%s"}\n' % text for text in (b"a", b"b", b"c" * 9000)
    )
    logs = [b'{"t":"log","x":%d}\n' % n for n in range(9)]
    assert held([first, newest, long, *logs, *pongs(3)]) == [newest, logs[-1]]
    edge = b'{"t":"sample","x":"%s"}\n'
    assert held([edge % (b"d" * (8192 - len(edge) + 2))])
    assert not held([edge % (b"d" * (8192 - len(edge) + 3))])


def test_a_line_told_by_one_that_did_not_come_is_damaged() -> None:
    stream = sent([sample(), sample()]).removeprefix(HELLO)
    first = zlib.decompressobj()
    first.decompress(stream)
    told = Told([HELLO + first.unused_data])
    assert told.ended == DAMAGED + "it refers to a line that did not arrive"


def test_a_flipped_bit_of_a_packed_line_is_found() -> None:
    lines = [sample(seq=n) + b"\n" for n in range(1, 4)]
    stream = sent(lines)
    for place in range(len(sent(lines[:2])), len(stream)):
        bad = bytearray(stream)
        bad[place] ^= 4
        came = [line + b"\n" for line in Told([bytes(bad)]).lines[1:]]
        assert came in (lines[:2], lines), place  # some bits mean nothing: those that fill a byte


BIG = 10**30


def sample(**fields: Any) -> bytes:
    whole = {"t": "sample", "boot": "b", "seq": 1, "at": 1.0} | fields
    return json.dumps(whole, separators=(",", ":")).encode()


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


@pytest.mark.parametrize(("size", "level"), [(100, 2), (8191, 2), (8192, 0), (200_000, 0)])
def test_long_lines_are_packed_swiftly(size: int, level: int) -> None:
    """A fast log must not cost the box what the line to it saves; zlib's header names the level (RFC 1950: FLEVEL)."""
    line = b'{"t":"log","lines":"' + b"x" * (size - 22) + b'"\n'
    assert compress_frame(line, {})[1] >> 6 == level
    assert zlib.decompress(compress_frame(line, {})) == line
