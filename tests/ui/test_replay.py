"""The screens on a recording: what was, with its own clock."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from rgt_tui.recordings import FULL, ReplayFleet
from rgt_tui.ui import RgtApp, stopwatch
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
    fleet.hold(True)
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
        assert (fleet.position, fleet.held) == (position, True)
        assert fleet.length is not None and fleet.length > position
        where = f"{stopwatch(position)} of {stopwatch(fleet.length)}"
        assert f"REPLAY {where} ×1 paused" in screen_text(app).splitlines()[-1]
        fleet.set_speed(FULL)
        fleet.hold(False)
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
        assert fleet.held
        assert "×1 paused" in screen_text(app)
        assert "paused; space resumes" in screen_text(app)
        before = fleet.now()
        await pilot.press("plus", "equals_sign", "minus", "plus")
        await settle(pilot)
        assert fleet.speed == 4.0
        assert fleet.now() == before, "held, whatever the speed"
        await pilot.press("space")
        await settle(pilot)
        assert not fleet.held
        assert re.search("REPLAY .*×4", screen_text(app))
        assert app.screen is screen


@pytest.mark.parametrize("way", [(), ("enter",)])
@pytest.mark.parametrize("key", ["space", "plus", "equals_sign", "minus"])
async def test_a_running_fleet_has_no_such_keys(key: str, way: tuple[str, ...]) -> None:
    async with running(keys=way) as (app, pilot, _):
        assert "this is not a replay" not in screen_text(app)
        await pilot.press(key)
        await settle(pilot)
        assert "this is not a replay" in screen_text(app)
        assert "REPLAY" not in screen_text(app)


async def test_nothing_opens_that_would_stop_the_meter_of_a_recorded_box() -> None:
    async with played() as (app, pilot):
        for place, keys in (("fleet", ("D",)), ("box", ("enter", "D"))):
            await pilot.press(*keys)
            await settle(pilot)
            assert getattr(app.screen, "PLACE", "") == place
            assert "this is a replay: nothing can be done to its boxes" in screen_text(app)
