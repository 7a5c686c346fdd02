"""Percentages, sizes and counts in words, written in one way: in tables, alerts, findings and on the screens."""

from __future__ import annotations

import math


def whole_percent(value: float) -> str:
    """Return a percentage for a column, without its sign, to the nearest; never ``100`` or ``0`` short of it."""
    if 99 < value < 100:
        return "99"
    if 0 < value < 1:
        return "<1"
    return f"{value:.0f}"


def pct(value: float | None) -> str:
    """Return a percentage in words, ``63 %``, rounded down: no limit reads as reached before it is; ``?`` = unknown."""
    if value is None or not math.isfinite(value):
        return "?"
    return "<1 %" if 0 < value < 1 else f"{math.floor(value + 1e-9)} %"


def size(count: float | None) -> str:
    """Return bytes in decimal units, e.g. ``38.2 GB``; ``?`` when unknown."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def noun(count: int, one: str, many: str = "") -> str:
    """Return the form of a noun that a count takes: ``cell`` or ``cells``; `many` where it is not `one` with an s."""
    return one if count == 1 else many or one + "s"


def how_many(count: int, one: str, many: str = "") -> str:
    """Return e.g. ``1 cell``, ``2,310 cells``."""
    return f"{count:,} {noun(count, one, many)}"
