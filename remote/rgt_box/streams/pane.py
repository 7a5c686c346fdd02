"""The screen of a tmux pane as if it were a log: for a training that prints to nothing else.

It is a look every few seconds at what tmux has kept, not a record: what scrolls out of tmux's history between two
looks is missed, and a line that a program rewrites comes again. The lines go into a file in memory, so that whoever
reads logs can read them.
"""

from __future__ import annotations

import os
import time

from rgt_box.background import Background
from rgt_box.discovery.found_run import ask_tmux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

PERIOD, TIMEOUT, FIRST = 5.0, 5.0, 0.5
"""Seconds between two looks, for an answer, and for the first one: who looks only once waits for it."""
HISTORY = 2000
"""Lines of the pane's history that are looked at."""
MOST = 2 << 20
"""Bytes kept; then the file begins anew."""


def fresh(before: Sequence[str], now: Sequence[str]) -> int:
    """Return how many of the lines `now` stood at the end of `before` already: the most that fit."""
    for count in range(min(len(before), len(now)), 0, -1):
        if list(before[-count:]) == list(now[:count]):
            return count
    return 0


class PaneLog:
    """Follows one pane.

    Args:
        socket: tmux's.
        pane: Its id, ``%3``.

    Attributes:
        path: A file that grows by the pane's lines; "" where the system has no files in memory.
        was_read: tmux has answered once, or failed to.
    """

    def __init__(self, socket: str | None, pane: str) -> None:
        # The first line is when something was last printed: what is captured now may have stood there for hours.
        words = ["display-message", "-p", "-t", pane, "#{window_activity}", ";"]
        words += ["capture-pane", "-p", "-J", "-t", pane, "-S", "-%d" % HISTORY]
        self._asking = Background(
            lambda: (time.monotonic(), ask_tmux(socket, words, TIMEOUT)), PERIOD, TIMEOUT * 2
        )
        self.was_read = False
        self._seen: list[str] = []
        self._taken = 0.0
        self._size = 0
        try:
            self._fd = os.memfd_create("rgt-pane", os.MFD_CLOEXEC)
            self.path = "/proc/self/fd/%d" % self._fd
        except (OSError, AttributeError):
            self._fd, self.path = -1, ""

    def poll(self) -> None:
        """Take over what is new on the pane."""
        value, error = self._asking.poll(0.0 if self.was_read else FIRST)
        self.was_read = self.was_read or value is not None or error is not None
        if self._fd < 0 or value is None or value[0] == self._taken:
            return
        self._taken = value[0]
        printed, _, screen = value[1].partition("\n")
        # The last line may be a prompt, or a progress bar that is rewritten: it comes once something follows it.
        lines = screen.rstrip().split("\n")[:-1]
        known = fresh(self._seen, lines)
        text = "".join(line + "\n" for line in lines[known:]).encode("utf-8", "replace")
        self._seen = lines
        if text:
            if self._size > MOST:
                os.ftruncate(self._fd, 0)
                self._size = 0
            self._size += os.pwrite(self._fd, text, self._size)
            if printed.isdigit():
                os.utime(self._fd, (int(printed), int(printed)))

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
