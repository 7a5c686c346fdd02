"""What is copied reaches the terminal and a file of the person alone; what cannot, says so."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from textual.app import App

from rgt_tui.store import FleetHistory
from rgt_tui.ui import MOST_OSC52_BYTES, SCREENS, ClipboardText, copied_path, copy_to_clipboard
from tests.ui.fakes import NOW, FakeFleet, demo_state
from tests.ui.kept import keep_night
from tests.ui.snap import running, screen_text, settle, until


class Sent(App[None]):
    """An app that keeps what it would write to the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def copy_to_clipboard(self, text: str) -> None:
        self.sent.append(text)


def test_a_text_goes_to_the_terminal_and_to_a_file_that_only_its_owner_reads(
    tmp_path: Path,
) -> None:
    app, env = Sent(), {"XDG_STATE_HOME": str(tmp_path)}
    said = copy_to_clipboard(
        app, ClipboardText(what="line 3", text="a\x1b]52;c;aGk=\x07b\nc\n"), env
    )
    assert app.sent == [copied_path(env).read_text()[:-1]] and "\x1b" not in app.sent[0]
    assert app.sent[0].splitlines()[1] == "c"
    assert said.startswith("copied line 3; also in ")
    assert stat.S_IMODE(copied_path(env).stat().st_mode) == 0o600
    copy_to_clipboard(app, ClipboardText(what="line 4", text="d"), env)
    assert copied_path(env).read_text() == "d\n"
    assert [path.name for path in copied_path(env).parent.iterdir()] == ["copied.txt"]


def test_what_no_terminal_takes_is_in_the_file_alone(tmp_path: Path) -> None:
    app, env = Sent(), {"XDG_STATE_HOME": str(tmp_path)}
    said = copy_to_clipboard(
        app, ClipboardText(what="the log", text="x" * (MOST_OSC52_BYTES + 1)), env
    )
    assert not app.sent and "too long for the clipboard: in " in said
    assert len(copied_path(env).read_text()) == MOST_OSC52_BYTES + 2


def test_a_file_that_cannot_be_written_is_said_only_where_nothing_else_was_copied(
    tmp_path: Path,
) -> None:
    (tmp_path / "rgt").write_text("no directory")
    app, env = Sent(), {"XDG_STATE_HOME": str(tmp_path)}
    assert copy_to_clipboard(
        app, ClipboardText(what="a row", text="x"), env
    ) == "copied a row" and app.sent == ["x"]
    assert "is too long" in copy_to_clipboard(
        app, ClipboardText(what="a log", text="x" * 80_000), env
    )
    assert (
        copy_to_clipboard(app, ClipboardText(what="a row", text="\n"), env)
        == "nothing to copy here"
    )


async def test_y_on_a_screen_sends_the_sequence_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    async with running(demo_state(), size=(200, 50), keys=("H",)) as (app, pilot, _):
        assert app._driver is not None
        written: list[str] = []
        monkeypatch.setattr(app._driver, "write", written.append)
        await pilot.press("y")
        await settle(pilot)
        text = (state_home / "copied.txt").read_text()
        assert f"\x1b]52;c;{base64.b64encode(text[:-1].encode()).decode()}\a" in "".join(written)
        assert "copied the fix of " in screen_text(app)


COPYING = sorted(set(SCREENS) - {"teardown", "welcome", "transfers", "audit"})
"""Those on which something is selected whatever happens; what was transferred and done is nothing here."""


@pytest.mark.parametrize("place", COPYING)
async def test_every_screen_has_something_to_take_along(
    place: str, state_home: Path, tmp_path: Path
) -> None:
    history = keep_night(tmp_path / "history.db")
    history.close()
    fleet = FakeFleet(demo_state())
    fleet.chronicle = kept = FleetHistory(tmp_path / "history.db", clock=lambda: NOW)
    kept.adopt_boxes([box.spec for box in fleet.state.boxes])
    try:
        async with running(lambda: fleet, size=(120, 34)) as (app, pilot, _):
            if place != "fleet":
                app.open_screen(place, "vast-demo")
            await settle(pilot)
            await until(pilot, lambda: "reading the history" not in screen_text(app))
            await settle(pilot)
            assert getattr(app.screen, "PLACE", "") == place
            await pilot.press("y")
            await settle(pilot)
            assert "nothing to copy" not in screen_text(app)
            assert (state_home / "copied.txt").read_text().strip()
    finally:
        await kept.close()


async def test_the_page_of_a_platform_is_taken_along_as_it_reads(state_home: Path) -> None:
    async with running(demo_state(), size=(120, 34), keys=("i", "y")) as (app, pilot, _):
        await settle(pilot)
        text = (state_home / "copied.txt").read_text()
        assert "copied the page of " in screen_text(app)
        assert text.startswith("in short\n  danger ") and "\n\nwhat survives\n" in text
