"""What a difference leaves alone stays the same object, and boxes that look alike share one shape."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rgt_box import jsonline

from rgt_tui.model.protocol import Sample
from rgt_tui.ssh.channel import FrameReader
from rgt_tui.ssh.places import places, row

GPUS = [{"index": i, "name": "g", "util": 5, "procs": [{"pid": 7, "bytes": 1}]} for i in range(2)]


def sample(**fields: Any) -> bytes:
    whole = {"t": "sample", "boot": "b", "seq": 1, "at": 1.0, "gpus": GPUS, "mem": {"used": 5}} | fields
    return jsonline.dumps(whole)


def after(line: bytes, *deltas: bytes) -> tuple[Sample, Sample]:
    reader = FrameReader()
    first = reader.read(line)
    last = first
    for delta in deltas:
        last = reader.read(delta)
    assert isinstance(first, Sample)
    assert isinstance(last, Sample)
    return first, last


def test_only_what_changed_is_new() -> None:
    # Places: gpu 0 has 0 to 4 (its process 3 and 4), gpu 1 has 5 to 9, the memory has 10.
    first, last = after(sample(), b'{"t":"delta","seq":2,"at":2.0,"v":[7,9]}')
    assert last.gpus[0] is first.gpus[0]
    assert last.mem is first.mem
    assert (last.gpus[1].util, type(last.gpus[1].util)) == (9.0, float)
    assert first.gpus[1].util == 5.0


def test_a_value_of_an_object_in_a_list_of_an_object_is_found() -> None:
    first, last = after(sample(), b'{"t":"delta","seq":2,"at":2.0,"v":[9,77]}')
    assert last.gpus[1].procs[0].bytes == 77
    assert last.gpus[1].procs[0].pid == 7
    assert first.gpus[1].procs[0].bytes == 1


def test_what_this_client_does_not_know_is_counted_and_passed_over() -> None:
    line = sample(mem={"novelty": 1, "used": 5}, odd={"a": 1, "b": [{"c": 2}]}, agent_rss=3)
    _, last = after(line, b'{"t":"delta","seq":2,"at":2.0,"v":[10,8,11,6,12,0,13,0,14,4]}')
    assert (last.mem.used, last.agent_rss) == (6, 4)


def test_a_wrong_type_is_refused() -> None:
    for value in (b'"x"', b"[1]", b"{}", b"true"):
        reader = FrameReader()
        reader.read(sample())
        with pytest.raises(msgspec.ValidationError):
            reader.read(b'{"t":"delta","seq":2,"at":2.0,"v":[10,' + value + b"]}")


def test_boxes_that_look_alike_share_their_places() -> None:
    shape = {"used": 1, "cache": 2}
    one, other = places("mem", shape, Sample), places("mem", dict(shape, used=9), Sample)
    assert one is other
    assert row((one,)) is row((other,))
    assert places("mem", {"cache": 2, "used": 1}, Sample) is not one


BIG = 10**30


@pytest.mark.parametrize(
    "line",
    [
        sample(mem={"used": BIG}),
        sample(gpus=[{"index": 0, "name": "g", "vram_used": -BIG}]),
        b'{"t":"delta","seq":2,"at":2.0,"v":[10,%d]}' % BIG,
        b'{"t":"delta","seq":2,"at":2.0,"put":{"mem":{"used":%d}}}' % BIG,
        b'{"t":"scalar","run":"r","source":"s","inode":1,"start":0,"end":1,"points":[[%d,null,null,{}]]}'
        % BIG,
        b'{"t":"ckpt","run":"r","at":1,"items":[{"path":"p","step":1,"bytes":%d,"at":1}]}' % BIG,
    ],
)
def test_a_number_without_bound_makes_no_frame(line: bytes) -> None:
    reader = FrameReader()
    reader.read(sample())
    with pytest.raises(ValueError, match="more than 64 bits"):
        reader.read(line)
    with pytest.raises(ValueError, match="did not come"):
        reader.read(b'{"t":"delta","seq":3,"at":3.0,"v":[]}')
    assert isinstance(reader.read(sample(mem={"used": 2**62})), Sample)
