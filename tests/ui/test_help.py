from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import msgspec
import pytest
from textual.app import App

from rgt_tui.model import BoxHealth, FleetState
from rgt_tui.recordings import FULL, ReplayFleet
from rgt_tui.ui import (
    APP,
    BOX_TARGET,
    REPLAY,
    SCREEN,
    SCREENS,
    RgtApp,
    build_bindings,
    commands_by_screen,
    find_clashes,
    key_name,
    keys_page,
    legend_of,
    state_legend,
)
from rgt_tui.ui.screens import FleetAwareScreen, FleetScreen, HelpPanel, HelpScreen, key_rows
from rgt_tui.ui.screens.help import row_lines
from rgt_tui.ui.widgets import layout_keys, text_of
from rgt_tui.ui.widgets.fleet_rows import (
    COLUMNS,
    FilterUnit,
    FilterValue,
    FleetColumn,
    FleetTable,
    choose_columns,
    name_cell,
)
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.snap import running, screen_text, settle

RECORDING = Path(__file__).parents[1] / "fixtures" / "recordings" / "three-boxes.jsonl.gz"
EVERY_COMMAND = list(
    {command.id: command for _, each in commands_by_screen() for command in each}.values()
)
FORBIDDEN = {
    "ctrl+i",
    "ctrl+m",
    "ctrl+h",
    "ctrl+j",
    "ctrl+left_square_bracket",
    "ctrl+z",
    "ctrl+a",
    "ctrl+b",
}


def test_no_key_means_two_things_on_one_screen() -> None:
    assert find_clashes(commands_by_screen(), {}) == []
    assert find_clashes([("Fleet", ())], {"screen.back": ("y",)}) == [
        ("Fleet", "y", "screen.back", "screen.copy")
    ]
    for title, commands in commands_by_screen():
        assert not FORBIDDEN & {key for command in commands for key in command.keys}, title


def test_dangerous_commands_are_never_a_bare_lowercase_letter() -> None:
    dangerous = [command for command in EVERY_COMMAND if command.dangerous]
    assert dangerous
    for command in dangerous:
        for key in command.keys:
            assert not (len(key) == 1 and key.islower()), command.id


def test_every_command_has_its_action_on_its_screen() -> None:
    for title, module, name in SCREENS.values():
        if title == "Tear down":
            continue  # a dialog: its keys belong to its buttons
        screen = getattr(importlib.import_module(module), name)
        for command in (*screen.KEYS, *SCREEN, *APP):
            target, _, action = command.textual_action.partition("(")[0].rpartition(".")
            where = RgtApp if target == "app" else screen
            method = "action_" + action
            assert hasattr(where, method), (title, command.id)


def test_every_screen_that_can_be_opened_has_its_keys_on_the_page() -> None:
    page = keys_page()
    assert all(f"## {title}\n" in page for title, *_ in SCREENS.values())


def test_ids_are_unique_and_help_is_a_sentence() -> None:
    seen: dict[str, object] = {}
    for _, commands in commands_by_screen():
        for command in commands:
            same = msgspec.structs.replace(command, footer=0)
            assert seen.setdefault(command.id, same) == same
            assert command.help.endswith("."), command.id
            assert command.title, command.id


def test_bindings_carry_the_ids_of_their_commands() -> None:
    made = build_bindings(APP)
    assert [getattr(binding, "id", None) for binding in made] == [command.id for command in APP]


def test_key_names() -> None:
    assert key_name("question_mark") == "?"
    assert key_name("ctrl+p") == "ctrl+p"
    assert key_name("G") == "G"


def test_the_key_line_keeps_the_help_when_it_gets_narrow() -> None:
    for width in (20, 40, 60, 80, 120, 200):
        places = layout_keys(EVERY_COMMAND, width)
        assert places
        assert places[-1][2].id == "app.help", "the way to all others"
        assert all(end < width for _, end, _ in places)


