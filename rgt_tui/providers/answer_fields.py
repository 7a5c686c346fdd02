"""Reads the fields of a platform's answers so that no odd value breaks a screen: what is odd becomes None, never 0."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from rgt_tui.providers.control_plane import printable

Parts = tuple[tuple[str, float | None], ...]
"""What is billed: its name, and its price an hour; None = at a price that nobody said."""


def known_sum(parts: Parts) -> tuple[float | None, tuple[str, ...]]:
    """Return what the parts cost as far as it is known, and those of unknown price; None: not one is known."""
    rates = [rate for _, rate in parts if rate is not None]
    unpriced = tuple(name for name, rate in parts if rate is None)
    return (None if unpriced and not sum(rates) else sum(rates)), unpriced


def number(value: object) -> float | None:
    """Return a price or size that comes as number or string; None for what is not finite and >= 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) and result >= 0 else None


def signed(value: object) -> float | None:
    """Return a sum of money, which may be below zero; None for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def whole(value: object) -> int | None:
    """Return a count of one or more; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None


def port(value: object) -> int | None:
    """Return a port that comes as number or string; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() and 0 < found < 65536 else None


def said(value: object) -> bool | None:
    """Return true or false; None for anything else."""
    return value if isinstance(value, bool) else None


def text(value: object, limit: int = 120) -> str | None:
    """Return printable words; None for what is no text, and for an empty one."""
    return (printable(value, limit) or None) if isinstance(value, str) else None


def when(value: object) -> float | None:
    """Return the epoch seconds of an ISO 8601 time (UTC where it names no zone); None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        result = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return moment_of(result)


def moment_of(value: object) -> float | None:
    """Return epoch seconds that can be a machine's time; None for anything else.

    Years in which no machine was made are nonsense, and some cannot be turned back into a date.
    """
    found = number(value)
    return found if found is not None and 0 < found < 2**33 else None


def table(value: object) -> dict[str, object]:
    """Return a JSON object; an empty one for anything else, null included."""
    return value if isinstance(value, dict) else {}


def array(value: object) -> list[object]:
    """Return a JSON array; an empty one for anything else, null included."""
    return value if isinstance(value, list) else []
