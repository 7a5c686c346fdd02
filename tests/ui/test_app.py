from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import groupby

import msgspec
import pytest
from msgspec.structs import replace
from textual.command import CommandPalette

from rgt_tui.model import FleetState
from rgt_tui.ui import PaletteProvider, RgtApp
from rgt_tui.ui.screens import BoxScreen, FleetScreen
from rgt_tui.ui.widgets import EventLine
from tests.ui.fakes import NOW, FakeFleet, demo_state, running_box
from tests.ui.snap import running, screen_text, settle, until


async def test_the_first_frame_is_painted_before_the_fleet_is_made() -> None:
    seen: list[str] = []

    def make() -> FakeFleet:
        seen.append(screen_text(app))
        return FakeFleet()

    app = RgtApp(make)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "connecting to the fleet" in seen[0]
        assert "rgt  fleet" in seen[0]
        assert "vast-demo" in screen_text(app)


def test_nothing_heavy_is_imported_with_the_app() -> None:
    code = (
        "import sys; import rgt_tui.ui.app; "
        "print([m for m in ('asyncssh', 'numpy', 'httpx', 'torch', 'rgt_tui.ui.screens.box',"
        " 'rgt_tui.fleet.reducers', 'rgt_tui.ui.widgets.vitals', 'rgt_tui.ui.widgets.queue_lines')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_threads_take_short_turns_while_it_runs_and_their_usual_ones_afterwards() -> None:
    """The thread that writes to the terminal waits for no screen that is still busy."""
    before = sys.getswitchinterval()
    app = RgtApp(FakeFleet)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert sys.getswitchinterval() == pytest.approx(0.0005) != before
    assert sys.getswitchinterval() == before


async def test_a_fleet_that_cannot_be_made_is_explained_and_can_be_tried_again() -> None:
    calls = 0

    def make() -> FakeFleet:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("fleet.toml: [boxes.a] has no host\x1b[31m")
        return FakeFleet()

    app = RgtApp(make)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        text = screen_text(app)
        assert "the fleet did not start" in text
        assert "fleet.toml: [boxes.a] has no host" in text
        assert "Traceback" not in text
        assert "rgt doctor" in text
        await pilot.press("r")
        await settle(pilot)
        assert "vast-demo" in screen_text(app)


class Starts(FakeFleet):
    """Has no boxes until it has started, as the demo."""

    def __init__(self) -> None:
        super().__init__(FleetState((), (), NOW))
        self.may_start = asyncio.Event()

    async def start(self) -> None:
        await self.may_start.wait()
        self.push(demo_state())
        await super().start()


async def test_a_fleet_that_is_still_starting_is_not_called_empty() -> None:
    fleet = Starts()
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.fleet is fleet)
        for _ in range(3):
            app.tick(force=True)
            await pilot.pause()
        text = screen_text(app)
        assert (
            "connecting to the fleet" in text
            and "has no boxes" not in text
            and "rgt demo" not in text
        )
        fleet.may_start.set()
        await until(pilot, lambda: "vast-demo" in screen_text(app))


async def test_a_fleet_that_does_not_start_is_explained() -> None:
    class Broken(FakeFleet):
        async def start(self) -> None:
            raise OSError("no route to the jump host")

    async with running(Broken()) as (app, _, fleet):
        assert "no route to the jump host" in screen_text(app)
        assert isinstance(app.failure, OSError)
    assert fleet.stopped == 1


async def test_ctrl_q_quits_stops_the_fleet_once_and_says_that_the_boxes_go_on() -> None:
    async with running() as (app, pilot, fleet):
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert app.return_code == 0
    assert fleet.stopped == 1
    assert (
        app.farewell_line
        == "rgt has quit; the boxes keep running: autodl-demo, runpod-demo, vast-demo, lab-a100-2"
    )


async def test_a_caller_may_have_its_own_farewell() -> None:
    app = RgtApp(FakeFleet, farewell="the demo is over")
    assert app.farewell_line == "the demo is over"


async def test_a_fleet_that_hangs_does_not_keep_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["rgt_tui.ui.app"]
    monkeypatch.setattr(module, "APP_PACES", replace(module.APP_PACES, stop_s=0.01))

    class Hangs(FakeFleet):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    async with running(Hangs()) as (app, pilot, _):
        await pilot.press("ctrl+q")
        await pilot.pause()
        assert app.return_code == 0


async def test_escape_and_q_never_quit() -> None:
    async with running() as (app, pilot, _):
        for key in ("escape", "escape", "q", "q", "escape"):
            await pilot.press(key)
        await pilot.pause()
        assert app.return_code is None
        assert isinstance(app.screen, FleetScreen)
        assert "ctrl+q quits" in screen_text(app)


