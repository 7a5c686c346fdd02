"""The event loop for hundreds of boxes: its choice, garbage collection, and task restarts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import logging
from collections.abc import Awaitable, Callable

from rgt_tui.model import clean_text

MANY_BOXES = 30
"""With fewer boxes uvloop brings no gain."""


def new_loop(boxes: int = 0) -> asyncio.AbstractEventLoop:
    """Return a new event loop.

    Args:
        boxes: How many will be watched.
    """
    if boxes > MANY_BOXES and importlib.util.find_spec("uvloop") is not None:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def reduce_collection(boxes: int) -> Callable[[], None]:
    """Freeze the objects that exist before the boxes, and collect the rest less often.

    Args:
        boxes: Their number; nothing changes for a small number.

    Returns:
        A function that undoes it.
    """
    if boxes <= MANY_BOXES:
        return _do_nothing
    before = gc.get_threshold()
    gc.freeze()
    # New objects before the youngest generation is collected. Most states have been replaced by
    # then, and a collection takes about 1 ms. With three times as many, every third collection,
    # which includes the middle generation, would block the loop for some 15 ms.
    young = 3_000
    gc.set_threshold(young, *before[1:])

    def restore_collection() -> None:
        gc.set_threshold(*before)
        gc.unfreeze()

    return restore_collection


def _do_nothing() -> None:
    pass


AGAIN_SECONDS = 5.0
"""Seconds before failed work restarts."""
MOST_TOLD = 100
"""Most distinct faults reported. Their text may come from a box, so the number must be limited."""

log = logging.getLogger("rgt.fleet")

Say = Callable[[str, str], None]
"""Called with text and level, for the event line."""


class FaultReporter:
    """Reports every fault once.

    Args:
        say: Called with each fault.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: set[str] = set()

    def report_fault(self, doing: str, error: BaseException) -> None:
        """Log and report, once, that rgt failed at something.

        Args:
            doing: What failed, such as ``reading the meters``.
            error: The exception raised.
        """
        longest_words = 300
        words = clean_text(str(error))[:longest_words]
        text = f"{doing} failed: {type(error).__name__}: {words}; this is a fault of rgt"
        if text in self._told or len(self._told) >= MOST_TOLD:
            return
        self._told.add(text)
        log.error("%s", text, exc_info=error)
        with contextlib.suppress(Exception):  # an error in the callback must not stop the caller
            self._say(text, "error")


async def run_guarded(doing: str, work: Callable[[], Awaitable[None]], say: Say) -> None:
    """Run some work until it returns or is cancelled; when it raises, report that and restart it.

    Args:
        doing: The work's description, for the message.
        work: Starts it; its state must allow a restart.
        say: Called with a fault, once.
    """
    faults = FaultReporter(say)
    while True:
        try:
            await work()
            return
        except Exception as error:
            faults.report_fault(doing, error)
        await asyncio.sleep(AGAIN_SECONDS)
