"""The curves screen: what it shows, what its keys and the mouse do, and what it says when there is nothing."""

from __future__ import annotations

import math
import subprocess
import sys

import msgspec
import pytest
from textual import events
from textual.pilot import Pilot

from rgt_tui.model import (
    BoxState,
    FleetState,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    RunResume,
    Series,
    clean_decoded,
)
from rgt_tui.ui import (
    RgtApp,
    build_legend_entries,
    describe_density,
    list_notes,
    notation,
    nothing_to_draw,
)
from rgt_tui.ui.plot import Board, PlotSettings, RunKey, ShownRun
from rgt_tui.ui.screens import CurvesScreen
from rgt_tui.ui.widgets import CurveLegend, CurvePlot, EventLine, HeaderLine, entry_line, text_of
from tests.ui.fakes import NOW, FakeFleet, curve, running_box
from tests.ui.snap import resize, until

BOX = "autodl-demo"


def box_with_history() -> BoxState:
    box = running_box()
    a, b, c = box.runs
    redone = [(s, 3.0 - s / 400) for s in range(339)] + [
        (s, 2.9 - s / 400) for s in range(321, 656)
    ]
    return msgspec.structs.replace(
        box,
        runs=(
            msgspec.structs.replace(
                a, series={"loss": curve(2400), "lr": curve(2400, start=3e-4, end=1e-5)}
            ),
            msgspec.structs.replace(b, series={"loss": curve(2400, end=1.5, nan_at=1210)}),
            msgspec.structs.replace(
                c,
                series={"loss": Series().with_points(redone)},
                resumes=(RunResume(320, "SIGTERM", 339),),
            ),
        ),
    )


def runs_of(**losses: list[float]) -> BoxState:
    """A box whose runs have logged these losses, from step 0."""
    box = running_box()
    return msgspec.structs.replace(
        box,
        runs=tuple(
            msgspec.structs.replace(
                box.runs[0],
                name=name,
                step=len(values) - 1,
                series={"loss": Series().with_points(list(enumerate(values)))},
            )
            for name, values in losses.items()
        ),
    )


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet(FleetState((box_with_history(),), (), NOW))


async def opened(pilot: Pilot[None]) -> CurvesScreen:
    app = pilot.app
    assert isinstance(app, RgtApp)
    await until(pilot, lambda: app.fleet is not None)
    app.open_screen("curves", BOX)
    await until(
        pilot, lambda: isinstance(app.screen, CurvesScreen) and app.screen.fleet_state is not None
    )
    await pilot.pause()
    app.tick(force=True)
    await pilot.pause()
    screen = app.screen
    assert isinstance(screen, CurvesScreen)
    return screen


def plot(screen: CurvesScreen) -> str:
    return "\n".join(text_of(made) for made in screen.query_one(CurvePlot).shown_lines)


def legend(screen: CurvesScreen) -> str:
    return "\n".join(text_of(made) for made in screen.query_one(CurveLegend).shown_lines)


def header(screen: CurvesScreen) -> str:
    return text_of(screen.query_one(HeaderLine).shown_lines[0])


