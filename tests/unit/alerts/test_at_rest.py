"""What is at rest is not read again as long as all that it is made of is the same: nobody may be able to tell."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from rgt_tui.health import (
    ALERTS,
    BY_ID,
    HANDBOOK,
    SOURCES,
    AlertState,
    BoxFacts,
    Condition,
    HandbookEntry,
    RememberedBox,
    facts_of,
    gather_event_news,
    reuse_facts,
    source_values,
    step_alerts,
)
from rgt_tui.model import BoxState, LinkState, Sample
from tests.unit.alerts.test_rules import CASES
from tests.unit.triage.builders import NOW, box

RESTING = tuple(kind for kind in ALERTS if kind.of)
READ = tuple(replace(kind, of=frozenset(), needs=None) for kind in ALERTS)
"""The same rows, each read at every look."""
STATES = tuple(
    box(**{key: value for key, value in over.items() if key != "memory"})
    for bad, _, good in CASES.values()
    for over in (bad, good)
)
PROVED = tuple(entry for entry in HANDBOOK.values() if entry.prove is not None)


SOME = (*STATES, *[BoxState(spec=STATES[0].spec)] * (len(STATES) // 3))
"""Of which some have nothing yet."""


def mixed(seed: int, count: int) -> list[BoxFacts]:
    """Views of boxes of which each part may be that of another one."""
    chance, found = random.Random(seed), []
    for _ in range(count):
        parts = {
            name: getattr(chance.choice(SOME), name) for name in BoxState.__struct_fields__[1:]
        }
        if parts["sample"] is not None:
            names = ("gpus", "procs", "disks", "mem", "cpu", "unseen")
            told = {name: getattr(chance.choice(SAMPLES), name) for name in names}
            parts["sample"] = replace(parts["sample"], **told)
        found.append(
            facts_of(replace(STATES[0], **parts), NOW + chance.choice((0.0, 1.0, 200.0, 4000.0)))
        )
    return found


SAMPLES = tuple(state.sample for state in STATES if state.sample is not None)
VIEWS = (*(facts_of(state, NOW) for state in STATES), *mixed(7, 1500))
PATHS = {
    "news": {"news"},
    "off": {"off"},
    "past": {"memory.past"},
    "autostop": {"box.sample", "box.sample.autostop"},
    "lease": {"box.sample", "box.sample.lease"},
}
"""What is read of the facts, by the name of the source; of any other it is the field of the box."""


class Spied:
    """Notes what is read of something."""

    def __init__(self, real: object, path: str, read: set[str]) -> None:
        self._real, self._path, self._read = real, path, read

    def __getattr__(self, name: str) -> Any:
        made = getattr(type(self._real), name, None)
        if isinstance(made, property) and made.fget is not None:
            return made.fget(self)
        value, path = getattr(self._real, name), self._path + name
        if isinstance(value, BoxState | RememberedBox):
            return Spied(value, f"{path}.", self._read)
        self._read.add(path)
        return Spied(value, f"{path}.", self._read) if isinstance(value, Sample) else value


def live(state: BoxState, now: float) -> BoxState:
    """The state, with figures of now where it had them."""
    return replace(state, sample_at=now) if facts_of(state, NOW).live else state


@pytest.mark.parametrize("kind", RESTING, ids=lambda kind: kind.id)
def test_a_row_at_rest_is_made_of_nothing_but_what_it_names(kind: Condition) -> None:
    allowed = set().union(*(PATHS.get(name, {f"box.{name}"}) for name in kind.of))
    rested = 0
    for state in STATES:
        if step_alerts(AlertState(), state, NOW, (kind,)).book.machines:
            continue  # it is read at every look
        read: set[str] = set()
        view: Any = Spied(facts_of(state, NOW), "", read)
        kind.read(view)
        assert read <= allowed, kind.id
        rested += 1
    assert rested > len(STATES) // 2


NEEDING = tuple(kind for kind in ALERTS if kind.needs is not None)


@pytest.mark.parametrize("kind", NEEDING, ids=lambda kind: kind.id)
def test_a_row_reads_nothing_where_what_it_needs_is_not_there(kind: Condition) -> None:
    assert kind.needs is not None
    lacking = [view for view in VIEWS if not kind.needs(view)]
    assert not any(kind.read(view) for view in lacking)
    assert len(lacking) > 20 and any(kind.read(view) for view in VIEWS)  # both are seen


@pytest.mark.parametrize("entry", PROVED, ids=lambda entry: entry.id)
def test_an_entry_is_not_proved_where_what_it_needs_is_not_there(entry: HandbookEntry) -> None:
    assert entry.needs is not None and entry.prove is not None
    lacking = [view for view in VIEWS if not entry.needs(view)]
    assert not any(list(entry.prove(view)) for view in lacking)
    assert len(lacking) > 20


@pytest.mark.parametrize("seed", range(4))
def test_nobody_can_tell_what_was_not_read_again(seed: int) -> None:
    chance = random.Random(seed)
    now, state = NOW, STATES[1]
    skipping = reading = AlertState()
    for _ in range(300):
        now += chance.choice((0.5, 5.0, 5.0, 31.0, 130.0))
        kind = chance.choice(("same", "same", "piece", "other", "stale"))
        if kind == "other":
            state = chance.choice(STATES)
        elif kind == "piece":
            name = chance.choice((*BoxState.__struct_fields__[1:], "link", "meter", "queues"))
            state = replace(state, **{name: getattr(chance.choice(STATES), name)})
        seen = state if kind == "stale" else live(state, now)
        ours, plain = step_alerts(skipping, seen, now), step_alerts(reading, seen, now, READ)
        assert (ours.raised, ours.cleared) == (plain.raised, plain.cleared)
        assert ours.book.machines == plain.book.machines
        skipping, reading = ours.book, plain.book


@pytest.mark.parametrize(
    ("id_", "over"), [("asking", {"link": LinkState.ASKING}), ("clock-skew", {"clock_skew": 99.0})]
)
def test_what_has_to_last_begins_with_its_second_although_nothing_else_changes(
    id_: str, over: dict[str, Any]
) -> None:
    state, book, now = box(since=NOW, **over), AlertState(), NOW
    while not book.machines.get(id_) or book.machines[id_][""].alert is None:
        book, now = step_alerts(book, live(state, now), now).book, now + 1.0
    assert now - 1.0 - NOW == BY_ID[id_].hold_s


def test_figures_that_are_of_now_again_are_read_again() -> None:
    state = box(clock_skew=99.0, sample_at=NOW - 900)
    book = step_alerts(AlertState(), state, NOW).book
    assert "clock-skew" not in book.machines
    book = step_alerts(book, replace(state, sample_at=NOW + 5), NOW + 5).book
    assert "clock-skew" in book.machines


def test_the_sources_are_what_they_are_called() -> None:
    assert sorted(SOURCES) == list(SOURCES)
    assert set().union(*(kind.of for kind in RESTING)) <= set(SOURCES)
    for state in STATES:
        view = facts_of(state, NOW)
        for name, value in zip(SOURCES, source_values(view), strict=True):
            (path,) = PATHS.get(name, {f"box.{name}"}) - {"box.sample"}
            wanted: Any = view
            for part in path.split("."):
                wanted = getattr(wanted, part) if wanted is not None else None
            assert value is wanted, name


def test_what_was_worked_out_of_a_box_is_not_taken_for_another() -> None:
    memory = RememberedBox()
    for first in STATES[::7]:
        like = facts_of(first, NOW)
        for state in STATES:
            mixed = replace(first, findings=state.findings, life=state.life, events=state.events)
            for other, now in ((state, NOW), (mixed, NOW), (first, NOW + 3600.0)):
                news = gather_event_news(other.events)
                made = reuse_facts(like, other, now, memory, news)
                assert asdict(made) == asdict(facts_of(other, now, memory, news))


def test_the_facts_are_made_of_what_is_compared() -> None:
    from rgt_tui.health.facts import _READ

    read: set[str] = set()
    for state in STATES:
        spied: Any = Spied(state, "", read)
        made: BoxFacts = facts_of(spied, NOW)
        assert made.box is spied
    fields = {path.partition(".")[0] for path in read}
    assert fields - {"events"} == set(_READ)
