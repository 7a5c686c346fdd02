"""Positions and labels of the ticks of an axis."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

_NICE = (1.0, 2.0, 5.0, 10.0)
# From many ticks in a decade to one.
_LOG_SETS: tuple[tuple[float, ...], ...] = (
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


def nice_step(span: float, most: int, *, whole: bool = False) -> float:
    """Return the smallest 1-2-5 step that divides `span` into at most about `most` intervals."""
    if not (span > 0 and math.isfinite(span)):
        return 1.0
    raw = max(span / max(1, most), 1e-300)
    power = 10.0 ** math.floor(math.log10(raw))
    # A step that fits up to rounding errors fits.
    step = next((nice * power for nice in _NICE if nice * power >= raw * (1 - 1e-9)), 10 * power)
    if whole:
        return max(step, 1.0)
    return step


def linear_ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Return evenly spaced round values within ``[low, high]``, at most about `most`."""
    step = nice_step(high - low, most, whole=whole)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    # Far from zero, neighbouring ticks may be the same float.
    return list(dict.fromkeys((first + i) * step for i in range(max(0, min(count, 2 * most + 2)))))


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values within ``[low, high]`` for a logarithmic axis, at most about `most`.

    If `high` is less than 3 times `low`, linear ticks are easier to read and are returned.
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
    # More decades than ticks fit: only every few of them.
    stride = max(1, math.ceil((top - bottom + 1) / max(1, most)))
    ticks = [10.0**power for power in range(bottom, top + 1, stride) if low <= 10.0**power <= high]
    return ticks or [tick for tick in linear_ticks(low, high, most) if tick > 0]


def format_labels(ticks: Sequence[float]) -> list[str]:
    """Format the ticks of one axis with one precision.

    No two labels are equal, and each is within a quarter of a step of its tick. The precision is
    the lowest that is exact for every tick, or, if that needs too many digits, the lowest that
    fulfils these conditions.
    """
    if not ticks:
        return []
    near = [_label_tolerance(ticks, place) for place in range(len(ticks))]
    biggest = max(abs(tick) for tick in ticks)
    smallest = min((abs(tick) for tick in ticks if tick), default=1.0)
    if 1e-3 <= biggest < 1e6:
        plain = [f",.{digits}f" for digits in range(16)]
    else:
        plain = []
    powers = [f".{digits}e" for digits in range(17)]
    if smallest >= 1e-3:
        first = plain[:13]
    else:
        first = ["g"] * bool(plain)
    exact = [1e-9 * biggest] * len(ticks)
    for allowed, formats in ((exact, [*first, *powers[:8]]), (near, [*plain, *powers])):
        for how in formats:
            names = [_shorten_exponent(format(tick, how)) for tick in ticks]
            wrong = [
                abs(float(name.replace(",", "")) - tick)
                for name, tick in zip(names, ticks, strict=True)
            ]
            if len({*names}) == len(names) and all(
                w <= a and w <= n for w, a, n in zip(wrong, allowed, near, strict=True)
            ):
                return names
    return [repr(tick) for tick in ticks]


def _label_tolerance(ticks: Sequence[float], place: int) -> float:
    """Return a quarter of the distance to the nearest tick; without one, a quarter of the value."""
    here = ticks[place]
    ways = [abs(here - other) for other in (*ticks[:place][-1:], *ticks[place + 1 :][:1])]
    return min(ways, default=abs(here)) / 4


def _shorten_exponent(name: str) -> str:
    """Shorten an exponent: ``1e-4``, ``2e6``; zero is ``0``."""
    mantissa, _, power = name.partition("e")
    if not power:
        return name
    if float(mantissa):
        return f"{mantissa}e{int(power)}"
    return "0"


# Round numbers of seconds, minutes and hours; days are counted in 1-2-5 steps.
_SECONDS = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
)
_DAY = 86400


def time_ticks(low: float, high: float, most: int, *, by_clock: bool = False) -> list[float]:
    """Return evenly spaced times within ``[low, high]`` in units of time, at most about `most`.

    Args:
        low: Seconds.
        high: Seconds.
        most: Number of ticks.
        by_clock: They are round by the local clock, also where it changes: days begin at midnight.
    """
    raw = (high - low) / max(1, most)
    if not (raw > 0 and math.isfinite(raw)):
        return []
    # Units of time have no meaning below a second.
    if raw <= 1:
        return linear_ticks(low, high, most)
    step = next((float(nice) for nice in _SECONDS if nice >= raw), None)
    if step is None:
        step = nice_step((high - low) / _DAY, most, whole=True) * _DAY
    hour = 3600.0
    ahead = behind = 0.0
    if by_clock:
        ahead, behind = _find_utc_offset(low), _find_utc_offset(high)
        # Clocks change by whole hours: shorter steps stay round, and no repeated hour is left out.
        if step <= hour:
            behind = ahead
    first = math.ceil((low + ahead) / step - 1e-9)
    count = math.floor((high + behind) / step + 1e-9) - first + 1
    ticks = [(first + i) * step - ahead for i in range(max(0, min(count, 2 * most + 2)))]
    if ahead != behind:
        ticks = [tick + ahead - _find_utc_offset(tick) for tick in ticks]
        ticks = [tick for tick in ticks if low <= tick <= high]
    return list(dict.fromkeys(ticks))


def duration_labels(ticks: Sequence[float]) -> list[str]:
    """Format durations of one axis, ``0s 30s 1m30 3d 6h``, or in seconds if two would be equal."""
    names = [_format_duration(tick) for tick in ticks]
    if len(set(names)) == len(names):
        return names
    return [f"{name}s" for name in format_labels(ticks)]


def _format_duration(seconds: float) -> str:
    if seconds < 0 or seconds != int(seconds):
        return f"{seconds:g}s"
    whole = int(seconds)
    days, rest = divmod(whole, _DAY)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        if hours:
            return f"{days}d{hours:2d}h"
        return f"{days}d"
    if hours:
        if not rest:
            return f"{hours}h{minutes:02d}"
        return f"{hours}h{minutes:02d}:{rest:02d}"
    if minutes:
        if rest:
            return f"{minutes}m{rest:02d}"
        return f"{minutes}m"
    return f"{rest}s"


def clock_labels(ticks: Sequence[float]) -> list[str]:
    """Format local times of one axis, with the date if it spans a day or more; no two are equal."""
    try:
        times = [time.localtime(tick) for tick in ticks]
        if not ticks or ticks[-1] - ticks[0] < _DAY:
            if not any(each.tm_sec for each in times):
                form = "%H:%M"
            else:
                form = "%H:%M:%S"
        else:
            if not any(each.tm_hour or each.tm_min for each in times):
                form = "%d %b"
            else:
                form = "%d %b %H:%M"
        names = [time.strftime(form, each) for each in times]
    except (ValueError, OverflowError, OSError):
        return format_labels(ticks)
    if len(set(names)) == len(names):
        return names
    return format_labels(ticks)


def _find_utc_offset(at: float) -> float:
    """Return the UTC offset of the local time at a time, in seconds; 0 for an invalid time."""
    try:
        return float(time.localtime(at).tm_gmtoff)
    except (ValueError, OverflowError, OSError):
        return 0.0