def test_the_page_of_keys_is_generated_and_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "screens" / "keys.md"
    assert page.read_text(encoding="utf-8") == keys_page(), (
        "python -m rgt_tui.ui.commands > docs/screens/keys.md"
    )


async def test_help_lists_every_command_of_the_screen_and_closes() -> None:
    async with running(size=(120, 80), keys=("question_mark",)) as (app, pilot, _):
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        fleet_screen = app.screen_stack[0]
        assert isinstance(fleet_screen, FleetScreen)
        for command in fleet_screen.commands():
            if fleet_screen.why_not(command) is None:
                assert command.title in text
                assert command.shown_key in text
        for key in ("escape", "q", "question_mark"):
            await pilot.press(key)
            await settle(pilot)
            assert not isinstance(app.screen, HelpScreen)
            await pilot.press("f1")
            await settle(pilot)


async def test_help_that_is_longer_than_the_screen_scrolls() -> None:
    async with running(size=(60, 16), keys=("question_mark",)) as (app, pilot, _):
        assert "(rgt autostop)" not in screen_text(app)
        await pilot.press("G")
        await pilot.pause()
        assert "(rgt autostop)" in screen_text(app)
        await pilot.press("g")
        await pilot.pause()
        assert "open" in screen_text(app)


def test_help_lines_wrap() -> None:
    rows = [text_of(row) for row, _ in row_lines(key_rows(APP), 50)]
    assert all(len(row) <= 50 for row in rows)


def test_no_user_interface_toolkit_default_survives() -> None:
    assert RgtApp.COMMANDS != App.COMMANDS


EVERY_SCREEN = [
    place for place in SCREENS if place not in {"fleet", "teardown", "first contact", "welcome"}
]


@pytest.mark.parametrize("place", ["fleet", *EVERY_SCREEN])
async def test_help_says_what_works_now_and_nothing_else(place: str) -> None:
    async with running(FakeFleet(), size=(100, 120)) as (app, pilot, _):
        app.readonly = True
        if place != "fleet":
            app.open_screen(place, "vast-demo")
            await settle(pilot)
        below = app.screen
        assert isinstance(below, FleetAwareScreen)
        await pilot.press("question_mark")
        await settle(pilot)
        shown = {
            row.command.id for row in app.screen.query_one(HelpPanel).shown_rows if row.command
        }
        assert shown == {
            command.id for command in below.commands() if below.why_not(command) is None
        }
        assert not any(command.dangerous and command.id in shown for command in below.commands())
        assert not {command.id for command in REPLAY} & shown
        assert "hidden: no use here" in screen_text(app) or len(shown) == len(below.commands())


async def test_help_without_a_box_and_in_a_replay() -> None:
    async with running(FleetState((), (), NOW), size=(100, 80), keys=("question_mark",)) as (
        app,
        _,
        __,
    ):
        shown = {
            row.command.id for row in app.screen.query_one(HelpPanel).shown_rows if row.command
        }
        assert not shown & {command.id for command in BOX_TARGET} and "fleet.open" not in shown
        assert {"box.alerts", "box.handbook", "app.quit"} <= shown
        assert "D tear down" not in screen_text(app)
    fleet = ReplayFleet(RECORDING, speed=FULL)
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 60)) as pilot:
        await settle(pilot)
        await asyncio.wait_for(fleet.over.wait(), 60)
        await settle(pilot)
        await pilot.press("question_mark")
        await settle(pilot)
        shown = {
            row.command.id for row in app.screen.query_one(HelpPanel).shown_rows if row.command
        }
        assert {one.id for one in REPLAY if one.id != "replay.hold"} | {"fleet.mark"} <= shown
        assert not shown & {"box.teardown", "box.pause", "box.connect"}


