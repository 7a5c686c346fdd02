"""Format percentages, sizes, counts and times, the same everywhere."""

from __future__ import annotations

import math
import time

from rgt_wire.shared_text import memory_text, size_text

UNKNOWN = "?"


def pct(value: float | None, *, none: str = UNKNOWN) -> str:
    """Format a percentage, ``63%``, rounded down; a small positive value is ``<1%``.

    So no limit appears reached before it is, and no small value appears as zero.

    Args:
        value: In percent.
        none: Text for an unknown value.
    """
    if value is None or not math.isfinite(value):
        return none
    if 0 < value < 1:
        return "<1%"
    return f"{math.floor(value + 1e-9)}%"


def size(count: float | None, *, none: str = UNKNOWN) -> str:
    """Format bytes on a disk or in transfer, e.g. ``38.2 GB``: powers of 1,000."""
    if count is None or not math.isfinite(count):
        return none
    return size_text(count)


def memory(count: float | None, *, none: str = UNKNOWN) -> str:
    """Format bytes of memory, e.g. ``62.0 GiB``: powers of 1,024."""
    if count is None or not math.isfinite(count):
        return none
    return memory_text(count)


def noun(count: int, one: str, many: str = "") -> str:
    """Return the singular or plural of a noun; `many` for an irregular plural."""
    if count == 1:
        return one
    return many or one + "s"


def how_many(count: int, one: str, many: str = "") -> str:
    """Return e.g. ``1 cell``, ``2,310 cells``."""
    return f"{count:,} {noun(count, one, many)}"


def moment(at: float) -> str:
    """Format a time by the local clock, ``2026-11-24 14:02:11``; an invalid time as a number."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def time_of_day(at: float, now: float | None = None) -> str:
    """Format a time briefly: ``14:02``, with the date before it unless it is today.

    Args:
        at: A time; an invalid one is returned as a number.
        now: The time that defines "today"; None = the clock.
    """
    try:
        then = time.localtime(at)
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
    today = time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)
