"""The lower half of the fleet screen: what to do, the loss, what happened, what the box is."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from rich.color import ColorSystem

from rgt_tui.model import FixStep, FleetEvent, FleetState, RunResume, RunState, Series
from rgt_tui.ui import assess_box
from rgt_tui.ui.plot import Board, ShownRun
from rgt_tui.ui.screens import fleet as fleet_screen
from rgt_tui.ui.widgets import (
    PANE_SIZES,
    PaneSection,
    Tone,
    WhyBlock,
    WhyPane,
    draw_sections,
    lower_widths,
    make_line,
    newest_lines,
    split_left,
    steps_of,
    text_of,
    visible_lines,
    why_blocks,
    why_lines,
)
from rgt_tui.ui.widgets.fleet_rows import (
    BARE,
    BOARD,
    FleetRow,
    FleetTable,
    LossPane,
    frame_still_fits,
    measure_drawn,
    since_section,
    telling_run,
)
from tests.ui.fakes import NOW, demo_state, many_boxes, run, running_box, trouble_box
from tests.ui.snap import running, screen_text, settle
from tests.ui.test_box_history import kept

MOST_IDLE_BYTES = 1500
"""A second."""


def row() -> FleetRow:
    box = trouble_box()
    return FleetRow(box, assess_box(box, NOW), (), "Vast.ai")


@pytest.mark.parametrize("width", [60, 80, 100, 116, 120, 150, 200, 300])
def test_the_panes_fill_the_width_and_a_low_half_has_one(width: int) -> None:
    assert sum(lower_widths(width, 30).values()) == width
    assert list(lower_widths(width, PANE_SIZES.shared_from - 1)) == ["why"]
    count = {60: 1, 80: 1, 100: 2, 116: 3, 120: 3, 150: 3, 200: 4, 300: 4}
    assert len(lower_widths(width, 30)) == count[width]


def test_the_blocks_say_all_that_the_lines_say() -> None:
    blocks = why_blocks(row(), 80, NOW)
    told = [text_of(made) for block in blocks for made in block.rows]
    assert sorted(told) == sorted(text_of(made) for made in why_lines(row(), 80, NOW))
    assert any(
        "never" in text_of(made)
        for place, made in enumerate(blocks[0].rows)
        if place in blocks[0].held
    )


def test_what_is_held_stays_while_its_block_scrolls_and_nothing_is_lost_on_the_way() -> None:
    def rows(*names: str) -> list[tuple]:  # type: ignore[type-arg]
        return [make_line(name) for name in names]

    held = frozenset({0, 1})
    blocks = [
        WhyBlock(rows("A", "never A", *"abcd"), held),
        WhyBlock(rows("B", "never B", *"ef"), held),
    ]
    shown = [[text_of(made) for made in visible_lines(blocks, top, 4)[0]] for top in range(6)]
    assert shown[0] == ["A", "never A", "a", "b"]
    assert shown[3] == ["A", "never A", "d", "B"]
    assert shown[4] == ["B", "never B", "e", "f"]
    assert {name for part in shown for name in part} == {"A", "never A", "B", "never B", *"abcdef"}
    assert visible_lines(blocks, 1, 4)[1:] == (1, 5)
    assert visible_lines([], 3, 4) == ([], 0, 0)


def test_a_scrolled_frame_counts_what_is_out_of_sight_above_and_below() -> None:
    first, second = ([make_line(f"{name}{number}") for number in range(6)] for name in "ab")
    parts = [PaneSection(make_line("first"), first), PaneSection(make_line("second"), second)]
    for top in range(9):
        frame = [text_of(made) for made in draw_sections(parts, 40, 7, top=top)]
        shown = sum(made.strip(" │├─┤") != "" for made in frame[1:-1])
        below, above = 13 - top - shown, top
        assert shown in (4, 5), "a title alone is left out"
        assert (f"▼ {below} more" in frame[-1]) == (below > 0), (top, frame)
        assert (f"{above} above" in frame[-1]) == (above > 0), (top, frame)
    assert "more" not in text_of(draw_sections(parts, 40, 15)[-1])
    assert "▼ 1 more" in text_of(draw_sections(parts, 40, 14)[-1])


@pytest.mark.parametrize("size", [(80, 24), (120, 20)])
async def test_never_is_in_sight_wherever_the_steps_are_scrolled_to(size: tuple[int, int]) -> None:
    async with running(size=size, keys=("tab",)) as (app, pilot, _):
        pane = app.screen.query_one(WhyPane)
        assert pane.has_focus
        for _ in range(14):
            text = "\n".join(text_of(made) for made in pane.shown_lines)
            assert "never  do not destroy the box" in text
            await pilot.press("j")
        assert "queue  ◆ lstm-a" in text
        assert "▼" not in text


async def test_who_copies_a_step_has_chosen_the_box() -> None:
    state = FleetState((trouble_box("b-box"), running_box("c-box")), (), NOW)
    async with running(state, keys=("y",)) as (app, pilot, fleet):
        worse = msgspec.structs.replace(trouble_box("a-box"), findings=trouble_box().findings * 2)
        fleet.push(FleetState((worse, *state.boxes), (), NOW))
        app.tick(force=True)
        await settle(pilot)
        table = app.screen.query_one(FleetTable)
        assert table.row_names[0] == "a-box"
        assert table.picked_key == "b-box", "the second step is not copied of another box"
        assert "y copies fix 2" in screen_text(app)


async def test_y_copies_one_step_after_the_other_and_the_removal_last() -> None:
    async with running() as (app, pilot, _):
        assert "y copies fix 1" in screen_text(app)
        copied: list[str] = []
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        for place in (1, 2, 3):
            await pilot.press("y")
            await settle(pilot)
            assert f"copied fix {place} of U7" in screen_text(app)
            assert f"y copies fix {place % 3 + 1}" in screen_text(app)
        assert copied == [fix.command for fix in row().box.findings[0].fixes]
        await pilot.press("G", "y")
        await settle(pilot)
        assert copied[-1] == app.screen.query_one(FleetTable).picked_key
        assert "copied the box's name" in screen_text(app)
        await pilot.press("g")
        await settle(pilot)
        assert "y copies fix 1" in screen_text(app)


def test_what_cannot_be_shown_whole_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    box = trouble_box()
    finding = msgspec.structs.replace(
        box.findings[0], fixes=(FixStep("hostile", "rm -rf /\x1b[2K/tmp"), FixStep("words"))
    )
    hostile = msgspec.structs.replace(box, findings=(finding,))
    assert steps_of(row()._replace(box=hostile)) == []
    cleared = msgspec.structs.replace(
        box, findings=(msgspec.structs.replace(box.findings[0], cleared=True),)
    )
    assert steps_of(row()._replace(box=cleared)) == []


def test_the_most_telling_run_is_the_one_that_the_finding_names() -> None:
    box = trouble_box()
    named = msgspec.structs.replace(box.findings[0], run="lstm-a")
    found = telling_run(msgspec.structs.replace(box, findings=(named,)))
    assert found is not None and found.name == "lstm-a"
    gone = telling_run(
        msgspec.structs.replace(box, findings=(msgspec.structs.replace(named, run="other"),))
    )
    assert gone is not None and gone.name == "lstm-b"
    assert telling_run(msgspec.structs.replace(box, runs=())) is None
    begun = msgspec.structs.replace(running_box(), runs=running_box().runs[:2])
    last = telling_run(begun)
    assert last is not None and last.name in ("gpt-a", "gpt-b"), (
        "the cell that has begun has logged nothing yet"
    )


async def test_what_draws_is_loaded_aside_when_there_is_a_curve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, BOARD, raising=False)
    async with running() as (app, pilot, _):
        await app.workers.wait_for_complete()
        await settle(pilot)
        assert BOARD in sys.modules
        assert "┤" in "\n".join(
            text_of(made) for made in app.screen.query_one(LossPane).shown_lines
        )


async def test_a_plot_that_is_being_imported_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, BOARD, types.ModuleType(BOARD)
    )  # as another thread's import leaves it for a while
    async with running() as (app, pilot, _):
        pane = app.screen.query_one(LossPane)
        assert "loss" in text_of(pane.shown_lines[0])
        monkeypatch.undo()
        await pilot.press("j")
        await settle(pilot)
        assert "┤" in "\n".join(text_of(made) for made in pane.shown_lines)


def long_run(*more: tuple[int, float]) -> RunState:
    """Return a run of 2,000 points, and what came after them."""
    points = [*((10 * n, 3 - n / 1000) for n in range(2000)), *more]
    step, loss = points[-1]
    series = {"loss": Series().with_points(points)}
    return msgspec.structs.replace(run("long"), series=series, step=step, loss=loss, resumes=())


@pytest.mark.parametrize(
    ("more", "still"),
    [
        ([], True),
        ([(20_000, 1.01), (20_010, 1.0)], True),
        ([(22_000, 1.01)], False),  # a column of dots further
        ([(20_000, 9.0)], False),  # above the plot
        ([(20_000, float("nan"))], False),  # a gap
        ([(19_000, 1.01)], False),  # done again
    ],
)
def test_a_plot_shows_what_adds_no_column_of_dots_to_it(
    more: list[tuple[int, float]], still: bool
) -> None:
    before = long_run()
    board = Board()
    board.update((ShownRun("box", before),), BARE, None)
    frame = board.draw_plot_frame((40, 10))
    assert frame is not None
    assert frame.per_dot > 20
    assert frame_still_fits(frame, measure_drawn(before), long_run(*more)) is still


def test_a_plot_of_another_run_or_of_more_of_it_is_another_one() -> None:
    before = long_run()
    board = Board()
    board.update((ShownRun("box", before),), BARE, None)
    frame = board.draw_plot_frame((40, 10))
    assert frame is not None
    resume = RunResume(step=19_000, reason="preempted", index=1900)
    assert not frame_still_fits(
        frame, measure_drawn(before), msgspec.structs.replace(before, resumes=(resume,))
    )
    assert not frame_still_fits(
        frame, measure_drawn(before), msgspec.structs.replace(before, name="other")
    )
    assert not frame_still_fits(frame, measure_drawn(long_run((20_000, 1.01))), before)


async def test_a_new_point_renews_the_number_and_a_new_column_of_dots_the_plot() -> None:
    def state(*more: tuple[int, float]) -> FleetState:
        box = msgspec.structs.replace(running_box(), runs=(long_run(*more),), queues=())
        return FleetState((box,), (), NOW)

    async with running(state()) as (app, pilot, fleet):
        await settle(pilot)
        pane = app.screen.query_one(LossPane)
        first = pane.drawn_frame
        assert first is not None
        fleet.push(state((20_000, 1.0625)))
        await settle(pilot)
        assert "1.062" in text_of(pane.shown_lines[0])
        assert pane.drawn_frame is first
        fleet.push(state((20_000, 1.0625), (20_010, 9.5)))
        await settle(pilot)
        assert pane.drawn_frame is not None
        assert pane.drawn_frame is not first and pane.drawn_frame.high >= 9.5
        assert "9.5" in text_of(pane.shown_lines[0])


async def test_the_loss_is_drawn_beside_it_and_a_click_opens_the_curves() -> None:
    bare = msgspec.structs.replace(running_box("bare"), runs=(), queues=())
    silent = msgspec.structs.replace(run("quiet"), series={}, loss=None)
    lost = running_box("lost")
    lost = msgspec.structs.replace(
        lost, runs=(msgspec.structs.replace(run("early"), series={}),), queues=()
    )
    none = msgspec.structs.replace(running_box("none"), runs=(silent,), queues=())
    state = FleetState((*demo_state().boxes, bare, none, lost), (), NOW)
    async with running(state) as (app, pilot, _):
        pane = app.screen.query_one(LossPane)
        await settle(pilot)
        text = "\n".join(text_of(made) for made in pane.shown_lines)
        assert "loss  lstm-b  1.284" in text and "┤" in text
        seen = text
        for _ in range(len(state.boxes) - 1):
            await pilot.press("j")
            await settle(pilot)
            text = "\n".join(text_of(made) for made in pane.shown_lines)
            assert text != seen, "each box has its own"
            seen += text
        assert "no run yet" in seen and "no loss logged" in seen and "was not kept" in seen
        await pilot.press("g")
        await pilot.click(LossPane, offset=(5, 5))
        await settle(pilot)
        assert "fleet › vast-demo › curves" in screen_text(app)


@pytest.mark.parametrize("count", [0, 1, 12, 200])
@pytest.mark.parametrize("size", [(60, 20), (120, 34)])
async def test_table_and_panes_fit_the_screen(count: int, size: tuple[int, int]) -> None:
    async with running(many_boxes(count), size=size) as (app, _, __):
        table, lower = app.screen.query_one(FleetTable), app.screen.query_one("#lower")
        assert table.size.height + lower.size.height <= size[1] - 3
        shown = [pane for pane in lower.children if pane.display and pane.size.height]
        if count:
            assert sum(pane.size.width for pane in shown) == size[0]
        else:
            assert not shown
        if size == (120, 34) and 0 < count <= 12:
            assert [pane.id for pane in shown] == ["why", "loss", "since"]
            assert table.size.height >= count + 1


def test_what_the_panes_do_not_gain_by_is_left_to_the_log() -> None:
    assert [split_left(left) for left in (20, 31)] == [(20, 0), (31, 0)]
    for left in range(32, 90):
        half, below = split_left(left)
        assert (
            half + below == left
            and below >= PANE_SIZES.least_tail
            and PANE_SIZES.least_half <= half <= PANE_SIZES.tallest_half
        )


@pytest.mark.parametrize(
    ("size", "log", "past"),
    [((120, 34), False, False), ((120, 50), True, False), ((300, 80), True, True)],
)
async def test_a_tall_terminal_shows_the_log_and_the_past_of_the_selected_box(
    size: tuple[int, int], log: bool, past: bool
) -> None:
    boxes = [
        msgspec.structs.replace(box, past=kept(480, 170), recent=kept(20, 170))
        for box in demo_state().boxes
    ]
    async with running(FleetState(tuple(boxes), (), NOW), size=size) as (app, pilot, fleet):
        text = screen_text(app)
        assert ("step 495  loss 1.7350" in text) == ("log  lstm-b.log" in text) == log
        assert ("past 1 h" in text) == past
        assert len([row for row in text.splitlines() if not row.strip()]) <= 2, (
            "no part of it is empty"
        )
        await pilot.press("G")
        await settle(pilot)
        assert "log  lstm-b.log" not in screen_text(app), "it is that of the selected box"
        fleet.push(FleetState((msgspec.structs.replace(boxes[0], logs=()),), (), NOW))
        await settle(pilot)
        assert "│ log" not in screen_text(app) and "past 1 h" not in screen_text(app)


def test_errors_stand_out_and_old_lines_do_not_look_new() -> None:
    box = trouble_box()
    (fresh,) = newest_lines(box, 80, 3, stale=False)
    assert [made[0].tone for made in fresh.body] == [Tone.TEXT, Tone.TEXT, Tone.TROUBLE]
    (old,) = newest_lines(box, 80, 3, stale=True)
    assert old.body[0][0].tone is Tone.DIM
    assert newest_lines(msgspec.structs.replace(box, logs=()), 80, 3, stale=False) == []


async def test_what_happened_is_worked_out_again_only_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was a quarter of what the dashboard cost while nothing happened."""
    made: list[int] = []
    original = since_section

    def counted(events: Sequence[FleetEvent], *told: Any, **more: Any) -> PaneSection:
        made.append(len(events))
        return original(events, *told, **more)

    monkeypatch.setattr(fleet_screen, "since_section", counted)
    async with running(demo_state(), size=(120, 34)) as (app, pilot, fleet):
        assert made, "nothing is told of the past: a weak test"
        made.clear()
        for second in range(5):
            fleet.advance(1.0)
            fleet.change("vast-demo", sample_at=NOW + second)
            await settle(pilot)
        assert made == []
        events = (
            *fleet.state.events,
            FleetEvent(fleet.now(), "vast-demo", "something new", "info"),
        )
        fleet.push(msgspec.structs.replace(fleet.state, events=events))
        await settle(pilot)
        assert set(made) == {len(events)} and "something new" in screen_text(app)
        made.clear()
        fleet.advance(86_400.0)
        await settle(pilot)
        assert made, "the day of what happened is said"


