"""A cell that ends much sooner than its like has most likely not done what it was asked to."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORT = 0.5
"""Part of the usual time below which an end is flagged."""

LEAST = 5.0
"""Seconds that a cell must usually take: below that, starting up is most of it."""


def add(cell: dict[str, Any], seconds: float | None) -> None:
    """Add an attempt to the time that a cell has run, over all its attempts: a resumed cell is no short one.

    Args:
        cell: Its state.
        seconds: How long the attempt ran; None = not known, and so the sum never again is.
    """
    before = cell.get("seconds", 0.0)
    known = seconds is not None and isinstance(before, (int, float))
    cell["seconds"] = round(before + seconds, 3) if known else None


def flag(cell: dict[str, Any], cells: list[dict[str, Any]]) -> str | None:
    """Return what is odd about how soon a cell ended, by the median of the done cells of its task and epochs."""
    seconds = cell.get("seconds")
    like = sorted(
        other["seconds"]
        for other in cells
        if other is not cell
        and (cell.get("name") is None or other.get("name") != cell.get("name"))
        and other.get("state") == "done"
        and not other.get("flag")
        and (other.get("task"), other.get("epochs")) == (cell.get("task"), cell.get("epochs"))
        and isinstance(other.get("seconds"), (int, float))
    )
    if not like or not isinstance(seconds, (int, float)):
        return None
    middle = len(like) // 2
    usual = like[middle] if len(like) % 2 else (like[middle - 1] + like[middle]) / 2
    if usual < LEAST or seconds >= SHORT * usual:
        return None
    return "ended after %s, usual are %s (median of %d done with task %s and %s epochs): look at its log" % (
        span(seconds),
        span(usual),
        len(like),
        cell.get("task"),
        cell.get("epochs"),
    )


def span(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 120:
        return "%.0f s" % seconds
    return "%.0f min" % (seconds / 60) if seconds < 7200 else "%.1f h" % (seconds / 3600)
