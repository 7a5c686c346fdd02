"""Draws a plot: axes, curves, marks and crosshair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rgt_tui.ui.plot.canvas import Canvas, Looks, Row, Scale, edges_of, lit, look, rows_of
from rgt_tui.ui.plot.curve_stats import Floats, Pyramid
from rgt_tui.ui.plot.ticks import (
    ahead_of_utc,
    clock_labels,
    duration_labels,
    labels,
    linear_ticks,
    log_ticks,
    time_ticks,
)
from rgt_tui.ui.plot.trace import Knots, Path, Trace
from rgt_tui.ui.plot.view import Axis, View

AXIS, LABEL, CROSS, GAP = 1, 2, 3, 4
"""Styles of everything but curves; those start at `FIRST_CURVE`, two for each curve."""
FIRST_CURVE = 8
WIDEST = 20
"""Maximum columns of the labels at the left."""


@dataclass(frozen=True)
class Curve:
    """One run to draw. Later ones are on top."""

    trace: Trace
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
    knots: Knots | None = None
    """Mapping from steps to the x axis; None = the axis is in steps."""
    evaluations: Trace | None = None
    """Drawn as points."""
    best: tuple[float, float] | None = None
    """Step and value of its best point."""

    @property
    def style(self) -> int:
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
class Frame:
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

    def corner(
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
        corners.sort(key=lambda each: (self.gutter + each[0], each[1]) != kept)
        found = [
            (self.canvas.covered(x - 1, y - 1, width + 2, height + 2), place)
            for place, (x, y) in enumerate(corners)
        ]
        covered, place = min(found)
        x, y = corners[place]
        return (self.gutter + x, y), covered


def extent(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the first and last x value of all curves; ``(0, 1)`` if there are no points."""
    ends = []
    for curve in curves:
        if curve.knots is not None:
            found = curve.knots.extent(curve.trace)
            ends += [found] if found is not None else []
        elif len(curve.trace.xs):
            ends.append((float(curve.trace.xs[0]), float(curve.trace.xs[-1])))
    if ends:
        return (min(a for a, _ in ends), max(b for _, b in ends))
    return (0.0, 1.0)


