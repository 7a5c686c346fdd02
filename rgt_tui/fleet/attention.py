"""How closely a box is watched: by who looks at it, and by how many there are. Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Attention(enum.StrEnum):
    """Who looks at a box now."""

    FOCUSED = "focused"
    """It is the one on the screen."""
    VISIBLE = "visible"
    """It is a row among others."""
    HIDDEN = "hidden"
    """Another box is on the screen."""
    NOBODY = "nobody"
    """Nobody looks at the screen at all."""


class Size(NamedTuple):
    """A fleet of up to `most` boxes."""

    most: float
    slower: dict[Attention, float]
    """How many times longer than described the time between samples is."""
    tail: int
    """Lines of a log that are asked for when it is first seen."""
    lines: int
    """Lines that are kept of it while the box is not the one on the screen."""
    ring: int
    """Values of a row's curves that are kept while the box is not the one on the screen."""
    stretches: int
    """How many stretches of a box's past are kept."""
    look: float
    """Seconds between two looks for findings and alerts, at the least, where nothing is urgent."""


SIZES = (
    Size(12, {Attention.NOBODY: 2.0}, tail=200, lines=2000, ring=120, stretches=720, look=0.9),
    Size(
        100,
        {Attention.HIDDEN: 5.0, Attention.NOBODY: 5.0},
        tail=200, lines=500, ring=120, stretches=240, look=0.9,
    ),
    # 60 lines are what is searched for diagnoses.
    Size(
        float("inf"),
        {Attention.HIDDEN: 5.0, Attention.NOBODY: 10.0},
        tail=60, lines=60, ring=60, stretches=240, look=3.0,
    ),
)  # fmt: skip
SLOWEST_SECONDS = 15.0
"""Nothing is slowed down beyond this: an alert must not come minutes late because nobody looked."""


def size(boxes: int) -> Size:
    """Return what holds for a fleet of so many boxes."""
    return next(one for one in SIZES if boxes <= one.most)


def attention(box: str, focus: str | None, looking: bool) -> Attention:
    """Return how `box` is looked at.

    Args:
        box: The box.
        focus: The box on the screen; None = all of them.
        looking: Somebody looks at the screen.
    """
    if not looking:
        return Attention.NOBODY
    if focus is None:
        return Attention.VISIBLE
    return Attention.FOCUSED if focus == box else Attention.HIDDEN


def interval(described: float, paid: Attention, boxes: int) -> float:
    """Return the seconds between samples of a box.

    Args:
        described: What the fleet file says.
        paid: How it is looked at.
        boxes: How many the fleet has.
    """
    slowed = described * size(boxes).slower.get(paid, 1.0)
    return max(described, min(slowed, SLOWEST_SECONDS))
