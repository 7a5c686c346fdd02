"""Draws a plot: axes, curves, marks and crosshair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rgt_tui.language import translate
from rgt_tui.ui.plot.canvas import (
    Canvas,
    ColumnSamples,
    Row,
    ValueScale,
    edges_of,
    lit_rows,
    rows_of,
    sample_columns,
)
from rgt_tui.ui.plot.curve_stats import ExtremesPyramid, Floats
from rgt_tui.ui.plot.ticks import (
    clock_labels,
    duration_labels,
    format_labels,
    linear_ticks,
    log_ticks,
    time_ticks,
)
from rgt_tui.ui.plot.trace import AxisKnots, CurvePath, CurveTrace
from rgt_tui.ui.plot.view import AxisWindow, XAxis, name_axis

AXIS, LABEL, CROSS, GAP = 1, 2, 3, 4
"""Styles of everything but curves; those start at `FIRST_CURVE`, two for each curve."""
FIRST_CURVE = 8


@dataclass(frozen=True)
class PlotCurve:
    """One run to draw. Later ones are on top."""

    trace: CurveTrace
    number: int
    """Decides its style: `FIRST_CURVE` + 2 x this; the next style is for points lost on a
    resume."""
    resumes: tuple[float, ...] = ()
    """Steps at which it resumed."""
    note_gaps: bool = True
    """Whether a gap is explained next to its mark."""
    tag: str = ""
    """Written at the end of the curve, so that it can be identified without its colour."""
    keep: float = 0.0
    """Smoothing weight."""
    dash: int = 0
    """Index in `DASHES`."""
    knots: AxisKnots | None = None
    """Mapping from steps to the x axis; None = the axis is in steps."""
    evaluations: CurveTrace | None = None
    """Drawn as points."""
    best: tuple[float, float] | None = None
    """Step and value of its best point."""
    unit: str = XAxis.STEP
    """What its steps count, as in `RunState.axis`."""

    @property
    def style_id(self) -> int:
        """The style of the curve."""
        return FIRST_CURVE + 2 * self.number

    def x_of(self, step: float) -> float | None:
        """Return the x value of a step."""
        if self.knots is None:
            return step
        return self.knots.x_of(step)

    def step_of(self, x: float) -> float | None:
        """Return the step at an x value."""
        if self.knots is None:
            return x
        return self.knots.step_of(x)


@dataclass(frozen=True)
class PlotFrame:
    """A finished plot."""

    rows: tuple[Row, ...]
    gutter: int
    """Columns left of the plot area."""
    columns: int
    """Columns of the plot area."""
    window: tuple[float, float]
    low: float
    high: float
    log: bool
    canvas: Canvas

    @property
    def per_dot(self) -> float:
        """Width of one column of dots on the x axis."""
        # The window ends in the middle of the outer dots, so there is one interval less than dots.
        return (self.window[1] - self.window[0]) / max(1, 2 * self.columns - 1)

    def x_at(self, column: int) -> float:
        """Return the x value in the middle of a column of the frame, clipped to the window."""
        x = self.window[0] + (2 * (column - self.gutter) + 0.5) * self.per_dot
        return min(max(x, self.window[0]), self.window[1])

    def column_of(self, x: float) -> int:
        """Return the column of an x value in the plot area.

        Outside of it if it is not on screen.
        """
        return math.floor((x - self.window[0]) / self.per_dot + 0.5) // 2

    def choose_corner(
        self, width: int, height: int, kept: tuple[int, int] | None = None
    ) -> tuple[tuple[int, int], int]:
        """Return the corner where a box hides the fewest cells, and how many it hides.

        A margin of one cell counts too, so that no curve touches the box.

        Args:
            width: Columns of the box.
            height: Its rows.
            kept: Its previous corner, preferred as long as it hides nothing there.
        """
        right, below = max(0, self.columns - width), max(0, self.canvas.height - height)
        # Prefer the upper right corner: a falling loss is not there.
        corners = [(right, 0), (0, below), (0, 0), (right, below)]
        # The previous corner is first, so that it wins where others hide as little.
        corners.sort(key=lambda each: (self.gutter + each[0], each[1]) != kept)
        found = [
            (self.canvas.count_covered(x - 1, y - 1, width + 2, height + 2), place)
            for place, (x, y) in enumerate(corners)
        ]
        covered, place = min(found)
        x, y = corners[place]
        return (self.gutter + x, y), covered


def curves_extent(curves: Sequence[PlotCurve]) -> tuple[float, float]:
    """Return the first and last x value of all curves; ``(0, 1)`` if there are no points."""
    ends = []
    for curve in curves:
        if curve.knots is not None:
            found = curve.knots.trace_extent(curve.trace)
            ends += [found] if found is not None else []
        elif len(curve.trace.xs):
            ends.append((float(curve.trace.xs[0]), float(curve.trace.xs[-1])))
    if ends:
        return (min(a for a, _ in ends), max(b for _, b in ends))
    return (0.0, 1.0)


def draw_plot(
    curves: Sequence[PlotCurve],
    size: tuple[int, int],
    *,
    view: AxisWindow,
    log: bool = False,
    cross: float | None = None,
    ascii_only: bool = False,
    axis: XAxis = XAxis.STEP,
    gutter: int = 5,
) -> PlotFrame:
    """Draw `curves` with axes into `size` (columns, rows). Faster if `gutter` is guessed right."""
    # Labels need some room, and a widget has no size before its first layout.
    width, height = max(16, size[0]), max(4, size[1])
    reach = curves_extent(curves)
    window = view.visible_range(reach)
    # The gutter is as wide as the labels, which depend on the values that these columns show.
    guessed = 2 * max(1, width - gutter)
    looks = _sample_curves(curves, window, guessed, positive=log)
    found = value_range(curves, looks, window, positive=log)
    # No value above 0: a logarithmic axis would be empty.
    if log and found is None:
        log = False
        looks = _sample_curves(curves, window, guessed, positive=False)
        found = value_range(curves, looks, window, positive=False)
    low, high = found or (0.0, 1.0)
    scale = ValueScale.from_range(low, high, log=log)
    # Below the plot are the axis and its labels.
    rows = height - 2
    most = max(2, rows // 4)
    if log:
        ticks = log_ticks(scale.low, scale.high, most)
    else:
        ticks = linear_ticks(scale.low, scale.high, most)
    names = format_labels(ticks)
    # Maximum columns of the labels at the left.
    widest_limit = 20
    widest = min(widest_limit, width // 3)
    # a cut number would be a different number
    names = [name if len(name) <= widest else "" for name in names]
    # A blank and the axis.
    gutter = max((len(name) for name in names), default=1) + 2
    canvas = Canvas(width - gutter, rows, ascii_only=ascii_only)
    frame = PlotFrame((), gutter, canvas.width, window, scale.low, scale.high, log, canvas)
    # The guess was wrong.
    if canvas.dot_size[0] != guessed:
        looks = _sample_curves(curves, window, canvas.dot_size[0], positive=log)
    _draw_curves(canvas, curves, looks, frame, scale)
    for curve in curves:
        _draw_marks(canvas, curve, frame, scale, ascii_only)
    canvas.freeze_covered()
    _crosshair(canvas, curves, frame, scale, cross, ascii_only)
    at_row = {_cell_row(scale, tick, rows): name for tick, name in zip(ticks, names, strict=True)}
    tee, bar = ("+", "|") if ascii_only else ("┤", "│")
    lines: list[Row] = []
    for y, line in enumerate(canvas.make_rows()):
        name = at_row.get(y)
        if name is not None:
            left = f"{name:>{gutter - 2}} "
        else:
            left = " " * (gutter - 1)
        lines.append(((left, LABEL), (tee if name is not None else bar, AXIS), *line))
    lines.extend(_x_axis(frame, curves, cross, axis, ascii_only))
    return PlotFrame(tuple(lines), gutter, canvas.width, window, scale.low, scale.high, log, canvas)


def value_range(
    curves: Sequence[PlotCurve],
    looks: ColumnSamples,
    window: tuple[float, float],
    *,
    positive: bool,
) -> tuple[float, float] | None:
    """Return the lowest and highest value on screen, without points lost on a resume."""
    found = looks.value_bounds(positive=positive)
    if found is not None:
        values = list(found)
    else:
        values = []
    for curve in curves:
        if curve.evaluations is not None:
            values += [
                value for _, value in drawn_points(curve, window) if value > 0 or not positive
            ]
    if values:
        return (min(values), max(values))
    return None


def _sample_curves(
    curves: Sequence[PlotCurve], window: tuple[float, float], columns: int, *, positive: bool
) -> ColumnSamples:
    edges = edges_of(window, columns)
    paths = []
    for curve in curves:
        steps, crossed = (edges, edges) if curve.knots is None else curve.knots.steps_of(edges)
        paths.append((curve.trace.smoothed_path(curve.keep, positive=positive), steps, crossed))
    return sample_columns(paths, columns)


def drawn_points(curve: PlotCurve, window: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the points to draw as marks: evaluations, and the point of a run that has only one."""
    found = []
    if curve.evaluations is not None:
        sources = [curve.evaluations]
    else:
        sources = []
    if len(curve.trace.xs) == 1:
        sources.append(curve.trace)
    # Maximum evaluations that are drawn; the newest are kept.
    most_points = 2000
    for trace in sources:
        for step, value in zip(
            trace.xs[-most_points:].tolist(), trace.ys[-most_points:].tolist(), strict=True
        ):
            x = curve.x_of(step)
            if x is not None and math.isfinite(value) and window[0] <= x <= window[1]:
                found.append((x, value))
    return found


