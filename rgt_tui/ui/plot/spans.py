"""From a curve to what each column of dots must show: the decimation.

Every column keeps the lowest and the highest value that falls into it, and the points where the line enters
and leaves it: no spike is lost and no join is invented, however many points there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HUGE = 1e150
"""Values beyond are drawn as if they were this, so that no difference overflows."""


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
            room = (high / low) ** 0.03 if high / low > 1 + 1e-9 else 1.05
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
            rows: Floats = (high - shown) / (high - low) * (height - 1)
            return np.clip(rows, -1e6, 1e6)


def spans(
    xs: Floats, ys: Floats, window: tuple[float, float], scale: Scale, size: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return the top and the bottom row of each column of dots, NaN where the column stays empty.

    Args:
        xs: Steps, strictly increasing.
        ys: Values; NaN breaks the line.
        window: Step of the first and of the last column.
        scale: The y axis.
        size: Columns and rows, in dots.
    """
    columns, height = size
    pitch = (window[1] - window[0]) / max(1, columns - 1)
    edges: Floats = window[0] + (np.arange(columns + 1, dtype=np.float64) - 0.5) * pitch
    cut = np.searchsorted(xs, edges, side="left")
    top, bottom = np.full(columns, np.nan), np.full(columns, np.nan)
    filled = np.flatnonzero(cut[1:] > cut[:-1])
    with np.errstate(invalid="ignore"):
        if len(filled):
            begin, end = int(cut[0]), int(cut[-1])
            seen = ys[begin:end]
            if scale.log:
                seen = np.where(seen > 0, seen, np.nan)
            starts = cut[:-1][filled] - begin
            top[filled] = scale.rows(np.fmax.reduceat(seen, starts), height)
            bottom[filled] = scale.rows(np.fmin.reduceat(seen, starts), height)
        crossing = _crossings(xs, ys, edges, cut, scale, height)
        for side in (crossing[:-1], crossing[1:]):
            top, bottom = np.fmin(top, side), np.fmax(bottom, side)
    return top, bottom


def _crossings(
    xs: Floats, ys: Floats, edges: Floats, cut: NDArray[np.intp], scale: Scale, height: int
) -> Floats:
    """Return the row at which the line crosses each edge between columns, NaN where there is no line."""
    rows = np.full(len(edges), np.nan)
    inside = np.flatnonzero((cut > 0) & (cut < len(xs)))
    if len(inside):
        right = cut[inside]
        left = right - 1
        share = (edges[inside] - xs[left]) / (xs[right] - xs[left])
        a, b = scale.rows(ys[left], height), scale.rows(ys[right], height)
        rows[inside] = a + (b - a) * share
    return rows


def dots(top: Floats, bottom: Floats, height: int) -> NDArray[np.bool_]:
    """Return the dots (rows by columns) that the spans cover: at least one in every column that has one."""
    with np.errstate(invalid="ignore"):
        first, last = np.ceil(top), np.floor(bottom)
        thin = first > last
        middle = np.rint((top + bottom) / 2)
        first, last = np.where(thin, middle, first), np.where(thin, middle, last)
        rows = np.arange(height, dtype=np.float64)[:, None]
        grid: NDArray[np.bool_] = (rows >= first) & (rows <= last)
    return grid
