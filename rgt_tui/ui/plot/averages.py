"""Exponential moving averages of growing curves, exact and in blocks: a million points in some 25 ms.

The average after *n* finite values is their weighted mean with weights w⁰, w¹, … from the newest back. With
``s[t] = w s[t-1] + (1 - w) x[t]``, within a block that begins at 0 ``s[t] = wᵗ Σ w⁻ⁱ (1 - w) x[i]``, a cumulated sum;
what came before the block adds ``wᵗ⁺¹ s[-1]``. The newest terms weigh most, so that rounding costs at most about one
unit in the last place per point of a block, of the average of the values' sizes.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BLOCK = 256
"""Points: 0.6⁻²⁵⁶ is 10⁵⁷, so that values up to `LARGEST` do not overflow."""
LARGEST = 1e200
MOST = float(np.finfo(np.float64).max)
MEMORY = 1024
"""Values that a smoothed one depends on: 0.97¹⁰²⁴ is 3 × 10⁻¹⁴."""


def moving_average(values: Floats, keep: float, total: float = 0.0, count: int = 0) -> tuple[Floats, float]:
    """Return the average after each value, corrected for its start, and the uncorrected one after the last.

    Args:
        values: Finite ones.
        keep: The weight of what was, ``w``.
        total: The uncorrected average of what came before.
        count: How many values came before.
    """
    size = len(values)
    if not size:
        return values.copy(), total
    sums = (_in_blocks if np.abs(values).max() < LARGEST else _one_by_one)(values, keep, total)
    last = float(sums[-1])
    # After some thousand values the correction is 1 to the last digit.
    young = max(0, min(size, int(-40.0 / np.log(keep)) + 1 - count))
    if young:
        weights = -np.expm1(np.arange(count + 1, count + young + 1) * np.log(keep))
        with np.errstate(over="ignore"):  # the largest of all numbers, divided by what rounds to below 1
            sums[:young] = np.clip(sums[:young] / weights, -MOST, MOST)
    return sums, last


def weight(keep: float, count: int) -> float:
    """Return what the correction divides by after so many values."""
    return float(-np.expm1(count * np.log(keep)))


def _in_blocks(values: Floats, keep: float, total: float) -> Floats:
    size = len(values)
    blocks = -(-size // BLOCK)
    made = np.zeros(blocks * BLOCK)
    made[:size] = values
    table = made.reshape(blocks, BLOCK)
    powers: Floats = keep ** np.arange(BLOCK, dtype=np.float64)
    table *= (1.0 - keep) / powers
    np.cumsum(table, axis=1, out=table)
    table *= powers
    over = keep**BLOCK
    before = list(
        accumulate(table[:-1, -1].tolist(), lambda carried, own: carried * over + own, initial=total)
    )
    table += np.array(before)[:, None] * (powers * keep)
    return made[:size]


def _one_by_one(values: Floats, keep: float, total: float) -> Floats:
    """Do the same where a block would overflow."""
    take = 1.0 - keep
    found = accumulate((value * take for value in values.tolist()), lambda s, v: s * keep + v, initial=total)
    return np.array(list(found)[1:], dtype=np.float64)


class Average:
    """The average of one growing curve; gaps (NaN) stay gaps and leave it as it was."""

    def __init__(self, keep: float) -> None:
        self.keep = keep
        self._ys: Floats = np.empty(256)
        self._size = 0
        self._known: tuple[int, float, int] = (0, 0.0, 0)
        """At this size: the uncorrected average, and the count of finite values."""

    @property
    def size(self) -> int:
        """Points that are done."""
        return self._size

    @property
    def ys(self) -> Floats:
        """The averages."""
        return self._ys[: self._size]

    def cut(self, size: int) -> None:
        """Forget what comes after the first `size` points."""
        self._size = min(self._size, size)

    def follow(self, raw: Floats) -> None:
        """Go on to the end of the curve, whose first `size` points are as they were."""
        start = self._size
        if len(raw) == start:
            return
        total, count = self._state(raw)
        fresh = raw[start:]
        finite = np.isfinite(fresh)
        whole = bool(finite.all())
        means, total = moving_average(fresh if whole else fresh[finite], self.keep, total, count)
        self._ys = grown(self._ys, start, len(raw))
        if whole:
            self._ys[start : len(raw)] = means
        else:
            self._ys[start : len(raw)] = np.nan
            self._ys[start : len(raw)][finite] = means
        self._size = len(raw)
        self._known = (self._size, total, count + len(means))

    def _state(self, raw: Floats) -> tuple[float, int]:
        at, total, count = self._known
        if at == self._size:
            return total, count
        known = np.flatnonzero(np.isfinite(raw[: self._size]))
        if not len(known):
            return 0.0, 0
        return float(self._ys[known[-1]]) * weight(self.keep, len(known)), len(known)


def grown(array: Floats, used: int, size: int) -> Floats:
    """Return an array with room for `size` values that begins with the first `used` of this one."""
    if size <= len(array):
        return array
    larger: Floats = np.empty(max(size, 2 * len(array)))
    larger[:used] = array[:used]
    return larger
