"""Whatever a box says, what is rebuilt from the differences equals what would have come whole."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rgt_box import jsonline
from rgt_box.streams.delta import FULL_EVERY, DeltaEncoder

from rgt_tui.model import protocol
from rgt_tui.ssh.channel import FrameReader

NUMBERS = st.one_of(st.integers(0, 2**45), st.floats(0, 1e9).map(lambda x: round(x, 2)))
WORDS = st.sampled_from(["a", "béta", "", "/mnt/x", "sw_power_cap"])


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries(required, optional=optional), max_size=3)


HOGS = objects({"path": WORDS, "inodes": st.just(1), "bytes": st.just(2)}, {})
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "gpus": objects(
        {"index": st.integers(0, 8), "name": WORDS},
        {"util": NUMBERS, "temp_c": NUMBERS, "throttle": st.lists(WORDS, max_size=2), "sim": st.booleans()},
    ),
    "mem": st.fixed_dictionaries({}, optional={"used": st.integers(0, 2**45), "limit": st.integers(1, 9)}),
    "cpu": st.fixed_dictionaries({}, optional={"load1": NUMBERS, "throttled_pct": NUMBERS}),
    "disks": objects(
        {"mount": WORDS},
        {"bytes_used": st.integers(0, 9), "hogs": HOGS},
    ),
    "session": st.fixed_dictionaries({}, optional={"uptime_s": NUMBERS, "tmux": st.lists(WORDS, max_size=2)}),
    "agent_rss": st.one_of(st.none(), st.integers(0, 2**40)),
}  # fmt: skip


@st.composite
def sequences(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Samples that mostly keep their shape, as real ones do, and sometimes do not."""
    found: list[dict[str, Any]] = []
    fields: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=FIELDS))
    boot, seq = "b1", 0
    for _ in range(draw(st.integers(1, 12))):
        for key in draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=2)):
            fields = {name: value for name, value in fields.items() if name != key or draw(st.booleans())}
            fields[key] = draw(FIELDS[key])
        boot = draw(st.sampled_from([boot, boot, boot, boot, boot + "x"]))
        seq += draw(st.integers(1, 3))
        shuffled = draw(st.permutations(list(fields.items())))
        at = round(draw(st.floats(1.0, 2e9)), 3)
        found.append({"t": "sample", "boot": boot, "seq": seq, "at": at} | dict(copy.deepcopy(shuffled)))
    return found


def rebuilt(samples: list[dict[str, Any]], skipped: int = 0) -> tuple[list[Any], list[bytes]]:
    encoder, reader = DeltaEncoder(), FrameReader()
    lines = [encoder.line(jsonline.dumps(sample), skipped) for sample in samples]
    return [reader.read(line.rstrip(b"\n")) for line in lines], lines


@settings(max_examples=100, deadline=None)
@given(sequences(), st.integers(0, 2))
def test_rebuilt_equals_whole(samples: list[dict[str, Any]], skipped: int) -> None:
    frames, _ = rebuilt(samples, skipped)
    whole = [
        msgspec.json.decode(jsonline.dumps(sample | {"skipped": skipped}), type=protocol.Sample)
        for sample in samples
    ]
    assert frames == whole


def sample(seq: int, **fields: Any) -> dict[str, Any]:
    return {"t": "sample", "boot": "b", "seq": seq, "at": seq + 0.5} | {"mem": {"used": seq}} | fields


def test_a_whole_sample_comes_at_the_start_and_then_every_thirtieth_time() -> None:
    _, lines = rebuilt([sample(seq, padding="x" * 200) for seq in range(1, 3 * FULL_EVERY + 1)])
    kinds = [json.loads(line)["t"] for line in lines]
    assert kinds == (["sample"] + ["delta"] * (FULL_EVERY - 1)) * 3


def test_a_reboot_begins_with_a_whole_sample() -> None:
    _, lines = rebuilt([sample(1, padding="x" * 99), sample(1, boot="c", padding="x" * 99)])
    assert [json.loads(line)["t"] for line in lines] == ["sample", "sample"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"t":"delta","seq":3,"at":1.0}',
        b'{"t":"delta","seq":2,"at":1.0,"v":[0]}',
        b'{"t":"delta","seq":2,"at":1.0,"v":[1,5]}',
        b'{"t":"delta","seq":2,"at":1.0,"v":[-1,5]}',
        b'{"t":"delta","seq":2,"at":1.0,"v":[true,5]}',
        b'{"t":"delta","seq":2,"at":1.0,"v":[0,"five"]}',
        b'{"t":"delta","seq":2,"at":1.0,"put":{"gpus":5}}',
    ],
)
def test_what_does_not_fit_is_refused_until_the_next_whole_sample(line: bytes) -> None:
    reader = FrameReader()
    whole = [jsonline.dumps(sample(seq)) for seq in (1, 4)]
    with pytest.raises(ValueError):
        reader.read(line)
    reader.read(whole[0])
    with pytest.raises(ValueError):
        reader.read(line)
    with pytest.raises(ValueError):
        reader.read(b'{"t":"delta","seq":2,"at":1.0,"v":[0,2]}')
    reader.read(whole[1])
    rebuilt = reader.read(b'{"t":"delta","seq":6,"back":2,"at":1.0,"v":[0,2]}')
    assert isinstance(rebuilt, protocol.Sample)
    assert (rebuilt.seq, rebuilt.mem.used, rebuilt.boot) == (6, 2, "b")