async def test_what_it_shows_and_what_the_keys_do(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(140, 34)) as pilot:
        screen = await opened(pilot)
        assert "x step" in header(screen)
        assert "y log" in header(screen)
        assert "smooth off" in header(screen)
        assert "3 of 3 runs" in header(screen)
        assert "1 dot = 8.9 steps" in header(screen)
        assert "resumed from 320 after SIGTERM" in legend(screen)
        assert "╳ NaN at 1,210" in legend(screen)
        assert "◆" in legend(screen)
        assert "●" in legend(screen)
        assert plot(screen).count("⇡") == 2
        assert plot(screen).count("╳") == 1

        await pilot.press("L", "s", "s")
        assert "y linear" in header(screen)
        assert "smooth 0.90" in header(screen)
        await pilot.press("m")
        assert screen.settings.metric == "lr"
        assert "lr" in header(screen)
        assert "1 of 3 runs" in header(screen)
        await pilot.press("m", "s", "s", "plus", "plus")
        frame = screen.plot_widget.drawn_frame
        assert frame is not None
        assert frame.window[1] - frame.window[0] == pytest.approx(600)
        assert "window" in header(screen)
        before = frame.window
        await pilot.press("right")
        assert screen.plot_widget.drawn_frame is not None
        assert screen.plot_widget.drawn_frame.window[0] > before[0]
        await pilot.press("left", "minus", "0")
        assert screen.settings.view.is_all

        await pilot.press("left_square_bracket")
        assert "at step 2,400" in legend(screen)
        await pilot.press("left_square_bracket")
        assert screen.settings.pinned is not None
        assert screen.settings.pinned < 2400
        await pilot.press("right_square_bracket", "escape")
        assert screen.settings.pinned is None
        assert pilot.app.screen is screen

        await pilot.press("space")
        assert "select a run" in text_of(screen.query_one(EventLine).shown_lines[0])
        await pilot.press("j", "j", "space")
        assert screen.selected == key("gpt-b")
        assert "2 of 3 runs" in header(screen)
        await pilot.press("k", "v")
        assert "1 of 3 runs" in header(screen)
        await pilot.press("v")
        assert "3 of 3 runs" in header(screen)
        await pilot.press("left")
        assert "everything is on screen" in text_of(screen.query_one(EventLine).shown_lines[0])


async def test_the_mouse_points_pins_zooms_and_picks(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.hover("#plot", offset=(40, 10))
        await until(pilot, lambda: screen.settings.hover is not None)
        assert "at step" in legend(screen)
        await pilot.click("#plot", offset=(40, 10))
        await until(pilot, lambda: screen.settings.pinned is not None)
        await pilot.hover("#legend", offset=(3, 1))
        await until(pilot, lambda: screen.settings.hover is None)
        assert "at step" in legend(screen)
        region = screen.plot_widget.region
        for kind in (events.MouseScrollUp, events.MouseScrollUp, events.MouseScrollDown):
            screen.plot_widget.post_message(
                kind(
                    screen.plot_widget,
                    40,
                    10,
                    0,
                    0,
                    0,
                    False,
                    False,
                    False,
                    region.x + 40,
                    region.y + 10,
                )
            )
        await until(pilot, lambda: not screen.settings.view.is_all)
        await pilot.click("#legend", offset=(3, 1))
        await until(pilot, lambda: screen.selected == key("gpt-a"))
        await pilot.click("#legend", offset=(3, 1))
        await until(pilot, lambda: screen.settings.hidden == {key("gpt-a")})


async def test_new_points_are_drawn_and_nothing_else_is(fleet: FakeFleet) -> None:
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        frame = screen.plot_widget.drawn_frame
        app.tick(force=True)
        await pilot.pause()
        assert screen.plot_widget.drawn_frame is frame, "without a new point nothing is drawn again"
        box = fleet.state.boxes[0]
        grown = box.runs[0].series["loss"].with_points([(s, 1.6) for s in range(2401, 3001)])
        runs = (
            msgspec.structs.replace(box.runs[0], series={"loss": grown}, step=3000),
            *box.runs[1:],
        )
        fleet.change(BOX, runs=runs)
        app.tick(force=True)
        await until(pilot, lambda: screen.plot_widget.drawn_frame is not frame)
        assert screen.plot_widget.drawn_frame is not None
        assert screen.plot_widget.drawn_frame.window == (0.0, 3000.0)
        assert "3,000" in legend(screen)


async def test_empty_states_and_sizes(fleet: FakeFleet) -> None:
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(60, 20)) as pilot:
        screen = await opened(pilot)
        for size in ((60, 20), (80, 24), (200, 50), (12, 5), (80, 24)):
            await resize(pilot, *size)
            await pilot.pause()
        fleet.change(BOX, runs=())
        app.tick(force=True)
        await until(pilot, lambda: "No run of autodl-demo has logged a point yet." in plot(screen))
        await pilot.press(
            "m", "L", "s", "plus", "left", "left_square_bracket", "j", "space", "v", "0"
        )
        fleet.push(FleetState((), (), NOW))
        app.tick(force=True)
        await until(pilot, lambda: app.screen is not screen)


