"""A wait that somebody may end early."""

from __future__ import annotations

import asyncio


class Nudge:
    """Like an event that is forgotten once it was waited for; hundreds of them take little room."""

    __slots__ = ("_given", "_waiting")

    def __init__(self) -> None:
        self._given = False
        self._waiting: asyncio.Future[None] | None = None

    def give(self) -> None:
        """End the present wait, else the next one."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        else:
            self._given = True

    def forget(self) -> None:
        """Take back what nobody has waited for."""
        self._given = False

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for a nudge, or so many seconds."""
        if self._given:
            self._given = False
            return
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        timer = None
        if seconds is not None:
            timer = loop.call_later(seconds, _end, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
