"""Draws curves on the cells of a plot, 2 by 4 dots each, with marks and text.

Returns rows of text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rgt_tui.ui.plot.curve_stats import Floats
from rgt_tui.ui.plot.trace import CurvePath

Row = tuple[tuple[str, int], ...]
"""Pieces of one line: text, and the number of its style."""

_SPACE = ord(" ")
# numpy keeps code points in the machine's byte order.
_LITTLE = np.little_endian
ASCII_MARKS = "*+ox#%@&"
DASHES = ("11111111", "11111100", "10101010", "11101000")
"""Repeating patterns of a thin line, per column of dots: solid, dashed, dotted, dash-dotted."""

# Bits of Unicode's braille patterns, by column and row; the fourth row has the two highest bits.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


_PATTERNS = np.array([[mark == "1" for mark in dash] for dash in DASHES])
HUGE = 1e150
"""Values beyond this are drawn as if they were this, so that no difference overflows."""
FAR = 1e6
"""Plot heights beyond which a value is drawn as if it were there."""
Rows = NDArray[np.int64]


class Canvas:
    """Cells of 2 by 4 dots. Later drawings are on top and set the style of their cells."""

    def __init__(self, width: int, height: int, *, ascii_only: bool = False) -> None:
        # A widget has no size before its first layout.
        self.width, self.height = max(1, width), max(1, height)
        self._ascii = ascii_only
        shape = (self.height, self.width)
        self._tags: set[tuple[int, int]] = set()
        self._mask: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        self._style: NDArray[np.int16] = np.zeros(shape, dtype=np.int16)
        self._text: NDArray[np.uint32] = np.full(shape, _SPACE, dtype=np.uint32)
        self._settled: NDArray[np.bool_] | None = None

    @property
    def dot_size(self) -> tuple[int, int]:
        """Columns and rows of dots."""
        return 2 * self.width, 4 * self.height

    def draw_curves(self, first: Rows, last: Rows, styles: Sequence[tuple[int, int, int]]) -> None:
        """Draw curves over the existing content, the topmost last.

        `first` and `last` have a row per curve and a column per column of dots.

        Args:
            first: First lit row of dots.
            last: Last lit row; less than `first` if none is lit.
            styles: Style, mark without braille, and dash per curve.
        """
        shown = last >= first
        dash = np.array([each[2] for each in styles], dtype=np.intp)
        if dash.any():
            # Dashes apply only where the line is thin, so that a spike is never hidden.
            pattern = _PATTERNS[dash % len(DASHES)][:, np.arange(first.shape[1]) % 8]
            shown &= pattern | (last - first > 1)
        curve, column = np.nonzero(shown)
        if not len(curve):
            return
        top, bottom = first[curve, column], last[curve, column]
        self._light_bars(top, bottom, column)
        # Each bar becomes one entry per cell that it covers, below each other in its column.
        counts = bottom // 4 - top // 4 + 1
        over = np.repeat(np.cumsum(counts) - counts - top // 4, counts)
        flat = (np.arange(len(over)) - over) * self.width + np.repeat(column // 2, counts)
        # With several values for one cell numpy keeps the last one, which is the topmost curve's.
        owner = np.repeat(curve, counts)
        self._style.reshape(-1)[flat] = np.array([one[0] for one in styles], dtype=np.int16)[owner]
        if self._ascii:
            marks = np.array(
                [ord(ASCII_MARKS[one[1] % len(ASCII_MARKS)]) for one in styles], dtype=np.uint32
            )
            self._text.reshape(-1)[flat] = marks[owner]
        else:
            lit = np.zeros(self._mask.shape, dtype=np.bool_)
            lit.reshape(-1)[flat] = True
            braille = 0x2800
            self._text[lit] = self._mask[lit].astype(np.uint32) + braille

    def _light_bars(self, top: Rows, bottom: Rows, column: Rows) -> None:
        """Light the dots of vertical bars, by counting how many bars cover each dot."""
        width, height = self.dot_size
        # One row more, because a bar that covers the lowest dots ends below them.
        size = (height + 1) * width
        begun = np.bincount(top * width + column, minlength=size)
        ended = np.bincount((bottom + 1) * width + column, minlength=size)
        # A dot is lit if more bars have begun at or above it than have ended.
        grid = np.cumsum((begun - ended).reshape(height + 1, width), axis=0) > 0
        for side in (0, 1):
            for row in range(4):
                self._mask |= grid[row:height:4, side::2].astype(np.uint8) * np.uint8(
                    _DOTS[side][row]
                )

    def put_text(self, column: int, row: int, text: str, style: int, *, over: bool = True) -> None:
        """Write `text` from a cell on, clipped; with `over` False only into empty cells."""
        if not 0 <= row < self.height:
            return
        for i, char in enumerate(text, start=column):
            if 0 <= i < self.width and (over or self._text[row, i] == _SPACE):
                self._text[row, i] = ord(char)
                self._style[row, i] = style

    def is_empty_area(self, column: int, row: int, length: int) -> bool:
        """Return whether `length` cells from here on are on the canvas and empty."""
        if column < 0 or row < 0 or column + length > self.width or row >= self.height:
            return False
        return not self.count_covered(column, row, length)

    def freeze_covered(self) -> None:
        """Stop counting further drawings as covered: they may be hidden, such as the crosshair."""
        self._settled = self._text != _SPACE

    def count_covered(self, column: int, row: int, length: int, height: int = 1) -> int:
        """Return how many cells of this area are not empty."""
        if self._settled is None:
            taken = self._text != _SPACE
        else:
            taken = self._settled
        here = taken[max(0, row) : max(0, row + height), max(0, column) : max(0, column + length)]
        return int(here.sum())

    def can_tag(self, column: int, row: int) -> bool:
        """Return whether a cell is on the canvas and has no tag yet."""
        return (
            0 <= row < self.height and 0 <= column < self.width and (column, row) not in self._tags
        )

    def put_tag(self, column: int, row: int, text: str, style: int) -> None:
        """Write the tag of a curve over the existing content."""
        self._tags.add((column, row))
        self.put_text(column, row, text, style)

    def make_rows(self) -> list[Row]:
        """Return the lines; neighbouring cells of one style are one piece."""
        out: list[Row] = []
        for codes, styles in zip(self._text, self._style, strict=True):
            # One decoding per line instead of a loop over its cells.
            line = codes.tobytes().decode("utf-32-le" if _LITTLE else "utf-32-be")
            cuts = [0, *(np.flatnonzero(np.diff(styles)) + 1).tolist(), self.width]
            out.append(tuple((line[a:b], int(styles[a])) for a, b in pairwise(cuts)))
        return out


# From curves to dots: the rows that each curve covers in each column of dots.
#
# Every column keeps the lowest and the highest value in it, and where the line enters and leaves
# it: no spike is lost and no join is invented, however many points there are. All curves of a plot
# are processed at once, as rows of the same arrays.


@dataclass(frozen=True)
class ValueScale:
    """Maps values to rows of dots, 0 at the top."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def from_range(cls, low: float, high: float, *, log: bool = False) -> ValueScale:
        """Return a scale that shows `low` to `high` with a small margin at both ends."""
        low, high = max(-HUGE, min(low, HUGE)), max(-HUGE, min(high, HUGE))
        if log:
            low = max(low, 1e-300)
            high = max(high, low)
            apart = math.log(high) - math.log(low)
            # Equal values have no distance: a fixed margin gives the scale a height.
            if apart > 1e-9:
                room = math.exp(0.03 * apart)
            else:
                room = 1.05
            return cls(low / room, high * room, log=True)
        room = 0.04 * (high - low)
        # Relative to the values, because a margin of rounding errors would be no margin.
        if not room > 1e-12 * max(abs(low), abs(high)):
            room = 0.05 * max(abs(low), abs(high)) or 1.0
        return cls(low - room, high + room)

    def rows_of_values(self, values: Floats, height: int) -> Floats:
        """Return the row of each value among `height` rows; NaN if the scale cannot show it."""
        with np.errstate(all="ignore"):
            if self.log:
                shown = np.log(np.where(values > 0, values, np.nan))
                low, high = np.log(self.low), np.log(self.high)
            else:
                shown, low, high = np.clip(values, -HUGE, HUGE), self.low, self.high
            # Clip before multiplying: infinity times 0, with a single row, would be NaN.
            share: Floats = np.clip((high - shown) / (high - low), -FAR, FAR)
            return share * (height - 1)

    def row_of_value(self, value: float, height: int) -> float:
        """Return the row of one value."""
        if value != value or (self.log and value <= 0):
            return math.nan
        low, high, shown = self.low, self.high, max(-HUGE, min(value, HUGE))
        if self.log:
            low, high, shown = math.log(low), math.log(high), math.log(value)
        return max(-FAR, min((high - shown) / (high - low), FAR)) * (height - 1)


