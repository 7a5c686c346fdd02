"""How percentages, sizes, counts and times are written, everywhere: columns, alerts, findings, commands, screens."""

from __future__ import annotations

import math
import time

from rgt_wire.shared_text import memory_text, size_text

UNKNOWN = "?"


def pct(value: float | None, *, none: str = UNKNOWN) -> str:
    """Return a percentage, ``63%``, rounded down: no limit reads as reached before it is, and no little as nothing.

    Args:
        value: In percent.
        none: Stands for what is unknown.
    """
    if value is None or not math.isfinite(value):
        return none
    if 0 < value < 1:
        return "<1%"
    return f"{math.floor(value + 1e-9)}%"


def size(count: float | None, *, none: str = UNKNOWN) -> str:
    """Return bytes on a disk or on their way, e.g. ``38.2 GB``: powers of 1,000."""
    if count is None or not math.isfinite(count):
        return none
    return size_text(count)


def memory(count: float | None, *, none: str = UNKNOWN) -> str:
    """Return bytes of memory, e.g. ``62.0 GiB``: powers of 1,024."""
    if count is None or not math.isfinite(count):
        return none
    return memory_text(count)


def noun(count: int, one: str, many: str = "") -> str:
    """Return the form of a noun that a count takes: ``cell`` or ``cells``; `many` where it is not `one` with an s."""
    if count == 1:
        return one
    return many or one + "s"


def how_many(count: int, one: str, many: str = "") -> str:
    """Return e.g. ``1 cell``, ``2,310 cells``."""
    return f"{count:,} {noun(count, one, many)}"


def moment(at: float) -> str:
    """Return a time by the local clock, ``2026-11-24 14:02:11``; the bare number where no calendar has that time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def time_of_day(at: float, now: float | None = None) -> str:
    """Return a time as a person says it: ``14:02``, with the date in front unless it is today's.

    Args:
        at: A time; a number that no calendar has is returned bare.
        now: What "today" is taken from, if not the clock.
    """
    try:
        then = time.localtime(at)
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
    today = time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