def _draw_curves(
    canvas: Canvas,
    curves: Sequence[PlotCurve],
    looks: ColumnSamples,
    frame: PlotFrame,
    scale: ValueScale,
) -> None:
    height = canvas.dot_size[1]
    for curve in curves:
        # Only over steps: the values of other axes are known of the last attempt only.
        for xs, ys in curve.trace.lost_pieces(curve.keep) if curve.knots is None else ():
            if xs[0] <= frame.window[1] and xs[-1] >= frame.window[0]:
                first, last = lit_rows(
                    *_piece_rows(xs, ys, frame.window, scale, canvas.dot_size), height
                )
                canvas.draw_curves(first, last, [(curve.style_id + 1, curve.number, 0)])
    first, last = lit_rows(*rows_of(looks, scale, height), height)
    canvas.draw_curves(
        first, last, [(curve.style_id, curve.number, curve.dash) for curve in curves]
    )


def _piece_rows(
    xs: Floats, ys: Floats, window: tuple[float, float], scale: ValueScale, size: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return the top and bottom rows of a few points that are not prepared."""
    if scale.log:
        shown = np.where(ys > 0, ys, np.nan)
    else:
        shown = ys
    pyramid = ExtremesPyramid()
    pyramid.append_new(shown)
    edges = edges_of(window, size[0])
    return rows_of(
        sample_columns([(CurvePath(xs, shown, pyramid), edges, edges)], size[0]), scale, size[1]
    )


def _cell_row(scale: ValueScale, value: float, rows: int) -> int:
    """Return the row of cells of a value, possibly outside the plot."""
    dot = scale.row_of_value(value, 4 * rows)
    if math.isnan(dot):
        return -1
    return math.floor(dot + 0.5) // 4


def _column_of_step(curve: PlotCurve, frame: PlotFrame, step: float) -> int:
    """Return the column of a curve's step; -1 if it has none."""
    x = curve.x_of(step)
    if x is None:
        return -1
    return frame.column_of(x)


def _draw_marks(
    canvas: Canvas, curve: PlotCurve, frame: PlotFrame, scale: ValueScale, ascii_only: bool
) -> None:
    glyph = "○"
    if ascii_only:
        glyph = "o"
    for x, value in drawn_points(curve, frame.window):
        canvas.put_text(
            frame.column_of(x), _cell_row(scale, value, canvas.height), glyph, curve.style_id
        )
    if curve.best is not None:
        step, value = curve.best
        glyph = "★"
        if ascii_only:
            glyph = "B"
        canvas.put_text(
            _column_of_step(curve, frame, step),
            _cell_row(scale, value, canvas.height),
            glyph,
            curve.style_id,
        )
    _end_tag(canvas, curve, frame, scale)
    glyph = "⇡"
    if ascii_only:
        glyph = "^"
    for step in curve.resumes:
        found = curve.trace.value_at(step, curve.keep)
        if found is not None and math.isfinite(found):
            canvas.put_text(
                _column_of_step(curve, frame, step),
                _cell_row(scale, found, canvas.height),
                glyph,
                curve.style_id,
            )
    for gap in curve.trace.gaps:
        column = _column_of_step(curve, frame, gap.first)
        # A curve that begins with a gap has no value next to it: the mark is at the top.
        if gap.beside is not None:
            beside = gap.beside
        else:
            beside = scale.high
        row = min(max(_cell_row(scale, beside, canvas.height), 0), canvas.height - 1)
        glyph = "╳"
        if ascii_only:
            glyph = "X"
        style = GAP
        if gap.lost:
            style = curve.style_id + 1
        canvas.put_text(column, row, glyph, style)
        note = translate("{kind} at {step}", kind=gap.kind, step=f"{gap.first:,.0f}")
        if curve.note_gaps and not gap.lost and 0 <= column < canvas.width:
            _write_note(canvas, column, row, note)


def _end_tag(canvas: Canvas, curve: PlotCurve, frame: PlotFrame, scale: ValueScale) -> None:
    """Write the curve's tag at its last point on screen, or near it if another tag is there."""
    if not curve.tag:
        return
    edge = curve.step_of(frame.window[1])
    path = curve.trace.smoothed_path(curve.keep, positive=frame.log)
    if edge is None:  # it ends before the edge, or begins after it
        past = curve.knots is not None and frame.window[1] > curve.knots.xs[-1]
        if past and curve.knots is not None:
            edge = float(curve.knots.steps[-1])
        else:
            edge = -math.inf
    end = int(np.searchsorted(path.xs, edge, "right"))
    place = _last_known(path.ys, end)
    if place is None:
        return
    x = curve.x_of(float(path.xs[place]))
    if x is not None:
        column = min(frame.column_of(x) + 1, canvas.width - 1)
    else:
        column = -1
    row = _cell_row(scale, float(path.ys[place]), canvas.height)
    for up in (0, -1, 1, -2, 2):
        if canvas.can_tag(column, row + up):
            canvas.put_tag(column, row + up, curve.tag, curve.style_id)
            return


def _last_known(ys: Floats, end: int) -> int | None:
    """Return the last index before `end` that has a value."""
    # From the end in growing pieces: long curves usually end with a value, but may end in a long
    # gap.
    size = 64
    while end > 0:
        known = np.flatnonzero(np.isfinite(ys[max(0, end - size) : end]))
        if len(known):
            return max(0, end - size) + int(known[-1])
        end, size = end - size, size * 4
    return None


def _write_note(canvas: Canvas, column: int, row: int, note: str) -> None:
    """Write a note next to a mark if it hides nothing there; otherwise leave it out."""
    for y in (row, row - 1, row + 1, row - 2):
        for x in (column + 2, column - len(note) - 1):
            if canvas.is_empty_area(x - 1, y, len(note) + 1):
                canvas.put_text(x, y, note, GAP)
                return


def _crosshair(
    canvas: Canvas,
    curves: Sequence[PlotCurve],
    frame: PlotFrame,
    scale: ValueScale,
    cross: float | None,
    ascii_only: bool,
) -> None:
    if cross is None:
        return
    column = frame.column_of(cross)
    glyph = "│"
    if ascii_only:
        glyph = "|"
    for row in range(canvas.height):
        # The crosshair must not hide a curve.
        canvas.put_text(column, row, glyph, CROSS, over=False)
    glyph = "●"
    if ascii_only:
        glyph = "O"
    for curve in curves:
        step = curve.step_of(cross)
        if step is not None:
            value = curve.trace.value_at(step, curve.keep)
        else:
            value = None
        if value is not None and math.isfinite(value):
            canvas.put_text(column, _cell_row(scale, value, canvas.height), glyph, curve.style_id)


UNITS = {XAxis.SINCE: "time", XAxis.CLOCK: "time"}
"""Units for the axes whose own name is too long for the corner."""


def axis_ticks(
    axis: XAxis, window: tuple[float, float], columns: int
) -> tuple[list[float], list[str]]:
    """Return the positions and labels of the ticks on the x axis."""
    # A label has up to twelve cells, and needs space around it.
    most = max(2, columns // 14)
    if axis in (XAxis.SINCE, XAxis.CLOCK):
        ticks = time_ticks(*window, most, by_clock=axis is XAxis.CLOCK)
        return ticks, (clock_labels if axis is XAxis.CLOCK else duration_labels)(ticks)
    ticks = linear_ticks(*window, most, whole=axis is not XAxis.EPOCH)
    return ticks, format_labels(ticks)


def format_axis_value(axis: XAxis, x: float) -> str:
    """Format one x value."""
    if axis is XAxis.CLOCK:
        return clock_labels([x])[0]
    if axis is XAxis.SINCE:
        return duration_labels([float(round(x))])[0]
    if axis is XAxis.EPOCH:
        return f"{x:,.3g}"
    return f"{x:,.0f}"


def _x_axis(
    frame: PlotFrame,
    curves: Sequence[PlotCurve],
    cross: float | None,
    axis: XAxis,
    ascii_only: bool,
) -> tuple[Row, Row]:
    """Return the axis line with ticks, resumes and crosshair, and the line of labels."""
    corner, flat, tick, up = "+-+^" if ascii_only else "└─┬⇡"
    line = Canvas(frame.columns, 1)
    text = Canvas(frame.columns, 1)
    line.put_text(0, 0, flat * frame.columns, AXIS)
    # First, because the labels of ticks give way to the label of the crosshair.
    if cross is not None:
        name = format_axis_value(axis, cross)
        column = frame.column_of(cross)
        line.put_text(column, 0, tick, CROSS)
        text.put_text(
            min(max(0, column - len(name) // 2), frame.columns - len(name)), 0, name, CROSS
        )
    for x, name in zip(*axis_ticks(axis, frame.window, frame.columns), strict=True):
        column = frame.column_of(x)
        start = min(max(0, column - len(name) // 2), frame.columns - len(name))
        if cross is None or frame.column_of(cross) != column:
            line.put_text(column, 0, tick, AXIS)
        if text.is_empty_area(start, 0, len(name)) and text.count_covered(start - 1, 0, 1) == 0:
            text.put_text(start, 0, name, LABEL)
    for curve in curves:
        for resume in curve.resumes:
            line.put_text(_column_of_step(curve, frame, resume), 0, up, curve.style_id)
    unit = translate(UNITS.get(axis) or name_axis(axis, (curve.unit for curve in curves)))
    if len(unit) <= frame.gutter - 2:
        left = f"{unit:>{frame.gutter - 2}}  "
    else:
        left = " " * frame.gutter
    pad = " " * (frame.gutter - 1)
    return ((pad, LABEL), (corner, AXIS), *line.make_rows()[0]), (
        (left, LABEL),
        *text.make_rows()[0],
    )
