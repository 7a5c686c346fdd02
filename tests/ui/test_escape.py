"""`esc` in an entry or in a side pane gives the keys back to the list; the next one closes the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import HandbookScreen, PlatformScreen
from rgt_tui.ui.widgets import Pane
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from tests.ui.fakes import demo_state
from tests.ui.snap import running, settle
from tests.ui.stages import staged


async def press(app: RgtApp, pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def picked(app: RgtApp) -> object:
    screen = app.screen
    if isinstance(screen, HandbookScreen):
        return screen.picked_page
    return screen.query_one(FleetTable).picked_key


@pytest.mark.parametrize("opened", [(), ("H",)], ids=["fleet", "handbook"])
@pytest.mark.parametrize(
    "left", [("tab",), ("tab", "slash"), ("slash",), ("tab", "slash", "a", "enter", "tab")]
)
async def test_after_escape_the_arrow_keys_move_the_list(
    opened: tuple[str, ...], left: tuple[str, ...]
) -> None:
    async with running(demo_state(), size=(200, 50), keys=opened) as (app, pilot, _):
        screen = app.screen
        await press(app, pilot, *left)
        assert isinstance(app.focused, Pane | Input)
        await press(app, pilot, "escape")
        assert app.screen is screen and app.focused is None
        before = picked(app)
        await press(app, pilot, "down")
        assert picked(app) != before
        if "enter" in left:  # the filter was kept: one more to clear it
            await press(app, pilot, "escape")
        await press(app, pilot, "escape")
        assert (app.screen is screen) is (not opened), "the first screen never closes"


async def test_on_the_box_screen_the_log_has_the_keys_again() -> None:
    async with running(demo_state(), size=(200, 50), keys=("enter",)) as (app, pilot, _):
        screen = app.screen
        await press(app, pilot, "tab")
        assert isinstance(app.focused, Pane)
        await press(app, pilot, "escape")
        assert app.screen is screen and app.focused is screen.query_one("#log")
        await press(app, pilot, "escape")
        assert app.screen is not screen


async def test_on_a_small_box_screen_the_past_has_them_while_it_hides_the_log() -> None:
    async with running(demo_state(), size=(80, 24), keys=("enter",)) as (app, pilot, _):
        screen = app.screen
        while screen.query_one("#log").display:
            await press(app, pilot, "h")
        await press(app, pilot, "tab")
        assert app.focused is not screen.query_one("#past")
        await press(app, pilot, "escape")
        assert app.screen is screen and app.focused is screen.query_one("#past")
        await press(app, pilot, "escape")
        assert app.screen is not screen


async def test_on_the_platform_page_the_first_column_has_the_keys_again() -> None:
    async with running(demo_state(), size=(200, 50), keys=("i",)) as (app, pilot, _):
        screen = app.screen
        assert isinstance(screen, PlatformScreen)
        await press(app, pilot, "tab")
        assert app.focused is screen.query_one("#more")
        await press(app, pilot, "escape")
        assert app.screen is screen and app.focused is screen.query_one("#page")
        await press(app, pilot, "escape")
        assert app.screen is not screen


@pytest.mark.parametrize(
    ("place", "entry"),
    [
        ("log", "slash"), ("log", "ampersand"), ("alerts", "U"),
        ("journal", "slash"), ("help", "slash"),
    ],
)  # fmt: skip
async def test_escape_in_an_entry_leaves_the_screen_open_and_the_next_closes_it(
    place: str, entry: str, tmp_path: Path
) -> None:
    async with staged(place, "live", home=tmp_path) as (app, pilot):
        screen = app.screen
        main = app.focused
        if place == "log":  # the stage has searched
            await press(app, pilot, "escape")
        await press(app, pilot, entry)
        assert isinstance(app.focused, Input)
        await press(app, pilot, "x", "escape")
        assert app.screen is screen and app.focused is main
        await press(app, pilot, "down", "escape")
        assert app.screen is not screen
