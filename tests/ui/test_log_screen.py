"""The log on the whole screen: every key, what it says, and the ways from a line."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from unittest import mock

import msgspec
import pytest

from rgt_tui.fleet.kept_lines import LineBlock
from rgt_tui.model import BoxState, FleetState, Hello, LogView, ScreenPosition
from rgt_tui.ui import RgtApp, copied_path
from rgt_tui.ui.line_finder import Re2Finder
from rgt_tui.ui.log_rows import step_of
from rgt_tui.ui.screens import (
    CurvesScreen,
    FleetAwareScreen,
    HandbookScreen,
    LogScreen,
    log_with_steps,
)
from rgt_tui.ui.widgets import LineWidget, LogPane, Tone, text_of
from tests.ui.boxes import NOW, lost_box, running_box, trouble_box
from tests.ui.snap import running, screen_text, settle, until

LOG = "/jobs/demo/logs/gpt-c.log"
STEPS = tuple(f"2026-03-01 10:00:{at:02d} step {400 + at} loss 1.{at:02d}" for at in range(60))


def box_with(*lines: str, more: tuple[LogView, ...] = (), dropped: int = 0) -> FleetState:
    box = msgspec.structs.replace(running_box(), logs=(LogView(LOG, lines, dropped, NOW), *more))
    return FleetState((box,), (), NOW)


def pane(app: RgtApp) -> LogPane:
    return app.screen.query_one("#log", LogPane)


def here(app: RgtApp) -> str:
    return pane(app).chosen_lines()[0]


def event_line(app: RgtApp) -> str:
    return text_of(app.screen.query_one("#event", LineWidget).shown_lines[0]).strip()


def key_line(app: RgtApp) -> str:
    return screen_text(app).splitlines()[-1]


async def test_a_search_is_counted_and_goes_around_the_end() -> None:
    lines = [*STEPS, "NaN at step 7", *STEPS, "nan again", *STEPS]
    async with running(box_with(*lines), keys=("l", "slash", *"nan|inf")) as (app, pilot, _):
        await pilot.press("enter")
        await settle(pilot)
        assert here(app) == "nan again"
        assert "/nan|inf match 2 of 2" in screen_text(app)
        assert "n next match" in key_line(app)
        await pilot.press("n")
        await settle(pilot)
        assert here(app) == "NaN at step 7"
        assert event_line(app) == "after the last match: continuing with the first one"
        await pilot.press("N")
        await settle(pilot)
        assert here(app) == "nan again"
        assert event_line(app) == "before the first match: continuing with the last one"
        marked = [span for row in pane(app).shown_lines for span in row if span.tone is Tone.MATCH]
        assert "nan" in {span.text for span in marked}
        await pilot.press("escape")
        await settle(pilot)
        assert pane(app).searched_text == ""
        assert "next match" not in key_line(app)
        await pilot.press("n")
        await settle(pilot)
        assert event_line(app) == "no active search; / starts one"


async def test_a_wrong_expression_says_so_in_the_entry_line_and_is_searched_as_text() -> None:
    async with running(box_with(*STEPS, "LOSS ( of all"), keys=("l", "slash", *"loss (")) as (
        app,
        pilot,
        _,
    ):
        assert "not a regular expression (missing )" in screen_text(app)
        assert pane(app).count_matches() == 1
        await pilot.press("enter")
        await settle(pilot)
        assert here(app) == "LOSS ( of all"
        await pilot.press("slash", "end", "backspace", "backspace")
        await settle(pilot)
        assert "not a regular" not in screen_text(app)
        assert pane(app).count_matches() == 61


async def test_matches_are_counted_as_lines_come() -> None:
    async with running(box_with(*STEPS, "nan"), keys=("l", "slash", *"nan", "enter")) as (
        app,
        pilot,
        fleet,
    ):
        assert "/nan match 1 of 1" in screen_text(app)
        fleet.push(box_with(*STEPS, "nan", *STEPS, "nan"))
        await settle(pilot)
        await settle(pilot)
        assert "/nan match 1 of 2" in screen_text(app)
        assert "+61 lines  F follows" in screen_text(app)


@pytest.mark.parametrize("typed", ["errors", "nan|errno"])
async def test_only_matching_lines_are_shown(typed: str) -> None:
    lines = [*STEPS, "OSError: [Errno 28] No space left on device", *STEPS, "loss is nan", *STEPS]
    async with running(box_with(*lines), keys=("l", "ampersand", *typed, "enter")) as (
        app,
        pilot,
        fleet,
    ):
        text = screen_text(app)
        assert f"& {typed} 2" in text
        assert "Errno 28" in text
        assert "loss is nan" in text
        assert "step 4" not in text
        fleet.push(box_with(*lines, "RuntimeError: nan in backward"))
        await settle(pilot)
        await settle(pilot)
        assert "RuntimeError: nan in backward" in screen_text(app)
        await pilot.press("slash", *"space", "enter")
        await settle(pilot)
        assert "Errno" in here(app)
        await pilot.press("escape", "escape")
        await settle(pilot)
        assert pane(app).filtered_text == ""
        assert "Errno" in here(app), "one stays where one was"
        assert "step 401" in screen_text(app)


async def test_nothing_matches_a_filter() -> None:
    async with running(box_with(*STEPS), keys=("l", "ampersand", *"zebra", "enter")) as (
        app,
        _,
        _fleet,
    ):
        assert "no line matches zebra in the lines kept here" in screen_text(app)


def blocked_finder(
    go: threading.Event, hits: tuple[int, ...] = ()
) -> AbstractContextManager[object]:
    """Have expressions searched in a thread, which answers once `go` is set."""

    def find(_finder: object, block: LineBlock) -> list[tuple[int, str]]:
        assert go.wait(60)
        return [(block.first + hit, "") for hit in hits]

    return mock.patch.multiple(Re2Finder, find_lines=find, quick=False)


async def test_a_filter_that_is_still_looked_for_does_not_say_that_nothing_matches() -> None:
    slow = "x|zebra"
    go = threading.Event()
    with blocked_finder(go):
        async with running(box_with(*STEPS), keys=("l",)) as (app, pilot, _):
            pane(app).filter_by(slow)
            await pilot.pause()
            assert f"looking for {slow}" in screen_text(app)
            assert f"& {slow} 0+" in screen_text(app)
            go.set()
            await until(pilot, lambda: "no line matches" in screen_text(app))


async def test_what_was_looked_for_is_no_longer_said_to_be_once_it_is_found() -> None:
    go = threading.Event()
    with blocked_finder(go, (7,)):
        async with running(box_with(*STEPS), keys=("l",)) as (app, pilot, _):
            await pilot.press("slash", *"x|y", "enter")
            await pilot.pause()
            assert event_line(app) == "looking for the next match …"
            go.set()
            await until(pilot, lambda: here(app) == STEPS[7])
            assert "looking for" not in event_line(app)


async def test_errors_are_gone_to_around_the_end() -> None:
    lines = [*STEPS, "KeyError: 1", *STEPS, "KeyError: 2", *STEPS]
    async with running(box_with(*lines), keys=("l", "E")) as (app, pilot, _):
        assert here(app) == "KeyError: 2"
        await pilot.press("e")
        await settle(pilot)
        assert here(app) == "KeyError: 1"
        assert event_line(app) == "after the last error: continuing with the first one"
        await pilot.press("e")
        await settle(pilot)
        assert here(app) == "KeyError: 2"
        assert "✖ KeyError: 2" in screen_text(app)
    async with running(box_with(*STEPS), keys=("l", "e")) as (app, _, _fleet):
        assert event_line(app) == "no error in the lines kept here"


async def test_times_stand_in_front_of_lines() -> None:
    async with running(box_with(STEPS[0], "no time"), keys=("l", "t")) as (app, pilot, fleet):
        assert "10:00:00   2026-03-01 10:00:00 step 400" in screen_text(app)
        assert event_line(app) == "when each line was written"
        fleet.advance(5)
        view = LogView(LOG, (STEPS[0], "no time", "new"), 0, NOW + 5)
        fleet.change("autodl-demo", logs=(view,))
        fleet.advance(7)
        await pilot.press("t")
        await settle(pilot)
        rows = [row for row in screen_text(app).splitlines() if "no time" in row or " new" in row]
        assert [row.split()[1] for row in rows] == ["–", "7s"], (
            "when the first ones were written, nobody knows"
        )
        await pilot.press("t")
        await settle(pilot)
        assert event_line(app) == "no times"


async def test_long_lines_are_wrapped_and_the_selected_one_stays_in_sight() -> None:
    long = ["start " + "x" * 200 + f" end{index}" for index in range(40)]
    async with running(box_with(*long), size=(80, 24), keys=("l", "w")) as (app, pilot, _):
        assert "end39" in screen_text(app)
        await pilot.press(*["k"] * 9)
        await settle(pilot)
        assert "end30" in screen_text(app)
        await pilot.press("g")
        await settle(pilot)
        assert "end0" in screen_text(app)
        assert "end39" not in screen_text(app)


async def test_lines_are_selected_and_copied(state_home: object) -> None:
    async with running(box_with(*STEPS), keys=("l", "y")) as (app, pilot, _):
        assert app.clipboard == STEPS[-1]
        await pilot.press("k", "v", "k", "k")
        await settle(pilot)
        assert "3 lines selected" in screen_text(app)
        await pilot.press("y")
        await settle(pilot)
        assert app.clipboard == "\n".join(STEPS[-4:-1])
        assert event_line(app).startswith("copied 3 lines; also in ")
        await pilot.press("escape")
        await settle(pilot)
        assert "lines selected" not in screen_text(app)
        await pilot.press("shift+down", "y")
        await settle(pilot)
        assert app.clipboard == "\n".join(STEPS[-4:-2])
        await pilot.press("shift+up", "shift+up", "y")
        await settle(pilot)
        assert app.clipboard == "\n".join(STEPS[-5:-3])
        import os

        assert copied_path(os.environ).read_text() == "\n".join(STEPS[-5:-3]) + "\n"


async def test_the_mouse_selects_text_and_a_line() -> None:
    async with running(box_with(*STEPS), size=(120, 34), keys=("l",)) as (app, pilot, _):
        log = app.screen.query_one("#log", LogPane)
        row = next(y for y, line in enumerate(log.shown_lines) if "step 440" in text_of(line))
        await pilot.click("#log", offset=(30, row))
        await settle(pilot)
        assert here(app) == STEPS[40]
        column = text_of(log.shown_lines[row]).index("step")
        await pilot.mouse_down("#log", offset=(column, row))
        await pilot.hover("#log", offset=(column + 4, row))
        await pilot.mouse_up("#log", offset=(column + 7, row))
        await settle(pilot)
        await pilot.press("y")
        await settle(pilot)
        assert app.clipboard == "step 440"


async def test_what_a_line_shows_stands_in_its_margin_and_enter_opens_the_page() -> None:
    fleet = FleetState((trouble_box(),), (), NOW)
    async with running(fleet, keys=("l", "E")) as (app, pilot, _):
        row = next(row for row in screen_text(app).splitlines() if "Errno 28" in row)
        assert row.rstrip(" │").endswith("◀ U7")
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, HandbookScreen)
        assert app.screen.picked_page is not None
        assert app.screen.picked_page.id == "U7"
        assert app.screen.spot is None


async def test_the_handbook_is_looked_through_for_lines_that_no_finding_names() -> None:
    lines = (*STEPS, "ModuleNotFoundError: No module named 'einops'", *STEPS)
    async with running(box_with(*lines), keys=("l", "e")) as (app, pilot, _):
        assert "einops" in here(app)
        row = next(row for row in screen_text(app).splitlines() if "einops" in row)
        assert "◀ " in row
        await pilot.press("j", "enter")
        await settle(pilot)
        assert event_line(app) == "the handbook has no page for this line; e goes to the next error"


async def test_logs_are_merged_by_time() -> None:
    other = LogView("/jobs/demo/runner.log", ("2026-03-01 10:00:30 START gpt-d",), 0, NOW)
    third = LogView("/jobs/demo/third.log", ("2026-03-01 10:00:31 third",), 0, NOW)
    state = box_with(*STEPS, more=(other, third))
    async with running(state, size=(120, 80), keys=("l", "plus")) as (app, pilot, _):
        text = screen_text(app)
        assert "gpt-c.log + runner.log, by time" in text
        rows = text.splitlines()
        place = next(index for index, row in enumerate(rows) if "START gpt-d" in row)
        assert "runner.log" in rows[place]
        assert "step 430" in rows[place - 1] + rows[place + 1]
        await pilot.press("plus")
        await settle(pilot)
        assert "gpt-c.log + runner.log + third.log, by time" in screen_text(app)
        await pilot.press("slash", *"START", "enter")
        await settle(pilot)
        assert "START" in here(app)
        await pilot.press("plus")
        await settle(pilot)
        assert "by time" not in screen_text(app)
    async with running(box_with(*STEPS), keys=("l", "plus")) as (app, _, _fleet):
        assert event_line(app) == "the box has no other log"


async def test_of_merged_logs_the_newest_line_of_all_is_the_last_one() -> None:
    other = LogView("/jobs/demo/runner.log", ("2026-03-01 10:00:30 START gpt-d",), 0, NOW + 600)
    state = box_with(*STEPS, more=(other,))
    async with running(state, keys=("l",)) as (app, pilot, fleet):
        fleet.advance(601)
        await settle(pilot)
        assert "last line 10m" in screen_text(app)
        await pilot.press("plus")
        await settle(pilot)
        assert "by time" in screen_text(app)
        assert "last line" not in screen_text(app)


async def test_the_curve_opens_at_the_step_that_the_line_names() -> None:
    async with running(box_with(*STEPS), keys=("l", "k", "k")) as (app, pilot, _):
        assert here(app).startswith("2026-03-01 10:00:57 step 457"), here(app)
        await pilot.press("c")
        await settle(pilot)
        assert isinstance(app.screen, CurvesScreen) and app.screen.box_name == "autodl-demo"
        assert app.screen.settings.crosshair_x == 457.0


@pytest.mark.parametrize("midnight", [False, True])
async def test_a_moment_is_found_in_a_log_whose_lines_have_no_date(midnight: bool) -> None:
    """As the journal and a curve ask for it; what day is not certain is said, and not guessed."""
    ended = NOW - NOW % 86_400 + (300 if midnight else 30_000)
    moments = [ended - 40_000, *(ended - 600 + 30 * n for n in range(21))]
    lines = tuple(
        f"{time.strftime('%H:%M:%S', time.gmtime(at))} step {n}" for n, at in enumerate(moments)
    )
    box = msgspec.structs.replace(
        running_box(),
        hello=Hello(
            proto=1, agent="a", boot="b", host="h", python="3.12", pid=1, at=NOW, utc_offset=0.0
        ),
        logs=(LogView(LOG, lines, at=NOW, written=ended),),
    )
    async with running(FleetState((box,), (), NOW)) as (app, pilot, _):
        for spot, line in (
            (ScreenPosition(at=ended - 390), 8),
            (ScreenPosition(at=ended - 300, step=12), 12),
        ):
            app.open_screen("log", "autodl-demo", spot)
            await settle(pilot)
            assert here(app) == lines[line]
            await pilot.press("q")
            await settle(pilot)
        app.open_screen("log", "autodl-demo", ScreenPosition(at=ended - 30_000))
        await settle(pilot)
        clock = lines[0].split()[0]
        assert event_line(app) == (
            f"that line is not among those kept here: lines up to {clock} have no date, and their day is not certain"
        )


def test_a_step_is_read_from_a_line() -> None:
    assert step_of("step 1,812 loss 2.0") == 1812
    assert step_of("global_step=7") == 7
    assert step_of('{"step": 12}') == 12
    assert step_of("iter 40/100") == 40
    assert step_of("steps are many") is None


@pytest.mark.parametrize(
    ("spot", "line"),
    [
        (ScreenPosition(log="/jobs/demo/other.log", text="needle"), "a needle here"),
        (ScreenPosition(text="step 420"), STEPS[20]),
        (ScreenPosition(text="never written"), None),
    ],
)
async def test_the_screen_opens_at_a_spot(spot: ScreenPosition, line: str | None) -> None:
    other = LogView("/jobs/demo/other.log", ("one", "a needle here", "three"), 0, NOW)
    async with running(box_with(*STEPS, more=(other,))) as (app, pilot, _):
        app.open_screen("log", "autodl-demo", spot)
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        if line is None:
            assert event_line(app) == "that line is not among those kept here"
        else:
            assert here(app) == line
        assert app.screen.spot is None


async def test_a_log_that_nobody_chose_stays_whichever_moves_last() -> None:
    """Of a box without a queue: its logs are written in turn."""
    box = msgspec.structs.replace(running_box(), queues=())

    def moved(first: float, second: float) -> tuple[LogView, ...]:
        return LogView("/x/a.log", STEPS, 0, first), LogView("/x/b.log", ("loaded",), 0, second)

    state = FleetState((msgspec.structs.replace(box, logs=moved(NOW, NOW - 1)),), (), NOW)
    async with running(state, keys=("l", "k")) as (app, pilot, fleet):
        read = here(app)
        fleet.change("autodl-demo", logs=moved(NOW, NOW + 1))
        await settle(pilot)
        assert (pane(app).log_path, here(app)) == ("/x/a.log", read)
        await pilot.press("F")
        await settle(pilot)
        assert pane(app).log_path == "/x/a.log"
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert pane(app).log_path == "/x/b.log"


async def test_the_logs_of_a_box_are_gone_through_both_ways_and_around() -> None:
    more = tuple(LogView(f"/x/{name}.log", (f"said by {name}",), 0, NOW) for name in "bc")
    async with running(box_with(*STEPS, more=more), keys=("l",)) as (app, pilot, _):
        assert pane(app).log_path == LOG
        seen = []
        for key in (
            "left_square_bracket",
            "left_square_bracket",
            "right_square_bracket",
            "right_square_bracket",
        ):
            await pilot.press(key)
            await settle(pilot)
            seen.append(pane(app).log_path)
        assert seen == ["/x/c.log", "/x/b.log", "/x/c.log", LOG]
        await pilot.press("left_square_bracket")
        await settle(pilot)
        assert "said by c" in screen_text(app) and "said by b" not in screen_text(app)


@pytest.mark.parametrize("key", ["left_square_bracket", "right_square_bracket"])
async def test_the_only_log_of_a_box_is_called_so(key: str) -> None:
    async with running(box_with(*STEPS), keys=("l", "k")) as (app, pilot, _):
        read = here(app)
        await pilot.press(key)
        await settle(pilot)
        assert event_line(app) == "this is the only log of the box"
        assert (pane(app).log_path, here(app)) == (LOG, read)


async def test_who_reads_the_log_of_a_cell_is_not_moved_to_that_of_the_next_one() -> None:
    new = LogView("/jobs/demo/logs/gpt-d.log", ("a new cell",), 0, NOW)
    async with running(box_with(*STEPS, more=(new,)), keys=("l", "k")) as (app, pilot, fleet):
        (queue,) = fleet.state.boxes[0].queues
        states = {"gpt-c": "done", "gpt-d": "running"}
        cells = tuple(
            msgspec.structs.replace(
                cell,
                state=states.get(cell.name, cell.state),
                log=new.path if cell.name == "gpt-d" else cell.log,
            )
            for cell in queue.cells
        )
        fleet.change("autodl-demo", queues=(msgspec.structs.replace(queue, cells=cells),))
        await settle(pilot)
        assert pane(app).log_path == LOG
        await pilot.press("F")
        await settle(pilot)
        assert pane(app).log_path == new.path, "who follows the end goes on to it"


def test_a_step_is_looked_for_in_the_log_of_its_run_else_in_one_that_names_steps() -> None:
    other = LogView("/x/another.log", ("step 99,999 of another training",), 0, NOW)
    views = (
        LogView("/x/data.log", ("loaded",), 0, NOW),
        LogView("/x/train.log", STEPS, 0, NOW - 9),
        other,
    )
    box = msgspec.structs.replace(running_box(), logs=views)
    assert log_with_steps(box, "nobody") == "/x/train.log"
    own = (*views, LogView("/x/gpt-c.log", ("no step yet",), 0, NOW))
    assert log_with_steps(msgspec.structs.replace(box, logs=own), "gpt-c") == "/x/gpt-c.log"
    assert log_with_steps(msgspec.structs.replace(box, logs=views), "gpt-a") == "/x/train.log", (
        "nearest to its step"
    )
    assert log_with_steps(msgspec.structs.replace(box, logs=views[:1]), "gpt-c") is None


async def test_a_log_that_a_spot_names_is_followed_first() -> None:
    async with running(box_with(*STEPS)) as (app, pilot, fleet):
        app.open_screen("log", "autodl-demo", ScreenPosition(log="/x/late.log", text="here"))
        await settle(pilot)
        assert fleet.followed[-1] == ("autodl-demo", "/x/late.log")
        box: BoxState = fleet.state.boxes[0]
        fleet.change(
            "autodl-demo", logs=(*box.logs, LogView("/x/late.log", ("a", "here it is"), 0, NOW))
        )
        await settle(pilot)
        assert here(app) == "here it is"


async def test_hostile_lines_and_names_are_drawn_plainly() -> None:
    lines = (
        "\x1b[31mred\x1b[0m",
        "[bold]not markup[/]",
        "\u202eright to left",
        "wide 漢字 " * 30,
        "",
    )
    box = msgspec.structs.replace(
        running_box(), logs=(LogView("/x/\x1b]0;evil\x07\n.log", lines, 0, NOW),)
    )
    for size in ((60, 20), (80, 24), (200, 50)):
        async with running(
            FleetState((box,), (), NOW), size=size, keys=("l", "t", "w", "slash", *"[", "enter")
        ) as (app, _, _f):
            text = screen_text(app)
            assert "[bold]not markup" in text
            assert not {"\x1b", "\u202e"} & set(text)
            assert isinstance(app.screen, FleetAwareScreen)


async def test_the_log_of_a_box_that_was_lost_keeps_its_last_lines_and_says_how_old_they_are() -> (
    None
):
    async with running(FleetState((lost_box(),), (), NOW), size=(80, 24), keys=("l",)) as (
        app,
        _,
        _fleet,
    ):
        assert "ago" in screen_text(app)


async def test_the_header_is_about_the_box_of_the_log() -> None:
    async with running(box_with(*STEPS), keys=("l",)) as (app, _, _):
        header = text_of(app.screen.query_one("#header", LineWidget).shown_lines[0])
        assert isinstance(app.screen, LogScreen) and app.screen.box_state is not None
        box = app.screen.box_state
        rate = f"{box.meter.per_hour:.2f}/h"
        assert rate in header and "boxes" not in header
