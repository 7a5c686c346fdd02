"""Garbage is looked for while nobody types, and the collector is left as it was found."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from rich.console import RenderableType
from textual import events
from textual.screen import Screen

from rgt_tui.cli import dashboard
from rgt_tui.fleet import FleetSource
from rgt_tui.ui import GARBAGE_PACES, QuietGarbage, RgtApp, key_turns
from rgt_tui.ui.screens import BoxScreen
from tests.ui.snap import running, settle, until


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
    clock.at += GARBAGE_PACES.full_s - 1
    assert not garbage.collect_if_due()
    clock.at += 1
    assert garbage.collect_if_due()
    assert not garbage.collect_if_due(), "the next one has its own time"


def test_no_look_while_somebody_types(garbage: QuietGarbage, clock: Clock) -> None:
    clock.at += GARBAGE_PACES.full_s
    garbage.note_input()
    clock.at += GARBAGE_PACES.rest_s - 0.1
    assert not garbage.collect_if_due()
    clock.at += 0.1
    assert garbage.collect_if_due()


def test_who_never_rests_has_it_all_the_same_at_last(garbage: QuietGarbage, clock: Clock) -> None:
    while clock.at < 1000 + GARBAGE_PACES.latest_s - 1:
        clock.at += 1
        garbage.note_input()
        assert not garbage.collect_if_due()
    clock.at += 1
    garbage.note_input()
    assert garbage.collect_if_due()


def test_a_look_takes_away_what_holds_itself(garbage: QuietGarbage, clock: Clock) -> None:
    gone = weakref.ref(Knot())
    gc.collect(1)  # it has outlived the smaller looks where one of them came in between
    knot = Knot()
    kept = weakref.ref(knot)
    clock.at += GARBAGE_PACES.full_s
    assert garbage.collect_if_due()
    assert gone() is None
    assert kept() is knot


def test_what_is_left_at_the_first_whole_look_is_passed_over_and_nothing_that_comes_later(
    garbage: QuietGarbage, clock: Clock
) -> None:
    loaded = [[number] for number in range(5000)]
    before = gc.get_freeze_count()
    clock.at += GARBAGE_PACES.full_s
    assert garbage.collect_if_due()
    passed_over = gc.get_freeze_count()
    assert passed_over >= before + len(loaded)
    later = [[number] for number in range(5000)]
    gone = weakref.ref(Knot())
    clock.at += GARBAGE_PACES.full_s
    assert garbage.collect_if_due()
    assert gone() is None
    assert gc.get_freeze_count() < passed_over + len(later)


def test_nothing_is_looked_through_before_the_beginning_and_after_the_end(clock: Clock) -> None:
    looks: list[None] = []
    garbage = QuietGarbage(clock, lambda: looks.append(None))
    clock.at += GARBAGE_PACES.latest_s
    assert not garbage.collect_if_due()
    garbage.begin()
    garbage.end()
    clock.at += GARBAGE_PACES.latest_s
    assert not garbage.collect_if_due()
    assert looks == []


def test_no_look_at_all_comes_before_a_key_is_painted(garbage: QuietGarbage) -> None:
    garbage.delay_small()
    assert not gc.isenabled()
    garbage.resume_small()
    assert gc.isenabled()


def test_keys_without_a_pause_put_the_small_looks_off_for_a_while_only(
    garbage: QuietGarbage, clock: Clock
) -> None:
    garbage.delay_small()
    clock.at += GARBAGE_PACES.small_s - 0.1
    garbage.delay_small()
    assert not gc.isenabled()
    clock.at += 0.1
    garbage.delay_small()
    assert gc.isenabled()
    garbage.delay_small()
    assert not gc.isenabled(), "the next keys have their own time"


def test_before_the_beginning_nothing_is_put_off_and_after_the_end_nothing_stays_so(
    clock: Clock,
) -> None:
    garbage = QuietGarbage(clock)
    garbage.delay_small()
    assert gc.isenabled()
    garbage.begin()
    garbage.delay_small()
    garbage.end()
    assert gc.isenabled()
    garbage.delay_small()
    assert gc.isenabled()


async def test_the_collector_stands_still_from_a_key_until_its_paint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_turns, "KEY_PACES", replace(key_turns.KEY_PACES, longest_s=120.0))
    async with running() as (app, pilot, _):
        await settle(pilot)
        stood: list[bool] = []
        display = app._display

        def record(screen: Screen[object], update: RenderableType | None) -> None:
            if isinstance(screen, BoxScreen) and update is not None:
                stood.append(not gc.isenabled())
            display(screen, update)

        monkeypatch.setattr(app, "_display", record)
        app.post_message(events.Key("enter", "\r"))
        await until(pilot, lambda: bool(stood))
        assert stood[0]
        await until(pilot, gc.isenabled)


async def test_while_the_app_runs_no_whole_look_comes_by_itself_and_after_it_all_is_as_before() -> (
    None
):
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    async with running() as (app, pilot, _):
        assert gc.get_threshold() == (before[0], GARBAGE_PACES.middle, GARBAGE_PACES.never)
        assert gc.get_freeze_count() > frozen
        await pilot.press("j")
        assert app._garbage._typed_at > 0, "a key puts a look off"
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def test_what_a_start_makes_is_passed_over_and_the_app_is_looked_through_from_the_first_frame_on() -> (
    None
):
    gc.disable()
    try:
        async with running() as (app, _, _):
            assert gc.isenabled()
            assert gc.get_freeze_count() > 0
            assert app.is_running
        assert gc.isenabled()
    finally:
        gc.enable()


def test_the_dashboard_is_loaded_without_looking_for_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it is kept, and to walk through it again and again took a tenth of the time until the first frame."""
    looking = []

    async def ends_at_once(app: RgtApp) -> None:
        looking.append(gc.isenabled())

    class Terminal:
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            """Say farewell to nobody."""

    monkeypatch.setattr(RgtApp, "run_async", ends_at_once)
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    try:
        status = dashboard.run_dashboard(
            _never, title="rgt", hint=None, farewell="bye", without="`rgt status`"
        )
        assert (status, looking) == (0, [False])
    finally:
        gc.enable()


def _never() -> FleetSource:
    raise AssertionError("no frame, no fleet")
