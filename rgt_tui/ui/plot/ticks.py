"""Where the ticks of an axis stand, and what they say."""

from __future__ import annotations

import math
from itertools import pairwise

_NICE = (1.0, 2.0, 5.0, 10.0)
_LOG_SETS: tuple[tuple[float, ...], ...] = (
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


def nice_step(span: float, most: int, *, whole: bool = False) -> float:
    """Return the smallest 1-2-5 step that makes at most about `most` intervals of `span`."""
    if not (span > 0 and math.isfinite(span)):
        return 1.0
    raw = max(span / max(1, most), 1e-300)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((nice * power for nice in _NICE if nice * power >= raw * (1 - 1e-9)), 10 * power)
    return max(step, 1.0) if whole else step


def linear_ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Return evenly spaced round values within ``[low, high]``, at most about `most`."""
    step = nice_step(high - low, most, whole=whole)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + i) * step for i in range(max(0, min(count, 2 * most + 2)))]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values within ``[low, high]`` for a logarithmic axis, at most about `most`.

    Within less than half a decade the marks of a linear axis read better, and are returned.
    """
    if not 0 < low < high:
        return []
    if high / low < 3:
        return [tick for tick in linear_ticks(low, high, most) if tick > 0]
    bottom, top = math.floor(math.log10(low)), math.floor(math.log10(high))
    for mantissas in _LOG_SETS:
        ticks = [
            value
            for power in range(bottom, top + 1)
            for value in (mantissa * 10.0**power for mantissa in mantissas)
            if low * (1 - 1e-12) <= value <= high * (1 + 1e-12)
        ]
        if 2 <= len(ticks) <= most:
            return ticks
    stride = max(1, math.ceil((top - bottom + 1) / max(1, most)))
    ticks = [10.0**power for power in range(bottom, top + 1, stride) if low <= 10.0**power <= high]
    return ticks or [tick for tick in linear_ticks(low, high, most) if tick > 0]


def labels(ticks: list[float]) -> list[str]:
    """Write the ticks of one axis with one precision."""
    if not ticks:
        return []
    biggest = max(abs(tick) for tick in ticks)
    gaps = [b - a for a, b in pairwise(ticks) if b > a]
    finest = min(gaps, default=biggest or 1.0)
    if biggest and (biggest < 1e-3 or biggest >= 1e6):
        return [f"{tick:.0e}".replace("e-0", "e-").replace("e+0", "e") if tick else "0" for tick in ticks]
    smallest = min((abs(tick) for tick in ticks if tick), default=1.0)
    if smallest < 1e-3:
        return [f"{tick:g}" for tick in ticks]
    decimals = min(6, max(0, -math.floor(math.log10(min(finest, smallest)) + 1e-9)))
    if any(abs(round(tick, decimals) - tick) > 1e-9 * biggest for tick in ticks):
        decimals += 1
    return [f"{tick:,.{decimals}f}" for tick in ticks]
