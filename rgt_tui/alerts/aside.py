"""Calls that may hang (a disk that is gone, a library without a time limit), where nobody is held up by them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Aside:
    """One call at a time, in a thread that is left behind when it does not end, also by the end of the program.

    Threads of the loop's own pool are waited for at its end, and a few that hang leave none for anybody else.
    """

    def __init__(self) -> None:
        self._running: asyncio.Future[None] | None = None
        self._given_up = False

    async def call(self, work: Callable[[], T], seconds: float) -> T:
        """Return what `work` returns.

        Args:
            work: Called in a thread. It goes on there when this is given up.
            seconds: How long it may take, the end of an earlier call that still hangs included.

        Raises:
            TimeoutError: it took longer; or an earlier one that was given up still hangs, which is said at once.
            Exception: what `work` raised.
        """
        if self._given_up:
            raise TimeoutError("an earlier call still hangs")
        found: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(work())
            except BaseException as error:  # handed to who waits
                failed.append(error)

        try:
            async with asyncio.timeout(seconds):
                while self._running is not None:
                    await asyncio.shield(self._running)
                await asyncio.shield(self._started(run))
        except TimeoutError:
            self._given_up = self._running is not None
            raise
        if failed:
            raise failed[0]
        return found[0]

    def _started(self, run: Callable[[], None]) -> asyncio.Future[None]:
        """Run it in a thread; return what is done when it ends."""
        loop = asyncio.get_running_loop()
        running = self._running = loop.create_future()

        def ended() -> None:
            self._running, self._given_up = None, False
            running.set_result(None)

        def whole() -> None:
            run()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended)

        threading.Thread(target=whole, name="aside", daemon=True).start()
        return running
