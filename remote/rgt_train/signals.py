"""Requests to stop: noticed at once, acted on at the next step boundary."""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType
from typing import Any, Dict, Optional, Sequence

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Turns SIGTERM, SIGUSR1 and SIGINT into a flag, and lets a wait end the moment one arrives.

    A handler never saves anything by itself: it would run in the middle of an optimizer step. A second SIGINT is a
    person who does not want to wait: it raises `KeyboardInterrupt`. Outside the main thread, where Python allows no
    handlers, the flag stays down and nothing else changes.
    """

    def __init__(self, signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
        self.name: Optional[str] = None
        self._old: Dict[int, Any] = {}
        self._pid = os.getpid()
        self._read, self._write = os.pipe()
        for fd in (self._read, self._write):
            os.set_blocking(fd, False)
        self._old_wakeup = -1
        if threading.current_thread() is threading.main_thread():
            self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in signals:
                self._old[number] = signal.signal(number, self._note)

    @property
    def requested(self) -> bool:
        """Whether a signal asked for the end."""
        return self.name is not None

    def wait(self, seconds: float) -> bool:
        """Sleep up to `seconds`; True at once if a request is there or arrives."""
        if not self.requested and seconds > 0:
            select.select([self._read], [], [], seconds)
            if not self.requested:
                self._drain()  # another signal woke it: not ours, but the pipe must not stay readable
        return self.requested

    def close(self) -> None:
        """Put the former handlers back."""
        if self._read < 0:
            return
        if self._old:
            signal.set_wakeup_fd(self._old_wakeup)
            for number, handler in self._old.items():
                signal.signal(number, handler)
            self._old.clear()
        for fd in (self._read, self._write):
            os.close(fd)
        self._read = self._write = -1

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        if os.getpid() != self._pid:  # a forked data worker inherited this handler: let it die as asked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if number == signal.SIGINT and self.name == "SIGINT":
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name

    def _drain(self) -> None:
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            return
