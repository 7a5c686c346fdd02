"""The limit of how many boxes connect at once."""

from __future__ import annotations

import asyncio

AT_ONCE = 10
"""More at once stall the loop, and trip sshd's MaxStartups where boxes share a jump host (measured)."""
HOLD_SECONDS = 4.0
"""A box that has not let us in by then hangs, or waits: the next one begins beside it."""


class Slot:
    """One box's place among those that connect. It ends when it is given back, and by itself after a while."""

    __slots__ = ("_free", "_timer")

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free: asyncio.Semaphore | None = free
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give)

    def give(self) -> None:
        """Let the next one begin; a second time it does nothing."""
        free, self._free = self._free, None
        self._timer.cancel()
        if free is not None:
            free.release()


class ConnectLimit:
    """Hands slots out in the order in which they are asked for.

    Args:
        at_once: How many there are.
        hold: Seconds after which one ends by itself.
    """

    def __init__(self, at_once: int = AT_ONCE, hold: float = HOLD_SECONDS) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._hold = hold

    async def take(self) -> Slot:
        """Wait for a slot."""
        await self._free.acquire()
        return Slot(self._free, self._hold)
