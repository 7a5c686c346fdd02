from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

from textual.app import App

from rgt_tui.ui import RgtApp
from rgt_tui.ui.commands import (
    APP,
    SCREEN,
    SCREENS,
    bindings,
    commands_by_screen,
    key_name,
    keys_page,
)
from rgt_tui.ui.screens.help import HelpScreen, help_lines
from rgt_tui.ui.widgets.fixed_lines import layout_keys
from rgt_tui.ui.widgets.spans import text_of
from tests.ui.snap import running, screen_text, settle

EVERY_COMMAND = list({command.id: command for _, each in commands_by_screen() for command in each}.values())
FORBIDDEN = {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+j", "ctrl+left_square_bracket", "ctrl+z", "ctrl+a", "ctrl+b"}


def test_no_key_means_two_things_on_one_screen() -> None:
    for title, commands in commands_by_screen():
        shared = () if title in {"Every screen", "Tear down"} else (*SCREEN, *APP)
        keys = [key for command in (*commands, *shared) for key in command.keys]
        assert not {key for key in keys if keys.count(key) > 1}, title
        assert not FORBIDDEN & set(keys), title


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
            target, _, action = command.does.partition("(")[0].rpartition(".")
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
            same = dataclasses.replace(command, footer=0)
            assert seen.setdefault(command.id, same) == same
            assert command.help.endswith("."), command.id
            assert command.title, command.id


def test_bindings_carry_the_ids_of_their_commands() -> None:
    made = bindings(APP)
    assert [getattr(binding, "id", None) for binding in made] == [command.id for command in APP]


def test_key_names() -> None:
    assert key_name("question_mark") == "?"
    assert key_name("ctrl+p") == "ctrl+p"
    assert key_name("G") == "G"


def test_the_key_line_keeps_the_help_when_it_gets_narrow() -> None:
    for width in (20, 40, 60, 80, 120, 200):
        places = layout_keys(EVERY_COMMAND, width)
        assert places
        assert all(end < width for _, end, _ in places)


def test_the_page_of_keys_is_generated_and_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "screens" / "keys.md"
    assert page.read_text(encoding="utf-8") == keys_page(), (
        "python -m rgt_tui.ui.commands > docs/screens/keys.md"
    )


async def test_help_lists_every_command_of_the_screen_and_closes() -> None:
    async with running(size=(120, 40), keys=("question_mark",)) as (app, pilot, _):
        assert isinstance(app.screen, HelpScreen)
        text = screen_text(app)
        fleet_screen = app.screen_stack[0]
        for command in fleet_screen.commands():  # type: ignore[attr-defined]
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
        assert "quit" not in screen_text(app)
        await pilot.press("G")
        await pilot.pause()
        assert "quit" in screen_text(app)
        await pilot.press("g")
        await pilot.pause()
        assert "open" in screen_text(app)


def test_help_lines_wrap() -> None:
    rows = [text_of(row) for row in help_lines(APP, 50)]
    assert all(len(row) <= 50 for row in rows)


def test_no_user_interface_toolkit_default_survives() -> None:
    assert RgtApp.COMMANDS != App.COMMANDS
