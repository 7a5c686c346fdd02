"""The journal: what happened, across restarts, below the report of the night; every key of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from textual.pilot import Pilot

from rgt_tui.fleet.history import morning_report
from rgt_tui.gate import ActionState, Receipt
from rgt_tui.model import Alert, BillingVerb, FleetEvent, Happening, ScreenPosition
from rgt_tui.store import BoxWrites, FleetHistory, HistoryError
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import (
    HappeningList,
    JournalScreen,
    LogScreen,
    ReceiptScreen,
    TeardownScreen,
    alert_of,
    find_durations,
    pack_words,
)
from rgt_tui.ui.screens.event_journal import row_lines
from rgt_tui.ui.widgets import READ_FROM, FittedLines, Line, RowChosen, Tone, text_of, width_of
from tests.ui.boxes import demo_state
from tests.ui.fakes import NOW, FakeFleet
from tests.ui.kept import HOUR, STORY, keep_night
from tests.ui.snap import running, screen_text, settle, until

PARKED = Receipt(
    action="a1",
    box="vast-demo",
    verb=BillingVerb.PARK,
    label="Stop",
    platform="Vast.ai",
    instance="9",
    who="han@desk",
    begun_at=NOW,
    call="PUT",
    state=ActionState.OFF,
    ended_at=NOW,
)


@asynccontextmanager
async def journal(
    path: Path,
    *keys: str,
    size: tuple[int, int] = (120, 34),
    more: int = 0,
    minutes: bool = False,
    opened: tuple[str, ...] = ("J",),
) -> AsyncIterator[tuple[RgtApp, Pilot[None], FakeFleet]]:
    keep_night(path, minutes=minutes, more=more).close()
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


def rows(app: RgtApp) -> list[str]:
    return [row.text for row in app.screen.query_one(HappeningList)._happenings]


def picked(app: RgtApp) -> Happening:
    found = app.screen.query_one(HappeningList).selected_event
    assert found is not None
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


async def test_it_shows_what_an_earlier_rgt_saw_of_all_boxes_the_newest_selected(
    path: Path,
) -> None:
    async with journal(path) as (app, _, _):
        assert isinstance(app.screen, JournalScreen)
        assert rows(app) == [text for *_, text in STORY]
        assert picked(app).text == "gpt-c started"
        text = screen_text(app)
        assert "2 errors, 1 over since" in text
        assert "6 events kept" in text


async def test_of_one_box_elsewhere(path: Path) -> None:
    async with journal(path, opened=("enter", "J")) as (app, _, _):
        assert app.screen.box_name == "vast-demo"  # type: ignore[attr-defined]
        assert rows(app) == [text for _, box, *_, text in STORY if box == "vast-demo"]
        assert "1 error, over since" in screen_text(app)


async def test_f_shows_errors_alone_and_slash_what_one_looks_for(path: Path) -> None:
    async with journal(path, "f") as (app, pilot, _):
        assert rows(app) == [text for *_, level, _, text in STORY if level == "error"]
        assert "errors only" in screen_text(app).splitlines()[0], (
            "the line of the keys says so always"
        )
        await pilot.press("f", "slash", *"GPT-A")
        await settle(pilot)
        assert rows(app) == [text for *_, text in STORY if "gpt-a" in text]
        await pilot.press("enter")
        await settle(pilot)
        assert "/GPT-A" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, JournalScreen)
        assert len(rows(app)) == len(STORY)
        await pilot.press("slash", *"nothing is called so", "enter")
        await settle(pilot)
        assert "nothing matches" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, JournalScreen)


async def test_enter_on_a_stop_opens_its_receipt_and_d_there_the_dialog(path: Path) -> None:
    async with journal(path, opened=()) as (app, pilot, fleet):
        fleet.chronicle = None
        fleet.receipts["vast-demo"] = PARKED
        ended = FleetEvent(NOW, "vast-demo", "parked by you: off", about=morning_report.ENDED)
        fleet.push(msgspec.structs.replace(fleet.state, events=(ended,)))
        await pilot.press("J")
        await settle(pilot)
        assert picked(app).about == morning_report.ENDED
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen) and app.screen.is_read)
        page = app.screen.query_one("#page")
        assert str(page.border_title) == "vast-demo: parked"
        assert "D ends what still bills" in str(page.border_subtitle)
        rows = app.screen.query_one(FittedLines).shown_lines
        (bills,) = [line for line in rows if text_of(line).startswith("still bills")]
        assert bills[1].tone is Tone.STRONG, "one of the rows to read first"
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, TeardownScreen))


async def test_enter_opens_the_log_at_that_moment(path: Path) -> None:
    async with journal(path, "g") as (app, pilot, _):
        row = picked(app)
        taken: list[object] = []
        made = app.open_screen

        def note(*arguments: object) -> None:
            taken.append(arguments)
            made(*arguments)  # type: ignore[arg-type]

        app.open_screen = note  # type: ignore[method-assign,assignment]
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        assert taken == [("log", "vast-demo", ScreenPosition(at=row.at))]


@pytest.mark.parametrize("about", ["stalled:lstm-a", "failed:lstm-a", "run:lstm-a"])
async def test_enter_opens_the_log_of_the_run_that_the_event_is_about(
    path: Path, about: str
) -> None:
    """Not that of the cell which runs now."""
    file = keep_night(path)
    file.commit_batch(
        {
            "vast-demo": BoxWrites(
                events=(FleetEvent(NOW - 5, "vast-demo", "lstm-a stands still", "warn", about),)
            )
        }
    )
    file.close()
    history = FleetHistory(path, clock=lambda: NOW)
    fleet = FakeFleet()
    history.adopt_boxes([one.spec for one in fleet.state.boxes])
    fleet.chronicle = history
    try:
        async with running(lambda: fleet, keys=("J", "G", "enter")) as (app, pilot, _):
            await settle(pilot)
            assert isinstance(app.screen, LogScreen)
            assert fleet.followed[-1] == ("vast-demo", "/jobs/demo/logs/lstm-a.log")
    finally:
        await history.close()


@pytest.mark.parametrize("again", [False, True])
async def test_enter_on_a_diagnosis_opens_the_log_at_the_line_that_proved_it(
    path: Path, again: bool
) -> None:
    """Across restarts: the box shows nothing of it any more, or the same anew by another line."""
    state = demo_state(NOW)
    box = next(
        box for box in state.boxes if box.findings and box.findings[0].where not in READ_FROM
    )
    finding = msgspec.structs.replace(box.findings[0], since=NOW - 5 * HOUR)
    about = f"finding:{finding.gotcha}:{finding.resource}"
    name = box.spec.name
    stood = [
        msgspec.structs.replace(one, findings=(finding,)) if one is box else one
        for one in state.boxes
    ]
    file = keep_night(path, msgspec.structs.replace(state, boxes=tuple(stood)))
    file.commit_batch(
        {name: BoxWrites(events=(FleetEvent(NOW - 5 * HOUR, name, "U7 again", "error", about),))}
    )
    file.close()
    history = FleetHistory(path, clock=lambda: NOW)
    fleet = FakeFleet()
    history.adopt_boxes([one.spec for one in fleet.state.boxes])
    fleet.chronicle = history
    other = msgspec.structs.replace(finding, since=NOW, evidence="another line")
    fleet.change(name, findings=(other,) if again else ())
    try:
        async with running(lambda: fleet, keys=("J", "G")) as (app, pilot, _):
            await settle(pilot)
            assert picked(app).about == about
            taken: list[object] = []
            made = app.open_screen

            def note(*arguments: object) -> None:
                taken.append(arguments)
                made(*arguments)  # type: ignore[arg-type]

            app.open_screen = note  # type: ignore[method-assign,assignment]
            await pilot.press("enter")
            await settle(pilot)
            assert isinstance(app.screen, LogScreen) and app.screen.box_name == name
            assert taken == [
                (
                    "log",
                    name,
                    ScreenPosition(at=NOW - 5 * HOUR, log=finding.where, text=finding.evidence),
                )
            ]
    finally:
        await history.close()


async def test_enter_while_the_rows_are_still_read_opens_the_log_when_they_are_there(
    path: Path,
) -> None:
    async with journal(path) as (app, pilot, fleet):
        assert fleet.chronicle is not None
        read, go = fleet.chronicle.read_event_page, asyncio.Event()

        async def slowly(*arguments: Any) -> Any:
            await go.wait()
            return await read(*arguments)

        fleet.chronicle.read_event_page = slowly  # type: ignore[method-assign,assignment]
        await pilot.press("slash", *"inodes", "enter", "enter")
        await pilot.pause()
        assert isinstance(app.screen, JournalScreen)
        go.set()
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)


async def test_enter_on_a_box_that_has_left_says_so(path: Path) -> None:
    async with journal(path, "g") as (app, pilot, fleet):
        state = fleet.state
        fleet.push(msgspec.structs.replace(state, boxes=state.boxes[:1]))
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "no longer in the fleet" in screen_text(app)


async def test_m_mutes_the_alert_that_the_event_is_about_while_it_holds(path: Path) -> None:
    async with journal(path, "g") as (app, pilot, fleet):
        fleet.change("vast-demo", alerts=(Alert("inodes:/workspace", "error", "full", since=NOW),))
        await settle(pilot)
        await pilot.press("m")
        assert fleet.told == [("mute", "vast-demo", "inodes:/workspace", 3600.0)]
        await pilot.press("G", "m")
        await settle(pilot)
        assert len(fleet.told) == 1
        assert "not active now" in screen_text(app)


async def test_y_takes_the_row_along(path: Path, state_home: Path) -> None:
    async with journal(path, "g", "y") as (_, _, _):
        text = (state_home / "copied.txt").read_text()
        assert "vast-demo  error  no inodes left" in text
        assert text.startswith("20")


async def test_moving_and_the_ends(path: Path) -> None:
    async with journal(path) as (app, pilot, _):
        for keys, place in (
            (("k",), -2),
            (("up", "up"), -4),
            (("j",), -3),
            (("g",), 0),
            (("G",), -1),
            (("home",), 0),
        ):
            await pilot.press(*keys)
            assert picked(app).text == STORY[place][-1]
        await pilot.press("end", "pageup")
        assert picked(app).text == STORY[0][-1]
        await pilot.press("pagedown", "J")
        assert picked(app).text == STORY[-1][-1]
        assert isinstance(app.screen, JournalScreen)


async def test_all_that_is_kept_is_reached_page_by_page(path: Path) -> None:
    async with journal(path, more=900) as (app, pilot, _):
        assert len(rows(app)) == 200
        assert "906 events kept" in screen_text(app)
        last = app.screen.query_one(HappeningList).shown_lines
        unseen = 200 - sum(bool(text_of(row).strip()) for row in last[:-1])
        assert text_of(last[-1]).strip() == f"{unseen} above and older ones"
        for _ in range(12):
            await pilot.press("g")
            await settle(pilot)
        found = rows(app)
        assert found[0] == "old event 0"
        assert text_of(app.screen.query_one(HappeningList).shown_lines[-1]).strip().startswith("▼ ")
        assert found[:900] == [f"old event {n}" for n in range(900)]
        assert len(found) == 906


async def test_an_older_page_that_no_longer_joins_the_rows_is_left_out(path: Path) -> None:
    async with journal(path, more=900) as (app, pilot, fleet):
        history, go = fleet.chronicle, asyncio.Event()
        assert isinstance(history, FleetHistory)
        read = history.read_event_page

        async def slowly(*arguments: Any) -> Any:
            found = await read(*arguments)
            if arguments[1] is not None:
                await go.wait()
            return found

        history.read_event_page = slowly  # type: ignore[method-assign,assignment]
        await pilot.press("g")
        news = [f"news {n}" for n in range(300)]
        events = tuple(FleetEvent(at=NOW, box="vast-demo", text=text) for text in news)
        history.put_batch({"vast-demo": BoxWrites(events=events)})
        fleet.advance(6)
        fleet.push(msgspec.structs.replace(fleet.state, at=NOW + 6))
        await until(pilot, lambda: rows(app) == news[100:])
        go.set()
        await settle(pilot)
        assert rows(app) == news[100:]


async def test_what_happens_meanwhile_comes_and_the_selection_stays(path: Path) -> None:
    async with journal(path) as (app, pilot, fleet):
        await pilot.press("k")
        history = fleet.chronicle
        assert isinstance(history, FleetHistory)
        history.put_batch(
            {"vast-demo": BoxWrites(events=(FleetEvent(at=NOW, box="vast-demo", text="just now"),))}
        )
        fleet.advance(6)
        fleet.push(msgspec.structs.replace(fleet.state, at=NOW + 6))
        await settle(pilot)
        await settle(pilot)
        assert rows(app)[-1] == "just now"
        assert picked(app).text == STORY[-2][-1]


async def test_without_a_history_there_is_what_this_rgt_has_seen() -> None:
    async with running(keys=("J",)) as (app, _, _):
        assert "no history is kept here" in screen_text(app)
        assert "preempted at step 338" in screen_text(app)


async def test_a_history_that_cannot_be_read_says_why(path: Path) -> None:
    class Broken(FleetHistory):
        async def read_event_page(self, *_: object) -> object:  # type: ignore[override]
            raise HistoryError("the disk is full")

        async def read_night(self, *_: object) -> object:  # type: ignore[override]
            raise HistoryError("the disk is full")

    fleet = FakeFleet()
    fleet.chronicle = Broken(path)  # type: ignore[assignment]
    async with running(lambda: fleet, keys=("J",)) as (app, _, _):
        assert "the history cannot be read: the disk is full" in screen_text(app)
        assert "0 errors" not in screen_text(app)


# The lines.


def happening(n: int, level: str, about: str, text: str = "x", box: str = "a") -> Happening:
    return Happening(n, NOW + n, box, text, level, about)


def one_line(
    row: Happening, width: int, names: int, now: float, *, held: float | None, stamps: int
) -> Line:
    (made,) = row_lines(row, width, names, now, held=held, stamps=stamps)
    return made


def test_an_end_is_marked_as_one_and_other_news_are_not() -> None:
    found = (
        happening(1, "error", "x"),
        happening(2, "info", "x"),
        happening(3, "info", "x"),
        happening(4, "info", ""),
    )
    assert find_durations(found) == {2: 1.0}


def test_hostile_text_is_harmless_in_a_row() -> None:
    row = happening(1, "error", "x", "bad \x1b[31m\n[b]text", "na\x07me")
    made = one_line(row, 60, 10, NOW, held=None, stamps=8)
    assert "\x1b" not in text_of(made)
    assert "\n" not in text_of(made)
    assert "[b]text" in text_of(made)
    assert width_of(made) == 60


def test_what_is_days_ago_has_its_date() -> None:
    old = Happening(1, NOW - 3 * 86400, "a", "x")
    assert "-" in text_of(one_line(old, 60, 0, NOW, held=None, stamps=14))
    assert (
        text_of(one_line(happening(1, "info", ""), 60, 0, NOW, held=None, stamps=8)).count("-") == 0
    )


def test_how_long_it_lasted_is_said_once() -> None:
    lasted = text_of(
        one_line(happening(1, "info", "p", "resumed from step 320"), 80, 0, NOW, held=9.0, stamps=8)
    )
    assert lasted.rstrip().endswith("resumed from step 320  after 9s")
    told = text_of(
        one_line(happening(1, "info", "link", "back after 11 s"), 80, 0, NOW, held=10.0, stamps=8)
    )
    assert told.rstrip().endswith("back after 11 s")


@pytest.mark.parametrize(
    ("about", "text", "shown"),
    [
        ("run:a", "a resumed after dinner", "a resumed after dinner  after 9s"),
        ("stalled:a", "a 恢复进展，历时 9s", "a 恢复进展，历时 9s"),
    ],
)
def test_whether_a_duration_is_added_depends_on_the_subject_not_on_words(
    about: str, text: str, shown: str
) -> None:
    row = happening(1, "info", about, text)
    assert text_of(one_line(row, 80, 0, NOW, held=9.0, stamps=8)).rstrip().endswith(shown)


def test_the_report_breaks_between_its_words_only() -> None:
    found = [
        morning_report.ReportEntry("spent", "$3.10"),
        morning_report.ReportEntry("wasted", "$0.40"),
        morning_report.ReportEntry("", "nothing known to be lost"),
    ]
    assert len(pack_words(found, 120)) == 1
    assert [text_of(made).strip() for made in pack_words(found, 25)] == [
        "spent $3.10",
        "wasted $0.40",
        "nothing known to be lost",
    ]


@pytest.mark.parametrize(
    ("about", "alert"),
    [
        ("inodes:/w", "inodes:/w"),
        ("run:lstm-a", "failed:lstm-a"),
        ("link", "unreachable"),
        ("meter", None),
        ("", None),
    ],
)
def test_which_alert_an_event_is_about(about: str, alert: str | None) -> None:
    held = [
        Alert(id_, "error", "x") for id_ in ("memory", "failed:lstm-a", "unreachable", "inodes:/w")
    ]
    found = alert_of(happening(1, "error", about), held)
    assert (None if found is None else found.id) == alert


def test_the_night_of_the_story_is_within_the_report() -> None:
    assert min(hours for hours, *_ in STORY) * HOUR > -9 * HOUR


LONG = "SP1 Stopped by a signal: preempted, or the queue was stopped: the run (asked to stop) (spot-lm)"


def test_the_selected_event_is_whole_and_nothing_else_moves() -> None:
    events = tuple(happening(n, "error", "x", LONG if n == 3 else f"event {n}") for n in range(9))
    listed = HappeningList()
    listed.show_events(events, "", NOW, named=True)
    listed.select_key("3")
    made = [text_of(row) for row in listed.make_lines(60, 20)]
    assert len(made) == 11 and all(len(row) <= 60 for row in made)
    assert " ".join(" ".join(row[15:].strip() for row in made[3:6]).split()).endswith(
        "(spot-lm)"
    ), made
    assert made[6].rstrip().endswith("event 4") and listed.selected_line() == 3
    listed.select_key("2")
    cut = [text_of(row) for row in listed.make_lines(60, 20)]
    assert len(cut) == 9 and cut[3].rstrip().endswith("…"), "the others stay in their lines"
    listed.select_key("3")
    low = [text_of(row) for row in listed.make_lines(60, 6)]
    assert len(low) == 6 and any("(spot-lm)" in row for row in low), (
        "it pushes others out, and is not cut by the edge"
    )
    assert listed.make_lines(60, 1)


@pytest.mark.parametrize(
    ("y", "picked"), [(2, 2), (3, 3), (4, 3), (5, 3), (6, 4), (10, 8), (11, None)]
)
def test_a_click_on_any_line_of_the_whole_event_is_a_click_on_it(
    y: int, picked: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tuple(happening(n, "error", "x", LONG if n == 3 else f"event {n}") for n in range(9))
    listed = HappeningList()
    said: list[RowChosen] = []
    monkeypatch.setattr(listed, "post_message", said.append)
    listed.show_events(events, "", NOW, named=True)
    listed.select_key("3")
    listed.make_lines(60, 20)
    listed.on_click(Click(y=y))  # type: ignore[arg-type]
    assert [one.key for one in said][:1] == ([] if picked is None else [str(picked)])
    assert any(one.opened for one in said) == (picked == 3), "what is selected already is opened"


class Click(NamedTuple):
    y: int
