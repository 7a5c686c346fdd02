"""The time machine: the fleet as it stood; every key of it, and what is refused there."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from rgt_tui.fleet.history.moment_fleet import MomentFleet
from rgt_tui.model import BoxSpec, FleetState, LinkState, ScreenPosition
from rgt_tui.store import FLEET, BoxWrites, FleetHistory, HistoryError
from rgt_tui.ui import RgtApp, notation
from rgt_tui.ui.screens import (
    BoxScreen,
    CurvesScreen,
    FleetScreen,
    HappeningList,
    JournalScreen,
    LogScreen,
    TimeMachineScreen,
    time_machine,
)
from rgt_tui.ui.widgets import text_of
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from tests.ui.fakes import NOW, FakeFleet, demo_state
from tests.ui.kept import HOUR, STORY, as_then, keep_night
from tests.ui.snap import running, screen_text, settle


@asynccontextmanager
async def machine(
    path: Path, *keys: str, opened: tuple[str, ...] = ("T",), size: tuple[int, int] = (120, 34)
) -> AsyncIterator[tuple[RgtApp, Pilot[None], FakeFleet]]:
    if not path.exists():
        path.write_bytes(night())
    history = FleetHistory(path, clock=lambda: NOW)
    fleet = FakeFleet()
    history.adopt_boxes([box.spec for box in fleet.state.boxes])
    fleet.chronicle = history
    try:
        async with running(lambda: fleet, size=size, keys=(*opened, *keys)) as (app, pilot, _):
            await settle(pilot)
            yield app, pilot, fleet
    finally:
        await history.close()


@cache
def night() -> bytes:
    """Return the file of the night, which is written once for all tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        keep_night(path).close()
        return path.read_bytes()


def past(app: RgtApp) -> MomentFleet:
    found = app.shown_fleet
    assert isinstance(found, MomentFleet)
    return found


def hours(app: RgtApp) -> float:
    return (past(app).shown_moment - NOW) / HOUR


async def say(pilot: Pilot[None], text: str) -> None:
    names = {" ": "space", ":": "colon", "-": "minus"}
    await pilot.press("slash", *(names.get(letter, letter) for letter in text), "enter")
    await settle(pilot)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


async def test_it_opens_at_the_last_event_and_esc_goes_back_to_now(path: Path) -> None:
    async with machine(path) as (app, pilot, fleet):
        assert isinstance(app.screen, TimeMachineScreen)
        assert hours(app) == STORY[-1][0]
        text = screen_text(app)
        assert "◀ 09:32:11 today, 30m00 ago ▶" in text
        assert "PAST read only" in text
        assert past(app).state.boxes[0].reason == f"as of {round(-0.5 * HOUR)}"
        await pilot.press("escape")
        await settle(pilot)
        assert app.shown_fleet is fleet
        assert "◀" not in screen_text(app)
        assert type(app.screen) is FleetScreen


async def test_arrows_go_from_event_to_event(path: Path) -> None:
    async with machine(path) as (app, pilot, _):
        for place in (-2, -3, -4):
            await pilot.press("left")
            await settle(pilot)
            assert hours(app) == pytest.approx(STORY[place][0])
            assert STORY[place][-1][:20] in screen_text(app)
        await pilot.press("right")
        await settle(pilot)
        assert hours(app) == pytest.approx(STORY[-3][0])
        await pilot.press(*["left"] * 9)
        await settle(pilot)
        assert hours(app) == pytest.approx(STORY[0][0])
        assert "no event before this" in screen_text(app)
        await pilot.press(*["right"] * 9)
        await settle(pilot)
        assert "that is the last event" in screen_text(app)


@pytest.mark.parametrize("keys", [("comma",), ("slash", *"05:02:30", "enter")])
async def test_the_event_that_an_arrow_went_to_is_not_said_of_another_moment(
    path: Path, keys: tuple[str, ...]
) -> None:
    async with machine(path) as (app, pilot, _):
        await pilot.press("left")
        await settle(pilot)
        said = f": {STORY[-2][-1]}"[:20]
        assert said in screen_text(app).splitlines()[-2]
        await pilot.press(*("colon" if key == ":" else key for key in keys))
        await settle(pilot)
        assert said not in screen_text(app).splitlines()[-2]


