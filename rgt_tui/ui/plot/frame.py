"""Draws a plot: cells of braille dots, axes, curves, marks and crosshair; the board keeps the curves of one box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rgt_tui.model.run import RunState
from rgt_tui.ui.plot.ticks import labels, linear_ticks, log_ticks
from rgt_tui.ui.plot.trace import Gap, Scale, Trace, dots, spans
from rgt_tui.ui.plot.view import Settings, View, tag

Row = tuple[tuple[str, int], ...]
"""Pieces of one line: text and the number of its style."""

_BRAILLE = 0x2800
_SPACE = ord(" ")
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
ASCII_MARKS = "*+ox#%@&"


class Canvas:
    """Cells of 2 by 4 dots. What is drawn later lies on top and gives the cell its style."""

    def __init__(self, width: int, height: int, *, ascii_only: bool = False) -> None:
        self.width, self.height = max(1, width), max(1, height)
        self._ascii = ascii_only
        shape = (self.height, self.width)
        self._tags: set[tuple[int, int]] = set()
        self._mask: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        self._style: NDArray[np.int16] = np.zeros(shape, dtype=np.int16)
        self._text: NDArray[np.uint32] = np.full(shape, _SPACE, dtype=np.uint32)

    @property
    def dots(self) -> tuple[int, int]:
        """Columns and rows of dots."""
        return 2 * self.width, 4 * self.height

    def draw(self, grid: NDArray[np.bool_], style: int, mark: int = 0) -> None:
        """Lay the dots of one curve over the others; `mark` is its character without braille."""
        bits = np.zeros((self.height, self.width), dtype=np.uint8)
        for row, pair in enumerate(_BITS):
            for column, bit in enumerate(pair):
                bits |= grid[row::4, column::2].astype(np.uint8) * np.uint8(bit)
        here = bits != 0
        self._mask |= bits
        self._style[here] = style
        if self._ascii:
            self._text[here] = ord(ASCII_MARKS[mark % len(ASCII_MARKS)])
        else:
            self._text[here] = self._mask[here].astype(np.uint32) + _BRAILLE

    def put(self, column: int, row: int, text: str, style: int, *, over: bool = True) -> None:
        """Write `text` from a cell on, clipped; with `over` False only into cells without dots."""
        if not 0 <= row < self.height:
            return
        for i, char in enumerate(text, start=column):
            if 0 <= i < self.width and (over or not self._mask[row, i]):
                self._text[row, i] = ord(char)
                self._style[row, i] = style

    def free(self, column: int, row: int, length: int) -> bool:
        """Whether `length` cells from here on are on the canvas and empty."""
        if not (0 <= row < self.height and column >= 0 and column + length <= self.width):
            return False
        return bool((self._text[row, column : column + length] == _SPACE).all())

    def untagged(self, column: int, row: int) -> bool:
        """Whether a cell is on the canvas and no tag stands there yet."""
        return 0 <= row < self.height and 0 <= column < self.width and (column, row) not in self._tags

    def tag(self, column: int, row: int, text: str, style: int) -> None:
        """Write the tag of a curve over whatever is there."""
        self._tags.add((column, row))
        self.put(column, row, text, style)

    def rows(self) -> list[Row]:
        """Return the lines, neighbouring cells of one style in one piece."""
        out: list[Row] = []
        for codes, styles in zip(self._text, self._style, strict=True):
            line = codes.tobytes().decode("utf-32-le" if _LITTLE else "utf-32-be")
            cuts = [0, *(np.flatnonzero(np.diff(styles)) + 1).tolist(), self.width]
            out.append(tuple((line[a:b], int(styles[a])) for a, b in pairwise(cuts)))
        return out


_LITTLE = np.little_endian


AXIS, LABEL, CROSS, GAP = 1, 2, 3, 4
"""Styles of what is not a curve; those of curves start at `FIRST_CURVE`, two for each."""
FIRST_CURVE = 8
WIDEST = 20
"""Columns of the longest label at the left."""


@dataclass(frozen=True)
class Curve:
    """One run to draw. Later ones lie on top."""

    trace: Trace
    number: int
    """Chooses its style: `FIRST_CURVE` + 2 x this, and the next one for what a resume threw away."""
    resumes: tuple[float, ...] = ()
    """Steps from which it went on."""
    note_gaps: bool = True
    """Whether a gap is explained beside its mark."""
    tag: str = ""
    """Written at the end of the curve, so that it is told apart without its colour."""

    @property
    def style(self) -> int:
        """The style of the curve."""
        return FIRST_CURVE + 2 * self.number


@dataclass(frozen=True)
class Frame:
    """A finished plot."""

    rows: tuple[Row, ...]
    gutter: int
    """Columns left of the plot's own area."""
    columns: int
    """Columns of the plot's own area."""
    window: tuple[float, float]
    extent: tuple[float, float]
    low: float
    high: float
    log: bool

    @property
    def steps_per_dot(self) -> float:
        """Steps between neighbouring columns of dots."""
        return (self.window[1] - self.window[0]) / max(1, 2 * self.columns - 1)

    def step_at(self, column: int) -> float:
        """Return the step in the middle of a column, counted from the left edge, within the window."""
        step = self.window[0] + (2 * (column - self.gutter) + 0.5) * self.steps_per_dot
        return min(max(step, self.window[0]), self.window[1])

    def column_of(self, step: float) -> int:
        """Return the column of the plot's area in which a step lies (outside if it is not on screen)."""
        return math.floor((step - self.window[0]) / self.steps_per_dot + 0.5) // 2


