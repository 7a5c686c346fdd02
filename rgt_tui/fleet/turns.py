"""Turns at connecting: so many at once, and nobody holds one for long."""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 10
"""More at once stall the loop, and trip sshd's MaxStartups where boxes share a jump host (measured)."""
HOLD_SECONDS = 4.0
"""A box that has not let us in by then hangs, or waits: the next one begins beside it."""


class Turn:
    """One box's turn. It ends when it is given back, and by itself after a while."""

    __slots__ = ("_timer", "_turns")

    def __init__(self, turns: Turns, seconds: float) -> None:
        self._turns: Turns | None = turns
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give)

    def give(self) -> None:
        """Let the next one begin; a second time it does nothing."""
        turns, self._turns = self._turns, None
        self._timer.cancel()
        if turns is not None:
            turns.release()


class Turns:
    """Hands turns out in the order in which they are asked for.

    Args:
        at_once: How many there are.
        hold: Seconds after which one ends by itself.
    """

    def __init__(self, at_once: int = AT_ONCE, hold: float = HOLD_SECONDS) -> None:
        self.free = at_once
        self._hold = hold
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> Turn:
        """Wait for a turn."""
        if self.free and not self._waiting:
            self.free -= 1
            return Turn(self, self._hold)
        ready = asyncio.get_running_loop().create_future()
        self._waiting.append(ready)
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self.release()  # it was given to one who left
            raise
        return Turn(self, self._hold)

    def release(self) -> None:
        """Pass a turn on."""
        while self._waiting:
            ready = self._waiting.popleft()
            if not ready.done():
                ready.set_result(None)
                return
        self.free += 1
