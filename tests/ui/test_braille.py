"""From curves to dots and cells: what must be seen is seen, and nothing ever raises."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rgt_tui.model import Series
from rgt_tui.ui.plot import (
    FIRST_CURVE,
    GAP,
    AxisWindow,
    Canvas,
    CurvePath,
    CurveTrace,
    ExtremesPyramid,
    Floats,
    PlotCurve,
    PlotFrame,
    ValueScale,
    draw_plot,
    edges_of,
    lit_rows,
    rows_of,
    sample_columns,
)

VALUES = st.floats(allow_nan=True, allow_infinity=True)


def trace_of(points: list[tuple[int, float]]) -> CurveTrace:
    trace = CurveTrace()
    trace.feed(Series().with_points(points))
    return trace


def text(frame: PlotFrame) -> list[str]:
    return ["".join(piece for piece, _ in row) for row in frame.rows]


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def spans(
    xs: Floats, ys: Floats, window: tuple[float, float], scale: ValueScale, size: tuple[int, int]
) -> tuple[Floats, Floats]:
    shown = np.where(ys > 0, ys, np.nan) if scale.log else ys
    pyramid = ExtremesPyramid()
    pyramid.append_new(shown)
    edges = edges_of(window, size[0])
    top, bottom = rows_of(
        sample_columns([(CurvePath(xs, shown, pyramid), edges, edges)], size[0]), scale, size[1]
    )
    return top[0], bottom[0]


def dots(
    top: Floats, bottom: Floats, height: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    first, last = lit_rows(top[None], bottom[None], height)
    rows = np.arange(height)[:, None]
    shown: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (rows >= first[0]) & (rows <= last[0])
    return shown


def grid(
    xs: Floats, ys: Floats, columns: int = 20, height: int = 12
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    scale = ValueScale(0.0, float(height - 1))
    return dots(*spans(xs, ys, (0.0, float(columns - 1)), scale, (columns, height)), height)


def test_a_level_line_is_one_dot_high() -> None:
    lit = grid(array(0, 19), array(5.0, 5.0))
    assert lit.sum() == 20
    assert lit[6].all()


def test_a_slope_has_no_hole_and_no_step_of_two() -> None:
    lit = grid(array(0, 19), array(0.0, 11.0))
    assert (lit.sum(axis=0) >= 1).all()
    rows = [np.flatnonzero(lit[:, column]) for column in range(20)]
    for left, right in pairwise(rows):
        assert right.max() >= left.min() - 1


def test_a_spike_between_two_columns_is_kept() -> None:
    xs = np.arange(0, 19.001, 0.01)
    ys = np.full(len(xs), 2.0)
    ys[777] = 11.0
    lit = grid(xs, ys)
    assert lit[0, round(xs[777])]


def test_nan_breaks_the_line() -> None:
    xs = np.arange(20.0)
    ys = np.full(20, 3.0)
    ys[8:12] = math.nan
    lit = grid(xs, ys)
    assert lit[:, :7].any(axis=0).all()
    assert not lit[:, 9:11].any()
    assert lit[:, 13:].any(axis=0).all()


def test_a_line_runs_into_and_out_of_the_window() -> None:
    lit = dots(
        *spans(array(-100, 200), array(5.0, 5.0), (0.0, 19.0), ValueScale(0, 11), (20, 12)), 12
    )
    assert lit.any(axis=0).all()


def test_log_scale_has_no_place_for_zero() -> None:
    scale = ValueScale.from_range(0.001, 10.0, log=True)
    rows = scale.rows_of_values(array(-1.0, 0.0, 0.001, 10.0), 40)
    assert np.isnan(rows[:2]).all()
    assert rows[2] > rows[3]


@given(
    st.lists(st.tuples(st.integers(0, 500), VALUES), max_size=80),
    st.integers(1, 60),
    st.integers(1, 40),
    st.booleans(),
    VALUES,
    VALUES,
    st.floats(-600, 600),
    st.floats(1e-3, 1e6),
)
@example(
    [(0, 8.5e90), (1, 0.0)], 1, 1, False, 0.0, 4.4e-218, 0.0, 3.0
)  # overflows, on a single row
@settings(deadline=None, max_examples=60)
def test_the_rasteriser_never_raises_and_stays_inside(
    points: list[tuple[int, float]],
    columns: int,
    height: int,
    log: bool,
    low: float,
    high: float,
    first: float,
    width: float,
) -> None:
    trace = trace_of(sorted(points))
    low, high = (v if math.isfinite(v) else 1.0 for v in (min(low, high), max(low, high)))
    scale = ValueScale.from_range(min(low, high), max(low, high), log=log)
    top, bottom = spans(trace.xs, trace.ys, (first, first + width), scale, (columns, height))
    assert top.shape == bottom.shape == (columns,)
    assert (np.isnan(top) == np.isnan(bottom)).all()
    assert (top[~np.isnan(top)] <= bottom[~np.isnan(bottom)] + 1e-9).all()
    assert dots(top, bottom, height).shape == (height, columns)


@given(
    st.lists(st.tuples(st.integers(-50, 5000), VALUES), max_size=60),
    st.integers(0, 130),
    st.integers(0, 40),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.floats(-100, 6000)),
)
@settings(deadline=None, max_examples=60)
def test_a_frame_fills_its_size_exactly(
    points: list[tuple[int, float]],
    width: int,
    height: int,
    log: bool,
    ascii_only: bool,
    cross: float | None,
) -> None:
    curve = PlotCurve(trace_of(points), 0, (10.0,), tag="1")
    view = AxisWindow().zoom(0.3, 40.0, (0.0, 4000.0))
    for window in (AxisWindow(), view):
        frame = draw_plot(
            [curve], (width, height), view=window, log=log, cross=cross, ascii_only=ascii_only
        )
        assert len(frame.rows) == max(4, height)
        assert {len(line) for line in text(frame)} == {max(16, width)}
        assert not ascii_only or all(line.isascii() for line in text(frame))
        assert frame.low < frame.high


def test_no_line_is_drawn_backwards() -> None:
    trace = trace_of([(s, 1.0) for s in range(100)] + [(s, 3.0) for s in range(50, 120)])
    xs, ys = trace.xs, trace.ys
    lit = dots(*spans(xs, ys, (0.0, 119.0), ValueScale(0, 4), (120, 40)), 40)
    assert (lit.sum(axis=0)[:48] == 1).all()
    assert (lit.sum(axis=0)[52:] == 1).all()


def test_the_frame_marks_resumes_and_gaps() -> None:
    points = [(s, 2.0) for s in range(100)]
    points[60] = (60, math.nan)
    frame = draw_plot([PlotCurve(trace_of(points), 0, (30.0,))], (80, 20), view=AxisWindow())
    lines = text(frame)
    assert sum(line.count("⇡") for line in lines) == 2
    assert "⇡" in lines[-2]
    assert any("╳" in line and "NaN at 60" in line for line in lines) or any(
        "NaN at 60" in line for line in lines
    )
    assert any(style == GAP for row in frame.rows for _, style in row)


def test_the_crosshair_goes_through_the_curve() -> None:
    frame = draw_plot(
        [PlotCurve(trace_of([(s, 2.0) for s in range(100)]), 0)],
        (80, 20),
        view=AxisWindow(),
        cross=50.0,
    )
    lines = text(frame)
    assert sum("●" in line for line in lines) == 1
    assert "50" in lines[-1]
    column = next(line.index("●") for line in lines if "●" in line)
    assert abs(frame.x_at(column) - 50) <= 2 * frame.per_dot
    assert frame.column_of(50.0) == column - frame.gutter


def test_log_falls_back_where_nothing_is_positive() -> None:
    frame = draw_plot(
        [PlotCurve(trace_of([(0, -1.0), (5, -2.0)]), 0)], (60, 12), view=AxisWindow(), log=True
    )
    assert not frame.log
    assert frame.low < -2 < -1 < frame.high


def test_later_curves_own_their_cells_and_ends_are_tagged() -> None:
    a = PlotCurve(trace_of([(s, 2.0) for s in range(50)]), 0, tag="1")
    b = PlotCurve(trace_of([(s, 2.0) for s in range(50)]), 1, tag="2")
    frame = draw_plot([a, b], (60, 12), view=AxisWindow())
    drawn = {
        style
        for row in frame.rows
        for piece, style in row
        if style >= FIRST_CURVE and "1" not in piece
    }
    assert drawn == {b.style_id}
    joined = "".join(text(frame)[:-2])
    assert "1" in joined
    assert "2" in joined


def test_what_a_resume_threw_away_has_its_own_style() -> None:
    trace = trace_of([(s, 1.0) for s in range(100)] + [(s, 3.0) for s in range(20, 50)])
    frame = draw_plot([PlotCurve(trace, 0)], (80, 20), view=AxisWindow())
    styles = {style for row in frame.rows for _, style in row}
    assert {FIRST_CURVE, FIRST_CURVE + 1} <= styles


def test_text_is_clipped_at_the_edge_of_the_canvas() -> None:
    canvas = Canvas(5, 2)
    canvas.put_text(3, 0, "abc", 7)
    canvas.put_text(-1, 1, "xy", 7)
    canvas.put_text(0, 9, "no", 7)
    assert ["".join(piece for piece, _ in row) for row in canvas.make_rows()] == ["   ab", "y    "]
    assert not canvas.is_empty_area(3, 0, 1)
    assert not canvas.is_empty_area(4, 1, 2)


@pytest.mark.parametrize("values", [(1e308, -1e308), (5e-324, 1e-300), (7.0, 7.0), (0.0, 0.0)])
def test_extreme_ranges_are_drawn(values: tuple[float, float]) -> None:
    frame = draw_plot(
        [PlotCurve(trace_of([(0, values[0]), (9, values[1])]), 0)], (60, 12), view=AxisWindow()
    )
    assert any(ord(char) > 0x2800 for line in text(frame) for char in line)
