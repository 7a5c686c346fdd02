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


ROUNDS = 12
"""As often at most both sizes are measured, in turns: a neighbour on the machine makes one dear that is not."""


def seconds(make: Callable[[int], T], work: Callable[[T], object], size: int) -> float:
    """Return the CPU seconds of `work` on what `make` made of a size."""
    made = make(size)
    gc.collect()
    gc.disable()
    try:
        begun = time.thread_time()
        work(made)
        return time.thread_time() - begun
    finally:
        gc.enable()


def growth(make: Callable[[int], T], work: Callable[[T], object], size: int) -> float:
    """Return how many times as much CPU four times the size takes: by the best of each, as the machine is shared."""
    small = large = float("inf")
    for count in range(ROUNDS):
        small = min(small, seconds(make, work, size))
        large = min(large, seconds(make, work, 4 * size))
        if count >= 2 and large / max(small, NOTHING) < LINEAR_AT_MOST:
            break
    return large / max(small, NOTHING)