async def test_a_run_with_no_place_on_a_log_axis_is_said_to_have_none() -> None:
    usual, below, crossing = (
        [2.0 - n / 100 for n in range(100)],
        [-2.0] * 100,
        [1.0 - n / 50 for n in range(100)],
    )
    box = runs_of(usual=usual, below=below, crossing=crossing)
    async with RgtApp(lambda: FakeFleet(FleetState((box,), (), NOW))).run_test(
        size=(120, 34)
    ) as pilot:
        screen = await opened(pilot)
        assert "y log" in header(screen)
        ends = {
            row.split()[2]: row.partition("0s")[2].strip()
            for row in legend(screen).splitlines()
            if "0s" in row
        }
        assert ends == {"usual": "", "below": "not above 0", "crossing": "partly not above 0"}
        tags = [
            row for row in plot(screen).splitlines() if "2" in row.partition("┤")[2] or "│2" in row
        ]
        assert not tags, "no curve ends where the tag of the one that is not drawn stands"
        assert any("3" in row.partition("│")[2] for row in plot(screen).splitlines())
        await pilot.press("L")
        assert "above 0" not in legend(screen)


async def test_ascii_terminals_get_a_plot_too(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_ASCII", "1")
    notation.current_glyphs.cache_clear()
    async with RgtApp(lambda: fleet).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        drawn = [
            screen.plot_widget.render_line(y).text for y in range(screen.plot_widget.size.height)
        ]
        assert all(line.isascii() for line in drawn)
        assert any("*" in line for line in drawn)
        assert any("^" in line for line in drawn)


def board_of(box: BoxState, settings: PlotSettings | None = None) -> Board:
    board = Board()
    board.update(listed(box), settings or PlotSettings(), None)
    return board


def listed(box: BoxState) -> list[ShownRun]:
    return [ShownRun(BOX, run) for run in box.runs]


def key(name: str) -> RunKey:
    return RunKey(BOX, name)


def test_the_legend_reads_at_the_crosshair() -> None:
    box = box_with_history()
    board = board_of(box, PlotSettings(pinned=330.0))
    values = {entry.key.run: entry.value for entry in build_legend_entries({BOX: box}, board, NOW)}
    assert values["gpt-c"] == pytest.approx(2.9 - 330 / 400)
    far = board_of(box, PlotSettings(pinned=2000.0))
    assert {e.key.run: e.value for e in build_legend_entries({BOX: box}, far, NOW)}["gpt-c"] is None


def test_long_numbers_in_the_legend_are_told_apart() -> None:
    box = runs_of(**{"gpt-a": [-1e32]})
    box = msgspec.structs.replace(box, runs=(msgspec.structs.replace(box.runs[0], step=1_000_000),))
    board = Board()
    board.update([ShownRun(BOX, box.runs[0])], PlotSettings(), None)
    (entry,) = build_legend_entries({BOX: box}, board, NOW)
    assert text_of(entry_line(entry, 0, len("gpt-a"))).split()[2:6] == [
        "gpt-a",
        "-1.0e+32",
        "◆",
        "1,000,000",
    ]


def test_states_and_ages_in_the_legend() -> None:
    box = box_with_history()
    found = {
        entry.key.run: entry for entry in build_legend_entries({BOX: box}, board_of(box), NOW + 7)
    }
    assert (found["gpt-a"].state, found["gpt-a"].age) == ("done", None)
    assert (found["gpt-c"].state, found["gpt-c"].age, found["gpt-c"].step) == ("running", 7.0, 655)


OFF = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, 0.05, at=NOW + 7, source="AutoDL")