async def test_ctrl_c_says_how_to_quit_instead_of_quitting() -> None:
    async with running(keys=("ctrl+c",)) as (app, _, __):
        assert app.return_code is None
        assert "ctrl+q quits; the boxes keep running" in screen_text(app)


async def test_q_and_escape_go_back_from_a_box() -> None:
    async with running(keys=("enter",)) as (app, pilot, _):
        for key in ("q", "escape"):
            assert "rgt  fleet › vast-demo" in screen_text(app)
            await pilot.press(key)
            await settle(pilot)
            assert isinstance(app.screen, FleetScreen)
            await pilot.press("enter")
            await settle(pilot)


async def test_states_are_coalesced_to_the_redraw_tick() -> None:
    drawn: list[FleetState] = []
    async with running() as (app, pilot, fleet):
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        original = screen.receive_state

        def spy(state: FleetState, now: float) -> None:
            drawn.append(state)
            original(state, now)

        screen.receive_state = spy  # type: ignore[method-assign]
        for _ in range(50):
            fleet.push(demo_state())
        app.tick()
        app.tick()
        await pilot.pause()
        assert drawn == [fleet.state]


async def test_ages_are_drawn_anew_although_nothing_arrives() -> None:
    async with running(FleetState((running_box(),), (), NOW)) as (app, pilot, fleet):
        fleet.advance(2)
        app.tick()
        await pilot.pause()
        assert "2s" in screen_text(app).splitlines()[2]


async def test_the_fleet_knows_which_box_is_on_screen() -> None:
    async with running(keys=("enter", "q")) as (_, __, fleet):
        # A screen says it when it gets to the top, which may be twice.
        assert [box for box, _ in groupby(fleet.focused)][-2:] == ["vast-demo", None]


async def test_the_palette_has_every_command_of_the_screen() -> None:
    async with running(keys=("colon",)) as (app, pilot, _):
        assert isinstance(app.screen, CommandPalette)
        await pilot.press("escape")
        await pilot.pause()
        offered = [hit.text or "" async for hit in PaletteProvider(app.screen).discover()]
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        for command in screen.offered():
            assert any(command.title in text for text in offered) or command.id == "app.palette"


async def test_the_event_line_tells_the_last_event_and_hints_pass() -> None:
    async with running() as (app, pilot, _):
        line = app.screen.query_one(EventLine)
        assert "preempted at step 338" in screen_text(app)
        line.show_hint("for a moment")
        await pilot.pause()
        assert "for a moment" in screen_text(app)
        line.show_hint(None)
        await pilot.pause()
        assert "preempted at step 338" in screen_text(app)


async def test_no_color_has_no_colour_but_all_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with running() as (app, _, __):
        assert app.no_color
        assert "✖ vast-demo" in screen_text(app)
        assert "inodes" in screen_text(app)


async def test_themes_can_be_changed() -> None:
    async with running(keys=("ctrl+t",)) as (app, pilot, _):
        assert app.theme == "rgt-light"
        await pilot.press("ctrl+t", "ctrl+t", "ctrl+t")
        assert app.theme == "rgt-dark"
        assert "theme rgt-dark" in screen_text(app).splitlines()[-2]


@pytest.mark.parametrize("place", ["fleet", "box", "curves"])
async def test_readonly_offers_nothing_that_stops_a_meter(place: str) -> None:
    for readonly in (False, True):
        app = RgtApp(FakeFleet, readonly=readonly)
        async with app.run_test(size=(200, 50)) as pilot:
            await settle(pilot)
            if place != "fleet":
                app.open_screen(place, "vast-demo")
                await settle(pilot)
            assert ("tear down" in screen_text(app).splitlines()[-1]) is not readonly
            offered = [command.id for command in PaletteProvider(app.screen).current_commands()]
            assert ("box.teardown" in offered) is not readonly
            await pilot.press("D")
            await settle(pilot)
            assert (getattr(app.screen, "PLACE", "") == "tear down") is not readonly
            assert ("rgt was started with --readonly" in screen_text(app)) is readonly


async def test_what_is_on_top_of_a_box_that_is_no_more_is_closed_and_that_is_said() -> None:
    async with running(FakeFleet()) as (app, pilot, fleet):
        name = fleet.state.boxes[0].spec.name
        app.open_screen("box", name)
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        fleet.push(msgspec.structs.replace(fleet.state, boxes=fleet.state.boxes[1:]))
        app.tick(force=True)
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        assert f"{name} is no longer in the fleet file" in screen_text(app)