def compose(
    curves: Sequence[Curve],
    size: tuple[int, int],
    *,
    view: View,
    log: bool = False,
    cross: float | None = None,
    ascii_only: bool = False,
    axis: Axis = Axis.STEP,
    gutter: int = 5,
) -> Frame:
    """Draw `curves` with axes into `size` (columns, rows). Faster if `gutter` is guessed right."""
    width, height = max(16, size[0]), max(4, size[1])
    reach = extent(curves)
    window = view.window(reach)
    guessed = 2 * max(1, width - gutter)
    looks = _looked(curves, window, guessed, positive=log)
    found = value_range(curves, looks, window, positive=log)
    if log and found is None:
        log = False
        looks = _looked(curves, window, guessed, positive=False)
        found = value_range(curves, looks, window, positive=False)
    low, high = found or (0.0, 1.0)
    scale = Scale.of(low, high, log=log)
    rows = height - 2
    most = max(2, rows // 4)
    ticks = (
        log_ticks(scale.low, scale.high, most) if log else linear_ticks(scale.low, scale.high, most)
    )
    names = labels(ticks)
    widest = min(WIDEST, width // 3)
    # a cut number would be a different number
    names = [name if len(name) <= widest else "" for name in names]
    gutter = max((len(name) for name in names), default=1) + 2
    canvas = Canvas(width - gutter, rows, ascii_only=ascii_only)
    frame = Frame((), gutter, canvas.width, window, scale.low, scale.high, log, canvas)
    if canvas.dots[0] != guessed:
        looks = _looked(curves, window, canvas.dots[0], positive=log)
    _draw(canvas, curves, looks, frame, scale)
    for curve in curves:
        _marks(canvas, curve, frame, scale, ascii_only)
    canvas.settle()
    _crosshair(canvas, curves, frame, scale, cross, ascii_only)
    at_row = {_row(scale, tick, rows): name for tick, name in zip(ticks, names, strict=True)}
    tee, bar = ("+", "|") if ascii_only else ("┤", "│")
    lines: list[Row] = []
    for y, line in enumerate(canvas.rows()):
        name = at_row.get(y)
        left = f"{name:>{gutter - 2}} " if name is not None else " " * (gutter - 1)
        lines.append(((left, LABEL), (tee if name is not None else bar, AXIS), *line))
    lines.extend(_x_axis(frame, curves, cross, axis, ascii_only))
    return Frame(tuple(lines), gutter, canvas.width, window, scale.low, scale.high, log, canvas)


def value_range(
    curves: Sequence[Curve], looks: Looks, window: tuple[float, float], *, positive: bool
) -> tuple[float, float] | None:
    """Return the lowest and highest value on screen, without points lost on a resume."""
    found = looks.range(positive=positive)
    values = list(found) if found is not None else []
    for curve in curves:
        if curve.evaluations is not None:
            values += [
                value for _, value in drawn_points(curve, window) if value > 0 or not positive
            ]
    if values:
        return (min(values), max(values))
    return None


def _looked(
    curves: Sequence[Curve], window: tuple[float, float], columns: int, *, positive: bool
) -> Looks:
    edges = edges_of(window, columns)
    paths = []
    for curve in curves:
        steps, crossed = (edges, edges) if curve.knots is None else curve.knots.steps_of(edges)
        paths.append((curve.trace.path(curve.keep, positive=positive), steps, crossed))
    return look(paths, columns)


def drawn_points(curve: Curve, window: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the points to draw as marks: evaluations, and the point of a run that has only one."""
    found = []
    sources = [curve.evaluations] if curve.evaluations is not None else []
    if len(curve.trace.xs) == 1:
        sources.append(curve.trace)
    for trace in sources:
        for step, value in zip(
            trace.xs[-MOST_POINTS:].tolist(), trace.ys[-MOST_POINTS:].tolist(), strict=True
        ):
            x = curve.x_of(step)
            if x is not None and math.isfinite(value) and window[0] <= x <= window[1]:
                found.append((x, value))
    return found


MOST_POINTS = 2000
"""Maximum evaluations that are drawn; the newest are kept."""


def _draw(
    canvas: Canvas, curves: Sequence[Curve], looks: Looks, frame: Frame, scale: Scale
) -> None:
    height = canvas.dots[1]
    for curve in curves:
        for xs, ys in curve.trace.lost(curve.keep) if curve.knots is None else ():
            if xs[0] <= frame.window[1] and xs[-1] >= frame.window[0]:
                first, last = lit(*_piece(xs, ys, frame.window, scale, canvas.dots), height)
                canvas.draw(first, last, [(curve.style + 1, curve.number, 0)])
    first, last = lit(*rows_of(looks, scale, height), height)
    canvas.draw(first, last, [(curve.style, curve.number, curve.dash) for curve in curves])


def _piece(
    xs: Floats, ys: Floats, window: tuple[float, float], scale: Scale, size: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return the top and bottom rows of a few points that are not prepared."""
    shown = np.where(ys > 0, ys, np.nan) if scale.log else ys
    pyramid = Pyramid()
    pyramid.follow(shown)
    edges = edges_of(window, size[0])
    return rows_of(look([(Path(xs, shown, pyramid), edges, edges)], size[0]), scale, size[1])


def _row(scale: Scale, value: float, rows: int) -> int:
    """Return the row of cells of a value, possibly outside the plot."""
    dot = scale.row(value, 4 * rows)
    if math.isnan(dot):
        return -1
    return math.floor(dot + 0.5) // 4


def _column(curve: Curve, frame: Frame, step: float) -> int:
    """Return the column of a curve's step; -1 if it has none."""
    x = curve.x_of(step)
    if x is None:
        return -1
    return frame.column_of(x)


def _marks(canvas: Canvas, curve: Curve, frame: Frame, scale: Scale, ascii_only: bool) -> None:
    for x, value in drawn_points(curve, frame.window):
        canvas.put(
            frame.column_of(x),
            _row(scale, value, canvas.height),
            "o" if ascii_only else "○",
            curve.style,
        )
    if curve.best is not None:
        step, value = curve.best
        canvas.put(
            _column(curve, frame, step),
            _row(scale, value, canvas.height),
            "B" if ascii_only else "★",
            curve.style,
        )
    _end_tag(canvas, curve, frame, scale)
    for step in curve.resumes:
        found = curve.trace.at(step, curve.keep)
        if found is not None and math.isfinite(found):
            canvas.put(
                _column(curve, frame, step),
                _row(scale, found, canvas.height),
                "^" if ascii_only else "⇡",
                curve.style,
            )
    for gap in curve.trace.gaps:
        column = _column(curve, frame, gap.first)
        beside = gap.beside if gap.beside is not None else scale.high
        row = min(max(_row(scale, beside, canvas.height), 0), canvas.height - 1)
        canvas.put(column, row, "X" if ascii_only else "╳", curve.style + 1 if gap.lost else GAP)
        note = f"{gap.kind} at {gap.first:,.0f}"
        if curve.note_gaps and not gap.lost and 0 <= column < canvas.width:
            _beside(canvas, column, row, note)


def _end_tag(canvas: Canvas, curve: Curve, frame: Frame, scale: Scale) -> None:
    """Write the curve's tag at its last point on screen, or near it if another tag is there."""
    if not curve.tag:
        return
    edge = curve.step_of(frame.window[1])
    path = curve.trace.path(curve.keep, positive=frame.log)
    if edge is None:  # it ends before the edge, or begins after it
        past = curve.knots is not None and frame.window[1] > curve.knots.xs[-1]
        edge = float(curve.knots.steps[-1]) if past and curve.knots is not None else -math.inf
    end = int(np.searchsorted(path.xs, edge, "right"))
    place = _last_known(path.ys, end)
    if place is None:
        return
    x = curve.x_of(float(path.xs[place]))
    column = min(frame.column_of(x) + 1, canvas.width - 1) if x is not None else -1
    row = _row(scale, float(path.ys[place]), canvas.height)
    for up in (0, -1, 1, -2, 2):
        if canvas.untagged(column, row + up):
            canvas.tag(column, row + up, curve.tag, curve.style)
            return


def _last_known(ys: Floats, end: int) -> int | None:
    """Return the last index before `end` that has a value."""
    size = 64
    while end > 0:
        known = np.flatnonzero(np.isfinite(ys[max(0, end - size) : end]))
        if len(known):
            return max(0, end - size) + int(known[-1])
        end, size = end - size, size * 4
    return None


def _beside(canvas: Canvas, column: int, row: int, note: str) -> None:
    """Write a note next to a mark if it hides nothing there; otherwise leave it out."""
    for y in (row, row - 1, row + 1, row - 2):
        for x in (column + 2, column - len(note) - 1):
            if canvas.free(x - 1, y, len(note) + 1):
                canvas.put(x, y, note, GAP)
                return


def _crosshair(
    canvas: Canvas,
    curves: Sequence[Curve],
    frame: Frame,
    scale: Scale,
    cross: float | None,
    ascii_only: bool,
) -> None:
    if cross is None:
        return
    column = frame.column_of(cross)
    for row in range(canvas.height):
        canvas.put(column, row, "|" if ascii_only else "│", CROSS, over=False)
    for curve in curves:
        step = curve.step_of(cross)
        value = curve.trace.at(step, curve.keep) if step is not None else None
        if value is not None and math.isfinite(value):
            canvas.put(
                column, _row(scale, value, canvas.height), "O" if ascii_only else "●", curve.style
            )


UNITS = {Axis.SINCE: "time", Axis.CLOCK: "time"}
"""Units for the axes whose own name is too long for the corner."""


def axis_ticks(
    axis: Axis, window: tuple[float, float], columns: int
) -> tuple[list[float], list[str]]:
    """Return the positions and labels of the ticks on the x axis."""
    most = max(2, columns // 14)
    if axis in (Axis.SINCE, Axis.CLOCK):
        ahead = ahead_of_utc(window[1]) if axis is Axis.CLOCK else 0.0
        ticks = time_ticks(*window, most, offset=ahead)
        return ticks, (clock_labels if axis is Axis.CLOCK else duration_labels)(ticks)
    ticks = linear_ticks(*window, most, whole=axis is not Axis.EPOCH)
    return ticks, labels(ticks)


def axis_word(axis: Axis, x: float) -> str:
    """Format one x value."""
    if axis is Axis.CLOCK:
        return clock_labels([x])[0]
    if axis is Axis.SINCE:
        return duration_labels([float(round(x))])[0]
    if axis is Axis.EPOCH:
        return f"{x:,.3g}"
    return f"{x:,.0f}"


def _x_axis(
    frame: Frame, curves: Sequence[Curve], cross: float | None, axis: Axis, ascii_only: bool
) -> tuple[Row, Row]:
    """Return the axis line with ticks, resumes and crosshair, and the line of labels."""
    corner, flat, tick, up = "+-+^" if ascii_only else "└─┬⇡"
    line = Canvas(frame.columns, 1)
    text = Canvas(frame.columns, 1)
    line.put(0, 0, flat * frame.columns, AXIS)
    if cross is not None:
        name = axis_word(axis, cross)
        column = frame.column_of(cross)
        line.put(column, 0, tick, CROSS)
        text.put(min(max(0, column - len(name) // 2), frame.columns - len(name)), 0, name, CROSS)
    for x, name in zip(*axis_ticks(axis, frame.window, frame.columns), strict=True):
        column = frame.column_of(x)
        start = min(max(0, column - len(name) // 2), frame.columns - len(name))
        if cross is None or frame.column_of(cross) != column:
            line.put(column, 0, tick, AXIS)
        if text.free(start, 0, len(name)) and text.covered(start - 1, 0, 1) == 0:
            text.put(start, 0, name, LABEL)
    for curve in curves:
        for resume in curve.resumes:
            line.put(_column(curve, frame, resume), 0, up, curve.style)
    unit = UNITS.get(axis, axis.value)
    left = f"{unit:>{frame.gutter - 2}}  " if len(unit) <= frame.gutter - 2 else " " * frame.gutter
    pad = " " * (frame.gutter - 1)
    return ((pad, LABEL), (corner, AXIS), *line.rows()[0]), ((left, LABEL), *text.rows()[0])
