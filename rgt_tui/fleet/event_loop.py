"""The event loop for hundreds of boxes: which loop, when to collect garbage, and tasks that must not fail silently."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import logging
from collections.abc import Awaitable, Callable

from rgt_tui.model import clean

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


YOUNG = 3_000
"""Objects before the youngest are looked through: states replace each other before that, and it takes a millisecond.

With three times as many every third look, at those of middle age too, would hold the loop for some 15 ms.
"""


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


AGAIN_SECONDS = 5.0
"""After a fault the work begins again this much later."""
LONGEST_WORDS = 300
MOST_TOLD = 100
"""Different faults; their words may come from a box, and more of them say nothing new."""

log = logging.getLogger("rgt.fleet")

Say = Callable[[str, str], None]
"""Called with text and level, for the event line."""


class Faults:
    """Says every fault once.

    Args:
        say: Told of each.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: set[str] = set()

    def tell(self, doing: str, error: BaseException) -> None:
        """Log and say, once, that rgt failed at something.

        Args:
            doing: What failed, such as ``reading the meters``.
            error: As it was raised.
        """
        words = clean(str(error))[:LONGEST_WORDS]
        text = f"{doing} failed: {type(error).__name__}: {words}; this is a fault of rgt"
        if text in self._told or len(self._told) >= MOST_TOLD:
            return
        self._told.add(text)
        log.error("%s", text, exc_info=error)
        with contextlib.suppress(Exception):  # who is told must not end what goes on
            self._say(text, "error")


async def guarded(doing: str, work: Callable[[], Awaitable[None]], say: Say) -> None:
    """Do some work until it returns or is cancelled; when it raises, say so and begin it again.

    Args:
        doing: What it does, for the message.
        work: Begins it; what it holds must be of use to a second beginning.
        say: Told of a fault, once.
    """
    faults = Faults(say)
    while True:
        try:
            await work()
            return
        except Exception as error:
            faults.tell(doing, error)
        await asyncio.sleep(AGAIN_SECONDS)
