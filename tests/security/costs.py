"""How the cost of some work grows with the size of what a box sends."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LINEAR_AT_MOST = 8.0
"""Four times as much costs four times as much where the work is linear, sixteen where it is quadratic."""
NOTHING = 0.004
"""Seconds that are not worth a comparison."""


def seconds(make: Callable[[int], T], work: Callable[[T], object], size: int) -> float:
    """Return the CPU seconds of `work` on what `make` made of a size: the best of three, as the machine is shared."""
    found = []
    for _ in range(3):
        made = make(size)
        gc.collect()
        gc.disable()
        try:
            begun = time.process_time()
            work(made)
            found.append(time.process_time() - begun)
        finally:
            gc.enable()
    return min(found)


def growth(make: Callable[[int], T], work: Callable[[T], object], size: int) -> float:
    """Return how many times as much CPU four times the size takes."""
    small = seconds(make, work, size)
    return seconds(make, work, 4 * size) / max(small, NOTHING)
