"""Gathers the lines of fast steps, so that several are written together.

Two writes, to a file and to a console, take longer than everything else that a run does at the end
of a step. A gathered line is lost by any end of the process that skips Python's own exit (a kill, a
crash, ``os._exit``, ``os.execv``): nothing but a receipt may depend on it, and that is why gathering
is announced in the run log before the first line of it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from typing import Callable, Mapping, Tuple

Point = Tuple[int, float, float, Callable[[], Mapping[str, float]]]
"""Step, epoch with its fraction, seconds since the epoch, what returns the numbers by name."""


class LineGatherer:
    """Gathers lines while they come fast, and writes them soon, whether or not more come.

    Args:
        write: Writes the lines of some points, by one call.
        show: Prints a line of the console without flushing it.
        flush: Flushes the console, after lines were written because no further one came.
        announce: Records that up to the given number of lines are written together from now on, 1
            after gathering has ended; False if it cannot be recorded.
        most_lines: Lines that are written together. A kill loses at most one fewer.
        wait_s: Seconds for which a line waits for the next one; readers see it after twice that.
        fast_lines: Lines are gathered while the last `fast_lines` came within `fast_s` seconds.
        fast_s: See `fast_lines`.
        most_ends: The end of gathering is announced at most that often: each is a line of the run
            log.
    """

    def __init__(
        self,
        write: Callable[[list[Point]], None],
        show: Callable[[str], None],
        flush: Callable[[], None],
        announce: Callable[[int], bool],
        *,
        most_lines: int = 16,
        wait_s: float = 0.05,
        fast_lines: int = 32,
        fast_s: float = 0.3,
        most_ends: int = 4,
    ) -> None:
        self._write = write
        self._announce = announce
        self._show = show
        self._flush = flush
        self._most = most_lines
        self._wait_s = wait_s
        self._fast_s = fast_s
        # A handler of a signal may flush on the thread that is just writing.
        self._lock = threading.RLock()
        self._points: list[Point] = []
        self._times = deque([float("-inf")], maxlen=fast_lines)
        self._slow_lines = 0
        self._ends_left = most_ends
        self._due = 0.0
        self._waiting = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._allowed: bool | None = None
        _follow_forks(self)

    def add_point(self, point: Point, line: str) -> bool:
        """Add a point; return whether its line is printed, too, and will be flushed."""
        now = time.monotonic()
        times = self._times
        fast = now - times[0] < self._fast_s
        times.append(now)
        with self._lock:
            points = self._points
            points.append(point)
            if fast and 1 < len(points) < self._most and now < self._due:
                # The usual case, without a further call. The point before is still waiting, so the
                # thread watches.
                self._slow_lines = 0
                self._show(line)
                return True
            if fast:
                self._slow_lines = 0
            if fast and len(self._points) < self._most:
                if len(self._points) == 1:
                    self._due = now + self._wait_s
                if now < self._due and self._is_watched():
                    # Under the lock: a line that is printed later would miss the flush.
                    self._show(line)
                    return True
            self._write_lines()
            if not fast and self._allowed:
                self._note_slow_line()
        return False

    def write_now(self) -> None:
        """Write all lines now."""
        with self._lock:
            if self._points:
                self._write_lines()
                self._flush()

    def close_thread(self) -> None:
        """Write all lines; from now on none is gathered."""
        with self._lock:
            self._closing.set()
            self._waiting.set()
            self.write_now()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _note_slow_line(self) -> None:
        """Announce the end of gathering, once more lines were slow than a single pause delays."""
        self._slow_lines += 1
        pause_lines = self._times.maxlen or 0
        if self._slow_lines > pause_lines and self._ends_left and not self._closing.is_set():
            self._ends_left -= 1
            self._slow_lines = 0
            self._announce(1)
            # announced again before the next line is gathered
            self._allowed = None

    def _is_watched(self) -> bool:
        """Return whether a thread writes lines that are followed by none; start it if necessary."""
        if self._closing.is_set():
            return False
        if self._allowed is None:
            self._allowed = self._announce(self._most)
            if self._allowed and self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_overdue, name="rgt-lines", daemon=True
                )
                self._thread.start()
        if self._allowed and not self._waiting.is_set():
            self._waiting.set()
        return self._allowed

    def _write_overdue(self) -> None:
        while not self._closing.wait(self._wait_s):
            with self._lock:
                if self._points and time.monotonic() >= self._due:
                    self.write_now()
                if not self._points and not self._closing.is_set():
                    self._waiting.clear()
            self._waiting.wait()

    def _write_lines(self) -> None:
        # Taken first: a handler that writes meanwhile must not write them again.
        points, self._points = self._points, []
        self._write(points)

    def _prepare_fork(self) -> None:
        """Write all lines, which a child would repeat, and let no other thread begin to write."""
        self._lock.acquire()
        self.write_now()

    def _continue_parent(self) -> None:
        self._lock.release()

    def _continue_child(self) -> None:
        """Gather no lines in a child: it has no thread for them."""
        self._allowed, self._thread = False, None
        # The thread may have held a lock in one of these at the fork.
        self._waiting, self._closing = threading.Event(), threading.Event()
        self._lock.release()


def _follow_forks(gatherer: LineGatherer) -> None:
    reference = weakref.ref(gatherer)

    def follow_fork(method: Callable[[LineGatherer], None]) -> Callable[[], None]:
        def call_method() -> None:
            kept = reference()
            if kept is not None:
                method(kept)

        return call_method

    os.register_at_fork(
        before=follow_fork(LineGatherer._prepare_fork),
        after_in_parent=follow_fork(LineGatherer._continue_parent),
        after_in_child=follow_fork(LineGatherer._continue_child),
    )
