"""Odd frames of every kind through the whole client: nothing raises, takes long or grows without bound."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from functools import cache

import msgspec
import pytest

from rgt_tui.cli import metrics, status_line
from rgt_tui.fleet import FleetAlerting, events_between
from rgt_tui.gate import Consent, Situation, gather_evidence
from rgt_tui.health import assess_box, diagnose_box, evaluate_checks
from rgt_tui.model import MAX_FRAME_BYTES, BillingVerb, BoxSpec, BoxState, FleetState, Meter
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import LineSplitter, read_frame
from rgt_tui.store import MinuteMeans
from rgt_tui.store.moments import BoxSnapshot, storable_state
from tests.security.odd_frames import KINDS, NOW, SPEC, Odd, odd_lines, odd_state, taken

SECONDS = 2.0
"""CPU that no single frame, however long, may take; most take a thousandth."""


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_looks_at_a_box_fails_for_what_it_says(seed: int) -> None:
    profile, old = load_profile(SPEC.profile), BoxState(spec=SPEC)
    state, refused = taken(odd_lines(seed))
    assert refused < 40
    for now in (NOW, NOW + 3600):
        found = diagnose_box(state, now, ())
        state = msgspec.structs.replace(state, findings=found)
        state, _ = FleetAlerting(clock=lambda now=now: now).judge_box(state, now)  # type: ignore[misc]
        events_between(old, state, now)
        evaluate_checks(state, profile, now)
        for verb in BillingVerb:
            given = Situation(
                state=state,
                meter=Meter(),
                meter_at=0.0,
                profile=profile,
                action="stop",
                now=now,
                ticks=0.0,
            )
            gather_evidence(given, verb, Consent(typed="a"))
        line = status_line.status_line(state, assess_box(state, now), now)
        json.loads(status_line.encode_line(line))
        status_line.text_line(line)
        metrics.format_exposition(FleetState(boxes=(state,), at=now), now)
        means = MinuteMeans()
        means.add_sample(state)
        means.take_finished(None)
        msgspec.msgpack.Decoder(BoxSnapshot).decode(
            msgspec.msgpack.encode(BoxSnapshot(storable_state(state)))
        )


@cache
def long_line(kind: type[msgspec.Struct], seed: int) -> bytes:
    """Return a frame that is long by its lists and dictionaries, or the longest that the kind can be."""
    best = b""
    for most in (30, 200, 1000, 5000):
        made = json.dumps(Long(seed, most).struct(kind)).encode()
        if len(made) > MAX_FRAME_BYTES:
            break  # with more items it is longer still, and takes seconds to make
        best = max(best, made, key=len)
    return best


class Long(Odd):
    """Frames whose lists are as long as may be, one below the other as short as may be."""

    def _size(self) -> int:
        size, self._most = self._most, 1 if self._chance(0.9) else self._most
        return size


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_long_frame_costs_little_time_and_memory(kind: type[msgspec.Struct]) -> None:
    for seed in (0, 1):
        line = long_line(kind, seed)
        begun = time.process_time()
        state, _ = taken([line] * 3)
        state = msgspec.structs.replace(state, findings=diagnose_box(state, NOW, ()))
        state, _ = FleetAlerting(clock=lambda: NOW).judge_box(state, NOW)
        evaluate_checks(state, load_profile(SPEC.profile), NOW)
        assert time.process_time() - begun < 3 * SECONDS
        tracemalloc.start()
        try:
            kept, _ = taken([line] * 3)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 60 * len(line) + (2 << 20), kept.spec.name


def test_the_long_frames_are_long() -> None:
    lengths = {kind.__name__: len(long_line(kind, 0)) for kind in KINDS}
    short = {name for name, length in lengths.items() if length < 10_000}
    assert short <= {"Pong", "BoxEvent", "Hello"}


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_were_turned_over_are_refused_or_taken(seed: int) -> None:
    pick, lines = random.Random(seed), []
    for line in odd_lines(seed, 20):
        changed = bytearray(line)
        for _ in range(pick.choice((1, 3, 20))):
            place = pick.randrange(len(changed))
            changed[place : place + pick.randrange(3)] = pick.randbytes(pick.randrange(3))
        lines += LineSplitter().split_lines(bytes(changed) + b"\n")
    taken(lines)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"t":' * 10_000,
        b'{"t":"sample","boot":"b","seq":1,"at":1,"new":'
        + b'[{"a":' * 20_000
        + b"1"
        + b"}]" * 20_000
        + b"}",
        b'{"t":"pong","id":' + b"9" * 500_000 + b',"at":1}',
        b'{"t":"pong","id":1,"at":1e99999}',
        b'{"t":"pong","id":1,"at":NaN}',
        b'{"t":"event"}',
        b'{"t":"nothing"}',
        b"null",
        b"\xff\xfe{}",
        b'{"t":"log","path":"' + b"p" * 9000 + b'","inode":1,"start":0,"end":1,"lines":[]}',
    ],
    ids=lambda line: line[:24].decode(errors="replace"),
)
def test_what_is_no_frame_is_refused_at_once(line: bytes) -> None:
    begun = time.process_time()
    with pytest.raises((ValueError, RecursionError)):
        read_frame(line)
    assert time.process_time() - begun < SECONDS


def test_a_box_beside_it_is_as_it_would_be_alone() -> None:
    """What one box says moves nothing in another's state: states share no list that either could change."""
    alone = odd_state(7)
    for seed in range(5):
        odd_state(seed)
    assert odd_state(7) == alone
    assert alone.spec == BoxSpec(name="a", host="h", profile="runpod")
