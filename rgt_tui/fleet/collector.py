"""Python's garbage collector beside hundreds of boxes: a full pass over them all stalls the loop by 0.1 s."""

from __future__ import annotations

import gc
from collections.abc import Callable

MANY_BOXES = 30
YOUNG = 10_000
"""Objects before the youngest are looked through; states replace each other long before that."""


def collect_less(boxes: int) -> Callable[[], None]:
    """Let the collector pass over what was there before the boxes, and look through the rest more seldom.

    Args:
        boxes: How many there are; of few nothing is changed.

    Returns:
        The way back.
    """
    if boxes <= MANY_BOXES:
        return _nothing
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])

    def undo() -> None:
        gc.set_threshold(*before)
        gc.unfreeze()

    return undo


def _nothing() -> None:
    pass
