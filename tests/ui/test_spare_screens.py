"""Screens that are mounted in advance: a key opens them, and they show what a newly made one shows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from rgt_tui.ui import THEMES, RgtApp
from rgt_tui.ui.plot import PlotSettings
from rgt_tui.ui.screens import CurvesScreen, FleetAwareScreen
from rgt_tui.ui.widgets import LogPane
from tests.ui.fakes import FakeFleet, demo_state
from tests.ui.snap import running, screen_text, settle, until
from tests.ui.stages import BOX, STATES, rest, staged

PLACES = ("box", "curves", "log")
KEPT = "curve_settings"
"""Attribute of the app: the settings of the last curves screen."""


async def mount_spares(app: RgtApp, pilot: Pilot[None]) -> dict[str, FleetAwareScreen]:
    """Do what an app does once it is warmed up; the tests' apps never are."""
    app.mount_spares()
    spares = app._spares
    await until(
        pilot,
        lambda: (
            list(spares._ready) == list(PLACES)
            and all(screen.is_mounted for screen in spares._ready.values())
        ),
    )
    return dict(spares._ready)


def are_gone(screens: dict[str, FleetAwareScreen]) -> bool:
    """Tell whether all were removed."""
    return not any(screen.is_attached for screen in screens.values())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", STATES)
async def test_it_looks_like_a_new_one(place: str, state: str, tmp_path: Path) -> None:
    async with staged("fleet", state, home=tmp_path / "rgt", size=(120, 34)) as (app, pilot):
        app.open_screen(place, BOX)
        made = await rest(app, pilot)
        app.pop_screen()
        await rest(app, pilot)
        spare = (await mount_spares(app, pilot))[place]
        app.open_screen(place, BOX)
        assert app.screen is spare
        assert await rest(app, pilot) == made


async def test_each_is_used_once_and_the_next_one_comes() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        await mount_spares(app, pilot)
        first, second = (box.spec.name for box in demo_state().boxes[:2])
        app.open_screen("log", first)
        await settle(pilot)
        used, pane = app.screen, app.screen.query_one(LogPane)
        await pilot.press("k")
        assert not pane.cursor.following
        app.pop_screen()
        await settle(pilot)
        await until(pilot, lambda: not used.is_attached)
        app.open_screen("log", second)
        await settle(pilot)
        assert app.screen is not used and second in screen_text(app).splitlines()[0]
        assert app.screen.query_one(LogPane).cursor.following


async def test_another_theme_is_that_of_the_spares_too() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, fleet):
        app.theme_changed_signal.subscribe(app, app._renew_spares)
        old = await mount_spares(app, pilot)
        for theme in (THEMES[1], THEMES[0]):
            app.theme = theme.name
            await settle(pilot)
            await until(pilot, partial(are_gone, old))
            new = await mount_spares(app, pilot)
            app.open_screen("box", fleet.state.boxes[0].spec.name)
            assert app.screen is new["box"]
            await settle(pilot)
            panes = app.screen.query("Pane")
            assert {pane.styles.background.hex.lower() for pane in panes} == {theme.background}
            app.pop_screen()
            await settle(pilot)
            old = {name: new[name] for name in new if name != "box"}


async def test_curves_begin_with_the_settings_of_the_last_ones() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, fleet):
        spare = (await mount_spares(app, pilot))["curves"]
        setattr(app, KEPT, PlotSettings(smooth=0.9))
        app.open_screen("curves", fleet.state.boxes[0].spec.name)
        await settle(pilot)
        assert app.screen is spare
        assert isinstance(spare, CurvesScreen) and spare.settings.smooth == 0.9


async def test_a_spare_that_was_never_shown_changes_no_settings() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        spares = await mount_spares(app, pilot)
        setattr(app, KEPT, PlotSettings(smooth=0.9))
        app._spares.drop_all()
        await until(pilot, partial(are_gone, spares))
        assert getattr(app, KEPT).smooth == 0.9


@pytest.mark.usefixtures("warms_up")
async def test_they_are_mounted_once_the_app_is_warm() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        await until(pilot, lambda: set(app._spares._ready) == set(PLACES))