def edges_of(window: tuple[float, float], columns: int) -> Floats:
    """Return the edges of the columns; the window's ends are in the middle of the outer columns."""
    pitch = (window[1] - window[0]) / max(1, columns - 1)
    edges: Floats = window[0] + (np.arange(columns + 1, dtype=np.float64) - 0.5) * pitch
    return edges


@dataclass(frozen=True)
class ColumnSamples:
    """The values in the columns, with a row for each curve; not mapped to rows of dots yet."""

    low: Floats
    high: Floats
    """Extremes of each column, NaN if it has no value."""
    left: Floats
    right: Floats
    """Values on both sides of each edge between columns; NaN if no line crosses it."""
    share: Floats
    """Position of the edge between the left and the right value, from 0 to 1."""

    def value_bounds(self, *, positive: bool) -> tuple[float, float] | None:
        """Return the lowest and highest value on screen, including neighbours just outside."""
        found = [self.low, self.high, self.left[:, :1], self.right[:, -1:]]
        kept = [
            part[(part > 0) & (part < np.inf) if positive else np.isfinite(part)] for part in found
        ]
        kept = [part for part in kept if len(part)]
        if kept:
            return (min(float(p.min()) for p in kept), max(float(p.max()) for p in kept))
        return None


def sample_columns(
    paths: Sequence[tuple[CurvePath, Floats, Floats]], columns: int
) -> ColumnSamples:
    """Sample some curves in columns.

    Args:
        paths: Each with the steps of its column edges, and the same with NaN where no line crosses.
        columns: Number of columns of dots.
    """
    count = len(paths)
    looks = ColumnSamples(
        np.full((count, columns), np.nan),
        np.full((count, columns), np.nan),
        np.full((count, columns + 1), np.nan),
        np.full((count, columns + 1), np.nan),
        np.full((count, columns + 1), np.nan),
    )
    for row, (path, edges, crossed) in enumerate(paths):
        xs, ys = path.xs, path.ys
        if not len(xs):
            continue
        # `cut` has the first point at or right of each edge.
        cut = np.searchsorted(xs, edges, side="left")
        starts, ends = cut[:-1], cut[1:]
        filled = np.flatnonzero(ends > starts)
        if len(filled):
            looks.low[row, filled], looks.high[row, filled] = path.range_extremes(
                starts[filled], ends[filled]
            )
        # NaN in `crossed` marks a gap, over which no line is drawn.
        inside = np.flatnonzero((cut > 0) & (cut < len(xs)) & (crossed == crossed))
        if len(inside):
            after = cut[inside]
            before = after - 1
            looks.left[row, inside], looks.right[row, inside] = ys[before], ys[after]
            looks.share[row, inside] = (edges[inside] - xs[before]) / (xs[after] - xs[before])
    return looks


