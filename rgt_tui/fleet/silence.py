"""When nothing comes from a box: ask whether its agent still lives, and give up a connection that says nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WOKEN_SECONDS = 10.0
"""A connection that says nothing for so long after the computer slept is dead."""
HUNG_SECONDS = 30.0
"""An agent that does not answer for so long hangs: it is stopped, or waits for a disk that is gone. A box that swaps
may take a while to answer."""


class Keepalive:
    """Listens to one connection at a time. Every byte counts as a sign of life: a long line comes slowly.

    Args:
        patience: Seconds of silence after which the agent is asked.
        ask: Sends it a question that every agent answers.
        cut: Gives the connection up; called with the reason.
    """

    __slots__ = ("_ask", "_began", "_cut", "_last", "_patience", "_timer")

    def __init__(
        self, patience: Callable[[], float], ask: Callable[[], None], cut: Callable[[str], None]
    ) -> None:
        self._began = self._last = 0.0
        self._patience = patience
        self._ask = ask
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None

    @property
    def lived(self) -> float:
        """For how long something came, in seconds; the wait for what says nothing is no life."""
        return self._last - self._began

    def reset(self) -> None:
        """Nothing has come yet."""
        self._began = self._last = 0.0

    def begin(self) -> None:
        """A stream begins."""
        self._began = self._last = time.monotonic()
        self._again(self._patience())

    def heard(self) -> None:
        """Something came."""
        self._last = time.monotonic()

    def end(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def woke(self) -> None:
        """The computer slept: ask at once."""
        self._question(WOKEN_SECONDS)

    def _look(self) -> None:
        silent, patience = time.monotonic() - self._last, self._patience()
        if silent < patience:
            self._again(patience - silent)
        else:
            self._question(HUNG_SECONDS)

    def _question(self, seconds: float) -> None:
        before = self._last
        self._ask()
        self._after(seconds, self._decide, before)

    def _decide(self, last: float) -> None:
        if self._last == last:
            silent = time.monotonic() - last
            self._cut(f"the agent has said nothing for {silent:.0f} s, and does not answer: it hangs")
        else:
            self._again(self._patience())

    def _again(self, seconds: float) -> None:
        self._after(seconds, self._look)

    def _after(self, seconds: float, call: Callable[..., None], *arguments: float) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, call, *arguments)
