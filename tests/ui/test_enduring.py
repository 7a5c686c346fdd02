"""No screen's fault ends the app: it is said, written down, and everything else goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from rgt_tui.model import FleetState
from rgt_tui.ui import RgtApp, append_traceback, describe_error, report_path, shorten_path
from rgt_tui.ui.screens import AlertsScreen, BoxScreen, FleetScreen, LogScreen, TeardownScreen
from rgt_tui.ui.widgets import EventLine, FittedLines, HeaderLine
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from tests.ui.fakes import NOW, FakeFleet, run, running_box
from tests.ui.snap import body_text, running, screen_text, settle, until


def broken(*_args: object, **_named: object) -> Any:
    raise RuntimeError("boom\x1b[31m \n of a box")


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that faults are reported in; the app endures them here."""
    monkeypatch.setattr(RgtApp, "ENDURES", True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "rgt" / "faults.log"


async def lives(pilot: Pilot[None], app: RgtApp, fleet: FakeFleet) -> None:
    """Every part that did not fail works: states come, keys are heard, another screen opens."""
    assert app.is_running
    assert app.return_code is None
    fleet.push(FleetState((running_box("news"),), (), fleet.now()))
    app.tick(force=True)
    await settle(pilot)
    while len(app.screen_stack) > 1:
        await pilot.press("q")
        await settle(pilot)
    app.open_screen("alerts", "news")
    await settle(pilot)
    assert isinstance(app.screen, AlertsScreen)
    assert "nothing" in body_text(app), "it says that nothing is wrong there"
    await pilot.press("q")
    await settle(pilot)
    assert isinstance(app.screen, FleetScreen)


async def test_a_widget_that_cannot_be_drawn(
    fleet: FakeFleet, faults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(fleet, size=(120, 24)) as (app, pilot, _fleet):
        monkeypatch.setattr(FleetTable, "make_lines", broken)
        for _ in range(5):
            fleet.push(FleetState((running_box("news"),), (), fleet.now()))
            app.tick(force=True)
            app.query_one(FleetTable).redraw()
            await settle(pilot)
        text = screen_text(app)
        assert "this cannot be drawn: RuntimeError: boom of a box" in text
        assert (
            f"this screen failed: RuntimeError: boom of a box, reported in {str(faults)[:30]}"
            in text
        )
        assert "rgt  fleet" in text
        monkeypatch.undo()
        await lives(pilot, app, fleet)
    written = faults.read_text()
    assert written.count("RuntimeError: boom") == 1, "what is the same is written down once"
    assert "fleet: FleetTable" in written
    assert "in make_lines" not in written.split("Traceback")[0]
    assert "Traceback" in written
    assert stat.S_IMODE(faults.stat().st_mode) == 0o600


async def test_the_event_line_itself_that_cannot_be_drawn(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        monkeypatch.setattr(EventLine, "make_lines", broken)
        app.query_one(EventLine).redraw()
        await settle(pilot)
        assert "drawn: RuntimeError" in screen_text(app)
        monkeypatch.undo()
        await lives(pilot, app, fleet)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (FleetScreen, "show_state"),
        (HeaderLine, "show_parts"),
        (FleetScreen, "build_badges"),
        (FleetScreen, "build_crumbs"),
    ],
)
async def test_a_screen_that_cannot_take_a_state(
    owner: type, name: str, fleet: FakeFleet, faults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        monkeypatch.setattr(owner, name, broken)
        for _ in range(3):
            app.tick(force=True)
            await settle(pilot)
        assert "this screen failed: RuntimeError" in screen_text(app)
        monkeypatch.undo()
        await lives(pilot, app, fleet)
    assert faults.read_text().count("RuntimeError: boom") == 1


async def test_a_key_whose_action_fails(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        monkeypatch.setattr(FleetScreen, "action_open_for_box", broken)
        await pilot.press("l")
        await settle(pilot)
        assert "this screen failed: RuntimeError" in screen_text(app)
        monkeypatch.undo()
        await pilot.press("l")
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        await lives(pilot, app, fleet)


@pytest.mark.parametrize(
    "name", ["compose_body", "compose", "on_mount", "on_screen_resume", "__init__"]
)
async def test_a_screen_that_cannot_be_opened(
    name: str, fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        await pilot.press("q")
        await settle(pilot)
        monkeypatch.setattr(BoxScreen, name, broken)
        await pilot.press("enter")
        await settle(pilot)
        assert "failed: RuntimeError" in screen_text(app)
        monkeypatch.undo()
        await lives(pilot, app, fleet)


async def test_a_dialog_that_is_not_shown_whole_is_closed(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        monkeypatch.setattr(FittedLines, "make_lines", broken)
        for _ in range(2):  # also when it was just said
            app.open_screen("teardown", fleet.state.boxes[0].spec.name)
            await settle(pilot)
            assert not any(isinstance(screen, TeardownScreen) for screen in app.screen_stack)
            assert "tear down failed: RuntimeError" in screen_text(app)
        monkeypatch.undo()
        await lives(pilot, app, fleet)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=str)
async def test_a_row_that_fails_says_so_alone(fleet: FakeFleet, size: tuple[int, int]) -> None:
    undrawable = msgspec.structs.replace(run("gpt-c", 5), epoch="three")
    unjudged = msgspec.structs.replace(
        running_box("unjudged"), sample_at="never", alerts_kept=False
    )
    boxes = (
        running_box("well-1"),
        msgspec.structs.replace(running_box("undrawable"), runs=(undrawable,)),
        unjudged,
        running_box("well-2"),
    )
    async with running(FleetState(boxes, (), NOW), size=size) as (app, pilot, _fleet):
        for key in ("o", "o", "o"):
            rows = screen_text(app).splitlines()
            for name in ("well-1", "well-2"):
                assert any(name in row and "running" in row for row in rows), rows
            assert any("unjudged" in row and "unknown" in row for row in rows), rows
            if size[0] >= 120:
                assert any(
                    "undrawable  this row cannot be drawn: ValueError" in row for row in rows
                ), rows
            await pilot.press(key, key)
            await settle(pilot)


def by_timer(app: RgtApp) -> None:
    app.screen.set_timer(0.001, broken)


def by_callback(app: RgtApp) -> None:
    app.screen.call_after_refresh(broken)


def by_later_call(app: RgtApp) -> None:
    app.call_later(broken)


def by_worker(app: RgtApp) -> None:
    async def work() -> None:
        broken()

    app.run_worker(work())


@pytest.mark.parametrize("fails", [by_timer, by_callback, by_later_call, by_worker])
async def test_what_fails_beside_the_handlers(
    fails: Callable[[RgtApp], None], fleet: FakeFleet
) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        fails(app)
        await until(pilot, lambda: bool(app.faults))
        assert "this screen failed: " in screen_text(app)
        await lives(pilot, app, fleet)


async def test_a_widget_that_is_not_ours(fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(Widget):
        def render_line(self, y: int) -> Any:
            return broken()

    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        await app.screen.mount(foreign := Foreign())
        for _ in range(3000):  # a pilot's pause would raise what failed
            if app.faults:
                break
            await asyncio.sleep(0.02)
        assert app.faults
        await foreign.remove()
        await lives(pilot, app, fleet)


async def test_without_a_terminal_there_is_nothing_to_go_on_for(fleet: FakeFleet) -> None:
    async with running(fleet, size=(80, 24)) as (app, _, _fleet):
        assert not app.report_screen_fault(app.screen, OSError(errno.EIO, "Input/output error"))
        assert app.report_screen_fault(app.screen, OSError(errno.ENOSPC, "No space left on device"))
        RgtApp.ENDURES = False
        assert not app.report_screen_fault(app.screen, ValueError("x"))


async def test_it_is_said_again_for_as_long_as_it_lasts(fleet: FakeFleet, faults: Path) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        app.report_screen_fault(app.screen, ValueError("x"))
        await settle(pilot)
        app.query_one(EventLine).show_hint(None)
        app.faults = dict.fromkeys(app.faults, float("inf"))  # however long all of this takes
        app.report_screen_fault(app.screen, ValueError("x"))
        await settle(pilot)
        assert "this screen failed" not in screen_text(app)
        app.faults = dict.fromkeys(app.faults, float("-inf"))
        app.report_screen_fault(app.screen, ValueError("x"))
        await settle(pilot)
        assert "this screen failed: ValueError: x" in screen_text(app)
    assert faults.read_text().count("ValueError: x") == 1


async def test_faults_without_number_fill_no_disk(fleet: FakeFleet, faults: Path) -> None:
    async with running(fleet, size=(80, 24)) as (app, pilot, _fleet):
        for number in range(150):
            app.report_screen_fault(app.screen, ValueError(f"fault {number}"))
        await settle(pilot)
        assert "fault 149, not reported: 100 others were" in screen_text(app)
    assert faults.read_text().count("ValueError: fault") == 100


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "read-only"])
def test_a_report_goes_into_a_file_of_its_own_alone(kind: str, tmp_path: Path) -> None:
    path, other = tmp_path / "faults.log", tmp_path / "other"
    if kind == "fifo":
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "link":
        other.write_text("precious")
        path.symlink_to(other)
    elif kind == "folder":
        path.mkdir()
    else:
        path = tmp_path / "other" / "faults.log"
        other.write_text("no folder")
    assert not append_traceback(path, "x", ValueError("y"))
    if kind == "fifo":
        os.close(reader)
    elif kind == "link":
        assert other.read_text() == "precious"


def test_a_long_report_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "a" / "faults.log"
    assert append_traceback(path, "x", ValueError("y"))
    path.write_bytes(b"x" * (2 << 20))
    assert append_traceback(path, "who", ValueError("last"))
    assert path.stat().st_size < 1000
    assert append_traceback(path, "who", ValueError("really last"))
    assert "ValueError: last" in path.read_text()


def test_words_and_places() -> None:
    assert describe_error(ValueError()) == "ValueError"
    assert len(describe_error(ValueError("y" * 5000))) < 300
    assert report_path({"XDG_STATE_HOME": "/s"}) == Path("/s/rgt/faults.log")
    assert shorten_path(Path.home() / "a" / "b") == "~/a/b"
    assert shorten_path(Path("/elsewhere/b")) == "/elsewhere/b"
    assert shorten_path(Path.home()) == "~"
    assert report_path({"XDG_STATE_HOME": "s"}) == Path.home() / ".local/state/rgt/faults.log"
