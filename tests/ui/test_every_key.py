"""Keys that many screens share, pressed on each of them: where they lead, how far they move, what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot

from rgt_tui.model import LinkState
from rgt_tui.ui import APP, MOVE, SCREENS, Command, RgtApp, screen_class
from rgt_tui.ui.screens import (
    FirstContactScreen,
    FleetAwareScreen,
    HelpScreen,
    LifecycleScreen,
    LogKeys,
    PlatformPage,
    PlatformScreen,
)
from rgt_tui.ui.widgets import LineWidget, Pane, text_of
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from tests.ui.snap import running, settle, until
from tests.ui.stages import BOX, rest, staged, staged_fleet

LEADS = {
    "box.log": "log",
    "box.curves": "curves",
    "box.phases": "phases",
    "box.teardown": "teardown",
    "box.platform": "platform",
    "box.alerts": "alerts",
    "box.handbook": "handbook",
    "past.journal": "journal",
    "past.machine": "time machine",
    "fleet.transfers": "transfers",
    "fleet.audit": "audit",
    "fleet.night": "night",
}
"""By command, which screen its key opens."""
INSTEAD = {
    ("journal", "past.journal"): "this is the journal",
    ("time machine", "past.machine"): "this is the time machine",
    ("welcome", "past.journal"): "the fleet has not started yet",
    ("welcome", "past.machine"): "the fleet has not started yet",
}
"""What is said where there is nowhere to go."""
PLACES = sorted(SCREENS)


def shared(place: str, ids: set[str]) -> list[tuple[Command, str]]:
    """Return those commands of a screen that others have, too, with each of their keys."""
    made = {command.id: command for command in screen_class(place).commands()}
    return [(command, key) for id_, command in made.items() if id_ in ids for key in command.keys]


def below(app: RgtApp) -> str:
    """Return what the event line says."""
    return text_of(app.screen.query_one("#event", LineWidget).shown_lines[0]).strip()


async def back_to(app: RgtApp, pilot: Pilot[None], screen: object) -> None:
    while app.screen is not screen:
        app.pop_screen()
    await rest(app, pilot)


def about(app: RgtApp) -> str | None:
    """Return the box that the keys of the screen on top act on."""
    return cast("FleetAwareScreen", app.screen).target_box


@pytest.mark.parametrize("place", PLACES)
async def test_a_key_that_opens_a_screen_opens_it_of_the_box_that_is_selected(
    place: str, state_home: Path
) -> None:
    keys = shared(place, set(LEADS))
    if not keys:
        assert place == "teardown", "a dialog leads nowhere else"
        return
    async with staged(place, "live", home=state_home, size=(100, 30)) as (app, pilot):
        screen = app.screen
        for command, key in keys:
            box = None if place == "welcome" else about(app)
            await pilot.press(key)
            await rest(app, pilot)
            said = INSTEAD.get((place, command.id))
            if said is not None:
                assert app.screen is screen and below(app).startswith(said), key
                continue
            opened: Any = app.screen
            assert type(opened) is screen_class(LEADS[command.id]), (key, below(app))
            wanted = box
            if command.id.startswith(("past.", "fleet.")):
                wanted = (
                    cast("FleetAwareScreen", screen).box_name
                    if command.id == "past.journal"
                    else None
                )
            elif command.id in ("box.alerts", "box.handbook") and place in (
                "fleet",
                "time machine",
            ):
                wanted = None  # a screen of all boxes leads to the alerts of all
            assert opened.box_name == wanted, f"{key} opened {opened} of {opened.box_name}"
            if place == "time machine" and command.id.startswith("box."):
                assert opened.fleet.shows_past_moment, "as it stood then"
            await back_to(app, pilot, screen)


def test_every_key_that_opens_a_screen_is_named() -> None:
    """A new one is to be pressed here."""
    opening = ("open_for_box(", "open_all(", "open_past(")
    found = {
        command.id
        for place in PLACES
        for command in screen_class(place).commands()
        if command.textual_action.startswith(opening)
    }
    assert found == set(LEADS)


def test_a_means_alerts_on_every_screen_that_shows_the_fleet() -> None:
    """What the key does there is pressed above."""
    for place in set(PLACES) - {"teardown", "welcome", "first contact", "alerts"}:
        ids = {command.id for command, key in shared(place, set(LEADS)) if key == "a"}
        assert ids == {"box.alerts"}, place


@pytest.mark.parametrize("place", PLACES)
async def test_keys_of_all_screens_do_on_each_what_they_do(
    place: str, state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fleet = staged_fleet(place, "live")
    async with staged(place, "live", home=state_home, size=(100, 30), fleet=fleet) as (app, pilot):
        fleet.advance(5.0)
        screen = app.screen
        has = {command.id for command in screen_class(place).commands()}
        assert has >= {"app.help"}
        keys = {command.id: command.keys if command.id in has else () for command in APP}
        for key in keys["app.theme"]:
            theme = app.theme
            await pilot.press(key)
            await rest(app, pilot)
            assert app.theme != theme and app.screen is screen
        for key in keys["app.screenshot"]:
            await pilot.press(key)
            await rest(app, pilot)
            (file,) = tmp_path.glob("rgt-*.svg")
            assert "<svg" in file.read_text() and app.screen is screen
        for key in keys["app.palette"]:
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, CommandPalette))
            await back_to(app, pilot, screen)
        for key in keys["app.help"]:
            await pilot.press(key)
            await rest(app, pilot)
            assert isinstance(app.screen, HelpScreen), key
            title = text_of(app.screen.help_panel.shown_lines[0])
            assert f"{getattr(screen, 'PLACE', '')}: keys" in title
            await back_to(app, pilot, screen)
        assert fleet.stopped == 0
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert fleet.stopped == 1 or place == "welcome"
        assert app._exit


@pytest.mark.full_matrix
@pytest.mark.parametrize("key", ["q", "escape"])
@pytest.mark.parametrize("place", PLACES)
async def test_one_goes_back_with_q_and_esc(place: str, key: str, state_home: Path) -> None:
    fleet = staged_fleet(place, "live")
    async with staged(place, "live", home=state_home, size=(100, 30), fleet=fleet) as (app, pilot):
        fleet.advance(5.0)
        screen, under = app.screen, app.screen_stack[-2] if len(app.screen_stack) > 1 else None
        for _ in range(4):  # what is to be cleared first: a search, a crosshair, a smoothing
            if app.screen is screen:
                await pilot.press(key)
                await rest(app, pilot)
        if place in ("fleet", "welcome") or (place == "teardown" and key == "q"):
            assert app.screen is screen, "there is nothing to go back to; a letter is typed"
        else:
            assert app.screen is under
        if place == "fleet" and key == "q":
            assert below(app) == "ctrl+q quits; the boxes keep running"
        if place == "welcome":
            assert below(app).startswith("choose with enter")


def of_list(screen: Any) -> int:
    return cast("int", screen.main_list.selected_index)


def of_table(screen: Any) -> int:
    table = screen.query_one(FleetTable)
    return int(table.row_names.index(table.picked_key))


def of_log(screen: Any) -> int:
    pane = cast("LogKeys", screen).log_pane
    rows = pane.shown_rows
    assert rows is not None
    here = pane.cursor.current_row(rows)
    return len(rows) - 1 if here is None else here


def of_pane(screen: Any) -> int:
    return cast("int", screen.query_one("#page", Pane)._top)


def of_checks(screen: Any) -> int:
    keys = [row.key for row in screen.query_one("#checks").selectable_rows]
    return keys.index(screen.cursor_key)


WHERE: dict[str, Callable[[Any], int]] = {
    "fleet": of_table,
    "time machine": of_table,
    "box": of_log,
    "log": of_log,
    "phases": of_checks,
    "platform": of_pane,
    "first contact": of_pane,
    "help": lambda screen: cast("int", screen.help_panel._top),
    "transfers": of_list,
    "audit": of_list,
    "alerts": of_list,
    "journal": of_list,
    "handbook": of_list,
    "welcome": of_list,
}
"""How far down each screen is, in lines that the keys move by."""


def test_no_screen_with_lines_is_left_out() -> None:
    moving = {
        place for place in PLACES if any(one.id == "move.down" for one in screen_class(place).KEYS)
    }
    assert moving | {"help"} == set(WHERE)


@pytest.mark.parametrize("place", sorted(WHERE))
async def test_the_keys_that_move_move_on_every_screen_with_lines(
    place: str, state_home: Path
) -> None:
    where = WHERE[place]
    small = (100, 16) if place in ("platform", "first contact", "help") else (80, 24)
    async with staged(place, "live", home=state_home, size=small) as (app, pilot):
        screen: Any = app.screen

        async def after(key: str) -> int:
            await pilot.press(key)
            await pilot.pause()
            assert app.screen is screen, f"{key} left the screen"
            return where(screen)

        keys = {command.id: command.keys for command in MOVE}
        for bottom in keys["move.bottom"]:
            await after(keys["move.top"][0])
            last = await after(bottom)
            assert last > 0, "nothing moves here: a weak test"
            assert await after(keys["move.down"][0]) == last, "it is the end"
        for top in keys["move.top"]:
            await after(keys["move.bottom"][0])
            assert await after(top) == 0, top
        for down, up in zip(keys["move.down"], keys["move.up"], strict=True):
            await after(keys["move.top"][0])
            assert await after(down) == 1, down
            assert await after(up) == 0, up
            assert await after(up) == 0, "it is the beginning"
        for down, up in zip(keys["move.page-down"], keys["move.page-up"], strict=True):
            await after(keys["move.top"][0])
            page = screen.moved_widget.page_rows
            assert await after(down) == min(page, last), down
            await after(keys["move.bottom"][0])
            page = screen.moved_widget.page_rows
            assert await after(up) == max(0, last - page), up


@pytest.mark.parametrize("place", ["fleet", "phases", "box"])
async def test_how_rgt_treats_a_box_is_said_and_done_from_each_screen(
    place: str, state_home: Path
) -> None:
    fleet = staged_fleet(place, "live")
    async with staged(place, "live", home=state_home, size=(120, 30), fleet=fleet) as (app, pilot):
        box = about(app)
        assert box == BOX
        await pilot.press("P")
        await rest(app, pilot)
        assert fleet.told[-1:] == [("pause", BOX, True)]
        assert below(app) == f"disconnected from {BOX}; its training continues; P reconnects"
        await pilot.press("I")
        await rest(app, pilot)
        assert (
            fleet.told[-1:] == [("interval", BOX, 2.0)]
            and below(app) == f"{BOX}: sampling every 2 s"
        )
        await pilot.press("r")
        await rest(app, pilot)
        assert below(app) == f"{BOX} is already connected"
        fleet.change(BOX, link=LinkState.UNREACHABLE, reason="ssh: timed out")
        app.tick(force=True)
        await pilot.press("r")
        await rest(app, pilot)
        assert fleet.told[-1:] == [("retry", BOX)] and below(app) == f"connecting to {BOX}"


def focused(app: RgtApp) -> str | None:
    return None if app.focused is None else app.focused.id


async def test_shift_tab_goes_the_other_way_through_the_panes_of_a_box() -> None:
    async with running(keys=("enter",)) as (app, pilot, _):
        first = focused(app)
        ways: dict[str, list[str | None]] = {}
        for key in ("tab", "shift+tab"):
            seen = [focused(app)]
            while True:
                await pilot.press(key)
                await settle(pilot)
                seen.append(focused(app))
                if focused(app) == first:
                    break
            ways[key] = seen
        assert len(ways["tab"]) > 3
        assert ways["shift+tab"] == ways["tab"][::-1]


@pytest.mark.parametrize("kind", [PlatformScreen, FirstContactScreen])
async def test_the_columns_of_a_platform_take_the_keys_in_turn(
    kind: type[PlatformPage], state_home: Path
) -> None:
    place = "platform" if kind is PlatformScreen else "first contact"
    async with staged(place, "live", home=state_home, size=(200, 16)) as (app, pilot):
        assert isinstance(app.screen, kind)
        for key in ("tab", "tab", "shift+tab", "shift+tab"):
            before = focused(app)
            await pilot.press(key)
            await rest(app, pilot)
            assert {before, focused(app)} == {"page", "more"}, key


async def test_the_first_page_of_a_platform_leads_to_the_whole_one(state_home: Path) -> None:
    async with staged("first contact", "live", home=state_home, size=(100, 30)) as (app, pilot):
        await pilot.press("i")
        await rest(app, pilot)
        assert type(app.screen) is PlatformScreen and app.screen.box_name == BOX
        assert [type(one).__name__ for one in app.screen_stack].count("FirstContactScreen") == 0


async def test_long_lines_of_a_log_are_scrolled_both_ways_and_logs_gone_through_backwards(
    state_home: Path,
) -> None:
    async with staged("log", "live", home=state_home, size=(60, 20)) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, LogKeys)
        rows = [text_of(row) for row in screen.log_pane.shown_lines]
        await pilot.press("right", "right")
        await rest(app, pilot)
        assert [text_of(row) for row in screen.log_pane.shown_lines] != rows
        await pilot.press("left", "left", "left")
        await rest(app, pilot)
        assert [text_of(row) for row in screen.log_pane.shown_lines] == rows


async def test_phases_are_gone_through_in_both_directions(state_home: Path) -> None:
    async with staged("phases", "live", home=state_home, size=(100, 30)) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, LifecycleScreen)

        def phase() -> int:
            return int(str(screen.cursor_key).removeprefix("phase ").partition(".")[0])

        await pilot.press("g")
        await rest(app, pilot)
        assert phase() == 0
        gone = []
        for key in ("right", "right", "left"):
            await pilot.press(key)
            await rest(app, pilot)
            gone.append(phase())
        assert gone == [1, 2, 1]


async def test_the_order_and_the_panes_of_an_earlier_moment_are_changed_as_those_of_now(
    state_home: Path,
) -> None:
    async with staged("time machine", "live", home=state_home, size=(120, 34)) as (app, pilot):
        table = app.screen.query_one(FleetTable)
        names = table.row_names
        await pilot.press("O")
        await rest(app, pilot)
        assert table.row_names != names and sorted(table.row_names) == sorted(names)
        assert "reverses it" in below(app)
        ways = []
        for key in ("tab", "shift+tab", "shift+tab", "tab"):
            await pilot.press(key)
            await rest(app, pilot)
            ways.append(focused(app))
        assert ways[0] is not None and ways[1] is None and ways[2] is not None and ways[3] is None


async def test_the_command_of_a_first_way_is_copied(state_home: Path) -> None:
    async with staged("welcome", "live", home=state_home, size=(100, 30)) as (app, pilot):
        await pilot.press("y")
        await rest(app, pilot)
        assert app.clipboard == cast("Any", app.screen).picked_choice.command != ""
        assert below(app).startswith("copied the command")
