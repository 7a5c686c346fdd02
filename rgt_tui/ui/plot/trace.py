"""One run's curve, prepared for drawing: resumes and gaps set apart, smoothed, reduced to columns of dots.

A `Trace` is fed again and again with the newest snapshot of a growing series, and looks only at what is new. Of the
decimation every column keeps the lowest and the highest value that falls into it, and the points where the line enters
and leaves it: no spike is lost and no join is invented, however many points there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rgt_tui.model.run import Series

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


MOST_LOST = 64
"""How many discarded pieces are kept for drawing."""
MOST_GAPS = 256


@dataclass(frozen=True)
class Gap:
    """Consecutive logged steps without a finite value."""

    first: float
    last: float
    count: int
    kind: str
    """``NaN`` or ``Inf``, by the first of them."""
    beside: float | None
    """The last finite value before it: where the marker is drawn."""
    lost: bool = False
    """True when a resume went back to before it."""


class Trace:
    """A curve in order of steps, whatever the order of arrival.

    When a run resumes, it does some steps again: the first attempt moves to `lost`, the later one
    is the curve.
    """

    def __init__(self, smooth: float = 0.0) -> None:
        self.smooth = smooth
        self._begin(None)

    def _begin(self, source: list[int] | None) -> None:
        self.lost: list[tuple[Floats, Floats]] = []
        self.gaps: list[Gap] = []
        self._source = source
        self._fed = 0
        self._size = 0
        self._xs: Floats = np.empty(256)
        self._ys: Floats = np.empty(256)
        self._weights: Floats = np.empty(256)

    @property
    def xs(self) -> Floats:
        """Steps, strictly increasing."""
        return self._xs[: self._size]

    @property
    def ys(self) -> Floats:
        """Values, NaN where there is none."""
        return self._ys[: self._size]

    def feed(self, series: Series) -> bool:
        """Take in what `series` has more than the last one had; return whether anything changed."""
        xs, ys, n = series.columns()
        anew = xs is not self._source or n < self._fed
        if anew:
            emptied = self._size > 0
            self._begin(xs)
        if n == self._fed:
            return anew and emptied
        steps, values = _floats(xs[self._fed : n]), _floats(ys[self._fed : n])
        self._fed = n
        known = np.isfinite(steps)
        if not known.all():
            steps, values = steps[known], values[known]
        turns = np.flatnonzero(np.diff(steps) <= 0) + 1
        for a, b in zip([0, *turns.tolist()], [*turns.tolist(), len(steps)], strict=True):
            if b > a:
                self._append(steps[a:b], values[a:b])
        return True

    def at(self, step: float) -> float | None:
        """Return the value of the last logged step at or before `step`; None outside the curve."""
        i = int(np.searchsorted(self.xs, step, side="right")) - 1
        if i < 0 or (step > self.xs[-1] and self._size):
            return None
        return float(self.ys[i])

    def _append(self, steps: Floats, values: Floats) -> None:
        if self._size and steps[0] <= self._xs[self._size - 1]:
            self._cut(int(np.searchsorted(self.xs, steps[0], side="left")))
        start, end = self._size, self._size + len(steps)
        if end > len(self._xs):
            room = np.empty(max(end, 2 * len(self._xs)) - start)
            self._xs, self._ys, self._weights = (
                np.concatenate([old[:start], room]) for old in (self._xs, self._ys, self._weights)
            )
        self._note_gaps(steps, values)
        self._xs[start:end] = steps
        self._ys[start:end] = np.where(np.isfinite(values), values, np.nan)
        self._size = end
        if self.smooth > 0:
            self._average(start, end)

    def _cut(self, k: int) -> None:
        if self._size - k > 1:
            piece = slice(max(0, k - 1), self._size)
            self.lost.append((self._xs[piece].copy(), self._ys[piece].copy()))
            del self.lost[:-MOST_LOST]
        limit = self._xs[k]
        self.gaps = [gap if gap.lost or gap.first < limit else replace(gap, lost=True) for gap in self.gaps]
        self._size = k

    def _note_gaps(self, steps: Floats, values: Floats) -> None:
        for i in np.flatnonzero(~np.isfinite(values)).tolist()[-MOST_GAPS * 8 :]:
            before = values[i - 1] if i else (self._ys[self._size - 1] if self._size else math.nan)
            previous = self.gaps[-1] if self.gaps else None
            open_gap = not math.isfinite(before) and (i > 0 or self._size > 0)
            if previous is not None and open_gap and not previous.lost:
                self.gaps[-1] = replace(previous, last=float(steps[i]), count=previous.count + 1)
                continue
            kind = "NaN" if math.isnan(values[i]) else "Inf"
            beside = float(before) if math.isfinite(before) else None
            self.gaps.append(Gap(float(steps[i]), float(steps[i]), 1, kind, beside))
        del self.gaps[:-MOST_GAPS]

    def _average(self, start: int, end: int) -> None:
        """Exponential moving average, corrected for its start; a gap leaves the average as it was."""
        keep, take = self.smooth, 1.0 - self.smooth
        total = weight = 0.0
        for i in range(start - 1, -1, -1):
            if math.isfinite(self._ys[i]):
                weight = float(self._weights[i])
                total = float(self._ys[i]) * weight
                break
        means, weights = [], []
        for value in self._ys[start:end].tolist():
            if value == value:
                total = keep * total + take * value
                weight = keep * weight + take
                means.append(total / weight)
            else:
                means.append(value)
            weights.append(weight)
        self._ys[start:end] = means
        self._weights[start:end] = weights


def _floats(values: list[int] | list[float]) -> Floats:
    """Return an array, with infinity for what does not fit a float."""
    try:
        return np.array(values, dtype=np.float64)
    except (OverflowError, ValueError, TypeError):
        out = []
        for value in values:
            try:
                out.append(float(value))
            except (OverflowError, ValueError, TypeError):
                out.append(math.inf)
        return np.array(out, dtype=np.float64)
