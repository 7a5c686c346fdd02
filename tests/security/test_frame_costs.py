"""Frames of a hostile or odd box: none costs more than its bytes are worth, and none freezes the client."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import BOX_LIMITS, FrameIntake
from rgt_tui.fleet.history.past import HISTORY_GRID, SlotAccumulator, from_history, merge_history
from rgt_tui.model import (
    MAX_FRAME_BYTES,
    BoxSpec,
    BoxState,
    HistoryRow,
    RecordedHistory,
    ReducedHistory,
    RunState,
    Series,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import LineSplitter, read_frame
from rgt_tui.ssh.remote_cat import LONGEST_LINE, OutputPipe
from rgt_tui.ui import build_legend_entries
from rgt_tui.ui.plot import AxisWindow, Board, PlotSettings, RunKey, ShownRun
from tests.security.costs import LINEAR_AT_MOST, growth

SPEC = BoxSpec(name="a", host="h")
NOW = 1_700_000_000.0
HUGE = 10**17


def lines(frames: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(frame).encode() for frame in frames]


def taken(sent: list[bytes], state: BoxState | None = None) -> BoxState:
    """Return the state of a box after lines that are all frames."""
    intake = FrameIntake(SPEC, load_profile("generic-ssh"))
    state = state or BoxState(spec=SPEC)
    for line in sent:
        assert len(line) <= MAX_FRAME_BYTES
        state = intake.apply_frame(state, read_frame(line), NOW)
    return state


def found(count: int) -> list[bytes]:
    runs = [{"name": f"run{n}/s", "pid": n, "started": 1, "command": ""} for n in range(count)]
    return lines([{"t": "found", "boot": "b", "at": 1, "runs": runs}])


def points(run: str, source: str) -> dict[str, Any]:
    return {
        "t": "scalar", "run": run, "source": source, "inode": 1, "start": 0, "end": 9,
        "points": [[1, None, None, {source[-8:]: 1.0}]],
    }  # fmt: skip


def sources_of_one_run(count: int) -> list[bytes]:
    return lines([points("r", f"/d/m#{n:07d}") for n in range(count)])


def runs_with_a_source(count: int) -> list[bytes]:
    return lines([points(f"r{n}", f"/d{n}/metrics.jsonl") for n in range(count)])


def test_four_times_as_much_costs_about_four_times_as_much() -> None:
    assert growth(found, taken, 2500) < LINEAR_AT_MOST


def more_runs(count: int) -> list[bytes]:
    return lines([points(f"more{n}", f"/m{n}") for n in range(count)])


def more_sources(count: int) -> list[bytes]:
    return lines([points("r", f"/more{n}#{n:07d}") for n in range(count)])


@pytest.mark.parametrize(
    ("full", "more"),
    [
        (runs_with_a_source(BOX_LIMITS.runs), more_runs),
        (sources_of_one_run(BOX_LIMITS.series), more_sources),
    ],
    ids=["runs", "sources"],
)
def test_a_frame_more_costs_no_more_in_a_box_that_is_full(
    full: list[bytes], more: Callable[[int], list[bytes]]
) -> None:
    state = taken(full)
    assert growth(more, lambda sent: taken(sent, state), 100) < LINEAR_AT_MOST
    after = taken(more(9), state)
    assert len(after.runs) == len(state.runs) in {1, BOX_LIMITS.runs}
    assert max(len(run.cursors) for run in after.runs) <= BOX_LIMITS.series


def test_an_honest_sweep_is_all_there() -> None:
    """28 runs of 1,000 curves, and 3,500 sources of as many runs beside 3,500 of one."""
    sweep = taken(
        lines([points(f"r{n}", f"/d{n}#m{m:06d}") for m in range(1000) for n in range(28)])
    )
    assert [len(run.series) for run in sweep.runs] == [1000] * 28
    assert all(len(run.cursors) == 1000 for run in sweep.runs)
    wide = taken([*runs_with_a_source(3500), *sources_of_one_run(3500)])
    assert len(wide.runs) == 3501 < BOX_LIMITS.runs
    assert len(wide.runs[-1].series) == len(wide.runs[-1].cursors) == 3500


def test_of_too_many_found_trainings_the_newest_are_kept() -> None:
    state = taken(found(BOX_LIMITS.found_runs + 500))
    assert [run.name for run in (state.found[0], state.found[-1])] == ["run500/s", "run1499/s"]
    assert len(state.found) == len(state.runs) == BOX_LIMITS.found_runs


def test_a_run_below_two_trainings_is_the_nearer_one_s() -> None:
    runs = [
        {"name": name, "pid": 1, "started": 1, "command": "", "alive": alive}
        for name, alive in (("a", True), ("a/b", False), ("a", False))
    ]
    frames = [points("a/b/c", "/x"), points("a/x", "/y"), points("ab", "/z")]
    state = taken(lines([*frames, {"t": "found", "boot": "b", "at": 1, "runs": runs}]))
    alive = {run.name: run.alive for run in state.runs}
    assert alive == {"a/b/c": False, "a/x": True, "ab": None, "a": True, "a/b": False}


def feed(chunks: list[bytes]) -> LineSplitter:
    splitter = LineSplitter()
    for chunk in chunks:
        splitter.split_lines(chunk)
    return splitter


def test_single_bytes_against_a_long_rest_cost_what_they_weigh() -> None:
    def chunks(count: int) -> list[bytes]:
        return [b"x" * (MAX_FRAME_BYTES // 2), *[b"y"] * count]

    assert growth(chunks, feed, 10_000) < LINEAR_AT_MOST
    assert feed(chunks(9)).split_lines(b"\n") == [b"x" * (MAX_FRAME_BYTES // 2) + b"y" * 9]


def test_a_pipe_searches_each_byte_once() -> None:
    class Counted(bytearray):
        searched = 0

        def find(self, sub: Any, start: Any = None, end: Any = None) -> int:
            Counted.searched += len(self) - (start or 0)
            return super().find(sub, start or 0)

    async def read() -> bytes:
        pipe = OutputPipe()
        pipe._data = Counted()
        reading = asyncio.ensure_future(pipe.readline())
        for _ in range(5000):
            pipe.data_received(b"x", None)
            await asyncio.sleep(0)
        pipe.data_received(b"\n", None)
        return await reading

    assert asyncio.run(read()) == b"x" * 5000 + b"\n"
    assert Counted.searched < 3 * 5001 < LONGEST_LINE


def history(
    rows: Sequence[HistoryRow], width: float, names: tuple[str, ...] = ("util",)
) -> RecordedHistory:
    return RecordedHistory(boot="b", seq=9, width=width, names=names, rows=tuple(rows))


@pytest.mark.parametrize("width", [1e12, 1e300, 86_400.0, 0.0, -60.0, 1e-9, math.nan, math.inf])
def test_a_history_of_rows_that_no_recorder_writes_is_nothing(width: float) -> None:
    assert (
        from_history(history([HistoryRow(at=NOW, count=1, values=((1.0, 2.0, 3.0),))], width), 0.0)
        == ReducedHistory()
    )


@pytest.mark.parametrize("at", [1e300, -1e300, 1e17, 6e10, math.nan, math.inf])
@pytest.mark.parametrize("skew", [0.0, 1e299])
def test_a_history_of_no_time_is_nothing(at: float, skew: float) -> None:
    made = from_history(
        history([HistoryRow(at=at, count=1, values=((1.0, 2.0, 3.0),))], 60.0), skew
    )
    assert merge_history(ReducedHistory(), made).at == ()


def test_of_a_history_the_last_day_is_looked_at() -> None:
    rows = [HistoryRow(at=NOW + n, count=1, values=((1.0, 2.0, 3.0),)) for n in range(100_000)]
    made = from_history(history(rows, 1.0), 0.0)
    assert (made.at[-1], len(made.at)) == (NOW + 99_999, HISTORY_GRID.longest_s + 1)


def test_the_figures_of_a_box_are_limited_in_number() -> None:
    names = tuple(f"disk:/{n}" for n in range(HISTORY_GRID.names + 9))
    made = from_history(
        history(
            [HistoryRow(at=NOW, count=1, values=tuple((1.0, 2.0, 3.0) for _ in names))], 60.0, names
        ),
        0.0,
    )
    assert made.names == names[: HISTORY_GRID.names]
    assert [len(values) for values in made.values] == [HISTORY_GRID.names]
    other = msgspec.structs.replace(made, names=tuple(f"x{name}" for name in made.names))
    assert len(merge_history(made, other).names) == HISTORY_GRID.names
    stretch = SlotAccumulator()
    stretch.add_sample(NOW, dict.fromkeys(names, 1.0), 60.0)
    done = stretch.add_sample(NOW + 60, {}, 60.0)
    assert done is not None
    assert done.names == made.names


STEPS = (
    0,
    1,
    -1,
    HUGE,
    HUGE + 1,
    HUGE + 40,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    1_700_000_000_000_000_000,
)
VALUES = (0.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("first", STEPS)
@pytest.mark.parametrize("second", [None, *STEPS])
def test_a_curve_over_any_steps_is_drawn(first: int, second: int | None) -> None:
    steps = [first] if second is None else [first, second]
    for value in VALUES:
        board = Board()
        run = RunState(
            "r", series={"loss": Series().with_points([(step, value) for step in steps])}
        )
        for settings in (PlotSettings(), PlotSettings(pinned=float(first), view=AxisWindow(8.0))):
            board.update((ShownRun("b", run),), settings, RunKey("b", "r"))
            frame = board.draw_plot_frame((80, 20))
            assert frame is not None
            assert frame.window[0] < frame.window[1]
            assert (
                0
                <= frame.column_of(frame.window[0])
                <= frame.column_of(frame.window[1])
                < frame.columns
            )


def test_the_legend_of_many_runs_costs_what_they_are() -> None:
    def many(count: int) -> tuple[BoxState, Board]:
        points = Series().with_points([(1, 1.0)])
        runs = tuple(RunState(f"r{n}", step=1, series={"loss": points}) for n in range(count))
        board = Board()
        board.update([ShownRun(SPEC.name, run) for run in runs], PlotSettings(), None)
        return BoxState(spec=SPEC, runs=runs), board

    assert (
        growth(many, lambda made: build_legend_entries({SPEC.name: made[0]}, made[1], NOW), 1000)
        < LINEAR_AT_MOST
    )
    box, board = many(3)
    board.update(
        [ShownRun(SPEC.name, run) for run in box.runs],
        PlotSettings(hidden=frozenset({RunKey(SPEC.name, "r1")})),
        None,
    )
    assert [
        (entry.number, entry.shown) for entry in build_legend_entries({SPEC.name: box}, board, NOW)
    ] == [
        (0, True),
        (1, False),
        (2, True),
    ]
    assert board.run_number(RunKey("b", "nobody")) == 0
