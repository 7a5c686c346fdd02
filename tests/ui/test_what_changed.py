"""The dialog with what differs between two marked moments of a box."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from rgt_tui.model import TIME, Happening, Series
from rgt_tui.store import FleetHistory
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import MarkedMoment, WhatChangedScreen, event_lines
from rgt_tui.ui.widgets import text_of
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.kept import keep_night
from tests.ui.snap import running, screen_text, settle


@asynccontextmanager
async def kept(
    path: Path, *keys: str, size: tuple[int, int] = (120, 34)
) -> AsyncIterator[tuple[RgtApp, Pilot[None], FakeFleet]]:
    """Run the app on a fleet with the history of a night."""
    await asyncio.to_thread(lambda: keep_night(path).close())
    history = FleetHistory(path, clock=lambda: NOW)
    fleet = FakeFleet()
    history.adopt_boxes([box.spec for box in fleet.state.boxes])
    fleet.chronicle = history
    try:
        async with running(lambda: fleet, size=size, keys=keys) as (app, pilot, _):
            await settle(pilot)
            yield app, pilot, fleet
    finally:
        await history.close()


def slow_card(fleet: FakeFleet) -> None:
    box = fleet.state.find_box("vast-demo")
    assert box is not None and box.sample is not None
    card = replace(box.sample.gpus[0], throttle=("hw slowdown",))
    fleet.change("vast-demo", sample=replace(box.sample, gpus=(card,)))


async def test_two_marks_on_a_live_box_compare_what_was_on_screen() -> None:
    async with running(keys=("apostrophe",)) as (app, pilot, fleet):
        assert "marked" in screen_text(app) and not isinstance(app.screen, WhatChangedScreen)
        fleet.advance(60.0)
        slow_card(fleet)
        await settle(pilot)
        await pilot.press("apostrophe")
        await settle(pilot)
        assert isinstance(app.screen, WhatChangedScreen)
        found = app.screen.comparison
        assert found is not None and found.causes[0].what == "GPU 0 throttled"
        text = screen_text(app)
        assert "what changed on vast-demo" in text and "hw slowdown" in text and "1m00" in text
        await pilot.press("escape", "apostrophe")
        assert not isinstance(app.screen, WhatChangedScreen)  # the next mark is a first one again


async def test_a_mark_of_another_box_begins_again() -> None:
    async with running(keys=("apostrophe", "j")) as (app, pilot, fleet):
        fleet.advance(60.0)
        await pilot.press("apostrophe")
        await settle(pilot)
        assert not isinstance(app.screen, WhatChangedScreen)
        marked = getattr(app, "marked_moment", None)
        assert isinstance(marked, MarkedMoment) and marked.box != "vast-demo"


async def test_two_events_of_the_journal_are_read_from_the_history(tmp_path: Path) -> None:
    async with kept(tmp_path / "h.db", "J", "g", "apostrophe") as (app, pilot, _):
        await pilot.press("j", "apostrophe")
        await settle(pilot)
        assert isinstance(app.screen, WhatChangedScreen)
        assert app.screen.comparison is not None
        text = screen_text(app)
        assert "vast-demo" in text and "no inodes left" in text


async def test_a_moment_of_the_time_machine_and_now(tmp_path: Path) -> None:
    async with kept(tmp_path / "h.db", "T", "apostrophe") as (app, pilot, _):
        marked = getattr(app, "marked_moment", None)
        assert isinstance(marked, MarkedMoment) and marked.at < NOW
        await pilot.press("left", "left")
        await settle(pilot)
        await pilot.press("apostrophe")
        await settle(pilot)
        assert isinstance(app.screen, WhatChangedScreen) and app.screen.comparison is not None


async def test_a_step_of_a_curve_is_a_moment() -> None:
    fleet = FakeFleet()
    box = fleet.state.find_box("vast-demo")
    assert box is not None
    runs = []
    for each in box.runs:
        xs = [step for step, _ in each.series["loss"]]
        times = Series(xs, [NOW - 1000.0 + step for step in xs])
        runs.append(replace(each, series={**each.series, TIME: times}))
    fleet.change("vast-demo", runs=tuple(runs))
    keys = ("c", "left_square_bracket", "apostrophe")
    async with running(lambda: fleet, keys=keys) as (app, pilot, _):
        first = getattr(app, "marked_moment", None)
        assert isinstance(first, MarkedMoment) and first.state is None
        for _ in range(8):
            await pilot.press("left_square_bracket")
        await pilot.press("apostrophe")
        await settle(pilot)
        assert isinstance(app.screen, WhatChangedScreen)
        assert "no history is kept here" in screen_text(app)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 50)])
async def test_it_fits_and_can_be_copied(size: tuple[int, int]) -> None:
    async with running(size=size, keys=("apostrophe",)) as (app, pilot, fleet):
        fleet.advance(60.0)
        slow_card(fleet)
        await settle(pilot)
        await pilot.press("apostrophe")
        await settle(pilot)
        assert "throttled" in screen_text(app)
        assert max(map(len, screen_text(app).splitlines())) <= size[0]
        await pilot.press("y")
        assert "copied" in screen_text(app)


def test_the_events_between_are_chosen_by_their_level_not_by_a_word() -> None:
    rows = (
        Happening(1, NOW, "vast", "pushups-a started", about="run:pushups-a"),
        Happening(2, NOW, "vast", "lstm-b 失败", "error", "run:lstm-b"),
    )
    text = "\n".join(text_of(line) for line in event_lines(rows, 60))
    assert "lstm-b 失败" in text
    assert "pushups-a" not in text