@pytest.mark.parametrize(
    ("changes", "age"),
    [
        ({}, "7s"),
        ({"sample_at": NOW - 42}, "◌ 7s"),
        ({"sample_at": NOW - 42, "link": LinkState.UNREACHABLE, "since": NOW - 42}, "⊘ 7s"),
        ({"sample_at": NOW - 42, "link": LinkState.PAUSED}, "‖ 7s"),
        ({"sample_at": NOW - 42, "meter": OFF}, "○ 7s"),
    ],
    ids=["seen", "stale", "unreachable", "paused", "stopped"],
)
def test_the_legend_says_why_a_run_is_not_seen(changes: dict[str, object], age: str) -> None:
    """Late, cut off and parked are three different things to do about."""
    box = msgspec.structs.replace(box_with_history(), **{"sample_at": NOW + 7, **changes})
    found = {
        entry.key.run: entry for entry in build_legend_entries({BOX: box}, board_of(box), NOW + 7)
    }
    shown = text_of(entry_line(found["gpt-c"], 0, 5)).rstrip()
    assert shown.endswith(f" {age}") and ("655" + age.rjust(7)) in shown


def test_a_box_that_is_sampled_less_often_is_not_unseen_between_two_samples() -> None:
    box = msgspec.structs.replace(box_with_history(), interval=60.0, sample_at=NOW - 100)
    assert {one.unseen for one in build_legend_entries({BOX: box}, board_of(box), NOW)} == {""}
    lost = msgspec.structs.replace(box, sample_at=NOW - 200)
    assert "" not in {one.unseen for one in build_legend_entries({BOX: lost}, board_of(lost), NOW)}


def test_notes_are_clean_and_few() -> None:
    box = box_with_history()
    many = msgspec.structs.replace(
        box.runs[2],
        resumes=tuple(
            clean_decoded(RunResume(s, "\x1b[31mSIGTERM\n", s)) for s in range(10, 100, 10)
        ),
    )
    made = list_notes(ShownRun(BOX, many), board_of(box))
    assert made[0][0] == "6 earlier"
    assert len(made) == 4
    assert made[-1][0] == "⇡ resumed from 90 after SIGTERM"


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (16.2, "1 dot = 16 steps"),
        (1.0, "1 dot = 1 step"),
        (2.5, "1 dot = 2.5 steps"),
        (0.25, "1 step = 4 dots"),
    ],
)
def test_the_density_in_words(steps: float, text: str) -> None:
    assert describe_density(steps) == text


def test_every_empty_state_says_what_to_do() -> None:
    box = box_with_history()
    unlogged = msgspec.structs.replace(box.runs[0], series={})
    cases = [
        (None, PlotSettings()),
        (msgspec.structs.replace(box, runs=()), PlotSettings()),
        (msgspec.structs.replace(box, runs=(unlogged,)), PlotSettings()),
        (box, PlotSettings(metric="nope")),
        (box, PlotSettings(hidden=frozenset({key("gpt-a"), key("gpt-b"), key("gpt-c")}))),
    ]
    said = [nothing_to_draw(state, BOX, settings) for state, settings in cases]
    assert len({lines[0] for lines in said}) == len(cases)
    assert all(len(lines) >= 2 for lines in said)


def test_a_board_forgets_runs_that_are_gone_and_sees_what_changed() -> None:
    box = box_with_history()
    board = board_of(box)
    assert board.shown_runs == [key("gpt-a"), key("gpt-b"), key("gpt-c")]
    assert not board.update(listed(box), PlotSettings(), None)
    assert board.update(listed(box)[:1], PlotSettings(), None)
    assert board.find_trace(key("gpt-b")) is None
    assert board.update(listed(box), PlotSettings(smooth=0.9), None)
    assert board.draw_plot_frame((80, 20)) is not None
    assert not math.isnan(board.value_at(key("gpt-a"), 10.0) or math.nan)


def test_numpy_is_not_loaded_before_a_plot_is_drawn() -> None:
    code = "import sys, rgt_tui.ui.screens.curves; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
