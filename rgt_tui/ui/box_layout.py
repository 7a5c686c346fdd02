"""Where the panes of the box screen stand at each size, as a pure function."""

from __future__ import annotations

from typing import NamedTuple

from textual.geometry import Region

LEFT = 44
"""Width of the vitals where they stand beside the log."""


class Wants(NamedTuple):
    """The heights that would show everything."""

    vitals: int
    trouble: int
    queue: int


def place(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """Return the region of each pane that is shown, by its id."""
    if width >= 110:
        return _beside(width, height, wants)
    if width >= 76 and height >= 16:
        return _above(width, height, wants)
    return _stacked(width, height, wants)


def _beside(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """Vitals at the left; trouble, queue and log at the right."""
    left = LEFT if width < 160 else 54
    right = width - left
    out = {"vitals": Region(0, 0, left, height)}
    y = 0
    if wants.trouble:
        tall = min(wants.trouble, max(4, height // 2))
        out["trouble"] = Region(left, y, right, tall)
        y += tall
    tall = min(wants.queue, max(3, (height - y) * 2 // 5))
    out["queue"] = Region(left, y, right, tall)
    y += tall
    out["log"] = Region(left, y, right, height - y)
    return out


def _above(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """Vitals and queue side by side, the log below in full width."""
    out: dict[str, Region] = {}
    y = 0
    if wants.trouble:
        tall = min(wants.trouble, max(4, height // 2))
        out["trouble"] = Region(0, 0, width, tall)
        y = tall
    log = max(5, (height - y) * 2 // 5)
    tall = max(4, min(max(wants.vitals, wants.queue), height - y - log))
    half = width // 2
    out["vitals"] = Region(0, y, half, tall)
    out["queue"] = Region(half, y, width - half, tall)
    out["log"] = Region(0, y + tall, width, height - y - tall)
    return out


def _stacked(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """One below the other: trouble or the queue first, then vitals, then the log."""
    out: dict[str, Region] = {}
    first, tall = ("trouble", min(wants.trouble, 9)) if wants.trouble else ("queue", min(wants.queue, 5))
    tall = min(tall, max(3, height // 2 if wants.trouble else height // 3))
    out[first] = Region(0, 0, width, tall)
    log = max(3, height // 3)
    middle = max(0, min(wants.vitals, height - tall - log))
    if middle >= 3:
        out["vitals"] = Region(0, tall, width, middle)
    else:
        middle = 0
    out["log"] = Region(0, tall + middle, width, max(0, height - tall - middle))
    return out
