"""The event loop: Python's own, and for many boxes uvloop where it is installed (``pip install "rgt-tui[fast]"``)."""

from __future__ import annotations

import asyncio
import importlib.util

MANY_BOXES = 30
"""Below it there is nothing to gain."""


def new_loop(boxes: int = 0) -> asyncio.AbstractEventLoop:
    """Return a new event loop.

    Args:
        boxes: How many are going to be watched.
    """
    if boxes > MANY_BOXES and importlib.util.find_spec("uvloop") is not None:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()
