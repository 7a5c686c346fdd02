"""From curves to dots: what each column of dots shows of each curve, and on which rows.

Every column keeps the lowest and the highest value that falls into it, and the points where the line enters and leaves
it: no spike is lost and no join is invented, however many points there are. All curves of a plot go through here at
once, as rows of the same arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rgt_tui.ui.plot.averages import Floats
from rgt_tui.ui.plot.trace import Path

HUGE = 1e150
"""Values beyond are drawn as if they were this, so that no difference overflows."""
FAR = 1e6
"""Heights of the plot beyond which a value is drawn as if it were there."""
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Scale:
    """Maps values to rows of dots, 0 at the top."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def of(cls, low: float, high: float, *, log: bool = False) -> Scale:
        """Return a scale that shows `low` to `high` with a little room at both ends."""
        low, high = max(-HUGE, min(low, HUGE)), max(-HUGE, min(high, HUGE))
        if log:
            low = max(low, 1e-300)
            high = max(high, low)
            apart = math.log(high) - math.log(low)
            room = math.exp(0.03 * apart) if apart > 1e-9 else 1.05
            return cls(low / room, high * room, log=True)
        room = 0.04 * (high - low)
        if not room > 1e-12 * max(abs(low), abs(high)):
            room = 0.05 * max(abs(low), abs(high)) or 1.0
        return cls(low - room, high + room)

    def rows(self, values: Floats, height: int) -> Floats:
        """Return the row of each value among `height` rows; NaN where the scale has no place for it."""
        with np.errstate(all="ignore"):
            if self.log:
                shown = np.log(np.where(values > 0, values, np.nan))
                low, high = np.log(self.low), np.log(self.high)
            else:
                shown, low, high = np.clip(values, -HUGE, HUGE), self.low, self.high
            # Limited before it is multiplied: an overflow times the 0 of a single row would be NaN.
            share: Floats = np.clip((high - shown) / (high - low), -FAR, FAR)
            return share * (height - 1)

    def row(self, value: float, height: int) -> float:
        """Return the row of one value."""
        if value != value or (self.log and value <= 0):
            return math.nan
        low, high, shown = self.low, self.high, max(-HUGE, min(value, HUGE))
        if self.log:
            low, high, shown = math.log(low), math.log(high), math.log(value)
        return max(-FAR, min((high - shown) / (high - low), FAR)) * (height - 1)


def edges_of(window: tuple[float, float], columns: int) -> Floats:
    """Return where columns of dots begin and end; the window's ends are the middles of the first and the last."""
    pitch = (window[1] - window[0]) / max(1, columns - 1)
    edges: Floats = window[0] + (np.arange(columns + 1, dtype=np.float64) - 0.5) * pitch
    return edges


@dataclass(frozen=True)
class Looks:
    """What the columns show, a row for each curve: values, not yet places."""

    low: Floats
    high: Floats
    """Extremes of each column, NaN where it has no value."""
    left: Floats
    right: Floats
    """At each edge between columns, the values on both sides of it; NaN where there is no line."""
    share: Floats
    """How far the edge is from the left one to the right one."""

    def range(self, *, positive: bool) -> tuple[float, float] | None:
        """Return the lowest and the highest value on screen, those just outside of it included."""
        found = [self.low, self.high, self.left[:, :1], self.right[:, -1:]]
        kept = [part[(part > 0) & (part < np.inf) if positive else np.isfinite(part)] for part in found]
        kept = [part for part in kept if len(part)]
        return (min(float(p.min()) for p in kept), max(float(p.max()) for p in kept)) if kept else None


def look(paths: Sequence[tuple[Path, Floats, Floats]], columns: int) -> Looks:
    """Look at some curves.

    Args:
        paths: Each with the steps at which its columns begin and end, and the same with NaN where no line crosses.
        columns: Of dots.
    """
    count = len(paths)
    looks = Looks(
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
        cut = np.searchsorted(xs, edges, side="left")
        starts, ends = cut[:-1], cut[1:]
        filled = np.flatnonzero(ends > starts)
        if len(filled):
            looks.low[row, filled], looks.high[row, filled] = path.extremes(starts[filled], ends[filled])
        inside = np.flatnonzero((cut > 0) & (cut < len(xs)) & (crossed == crossed))
        if len(inside):
            after = cut[inside]
            before = after - 1
            looks.left[row, inside], looks.right[row, inside] = ys[before], ys[after]
            looks.share[row, inside] = (edges[inside] - xs[before]) / (xs[after] - xs[before])
    return looks


def rows_of(looks: Looks, scale: Scale, height: int) -> tuple[Floats, Floats]:
    """Return the top and the bottom row of each column, NaN where it stays empty."""
    top, bottom = scale.rows(looks.high, height), scale.rows(looks.low, height)
    if scale.log:  # the lowest may have no place where the highest has
        bottom = np.where(np.isnan(bottom), top, bottom)
    left, right = scale.rows(looks.left, height), scale.rows(looks.right, height)
    with np.errstate(invalid="ignore"):
        crossing = left + (right - left) * looks.share
        for side in (crossing[:, :-1], crossing[:, 1:]):
            top, bottom = np.fmin(top, side), np.fmax(bottom, side)
    return top, bottom


def lit(top: Floats, bottom: Floats, height: int) -> tuple[Rows, Rows]:
    """Return the first and the last lit row of each column, at least one; the last is before the first in none."""
    with np.errstate(invalid="ignore"):
        first, last = np.ceil(top), np.floor(bottom)
        thin = first > last
        middle = np.rint((top + bottom) / 2)
        first, last = np.where(thin, middle, first), np.where(thin, middle, last)
        empty = np.isnan(first) | (last < 0) | (first >= height)
        first = np.where(empty, 0, np.clip(first, 0, height - 1))
        last = np.where(empty, -1, np.clip(last, 0, height - 1))
    return first.astype(np.int64), last.astype(np.int64)
