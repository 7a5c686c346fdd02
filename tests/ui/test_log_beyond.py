"""What of a log is on the box alone: older lines on pgup, a search over all of it, the lines around a hit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec
import pytest

from rgt_tui.fleet import box_logs
from rgt_tui.fleet.box_logs import BoxHit, BoxLog, BoxSearch, LogPiece
from rgt_tui.fleet.kept_lines import FilePlace, KeptLines, keep_from_view
from rgt_tui.model import FleetState, Hello, LogView, ScreenPosition
from rgt_tui.ui import clock_or_dash
from rgt_tui.ui.line_times import read_written_time
from rgt_tui.ui.screens import LogScreen, zone_of
from tests.ui.boxes import NOW, running_box
from tests.ui.fakes import FakeFleet
from tests.ui.snap import running, screen_text, settle
from tests.ui.test_log_screen import LOG, event_line, here, pane

ALL = [
    f"line {number} of the log" + (" needle" if number in (17, 9000) else "")
    for number in range(1, 20_001)
]
DATA = "".join(f"{line}\n" for line in ALL).encode()


class LogFleet(FakeFleet):
    """Has a whole log at the other end, and keeps what is read of it."""

    keeps_logs = True

    def __init__(self, shown: int = 200, data: bytes = DATA) -> None:
        lines = tuple(data.decode().splitlines()[-shown:])
        box = msgspec.structs.replace(running_box(), logs=(LogView(LOG, lines, 0, NOW),))
        super().__init__(FleetState((box,), (), NOW))
        self.data = data
        self.kept: dict[str, KeptLines] = {}
        self.left: list[str] = []
        self.asked: list[tuple[int, int]] = []
        self.error: Exception | None = None

    def keep_log(self, box: str, path: str) -> KeptLines | None:
        view = next((view for view in self.state.boxes[0].logs if view.path == path), None)
        if view is not None and path not in self.kept:
            self.kept[path] = keep_from_view(view, 7, len(self.data))
        return self.kept.get(path)

    def leave_log(self, box: str, path: str) -> None:
        self.left.append(path)

    def box_log(self, box: str, path: str) -> BoxLog:
        return FakeBoxLog(self, path)


class FakeBoxLog(BoxLog):
    """Answers what the agent of a box would."""

    def __init__(self, fleet: LogFleet, path: str) -> None:
        super().__init__(lambda: pytest.fail("no box is there"), path)
        self.fleet = fleet

    async def read_piece(self, inode: int, start: int, stop: int) -> LogPiece:
        if self.fleet.error is not None:
            raise self.fleet.error
        assert inode == 7
        self.fleet.asked.append((start, stop))
        data = self.fleet.data[:stop]
        first = (
            start if start == 0 or data[start - 1 : start] == b"\n" else data.find(b"\n", start) + 1
        )
        end = data.rfind(b"\n") + 1
        lines = tuple(data[first:end].decode().splitlines()) if first < end else ()
        size = len(self.fleet.data)
        return LogPiece(lines=lines, place=FilePlace(7, first), end=max(first, end), size=size)

    async def find_line(self, line: int) -> FilePlace:
        return FilePlace(7, sum(len(row) + 1 for row in ALL[: line - 1]))

    async def count_before(self, place: FilePlace) -> int:
        return self.fleet.data[: place.offset].count(b"\n")

    async def search_log(
        self, wanted: str, *, fixed: bool, fold: bool, each: Callable[[BoxSearch], None]
    ) -> BoxSearch:
        if self.fleet.error is not None:
            raise self.fleet.error
        pattern = re.compile(re.escape(wanted) if fixed else wanted, re.IGNORECASE if fold else 0)
        found = [number for number, line in enumerate(ALL) if pattern.search(line)]
        for number in reversed(found):
            at = sum(len(row) + 1 for row in ALL[:number])
            each(BoxSearch(hits=(BoxHit(text=ALL[number], place=FilePlace(7, at)),)))
        each(BoxSearch(matches=len(found), read=1000))
        return BoxSearch(matches=len(found), read=len(self.fleet.data), ended=True)


async def test_older_lines_come_on_pgup_at_the_top_until_the_first_of_all() -> None:
    fleet = LogFleet()
    async with running(lambda: fleet, keys=("l",)) as (app, pilot, _):
        assert "19,800 older on the box: pgup" in screen_text(app)
        await pilot.press("g")
        await settle(pilot)
        assert "··· 19,800 older on the box: pgup loads ···" in screen_text(app)
        assert here(app) == ALL[-200]
        await pilot.press("pageup")
        await settle(pilot)
        assert event_line(app).endswith("lines are kept here now")
        kept = fleet.kept[LOG]
        assert kept.read_lines(kept.first_number, kept.end) == ALL
        assert ALL.index(here(app)) in range(20_000 - 200 - 40, 20_000 - 200), "one page up"
        assert "older on the box" not in screen_text(app)
        await pilot.press("g", "pageup")
        await settle(pilot)
        assert event_line(app) == "this is the beginning of the log"
        await pilot.press("slash", *"needle", "enter")
        await settle(pilot)
        assert "/needle match 2 of 2" in screen_text(app)
        assert here(app) == ALL[8999]
        await pilot.press("escape", "escape")
        await settle(pilot)
    assert fleet.left == [LOG]


async def test_a_box_that_does_not_answer_is_said_and_nothing_is_lost() -> None:
    fleet = LogFleet()
    fleet.error = RuntimeError("that part of the log is \x1b[31mno longer on the box")
    async with running(lambda: fleet, keys=("l", "g", "pageup")) as (app, pilot, _):
        assert event_line(app) == "no older lines: that part of the log is no longer on the box"
        assert here(app) == ALL[-200]
        await pilot.press("b", *"needle", "enter")
        await settle(pilot)
        assert event_line(app).startswith("not searched: that part of the log")
        assert "gpt-c.log" in screen_text(app)


async def test_a_line_that_is_longer_than_a_piece() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box_logs, "PIECE_BYTES", 100)
        patch.setattr(box_logs, "LARGEST_PIECE", 2000)
        fleet = LogFleet(1, b"first\n" + b"x" * 1000 + b"\nlast\n")
        async with running(lambda: fleet, keys=("l", "pageup", "pageup")) as (app, pilot, _):
            await pilot.press("g")
            await settle(pilot)
            assert [stop - start for start, stop in fleet.asked] == [100, 100, 400, 1007]
            assert here(app) == "first"


async def test_what_is_found_on_the_box_is_listed_and_enter_loads_the_lines_around_it() -> None:
    fleet = LogFleet()
    async with running(lambda: fleet, keys=("l", "b", *"NEEDLE|needle", "enter")) as (
        app,
        pilot,
        _,
    ):
        assert "/NEEDLE|needle on the box: 2 lines in" in screen_text(app)
        assert ALL[8999] in screen_text(app)
        assert ALL[16] in screen_text(app)
        await pilot.press("enter")
        await settle(pilot)
        assert here(app) == ALL[8999]
        assert ALL[9005] in screen_text(app)
        text = screen_text(app)
        assert "gpt-c.log at" in text
        await pilot.press("G", "pagedown", "pagedown")
        await settle(pilot)
        assert ALL.index(here(app)) > 12_000, "newer lines came"
        await pilot.press("g", "pageup")
        await settle(pilot)
        assert "lines are kept here now" in event_line(app)
        await pilot.press("escape")
        await settle(pilot)
        assert "on the box: 2 lines" in screen_text(app), "back to what was found"
        assert here(app) == ALL[8999], "where one was"
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        assert "following" in screen_text(app)
        assert ALL[-1] in screen_text(app)


async def test_a_spot_that_is_not_kept_here_is_fetched_by_its_number_or_found_by_its_text() -> None:
    for spot in (
        ScreenPosition(log=LOG, line_no=9000),
        ScreenPosition(log=LOG, text="line 9000 of the log needle"),
    ):
        fleet = LogFleet()
        async with running(lambda: fleet) as (app, pilot, _):  # noqa: B023
            app.open_screen("log", "autodl-demo", spot)
            await settle(pilot)
            await settle(pilot)
            if spot.line_no is None:
                await pilot.press("g", "enter")
                await settle(pilot)
            assert here(app) == ALL[8999]
            await pilot.press("F")
            await settle(pilot)
            assert pane(app).cursor.following
            assert ALL[-1] in screen_text(app)


DATED = "".join(
    time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(NOW - 20_000 + at)) + f" step {at} loss 1\n"
    for at in range(20_000)
).encode()


def timed_fleet(utc_offset: float | None) -> LogFleet:
    """A log of a line a second, in the zone of its box."""
    fleet = LogFleet(data=DATED)
    hello = fleet.state.boxes[0].hello or Hello(
        proto=1, agent="a", boot="b", host="h", python="3.11", pid=1, at=NOW
    )
    fleet.change(
        "autodl-demo", hello=msgspec.structs.replace(hello, utc_offset=utc_offset), clock_skew=0.0
    )
    return fleet


@pytest.mark.parametrize(
    "spot", [ScreenPosition(at=NOW - 9000.5), ScreenPosition(at=NOW - 8990.0, step=10_999)]
)
async def test_the_lines_of_a_moment_are_fetched_where_they_are_not_kept(
    spot: ScreenPosition,
) -> None:
    fleet = timed_fleet(0.0)
    async with running(lambda: fleet) as (app, pilot, _):
        app.open_screen("log", "autodl-demo", spot)
        await settle(pilot)
        await settle(pilot)
        assert here(app).endswith(" step 10999 loss 1")
        assert fleet.asked, "they were not among the newest"


async def test_a_moment_of_which_nobody_knows_the_line_is_said() -> None:
    fleet = timed_fleet(None)
    async with running(lambda: fleet) as (app, pilot, _):
        app.open_screen("log", "autodl-demo", ScreenPosition(at=NOW - 9000))
        await settle(pilot)
        await settle(pilot)
        assert event_line(app).startswith("that line was not found")
        assert pane(app).cursor.following


async def test_a_box_that_tells_an_absurd_zone_tells_none() -> None:
    for absurd in (1e308, float("nan"), -86401.0):
        assert zone_of(timed_fleet(absurd).state.boxes[0]) is None
    assert zone_of(timed_fleet(28800.0).state.boxes[0]) == 28800.0


@pytest.mark.parametrize(("skew", "zone"), [(0.004, 0.0), (-0.3, 0.0), (61.7, 62.0)])
async def test_lines_show_the_second_that_they_say_though_no_two_clocks_are_quite_alike(
    skew: float, zone: float
) -> None:
    fleet = timed_fleet(0.0)
    fleet.change("autodl-demo", clock_skew=skew)
    assert zone_of(fleet.state.boxes[0]) == zone
    async with running(lambda: fleet, keys=("l", "t")) as (app, pilot, _):
        await settle(pilot)
        (row, *_) = (row for row in screen_text(app).splitlines() if "step" in row)
        said = read_written_time(row.partition("  ")[2])
        assert said is not None, row
        assert row.split()[1] == clock_or_dash(said.seconds - zone)


async def test_a_fleet_that_keeps_no_logs_says_so() -> None:
    box = msgspec.structs.replace(running_box(), logs=(LogView(LOG, ("only this",), 0, NOW),))
    async with running(FleetState((box,), (), NOW), keys=("l", "pageup")) as (app, pilot, _):
        assert event_line(app) == "this is the first line kept here"
        await pilot.press("b")
        await settle(pilot)
        assert event_line(app).startswith("only a box that is connected can be searched")


async def test_older_lines_come_through_a_filter_and_a_merge_says_that_it_has_none() -> None:
    fleet = LogFleet()
    second = LogView("/jobs/demo/second.log", ("a second log",), 0, NOW)
    fleet.change("autodl-demo", logs=(*fleet.state.boxes[0].logs, second))
    async with running(lambda: fleet, keys=("l", "ampersand", *"needle", "enter", "pageup")) as (
        app,
        pilot,
        _,
    ):
        assert "line 9000 of the log needle" in screen_text(app), (
            "what matches farther up is there now"
        )
        await pilot.press("escape", "plus", "g")
        await settle(pilot)
        await pilot.press("pageup")
        assert "older lines can be loaded for one log only; + ends the merge" in event_line(app)
