"""Numbers as training programs spell them, and rows of them."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLOCK_KEYS = ("time", "timestamp", "_timestamp", "wall_time", "ts")
CLOCK_FLOOR = 1e9
"""A smaller ``time`` is a duration (mmengine, detectron2, Ultralytics), no clock."""
MAX_DIGITS = 400
"""No spelling of a float is longer."""
DEPTH = 4
"""Levels of nested objects that are joined with ``/``."""


def number(value: Any) -> float | None:
    """Return a number as a float, NaN and infinities kept; None for what is no number (null, '', true)."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int:
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if kind is str and value and len(value) <= MAX_DIGITS and "_" not in value:
        try:
            return float(value.replace(",", ""))
        except ValueError:
            return None
    return None


def spelled(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and infinities as words."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def whole(text: str) -> int | float:
    """Decode a JSON integer in bounded time: what exceeds 64 bits is a float anyway."""
    return int(text) if len(text) < 20 else float(text[:MAX_DIGITS])


def position(value: Any) -> float | None:
    """Return a finite x; None otherwise."""
    found = number(value)
    return found if found is not None and abs(found) < 2.0**63 else None


def clock(value: Any) -> float | None:
    """Return epoch seconds from seconds or milliseconds; None for what is no time of day."""
    found = number(value)
    if found is None or not CLOCK_FLOOR < found < 1e15:
        return None
    return found / 1000.0 if found > 1e11 else found


def flatten(row: dict[str, Any], limit: int, joint: str = "/") -> dict[str, Any]:
    """Return `row` with nested objects as joined keys, at most `limit` values."""
    found: dict[str, Any] = {}
    stack = [("", row, DEPTH)]
    while stack:
        prefix, part, depth = stack.pop()
        for key, value in part.items():
            if len(found) >= limit:
                return found
            if type(value) is dict:
                if depth > 1:
                    stack.append((prefix + key + joint, value, depth - 1))
            else:
                found[prefix + key] = value
    return found
