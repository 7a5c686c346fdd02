"""The screens on a recording: what was, with its own clock."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from rgt_tui.recordings import FULL, ReplayFleet
from rgt_tui.ui import RgtApp, format_position_time
from tests.ui.snap import running, screen_text, settle

THREE = Path(__file__).parents[1] / "fixtures" / "recordings" / "three-boxes.jsonl.gz"


@contextlib.asynccontextmanager
async def played() -> AsyncIterator[tuple[RgtApp, Pilot[None]]]:
    """The app at the end of a recording of three boxes."""
    fleet = ReplayFleet(THREE, speed=FULL)
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        await asyncio.wait_for(fleet.over.wait(), 60)
        app.tick(force=True)
        await settle(pilot)
        yield app, pilot


async def test_the_fleet_screen_shows_what_was_recorded() -> None:
    async with played() as (app, pilot):
        text = screen_text(app)
        for words in ("autodl-demo", "runpod-demo", "vast-demo", "inodes", "SIM"):
            assert words in text
        await pilot.press("enter")
        await settle(pilot)
        text = screen_text(app)
        assert "vast-demo" in text  # the one in trouble comes first
        assert "/workspace" in text


async def test_a_replay_that_is_held_stands_still() -> None:
    fleet = ReplayFleet(THREE, speed=1.0, skip=30.0)
    fleet.set_playback_paused(True)
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        reached = asyncio.Event()
        fleet.subscribe(lambda state: reached.set() if fleet.position > 29 else None)
        await asyncio.wait_for(reached.wait(), 60)
        app.tick(force=True)
        await settle(pilot)
        first, position = screen_text(app), fleet.position
        app.tick(force=True)
        await settle(pilot)
        assert screen_text(app) == first
        assert (fleet.position, fleet.is_playback_paused) == (position, True)
        assert fleet.length is not None and fleet.length > position
        where = f"{format_position_time(position)} of {format_position_time(fleet.length)}"
        assert f"REPLAY {where} ×1 paused" in screen_text(app).splitlines()[-1]
        fleet.set_speed(FULL)
        fleet.set_playback_paused(False)
        await asyncio.wait_for(fleet.over.wait(), 60)
        app.tick(force=True)
        await settle(pilot)
        assert screen_text(app) != first


@pytest.mark.parametrize("place", ["fleet", "box"])
async def test_its_time_can_be_held_and_sped_up(place: str) -> None:
    fleet = ReplayFleet(THREE, speed=1.0, skip=30.0)
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        await settle(pilot)
        await pilot.press(*(("enter",) if place == "box" else ()))
        await settle(pilot)
        screen = app.screen
        assert getattr(screen, "PLACE", "") == place
        assert re.search(r"REPLAY 0:\d\d.* ×1", screen_text(app))
        await pilot.press("space")
        await settle(pilot)
        assert fleet.is_playback_paused
        assert "×1 paused" in screen_text(app)
        assert "paused; space resumes" in screen_text(app)
        before = fleet.now()
        await pilot.press("plus", "equals_sign", "minus", "plus")
        await settle(pilot)
        assert fleet.speed == 4.0
        assert fleet.now() == before, "held, whatever the speed"
        await pilot.press("space")
        await settle(pilot)
        assert not fleet.is_playback_paused
        assert re.search("REPLAY .*×4", screen_text(app))
        assert app.screen is screen


@contextlib.asynccontextmanager
async def paused(at: float) -> AsyncIterator[tuple[RgtApp, Pilot[None], ReplayFleet]]:
    """The app on a paused replay of three boxes, at a position."""
    fleet = ReplayFleet(THREE, speed=1.0, skip=at)
    fleet.set_playback_paused(True)
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        await came_to(fleet, at)
        app.tick(force=True)
        await settle(pilot)
        yield app, pilot, fleet


async def came_to(fleet: ReplayFleet, position: float) -> None:
    """Wait until a paused replay shows a position."""
    async with asyncio.timeout(60):
        while abs(fleet.position - position) > 1e-3 or abs(fleet.state.at - fleet.now()) > 5.0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("way", [(), ("enter",)])
async def test_keys_go_a_minute_back_and_on(way: tuple[str, ...]) -> None:
    async with paused(61.0) as (app, pilot, fleet):
        await pilot.press(*way)
        await settle(pilot)
        late, screen = fleet.state, app.screen
        await pilot.press("comma")
        await came_to(fleet, 1.0)
        app.tick(force=True)
        await settle(pilot)
        assert "REPLAY 0:01" in screen_text(app)
        assert "inodes of /workspace" not in screen_text(app), "a problem of later"
        assert app.screen is screen
        await pilot.press("full_stop")
        await came_to(fleet, 61.0)
        app.tick(force=True)
        await settle(pilot)
        assert fleet.state == late
        assert "REPLAY 1:01" in screen_text(app)


async def test_t_goes_to_a_time_of_the_recording() -> None:
    async with paused(10.0) as (app, pilot, fleet):
        clock = time.strftime("%H:%M:%S", time.localtime(fleet.started + 31.0))
        await pilot.press("T", *clock, "enter")
        await came_to(fleet, 31.0 - fleet.started % 1)
        await pilot.press("T", "1", "m", "enter")
        await came_to(fleet, 60.0)
        await pilot.press("T", "x", "enter")
        await settle(pilot)
        assert "'x' is not a time" in screen_text(app)
        assert "filter:" not in screen_text(app)
        await pilot.press("T", "escape")
        await settle(pilot)
        assert fleet.position == 60.0


async def test_the_journal_goes_to_an_event_of_the_recording() -> None:
    async with paused(60.0) as (_, pilot, fleet):
        await pilot.press("J")
        await settle(pilot)
        await pilot.press("home", "T")
        first = fleet.state.events[0]
        await came_to(fleet, first.at - fleet.started)
        assert fleet.state.events[0] == first


@pytest.mark.parametrize("way", [(), ("enter",)])
@pytest.mark.parametrize("key", ["plus", "equals_sign", "minus", "comma", "full_stop"])
async def test_a_running_fleet_has_no_such_keys(key: str, way: tuple[str, ...]) -> None:
    async with running(keys=way) as (app, pilot, _):
        assert "this is not a replay" not in screen_text(app)
        await pilot.press(key)
        await settle(pilot)
        assert "this is not a replay" in screen_text(app)
        assert "REPLAY" not in screen_text(app)


async def test_where_there_is_no_replay_space_marks_and_holds_nothing() -> None:
    async with running(keys=("space",)) as (app, pilot, _):
        await settle(pilot)
        assert "1 marked" in screen_text(app) and "REPLAY" not in screen_text(app)
    async with running(keys=("enter", "space")) as (app, pilot, _):
        await settle(pilot)
        assert "this is not a replay" in screen_text(app)


async def test_nothing_opens_that_would_stop_the_meter_of_a_recorded_box() -> None:
    async with played() as (app, pilot):
        for place, keys in (("fleet", ("D",)), ("box", ("enter", "D"))):
            await pilot.press(*keys)
            await settle(pilot)
            assert getattr(app.screen, "PLACE", "") == place
            assert "this is a replay: nothing can be done to its boxes" in screen_text(app)