def rows_of(looks: ColumnSamples, scale: ValueScale, height: int) -> tuple[Floats, Floats]:
    """Return the top and the bottom row of each column, NaN if it is empty."""
    top, bottom = scale.rows_of_values(looks.high, height), scale.rows_of_values(looks.low, height)
    if scale.log:  # a log scale may show the highest value but not the lowest
        bottom = np.where(np.isnan(bottom), top, bottom)
    left, right = (
        scale.rows_of_values(looks.left, height),
        scale.rows_of_values(looks.right, height),
    )
    with np.errstate(invalid="ignore"):
        crossing = left + (right - left) * looks.share
        for side in (crossing[:, :-1], crossing[:, 1:]):
            # `fmin` and `fmax` ignore NaN, that is edges that no line crosses.
            top, bottom = np.fmin(top, side), np.fmax(bottom, side)
    return top, bottom


def lit_rows(top: Floats, bottom: Floats, height: int) -> tuple[Rows, Rows]:
    """Return the first and last lit row of each column; the last is below 0 if none is lit."""
    with np.errstate(invalid="ignore"):
        first, last = np.ceil(top), np.floor(bottom)
        # The line lies between two dots: the nearest one is lit, or it would vanish.
        thin = first > last
        middle = np.rint((top + bottom) / 2)
        first, last = np.where(thin, middle, first), np.where(thin, middle, last)
        empty = np.isnan(first) | (last < 0) | (first >= height)
        first = np.where(empty, 0, np.clip(first, 0, height - 1))
        last = np.where(empty, -1, np.clip(last, 0, height - 1))
    return first.astype(np.int64), last.astype(np.int64)
