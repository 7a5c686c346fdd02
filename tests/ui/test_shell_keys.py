"""The keys for a shell and for work on a box: what they say, and what they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.widgets import Input

from rgt_tui.fleet import NotOffered
from rgt_tui.ui.screens import ChoiceScreen
from rgt_tui.ui.screens.command import CommandScreen
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from tests.ui.boxes import many_boxes
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, screen_text, settle
from tests.ui.test_fast_keys import wait_for


async def test_a_terminal_that_cannot_be_left_and_a_box_without_a_connection_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setattr(FakeFleet, "shell_words", lambda self, box, command: ("ssh", "lab"))
    async with running(many_boxes(2), size=(120, 34)) as (app, pilot, _):
        await pilot.press("s")
        await wait_for(pilot, lambda: "use rgt ssh" in screen_text(app))

    def refuse(self: FakeFleet, box: str, command: str) -> tuple[str, ...]:
        raise NotOffered(f"{box} is not connected: no route")

    monkeypatch.setattr(FakeFleet, "shell_words", refuse)
    async with running(many_boxes(2), size=(120, 34), keys=("s",)) as (app, _pilot, _):
        assert "is not connected: no route" in screen_text(app)


async def test_a_command_runs_after_its_dry_run_and_for_each_marked_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[tuple[str, ...]] = []

    async def run_command(self: Any, words: tuple[str, ...], on_line: Callable[[str], None]) -> int:
        ran.append(words)
        on_line(f"{len(ran)} files")
        return 3 if words[-1] == "broken" else 0

    monkeypatch.setattr(FakeFleet, "run_command", run_command)
    async with running(many_boxes(3), size=(120, 34)) as (app, pilot, _):
        first, second, *_ = app.screen.query_one(FleetTable).row_names
        await pilot.press("space", "space", "w")
        await settle(pilot)
        assert isinstance(app.screen, ChoiceScreen)
        await pilot.press("p")
        await wait_for(pilot, lambda: isinstance(app.screen, CommandScreen))
        await pilot.press("enter")
        await wait_for(pilot, lambda: "enter again runs it" in screen_text(app))
        assert ran == [("pull", "--dry-run", first), ("pull", "--dry-run", second)]
        await pilot.press("enter")
        await wait_for(pilot, lambda: "done" in screen_text(app))
        assert ran[2:] == [("pull", first), ("pull", second)]
        app.screen.query_one(Input).value = "pull {box} broken"
        await pilot.press("enter")
        await wait_for(pilot, lambda: "exit status 3" in screen_text(app))
        await pilot.press("enter")
        await wait_for(pilot, lambda: len(ran) == 8)
        assert all("--dry-run" in words for words in ran[4:]), "what failed dry is never run"
        app.screen.query_one(Input).value = "run {box} 'x"
        await pilot.press("enter")
        await wait_for(pilot, lambda: "not a command line" in screen_text(app))
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, CommandScreen)


async def test_what_an_editor_needs_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    async def run_command(self: Any, words: tuple[str, ...], on_line: Callable[[str], None]) -> int:
        ran.append(words)
        on_line("Host rgt-lab")
        on_line("    HostName lab.example")
        return 0

    monkeypatch.setattr(FakeFleet, "run_command", run_command)
    async with running(many_boxes(2), size=(120, 34), keys=("E",)) as (app, pilot, _):
        await wait_for(pilot, lambda: "Host rgt-lab" in screen_text(app))
        assert [words[0] for words in ran] == ["code"]
        assert "│     HostName lab.example" in screen_text(app), "as it is indented in ssh_config"
        assert "enter runs it · esc closes" in screen_text(app), "there is no dry run"


async def test_a_port_that_is_none_is_said_and_a_box_that_is_not_reached_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rgt_tui.fleet.work.tunneling import BoxTunnels
    from rgt_tui.ssh import Unreachable

    async def refuse(self: BoxTunnels, up: Callable[[], None]) -> None:
        raise Unreachable("no route to it")

    monkeypatch.setattr(BoxTunnels, "run", refuse)
    async with running(many_boxes(2), size=(120, 34), keys=("f",)) as (app, pilot, _):
        await pilot.press(*"x:y", "enter")
        await wait_for(pilot, lambda: "is no tunnel; write PORT" in screen_text(app))
        await pilot.press("f", *"socks:0", "enter")
        await settle(pilot)
        await pilot.press("f", *"6006", "enter")
        await wait_for(pilot, lambda: "is not forwarded: no route to it" in screen_text(app))


async def test_while_a_port_is_typed_the_key_line_has_the_keys_of_the_entry() -> None:
    async with running(many_boxes(2), size=(120, 34)) as (app, pilot, _):
        await wait_for(pilot, lambda: "enter open" in screen_text(app).splitlines()[-1])
        await pilot.press("f")
        await wait_for(pilot, lambda: "port of" in screen_text(app))
        app.tick(force=True)
        await pilot.pause()
        keys = screen_text(app).splitlines()[-1]
        assert "enter done   esc cancel" in keys and "log" not in keys
        await pilot.click("#keys", offset=(keys.index("esc"), 0))
        await wait_for(pilot, lambda: "enter open" in screen_text(app).splitlines()[-1])
        assert "port of" not in screen_text(app)
        await pilot.press("f", *"none", "enter")
        await wait_for(pilot, lambda: "enter open" in screen_text(app).splitlines()[-1])
        assert "none" in screen_text(app).splitlines()[-2], "what is wrong with it"