@pytest.mark.parametrize("slow", ["load_history", "show_position"])
async def test_no_arrow_is_lost_while_the_history_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    async with machine(path, opened=()) as (app, pilot, _):
        gate, reads = asyncio.Event(), getattr(MomentFleet, slow)

        async def held(self: MomentFleet, *place: Any) -> None:
            await gate.wait()
            await reads(self, *place)

        if slow == "open":
            monkeypatch.setattr(MomentFleet, slow, held)
        app.open_screen("time machine", None)
        await pilot.pause()
        if slow == "go":
            await settle(pilot)
            monkeypatch.setattr(MomentFleet, slow, held)
        await pilot.press("left", "left")
        gate.set()
        await settle(pilot)
        await app.workers.wait_for_complete([one for one in app.workers if one.group == "travel"])
        await settle(pilot)
        assert hours(app) == pytest.approx(STORY[-3][0])


async def test_comma_and_full_stop_go_by_the_minute_also_through_what_nobody_watched(
    path: Path,
) -> None:
    async with machine(path) as (app, pilot, _):
        await pilot.press("comma")
        await settle(pilot)
        assert past(app).shown_moment == NOW - 0.5 * HOUR - 60
        await pilot.press("comma")
        await settle(pilot)
        assert past(app).shown_moment == NOW - 0.5 * HOUR - 120
        state = past(app).state
        assert {box.link for box in state.boxes} == {LinkState.NOT_KEPT}
        assert "not kept" in screen_text(app)
        await pilot.press("full_stop", "full_stop")
        await settle(pilot)
        assert past(app).shown_moment == NOW - 0.5 * HOUR
        assert "not kept" not in screen_text(app)


async def test_slash_goes_to_a_time(path: Path) -> None:
    async with machine(path) as (app, pilot, _):
        await say(pilot, "05:02:30")
        assert hours(app) == pytest.approx(-5.0)  # the last moment by then
        await say(pilot, "3h")
        assert past(app).shown_moment == NOW - 3 * HOUR
        await say(pilot, "noon")
        assert "yesterday 14:00" in screen_text(app)
        await say(pilot, "3 days ago")
        assert "not kept: the first moment is 22:01" in screen_text(app)
        await say(pilot, "yesterday 23:59:59")
        assert past(app).state.at < NOW
        await pilot.press("slash", "1", "escape")
        await settle(pilot)
        assert isinstance(app.screen, TimeMachineScreen)


async def test_all_screens_are_of_that_moment(path: Path) -> None:
    async with machine(path, "left") as (app, pilot, _):
        moment = past(app).shown_moment
        for key, screen in (("enter", BoxScreen), ("l", LogScreen), ("c", CurvesScreen)):
            await pilot.press(key)
            await settle(pilot)
            assert isinstance(app.screen, screen)
            assert app.screen.now == moment
            assert "◀ 07:02:11 today" in screen_text(app)
            assert "following" not in screen_text(app), "nothing comes any more"
            await pilot.press("q")
            await settle(pilot)
        for key in ("a", "p", "H", "i"):
            await pilot.press(key)
            await settle(pilot)
            assert "◀ 07:02:11 today" in screen_text(app), key
            await pilot.press("q")
            await settle(pilot)


async def test_what_happens_now_does_not_show_in_the_past(path: Path) -> None:
    async with machine(path, "left", "enter") as (app, pilot, fleet):
        before = screen_text(app)
        fleet.advance(5)
        fleet.change("vast-demo", link=LinkState.UNREACHABLE, reason="gone away")
        fleet.push(msgspec.structs.replace(fleet.state, boxes=fleet.state.boxes[:1]))
        app.tick()
        await pilot.pause()
        assert screen_text(app) == before


@pytest.mark.parametrize("key", ["D", "r", "P", "I", "A", "m"])
async def test_nothing_can_be_done_to_the_past_and_the_keys_say_why(path: Path, key: str) -> None:
    async with machine(path, "left", key) as (app, pilot, fleet):
        assert "the past is read-only" in screen_text(app)
        await pilot.press("enter")
        await settle(pilot)
        await pilot.press(key)
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        if key in "DrPI":
            assert "the past is read-only" in screen_text(app)
        assert fleet.told == []


async def test_a_command_that_needs_the_present_names_the_moment(path: Path) -> None:
    async with machine(path, "left", "enter") as (app, _, _):
        screen = app.screen
        assert isinstance(screen, BoxScreen)
        reasons = {
            screen.why_not(command) for command in screen.commands() if "live" in command.needs
        }
        assert reasons == {past(app).why_nothing}


async def test_t_on_another_screen_of_the_past_goes_back_to_the_machine(path: Path) -> None:
    async with machine(path, "left", "enter", "l") as (app, pilot, _):
        moment = past(app).shown_moment
        await pilot.press("T")
        await settle(pilot)
        assert isinstance(app.screen, TimeMachineScreen)
        assert past(app).shown_moment == moment
        await pilot.press("T")
        await settle(pilot)
        assert "this is the time machine" in screen_text(app)


