from __future__ import annotations

import json

from rgt_box import jsonline
from rgt_box.recorder.ring import RingRecord
from rgt_box.streams.sample_source import Coalescer


def records(*kinds: str, boot: str = "b", first: int = 1) -> list[RingRecord]:
    """One record per letter: ``S``ample or ``E``vent."""
    found = []
    for seq, kind in enumerate(kinds, first):
        frame = {"t": "sample" if kind == "S" else "event", "boot": boot, "seq": seq}
        found.append(RingRecord(boot, seq, kind == "S", jsonline.dumps(frame), 0))
    return found


def seqs(lines: list[bytes]) -> list[tuple[int, int]]:
    """(number, skipped) of each line."""
    return [(frame["seq"], frame.get("skipped", 0)) for frame in map(json.loads, lines)]


def test_in_time_everything_goes_out_as_it_was_recorded() -> None:
    given = records(*"SES")
    assert Coalescer("b", 0).lines_to_send(given, False) == [
        record.payload + b"\n" for record in given
    ]


def test_late_only_the_newest_sample_goes_out_and_every_event() -> None:
    assert seqs(Coalescer("b", 0).lines_to_send(records(*"SSESS"), True)) == [(3, 0), (5, 3)]


def test_below_the_floor_samples_are_counted_and_events_go_out() -> None:
    coalescer = Coalescer("b", 0, floor=("b", 5))
    assert seqs(coalescer.lines_to_send(records(*"SSE"), False)) == [(3, 0)]
    assert seqs(coalescer.lines_to_send(records(*"SSS", first=4), False)) == [(5, 3), (6, 0)]


def test_samples_of_an_earlier_boot_lie_below_the_floor() -> None:
    coalescer = Coalescer("a", 7, floor=("b", 1))
    given = records(*"SE", boot="a", first=8) + records(*"ES")
    assert seqs(coalescer.lines_to_send(given, False)) == [(9, 0), (1, 0), (2, 1)]


def test_each_that_was_left_out_is_counted_once() -> None:
    """What the ring no longer held, before a sample or an event, and what came too late: all in the next sample."""
    given = records(*"SSESS")
    given[0].skipped, given[2].skipped, given[4].skipped = 7, 20, 100
    coalescer = Coalescer("b", 0)
    assert seqs(coalescer.lines_to_send(given, True)) == [(3, 0), (5, 7 + 20 + 100 + 3)]
    assert seqs(coalescer.lines_to_send(records("S", first=6), True)) == [(6, 0)]
    assert (coalescer.boot, coalescer.seq) == ("b", 6)
