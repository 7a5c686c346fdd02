"""Work that may hang (a dead NFS mount, a wedged driver) runs here, in a thread that is abandoned, never awaited."""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

threading.stack_size(512 * 1024)  # the default of 8 MiB is address space we do not need


class Background:
    """One repeated job, at most one thread of it at a time. Not for use by several threads.

    Args:
        work: Called without arguments in a thread; its result is the value.
        period: Seconds from one start to the next.
        timeout: Seconds after which a running job counts as hung.
    """

    def __init__(self, work: Callable[[], Any], period: float, timeout: float) -> None:
        self._work, self._period, self._timeout = work, period, timeout
        self._value: Any = None
        self._error: str | None = None
        self._started = 0.0
        self._finished: threading.Event | None = None

    def _run(self, finished: threading.Event) -> None:
        try:
            self._value, self._error = self._work(), None
        except Exception as error:  # whatever a sampler dies of is that sampler's news, not the agent's end
            self._error = describe(error)
        finished.set()

    def poll(self, wait: float = 0.0) -> tuple[Any, str | None]:
        """Start the job when it is due and return its last value at once.

        Args:
            wait: Seconds to give the running job to finish first.

        Returns:
            ``(value, error)``. After a failure or while it hangs, the last good value comes with an error.
        """
        now = time.monotonic()
        if self._finished is None or (self._finished.is_set() and now - self._started >= self._period):
            self._finished = threading.Event()
            self._started = now
            threading.Thread(target=self._run, args=(self._finished,), daemon=True).start()
        if wait and not self._finished.is_set():
            self._finished.wait(wait)
        running = time.monotonic() - self._started
        if not self._finished.is_set() and running > self._timeout:
            return self._value, "no answer for %d s" % running
        return self._value, self._error


def describe(error: BaseException) -> str:
    """Return an exception in words, with its type where the message alone says little."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
