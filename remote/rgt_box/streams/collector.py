"""Files are read in a thread of their own: a mount that hangs must not keep samples and controls from flowing."""

from __future__ import annotations

import threading
import time

from rgt_box.background import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

HUNG_AFTER = 10.0
"""Seconds without an answer from the file system after which the client is told."""


class Collector:
    """Runs one collecting function in a thread, one round at a time, when asked.

    Args:
        collect: Returns (frames, whether more is waiting); called in the thread.
    """

    def __init__(self, collect: Callable[[], tuple[list[dict[str, Any]], bool]]) -> None:
        self._collect = collect
        self._orders: list[Callable[[], None]] = []
        self._wanted, self._done = threading.Event(), threading.Event()
        self._frames: list[dict[str, Any]] = []
        self._more = False
        self._asked: float | None = None
        self._told = False
        self._failure = ""
        threading.Thread(target=self._run, daemon=True).start()

    def order(self, action: Callable[[], None]) -> None:
        """Have `action` run in the thread before its next round."""
        self._orders.append(action)

    def take(self, wait: float) -> tuple[list[dict[str, Any]], bool]:
        """Ask for a round, unless one is under way, and return what came of it.

        Args:
            wait: Seconds to give the round; what is later comes with the next call.

        Returns:
            Frames, and whether more is waiting already, or on its way. Once per hang an event says that the files do
            not answer.
        """
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            self._done.clear()
            self._wanted.set()
        if not self._done.wait(wait):
            if not self._told and now - self._asked > HUNG_AFTER:
                self._told = True
                text = "the file system has not answered for %d s; logs and curves wait" % (now - self._asked)
                return [{"t": "event", "kind": "files-hang", "level": "warn", "text": text}], False
            return [], now - self._asked < HUNG_AFTER
        self._asked, self._told = None, False
        frames, self._frames = self._frames, []
        return frames, self._more

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                while self._orders:
                    self._orders.pop(0)()
                self._frames, self._more = self._collect()
            except Exception as error:  # a bug in one follower must not end the channel
                text, self._more = describe(error), False
                event = {"t": "event", "kind": "follow-failed", "level": "error", "text": text}
                self._frames = [event] if text != self._failure else []  # told once, not every tick
                self._failure = text
            self._done.set()
