"""Garbage is looked for while nobody types, and the collector is left as it was found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from rgt_tui.ui.key_turns import EVERY_SECONDS, LATEST_SECONDS, MIDDLE, NEVER, REST_SECONDS, QuietGarbage
from tests.ui.snap import running


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def garbage(clock: Clock) -> Iterator[QuietGarbage]:
    made = QuietGarbage(clock)
    made.begin()
    yield made
    made.end()


class Knot:
    """Holds itself: nothing but the collector takes it away."""

    def __init__(self) -> None:
        self.itself = self


def test_no_look_before_its_time(garbage: QuietGarbage, clock: Clock) -> None:
    clock.at += EVERY_SECONDS - 1
    assert not garbage.look()
    clock.at += 1
    assert garbage.look()
    assert not garbage.look(), "the next one has its own time"


def test_no_look_while_somebody_types(garbage: QuietGarbage, clock: Clock) -> None:
    clock.at += EVERY_SECONDS
    garbage.typed()
    clock.at += REST_SECONDS - 0.1
    assert not garbage.look()
    clock.at += 0.1
    assert garbage.look()


def test_who_never_rests_has_it_all_the_same_at_last(garbage: QuietGarbage, clock: Clock) -> None:
    while clock.at < 1000 + LATEST_SECONDS - 1:
        clock.at += 1
        garbage.typed()
        assert not garbage.look()
    clock.at += 1
    garbage.typed()
    assert garbage.look()


def test_a_look_takes_away_what_holds_itself(garbage: QuietGarbage, clock: Clock) -> None:
    gone = weakref.ref(Knot())
    gc.collect(1)  # it has outlived the smaller looks where one of them came in between
    knot = Knot()
    kept = weakref.ref(knot)
    clock.at += EVERY_SECONDS
    assert garbage.look()
    assert gone() is None
    assert kept() is knot


def test_nothing_is_looked_through_before_the_beginning_and_after_the_end(clock: Clock) -> None:
    looks: list[None] = []
    garbage = QuietGarbage(clock, lambda: looks.append(None))
    clock.at += LATEST_SECONDS
    assert not garbage.look()
    garbage.begin()
    garbage.end()
    clock.at += LATEST_SECONDS
    assert not garbage.look()
    assert looks == []


async def test_while_the_app_runs_no_whole_look_comes_by_itself_and_after_it_all_is_as_before() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    async with running() as (app, pilot, _):
        assert gc.get_threshold() == (before[0], MIDDLE, NEVER)
        assert gc.get_freeze_count() > frozen
        await pilot.press("j")
        assert app._garbage._typed_at > 0, "a key puts a look off"
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
