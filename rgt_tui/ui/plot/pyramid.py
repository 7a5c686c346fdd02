"""The lowest and highest value of any stretch of a growing curve, without reading all its points.

Buckets of 8, 32, 128, … points keep their extremes. A stretch is answered from buckets of which it holds at least
`FINE`: it may so borrow from its neighbours by less than an eighth of itself at either end, and no extreme is missed.
A short stretch is answered from its points.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rgt_tui.ui.plot.averages import Floats, grown

Places = NDArray[np.intp]

FIRST, FACTOR = 8, 4
FINE = 8
_LONG_ENOUGH = np.array([FIRST * FACTOR**level * FINE for level in range(24)])
"""Points of a stretch that is answered from the buckets of a level."""


class Pyramid:
    """Extremes of one curve, from its points up; NaN where a bucket has no value."""

    def __init__(self) -> None:
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._size = 0

    def cut(self, size: int) -> None:
        """Forget what comes after the first `size` points."""
        self._size = min(self._size, size)

    def follow(self, values: Floats) -> None:
        """Take in the curve, whose first points are as they were, as far as this has followed them."""
        if len(values) == self._size:
            return
        low = high = values
        bucket, level = FIRST, 0
        factor = FIRST
        while len(values) > bucket * FINE:
            whole = self._size // bucket  # buckets that cannot have changed
            count = -(-len(low) // factor)
            if level == len(self._low):
                self._low.append(np.empty(64))
                self._high.append(np.empty(64))
                whole = 0
            for kept, source, least in ((self._low, low, True), (self._high, high, False)):
                kept[level] = grown(kept[level], whole, count)
                _folded(source[whole * factor :], factor, kept[level][whole:count], least=least)
            low, high = self._low[level][:count], self._high[level][:count]
            bucket, level, factor = bucket * FACTOR, level + 1, FACTOR
        del self._low[level:], self._high[level:]
        self._size = len(values)

    def extremes(self, values: Floats, starts: Places, ends: Places) -> tuple[Floats, Floats]:
        """Return the lowest and the highest of each stretch ``values[start:end]``; none is empty, all in order."""
        lengths = ends - starts
        levels = np.searchsorted(_LONG_ENOUGH[: len(self._low)], lengths, side="right")
        lowest, highest = (int(levels.min()), int(levels.max())) if len(levels) else (0, 0)
        if lowest == highest:
            return self._at_level(lowest, values, starts, ends)
        low, high = np.empty(len(starts)), np.empty(len(starts))
        for level in range(lowest, highest + 1):
            chosen = np.flatnonzero(levels == level)
            if len(chosen):
                low[chosen], high[chosen] = self._at_level(level, values, starts[chosen], ends[chosen])
        return low, high

    def _at_level(self, level: int, values: Floats, starts: Places, ends: Places) -> tuple[Floats, Floats]:
        if not len(starts):
            return np.empty(0), np.empty(0)
        if not level:
            return _reduced(values, values, starts, ends)
        bucket = FIRST * FACTOR ** (level - 1)
        count = -(-self._size // bucket)
        return _reduced(
            self._low[level - 1][:count], self._high[level - 1][:count], starts // bucket, -(-ends // bucket)
        )


def _folded(source: Floats, factor: int, into: Floats, *, least: bool) -> None:
    """Write the extreme of each `factor` values; the last ones may be fewer."""
    fold = np.fmin if least else np.fmax
    whole = len(source) // factor
    if whole:
        found = into[:whole]
        found[:] = source[: whole * factor : factor]
        for place in range(1, factor):
            fold(found, source[place : whole * factor : factor], out=found)
    if whole < len(into):
        into[whole] = fold.reduce(source[whole * factor :])


def _reduced(low: Floats, high: Floats, starts: Places, ends: Places) -> tuple[Floats, Floats]:
    lengths = ends - starts
    total = int(lengths.sum())
    begin, end = int(starts[0]), int(ends.max())
    if end - begin <= 2 * total:
        cuts = np.empty(2 * len(starts), dtype=np.intp)
        cuts[::2], cuts[1::2] = starts - begin, ends - begin
        if cuts[-1] == end - begin:
            cuts = cuts[:-1]
        if cuts.max() < end - begin:
            return (
                np.fmin.reduceat(low[begin:end], cuts)[::2],
                np.fmax.reduceat(high[begin:end], cuts)[::2],
            )
    offsets = np.cumsum(lengths) - lengths
    places = np.repeat(starts - offsets, lengths) + np.arange(total)
    return np.fmin.reduceat(low[places], offsets), np.fmax.reduceat(high[places], offsets)