async def test_a_minute_of_idle_boxes_sends_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What three boxes send that train: a step, a loss and a load each second, nothing else."""
    sent: list[int] = []
    async with running(demo_state(), size=(120, 34)) as (app, pilot, fleet):
        monkeypatch.setattr(
            type(app),
            "_display",
            lambda self, screen, update: (
                sent.append(len(update.render_segments(app.console).encode()))
                if update is not None
                else None
            ),
        )
        app.console._color_system = ColorSystem.TRUECOLOR
        for second in range(60):
            fleet.advance(1.0)
            for box in fleet.state.boxes:
                if box.sample is None or not box.runs:
                    continue
                last = box.runs[-1]
                step, loss = (last.step or 0) + 7, 2.0 - second / 100
                gone_on = msgspec.structs.replace(
                    last, step=step, loss=loss, progressed_at=fleet.now(), last_at=fleet.now()
                )
                util = 60.0 + (7 * second) % 35
                gpus = tuple(msgspec.structs.replace(gpu, util=util) for gpu in box.sample.gpus)
                sample = msgspec.structs.replace(box.sample, gpus=gpus, seq=second, at=fleet.now())
                fleet.change(
                    box.spec.name,
                    runs=(*box.runs[:-1], gone_on),
                    sample=sample,
                    sample_at=fleet.now(),
                )
            app.tick()
            await pilot.pause()
    assert len(sent) >= 60, "the screen stood still: a weak test"
    assert sum(sent) / 60 < MOST_IDLE_BYTES