def extent(traces: Sequence[Trace]) -> tuple[float, float]:
    """Return the first and last step of all traces; ``(0, 1)`` where there is no point at all."""
    ends = [(float(t.xs[0]), float(t.xs[-1])) for t in traces if len(t.xs)]
    return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else (0.0, 1.0)


def compose(
    curves: Sequence[Curve],
    size: tuple[int, int],
    *,
    view: View,
    log: bool = False,
    cross: float | None = None,
    ascii_only: bool = False,
) -> Frame:
    """Draw `curves` into `size` (columns, rows), axes included."""
    width, height = max(16, size[0]), max(4, size[1])
    reach = extent([curve.trace for curve in curves])
    window = view.window(reach)
    found = _range(curves, window, positive=log)
    log = log and found is not None
    low, high = found or _range(curves, window, positive=False) or (0.0, 1.0)
    scale = Scale.of(low, high, log=log)
    rows = height - 2
    most = max(2, rows // 4)
    ticks = log_ticks(scale.low, scale.high, most) if log else linear_ticks(scale.low, scale.high, most)
    names = labels(ticks)
    widest = min(WIDEST, width // 3)
    names = [name if len(name) <= widest else "" for name in names]  # cut off, a number is another number
    gutter = max((len(name) for name in names), default=1) + 2
    canvas = Canvas(width - gutter, rows, ascii_only=ascii_only)
    frame = Frame((), gutter, canvas.width, window, reach, scale.low, scale.high, log)
    for curve in curves:
        _draw(canvas, curve, frame, scale)
    _crosshair(canvas, curves, frame, scale, cross, ascii_only)
    for curve in curves:
        _marks(canvas, curve, frame, scale, ascii_only)
    at_row = {_row(scale, tick, rows): name for tick, name in zip(ticks, names, strict=True)}
    tee, bar = ("+", "|") if ascii_only else ("┤", "│")
    lines: list[Row] = []
    for y, line in enumerate(canvas.rows()):
        name = at_row.get(y)
        left = f"{name:>{gutter - 2}} " if name is not None else " " * (gutter - 1)
        lines.append(((left, LABEL), (tee if name is not None else bar, AXIS), *line))
    lines.extend(_x_axis(frame, curves, cross, ascii_only))
    return Frame(tuple(lines), gutter, canvas.width, window, reach, scale.low, scale.high, log)


def _range(
    curves: Sequence[Curve], window: tuple[float, float], *, positive: bool
) -> tuple[float, float] | None:
    """Return the lowest and the highest value on screen; what a resume threw away does not count."""
    lows, highs = [], []
    for curve in curves:
        xs, ys = curve.trace.xs, curve.trace.ys
        a, b = np.searchsorted(xs, window[0], "left"), np.searchsorted(xs, window[1], "right")
        seen = ys[max(0, int(a) - 1) : int(b) + 1]
        seen = seen[seen > 0] if positive else seen[np.isfinite(seen)]
        if len(seen):
            lows.append(float(seen.min()))
            highs.append(float(seen.max()))
    return (min(lows), max(highs)) if lows else None


def _draw(canvas: Canvas, curve: Curve, frame: Frame, scale: Scale) -> None:
    size = canvas.dots
    pieces = [(xs, ys, curve.style + 1) for xs, ys in curve.trace.lost]
    for xs, ys, style in [*pieces, (curve.trace.xs, curve.trace.ys, curve.style)]:
        if len(xs) and xs[0] <= frame.window[1] and xs[-1] >= frame.window[0]:
            canvas.draw(dots(*spans(xs, ys, frame.window, scale, size), size[1]), style, curve.number)


def _row(scale: Scale, value: float, rows: int) -> int:
    """Return the row of cells of a value (may lie outside)."""
    dot = float(scale.rows(np.array([value]), 4 * rows)[0])
    return -1 if math.isnan(dot) else math.floor(dot + 0.5) // 4


def _marks(canvas: Canvas, curve: Curve, frame: Frame, scale: Scale, ascii_only: bool) -> None:
    _end_tag(canvas, curve, frame, scale)
    for step in curve.resumes:
        value = curve.trace.at(step)
        if value is not None and math.isfinite(value):
            canvas.put(
                frame.column_of(step),
                _row(scale, value, canvas.height),
                "^" if ascii_only else "⇡",
                curve.style,
            )
    for gap in curve.trace.gaps:
        column = frame.column_of(gap.first)
        beside = gap.beside if gap.beside is not None else scale.high
        row = min(max(_row(scale, beside, canvas.height), 0), canvas.height - 1)
        canvas.put(column, row, "X" if ascii_only else "╳", curve.style + 1 if gap.lost else GAP)
        note = f"{gap.kind} at {gap.first:,.0f}"
        if curve.note_gaps and not gap.lost and 0 <= column < canvas.width:
            _beside(canvas, column, row, note)


def _end_tag(canvas: Canvas, curve: Curve, frame: Frame, scale: Scale) -> None:
    """Name the curve where it ends on screen, or as near to it as no other tag stands."""
    end = int(np.searchsorted(curve.trace.xs, frame.window[1], "right"))
    known = np.flatnonzero(np.isfinite(curve.trace.ys[:end]))
    if not (curve.tag and len(known)):
        return
    column = min(frame.column_of(float(curve.trace.xs[known[-1]])) + 1, canvas.width - 1)
    row = _row(scale, float(curve.trace.ys[known[-1]]), canvas.height)
    for up in (0, -1, 1, -2, 2):
        if canvas.untagged(column, row + up):
            canvas.tag(column, row + up, curve.tag, curve.style)
            return


def _beside(canvas: Canvas, column: int, row: int, note: str) -> None:
    """Write a note next to a mark where nothing is hidden by it, or not at all."""
    for y in (row, row - 1, row + 1, row - 2):
        for x in (column + 2, column - len(note) - 1):
            if canvas.free(x - 1, y, len(note) + 1):
                canvas.put(x, y, note, GAP)
                return


def _crosshair(
    canvas: Canvas, curves: Sequence[Curve], frame: Frame, scale: Scale, cross: float | None, ascii_only: bool
) -> None:
    if cross is None:
        return
    column = frame.column_of(cross)
    for row in range(canvas.height):
        canvas.put(column, row, "|" if ascii_only else "│", CROSS, over=False)
    for curve in curves:
        value = curve.trace.at(cross)
        if value is not None and math.isfinite(value):
            canvas.put(column, _row(scale, value, canvas.height), "O" if ascii_only else "●", curve.style)


def _x_axis(frame: Frame, curves: Sequence[Curve], cross: float | None, ascii_only: bool) -> tuple[Row, Row]:
    """Return the axis line, with ticks, resumes and crosshair on it, and the line of labels."""
    corner, flat, tick, up = "+-+^" if ascii_only else "└─┬⇡"
    line = Canvas(frame.columns, 1)
    text = Canvas(frame.columns, 1)
    line.put(0, 0, flat * frame.columns, AXIS)
    steps = linear_ticks(*frame.window, max(2, frame.columns // 14), whole=True)
    if cross is not None:
        name = f"{cross:,.0f}"
        column = frame.column_of(cross)
        line.put(column, 0, tick, CROSS)
        text.put(min(max(0, column - len(name) // 2), frame.columns - len(name)), 0, name, CROSS)
    for step, name in zip(steps, labels(steps), strict=True):
        column = frame.column_of(step)
        start = min(max(0, column - len(name) // 2), frame.columns - len(name))
        if not line_has_cross(cross, frame, column):
            line.put(column, 0, tick, AXIS)
        if text.free(start, 0, len(name)) and text.free(max(0, start - 1), 0, 1):
            text.put(start, 0, name, LABEL)
    for curve in curves:
        for resume in curve.resumes:
            line.put(frame.column_of(resume), 0, up, curve.style)
    pad = " " * (frame.gutter - 1)
    return ((pad, LABEL), (corner, AXIS), *line.rows()[0]), ((pad + " ", LABEL), *text.rows()[0])


def line_has_cross(cross: float | None, frame: Frame, column: int) -> bool:
    """Whether the crosshair stands in this column."""
    return cross is not None and frame.column_of(cross) == column


MOST_NOTED = 4
"""With more runs than this on screen, gaps are explained in the legend alone."""


class Board:
    """Holds what drawing needs between two frames. A run keeps its number, and so its colour."""

    def __init__(self) -> None:
        self._runs: tuple[RunState, ...] = ()
        self._numbers: dict[str, int] = {}
        self._traces: dict[str, Trace] = {}
        self._drawn_as: tuple[str, float] = ("", 0.0)
        self.settings = Settings()
        self.selected: str | None = None

    def update(self, runs: Sequence[RunState], settings: Settings, selected: str | None) -> bool:
        """Take the newest runs and choices; return whether a frame would look different."""
        changed = settings != self.settings or selected != self.selected
        changed = changed or [r.name for r in runs] != [r.name for r in self._runs]
        changed = changed or [r.resumes for r in runs] != [r.resumes for r in self._runs]
        self._runs, self.settings, self.selected = tuple(runs), settings, selected
        self._numbers = {run.name: number for number, run in reversed(list(enumerate(runs)))}
        kind = (settings.metric, settings.smooth)
        if kind != self._drawn_as:
            self._traces.clear()
            self._drawn_as = kind
        for run in runs:
            series = run.series.get(settings.metric)
            if series is None or not len(series):
                changed = self._traces.pop(run.name, None) is not None or changed
                continue
            trace = self._traces.setdefault(run.name, Trace(settings.smooth))
            changed = trace.feed(series) or changed
        for gone in self._traces.keys() - {run.name for run in runs}:
            del self._traces[gone]
        return changed

    @property
    def runs(self) -> tuple[RunState, ...]:
        """All runs of the box."""
        return self._runs

    def trace(self, run: str) -> Trace | None:
        """Return the prepared curve of a run in the metric that is shown."""
        return self._traces.get(run)

    def number(self, run: str) -> int:
        """Return the number of a run, from 0: its place among the box's runs."""
        return self._numbers.get(run, 0)

    def gaps(self, run: str) -> list[Gap]:
        """Return the gaps of a run."""
        trace = self._traces.get(run)
        return list(trace.gaps) if trace is not None else []

    @property
    def shown(self) -> list[str]:
        """Runs that are drawn."""
        return [r.name for r in self._runs if r.name in self._traces and r.name not in self.settings.hidden]

    @property
    def extent(self) -> tuple[float, float]:
        """First and last step of what is drawn."""
        return extent([self._traces[name] for name in self.shown])

    def value_at(self, run: str, step: float) -> float | None:
        """Return what a run had at a step; None where it was not there."""
        trace = self._traces.get(run)
        return None if trace is None else trace.at(step)

    def frame(self, size: tuple[int, int], *, ascii_only: bool = False) -> Frame | None:
        """Draw; None where there is nothing to draw."""
        shown = self.shown
        if not shown:
            return None
        shown.sort(key=lambda name: name == self.selected)
        resumes = {run.name: tuple(float(resume.step) for resume in run.resumes) for run in self._runs}
        curves = [
            Curve(
                self._traces[name],
                self.number(name),
                resumes[name],
                note_gaps=len(shown) <= MOST_NOTED,
                tag=tag(self.number(name)) if len(shown) > 1 else "",
            )
            for name in shown
        ]
        return compose(
            curves,
            size,
            view=self.settings.view,
            log=self.settings.log,
            cross=self.settings.cross,
            ascii_only=ascii_only,
        )
