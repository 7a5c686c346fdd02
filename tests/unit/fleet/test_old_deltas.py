"""Samples that were recorded as differences, by the code that made them, equal what was recorded whole beside them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import Hello, Sample
from rgt_tui.recordings import RecordingReader, recording_lines
from rgt_tui.recordings.recording_lines import Entry
from rgt_tui.recordings.recording_reader import DELTA, RecordedFrames
from rgt_tui.ssh import read_frame

OLD = Path(__file__).parents[2] / "fixtures" / "recordings" / "differences.jsonl.gz"
"""Two boxes that told the same, one in differences: lists that grow, shapes that change, fields that are unknown."""


def samples(box: str) -> tuple[list[Sample], int]:
    """The samples of a box of the recording, and how many of them were differences."""
    tape, reader, found, deltas = RecordingReader(OLD), RecordedFrames(), [], 0
    for entry in iter(lambda: tape.read(1), []):
        assert isinstance(entry[0], Entry)
        if entry[0].box != box:
            continue
        line = recording_lines.wire_of(entry[0])
        assert line is not None
        frame = reader.read(line)
        deltas += line.startswith(DELTA)
        if isinstance(frame, Hello):
            reader = RecordedFrames()
        elif isinstance(frame, Sample):
            found.append(frame)
    tape.close()
    return found, deltas


def test_differences_become_the_samples_that_they_were_made_of() -> None:
    (rebuilt, deltas), (whole, none) = samples("differences"), samples("whole")
    assert (deltas, none, len(whole)) == (818, 0, 866)
    assert rebuilt == whole


def sample(seq: int) -> bytes:
    return b'{"t":"sample","boot":"b","seq":%d,"at":%d.5,"mem":{"used":%d}}' % (seq, seq, seq)


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
        b'{"t":"delta","seq":2,"at":1,"v":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"t":"delta","seq":2,"at":1,"put":{"procs":' + b'[{"a":' * 20_000 + b"1" + b"}]" * 20_000 + b"}}",
        b'{"t":"delta","seq":2,"at":1,"v":[0,%d]}' % (1 << 70),
        b'{"t":"delta","seq":2,"at":1,"put":{"mem":{"used":%d}}}' % (1 << 70),
    ],
    ids=range(11),
)
def test_what_does_not_fit_is_refused_until_the_next_whole_sample(line: bytes) -> None:
    reader = RecordedFrames()
    with pytest.raises((ValueError, RecursionError)):
        reader.read(line)
    reader.read(sample(1))
    with pytest.raises((ValueError, RecursionError)):
        reader.read(line)
    with pytest.raises(ValueError):
        reader.read(b'{"t":"delta","seq":2,"at":1.0,"v":[0,2]}')
    reader.read(sample(4))
    rebuilt = reader.read(b'{"t":"delta","seq":6,"back":2,"at":1.0,"v":[0,2]}')
    assert isinstance(rebuilt, Sample)
    assert (rebuilt.seq, rebuilt.mem.used, rebuilt.boot) == (6, 2, "b")


def test_a_channel_knows_no_differences_any_more() -> None:
    with pytest.raises(msgspec.ValidationError):
        read_frame(b'{"t":"delta","seq":2,"at":1.0,"v":[0,2]}')
