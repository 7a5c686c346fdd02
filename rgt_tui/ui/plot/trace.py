"""One run's curve, prepared for drawing: what a resume threw away set apart, gaps noted, smoothed.

A `Trace` is fed again and again with the newest snapshot of a growing series, and looks only at what is new.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rgt_tui.model.run import Series

Floats = NDArray[np.float64]

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