async def test_the_journal_and_the_machine_lead_to_each_other(path: Path) -> None:
    async with machine(path, "g", "T", opened=("J",)) as (app, pilot, _):
        assert isinstance(app.screen, TimeMachineScreen)
        assert hours(app) == pytest.approx(STORY[0][0])
        await pilot.press("right", "J")
        await settle(pilot)
        assert isinstance(app.screen, JournalScreen)
        shown = [row.text for row in app.screen.query_one(HappeningList)._happenings]
        assert shown == [text for *_, text in STORY[:2]]  # by then
        await pilot.press("g", "T")
        await settle(pilot)
        assert isinstance(app.screen, TimeMachineScreen)
        assert hours(app) == pytest.approx(STORY[0][0])


async def test_of_one_box_its_events_count_and_it_is_selected(path: Path) -> None:
    async with machine(path, opened=("o", "o", "j", "enter", "T")) as (app, _, fleet):
        assert isinstance(app.screen, TimeMachineScreen)
        name = app.screen._only
        assert name in {box.spec.name for box in fleet.state.boxes}
        assert app.screen.query_one(FleetTable).picked_key == name
        assert {row.box for row in app.screen._happened} <= {name}


async def test_y_takes_along_when_it_was_and_how_the_box_stood(
    path: Path, state_home: Path
) -> None:
    async with machine(path, "left", "y"):
        text = (state_home / "copied.txt").read_text()
        assert text.startswith("07:02:11 today, 3h00 ago  lab-a100-2: ")


async def test_where_nothing_is_kept_it_says_so_and_can_be_left(tmp_path: Path) -> None:
    async with running(keys=("T",)) as (app, pilot, _):
        assert "no history is kept here" in screen_text(app)
        await pilot.press("left", "comma", "slash", "escape", "D", "J")
        await settle(pilot)
        await pilot.press("escape", "escape")
        await settle(pilot)
        assert type(app.screen) is FleetScreen
    file = keep_night(tmp_path / "empty.db", minutes=False)
    file.close()
    async with machine(tmp_path / "empty.db") as (app, _, _):
        assert "nothing is recorded yet" in screen_text(app)


async def test_a_history_that_cannot_be_read_says_why(path: Path) -> None:
    class Broken(FleetHistory):
        async def read_timeline(self) -> object:  # type: ignore[override]
            raise HistoryError("the disk is full")

    fleet = FakeFleet()
    fleet.chronicle = Broken(path)  # type: ignore[assignment]
    async with running(lambda: fleet, keys=("T",)) as (app, _, _):
        assert "the history cannot be read: the disk is full" in screen_text(app)


async def test_a_box_that_has_left_the_fleet_is_there_as_it_stood(path: Path) -> None:
    state = demo_state(NOW)
    file = keep_night(path)
    gone = msgspec.structs.replace(state.boxes[0], spec=BoxSpec(name="gone-box", host="gone"))
    file.adopt_boxes([gone.spec])
    then = as_then(FleetState(boxes=(gone, *state.boxes)), NOW - 10 * 60)
    file.commit_batch({"gone-box": BoxWrites(), FLEET: BoxWrites(moments=(then,))})
    file.close()
    async with machine(path) as (app, pilot, _):
        await say(pilot, "10m")
        assert "gone-box" in screen_text(app)
        await pilot.press("J")
        await settle(pilot)
        assert isinstance(app.screen, JournalScreen)


def test_the_moment_is_one_that_screens_know_as_past() -> None:
    fleet = FakeFleet()
    assert not fleet.shows_past_moment
    assert MomentFleet(fleet, FleetHistory(Path("/nowhere")), print).shows_past_moment
    assert ScreenPosition(at=1.0).at == 1.0


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_the_hours_below_the_day_never_touch(width: int, tmp_path: Path) -> None:
    async with machine(tmp_path / "history.db", size=(width, 24)) as (app, _, _):
        hours = next(line for line in screen_text(app).splitlines() if "00:00 " in line[:8])
        assert not re.search(r"\d\d:\d\d ?\d\d:\d\d", hours), hours


def test_the_hours_below_a_day_on_which_the_clocks_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    for noon, seconds in (("2026-10-25T12:00", 25 * HOUR), ("2027-03-28T12:00", 23 * HOUR)):
        at = datetime.fromisoformat(noon).timestamp()
        day = time_machine.day_around(at)
        assert day[1] - day[0] == seconds
        hours = text_of(time_machine.hours_line(day, 250))
        strip = text_of(time_machine.strip_line(day, (), (), at, 250))
        assert hours.index("12:00") == strip.index(notation.current_glyphs().cursor), noon
