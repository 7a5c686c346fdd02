"""Curves prepared for drawing: resumes, gaps, smoothing, and that only what is new is looked at."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import EPOCH, RunState, Series
from rgt_tui.ui.plot import (
    MOST_LOST,
    Board,
    CurveTrace,
    PlotSettings,
    RunKey,
    ShownRun,
    XAxis,
    board,
)

VALUES = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.tuples(st.integers(-(10**6), 10**6), VALUES), max_size=60)


def fed(points: list[tuple[int, float]]) -> CurveTrace:
    trace = CurveTrace()
    trace.feed(Series().with_points(points))
    return trace


def test_steps_done_again_replace_the_first_attempt() -> None:
    trace = fed([(s, float(s)) for s in range(339)] + [(s, -1.0) for s in range(321, 400)])
    assert trace.xs.tolist() == list(range(400))
    assert trace.ys[320] == 320
    assert trace.ys[321] == -1
    assert len(trace.lost_pieces()) == 1
    assert trace.lost_pieces()[0][0].tolist() == list(range(320, 339))


def test_a_resume_without_overlap_loses_nothing() -> None:
    trace = fed([(s, 1.0) for s in range(0, 100, 10)] + [(s, 1.0) for s in range(100, 200, 10)])
    assert trace.lost_pieces() == []
    assert len(trace.xs) == 20


def test_gaps_are_counted_and_named() -> None:
    trace = fed([(0, 1.0), (1, math.nan), (2, math.nan), (3, 2.0), (4, math.inf), (5, 1.5)])
    first, second = trace.gaps
    assert (first.first, first.last, first.count, first.kind, first.beside) == (1, 2, 2, "NaN", 1.0)
    assert (second.first, second.count, second.kind, second.beside) == (4, 1, "Inf", 2.0)
    assert np.isnan(trace.ys[[1, 2, 4]]).all()


def test_a_gap_goes_on_over_two_snapshots() -> None:
    trace = CurveTrace()
    series = Series().with_points([(0, 1.0), (1, math.nan)])
    trace.feed(series)
    trace.feed(series.with_points([(2, math.nan), (3, 1.0)]))
    assert [(gap.first, gap.count) for gap in trace.gaps] == [(1, 2)]


def test_a_gap_that_a_resume_undid_is_kept_as_such() -> None:
    trace = fed([(0, 1.0), (1, 1.0), (2, math.nan), (1, 1.0), (2, 0.9)])
    assert [gap.lost for gap in trace.gaps] == [True]
    assert np.isfinite(trace.ys).all()


def test_a_curve_that_begins_with_a_gap() -> None:
    trace = fed([(0, math.nan), (1, math.nan), (2, 1.0)])
    assert [(gap.first, gap.count, gap.beside) for gap in trace.gaps] == [(0, 2, None)]


def test_feeding_in_pieces_is_feeding_at_once() -> None:
    points = [(s, math.sin(s)) for s in range(300)] + [(s, 5.0) for s in range(200, 500)]
    points[40] = (40, math.nan)
    for smooth in (0.0, 0.9):
        whole = fed(points)
        parts, series = CurveTrace(), Series()
        for i in range(0, len(points), 7):
            series = series.with_points(points[i : i + 7])
            assert parts.feed(series)
            parts.smoothed_path(smooth)
        assert not parts.feed(series)
        np.testing.assert_allclose(parts.xs, whole.xs)
        np.testing.assert_allclose(parts.smoothed_path(smooth).ys, whole.smoothed_path(smooth).ys)
        for part, one in zip(parts.lost_pieces(smooth), whole.lost_pieces(smooth), strict=True):
            np.testing.assert_allclose(part[1], one[1])
        assert parts.gaps == whole.gaps


def test_another_series_begins_anew() -> None:
    trace = fed([(0, 1.0), (1, 2.0)])
    assert trace.feed(Series().with_points([(5, 5.0)]))
    assert trace.xs.tolist() == [5]
    assert trace.feed(Series())
    assert len(trace.xs) == 0


def test_smoothing_begins_at_the_first_value_and_leaves_gaps() -> None:
    trace = fed([(0, 4.0), (1, 2.0), (2, math.nan), (3, 2.0)])
    ys = trace.smoothed_path(0.9).ys
    assert ys[0] == pytest.approx(4.0)
    assert ys[1] == pytest.approx((0.9 * 0.4 + 0.2) / (0.9 * 0.1 + 0.1))
    assert math.isnan(ys[2])
    assert 2.0 < ys[3] < ys[1]


def test_smoothing_goes_on_from_the_step_of_the_resume() -> None:
    base = [(s, 1.0) for s in range(50)]
    trace = fed([*base, *[(s, 100.0) for s in range(50, 60)], (50, 1.0)])
    assert trace.smoothed_path(0.9).ys[-1] == pytest.approx(1.0)


def test_value_at_a_step() -> None:
    trace = fed([(0, 1.0), (10, 2.0), (20, 3.0)])
    assert trace.value_at(-1) is None
    assert trace.value_at(9) == 1.0
    assert trace.value_at(10) == 2.0
    assert trace.value_at(21) is None
    assert CurveTrace().value_at(0) is None


def test_steps_that_fit_no_float_are_left_out() -> None:
    trace = fed([(0, 1.0), (10**400, 2.0), (3, 3.0)])
    assert trace.xs.tolist() == [0, 3]


def test_a_series_that_only_goes_backwards_stays_bounded() -> None:
    trace = fed([(s, 1.0) for n in range(200) for s in (n % 7, n % 7 + 3, n % 7 + 5)])
    assert len(trace.lost_pieces()) <= MOST_LOST
    assert (np.diff(trace.xs) > 0).all()


def averaged(values: list[float], keep: float) -> list[float]:
    """The definition, a value at a time."""
    total = weight = 0.0
    out = []
    for value in values:
        if value == value:
            total, weight = keep * total + (1 - keep) * value, keep * weight + 1 - keep
            out.append(max(-sys.float_info.max, min(total / weight, sys.float_info.max)))
        else:
            out.append(value)
    return out


@given(POINTS, st.sampled_from([0.0, 0.6, 0.97]), st.integers(1, 9))
def test_any_series_gives_a_curve(
    points: list[tuple[int, float]], smooth: float, size: int
) -> None:
    trace, series = CurveTrace(), Series()
    for i in range(0, len(points), size):
        series = series.with_points(points[i : i + size])
        trace.feed(series)
        trace.smoothed_path(smooth, positive=bool(i % 2))
    assert (np.diff(trace.xs) > 0).all()
    assert not np.isinf(trace.ys).any()
    np.testing.assert_allclose(
        trace.smoothed_path(smooth).ys, averaged(trace.ys.tolist(), smooth), rtol=1e-9
    )
    if points:
        assert trace.xs[-1] == points[-1][0]


def test_a_resume_refilled_to_the_same_length_is_drawn_again() -> None:
    def runs_with(values: dict[str, Series]) -> list[ShownRun]:
        return [
            ShownRun("box", RunState(name, series={"loss": one, EPOCH: one}))
            for name, one in values.items()
        ]

    settings = PlotSettings(axis=XAxis.EPOCH)
    series = {name: Series().with_points([(s, 1.0 + s) for s in range(9)]) for name in "ab"}
    shown, averaged = Board(), board.AveragedRuns()
    shown.update(runs_with(series), settings, None)
    before = shown.find_knots(RunKey("box", "a"))
    assert before is not None and before.x_of(8) == 9.0
    averaged.summarize(runs_with(series), settings, "box")
    assert averaged.summary is not None and averaged.summary.mean[-1] == 9.0
    # Both went back to step 5 and made the same steps again, with other values.
    resumed = {
        name: one.with_points([(s, 20.0 + s) for s in range(5, 9)]) for name, one in series.items()
    }
    shown.update(runs_with(resumed), settings, None)
    after = shown.find_knots(RunKey("box", "a"))
    assert after is not None and after.x_of(8) == 28.0
    averaged.summarize(runs_with(resumed), settings, "box")
    assert averaged.summary.mean[-1] == 28.0