def test_the_legend_explains_every_column_and_every_state() -> None:
    rows = {row.mark: row.means for _, part in legend_of("fleet") for row in part}
    assert all(column.title.strip() in rows for column in COLUMNS)
    assert len(state_legend()) == len(BoxHealth)
    words = [row.means.partition(":")[0] for row in state_legend()]
    assert words == [health.value for health in BoxHealth], (
        "each says its word: colour is never alone"
    )


async def test_a_column_added_in_one_place_is_sorted_filtered_and_explained() -> None:
    letters = FilterValue(lambda row: float(len(row.name)), FilterUnit.PLAIN, "letters of its name")
    added = FleetColumn("letters", "abc", 3, 0, name_cell, "how long its name is", letters)
    COLUMNS.insert(-1, added)
    choose_columns.cache_clear()
    try:
        async with running(size=(200, 50), keys=("question_mark",)) as (app, pilot, _):
            assert "how long its name is" in screen_text(app)
            await pilot.press("escape", "slash", *"letters>9", "enter")
            await settle(pilot)
            names = app.screen.query_one(FleetTable).row_names
            assert names and all(len(name) > 9 for name in names)
            await pilot.press("escape", "o", "b")  # the first letter that is free
            await settle(pilot)
            assert "by letters of its name, most first" in screen_text(app)
            assert " abc▾" in screen_text(app) or "▾abc" in screen_text(app)
    finally:
        COLUMNS.remove(added)
        choose_columns.cache_clear()


def test_the_page_of_the_fleet_lists_the_columns_as_the_help_does() -> None:
    page = Path(__file__).parents[2] / "docs" / "screens" / "fleet.md"
    for column in COLUMNS:
        since = {0: "always", 80: "80 columns", 120: "120 columns"}.get(
            column.since, "where room is left"
        )
        assert f"| {column.title.strip()} | {column.means} | {since} |" in page.read_text()


async def test_where_not_all_rows_fit_a_wide_screen_has_the_legend_beside_the_keys() -> None:
    async with running(size=(200, 56), keys=("question_mark",)) as (app, pilot, _):
        text = screen_text(app)
        assert "at least, at most, about" in text and "Quit rgt." in text, "the last of both"
        rows = text.splitlines()
        assert "first" in rows[1] and rows[1].index("states") >= 100
        assert "Open the selected box." in rows[2]
        place = next(i for i, shown in enumerate(rows) if "all others" in shown)
        assert "Quit rgt." in "".join(rows[2:place]), "one of the six keys above"
        row = next(i for i, shown in enumerate(rows) if "The loss curves" in shown)
        assert rows[row][100:].strip(" │"), "the legend is beside it"
        await pilot.click(HelpPanel, offset=(120, row))
        await settle(pilot)
        assert isinstance(app.screen, HelpScreen), "the legend runs nothing"
        await pilot.click(HelpPanel, offset=(30, row))
        await settle(pilot)
        assert isinstance(app.screen, FleetAwareScreen) and app.screen.PLACE == "curves"


async def test_help_is_searched_copied_and_clicked(state_home: Path) -> None:
    async with running(size=(100, 50), keys=("question_mark", "slash", *"inode")) as (
        app,
        pilot,
        _,
    ):
        text = screen_text(app)
        assert "at 100% no new file" in text and "tear down" not in text
        await pilot.press("enter", "y")
        await settle(pilot)
        assert "no new file" in (state_home / "copied.txt").read_text()
        await pilot.press("slash", "x", "x")
        await settle(pilot)
        assert "no row has inodexx" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert "tear down" in screen_text(app), "given up: all rows again"
        row = next(
            i for i, text in enumerate(screen_text(app).splitlines()) if "The loss curves" in text
        )
        await pilot.click(HelpPanel, offset=(30, row))
        await settle(pilot)
        assert isinstance(app.screen, FleetAwareScreen)
        assert app.screen.PLACE == "curves"
        await pilot.press("f1", "escape")
        await settle(pilot)
        assert not isinstance(app.screen, HelpScreen)
