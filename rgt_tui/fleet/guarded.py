"""Work that goes on for as long as the fleet does: a fault of rgt in it is said, and the work begins again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from rgt_tui.model.plain import clean

AGAIN_SECONDS = 5.0
"""After a fault the work begins again this much later."""
LONGEST_WORDS = 300

log = logging.getLogger("rgt.fleet")


def fault(doing: str, error: BaseException) -> str:
    """Return what a person is told of a fault of rgt, on one line.

    Args:
        doing: What failed, such as ``reading the meters``.
        error: As it was raised; its words may come from a box.
    """
    return (
        f"{doing} failed: {type(error).__name__}: {clean(str(error))[:LONGEST_WORDS]}; this is a fault of rgt"
    )


async def guarded(
    doing: str,
    work: Callable[[], Awaitable[None]],
    say: Callable[[str, str], None],
    *,
    again: float = AGAIN_SECONDS,
) -> None:
    """Do some work until it returns or is cancelled; when it raises, say so and begin it again.

    Args:
        doing: What it does, for the message.
        work: Begins it; what it holds must be of use to a second beginning.
        say: Called with text and level; the same fault again is not said again.
        again: Seconds between a fault and the next beginning.
    """
    told: set[str] = set()
    while True:
        try:
            await work()
            return
        except Exception as error:
            text = fault(doing, error)
            if text not in told:
                told.add(text)
                log.error("%s", text, exc_info=error)
                with contextlib.suppress(Exception):  # who is told must not end it either
                    say(f"{text}; it begins again", "error")
        await asyncio.sleep(again)
