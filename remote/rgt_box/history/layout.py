"""Names in the state directory, and the clock that recorder and watch share."""

from __future__ import annotations

import os
import time

from rgt_box import PROTO, place, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK, RING = place.LOCK, place.RING
STATUS, CONFIG = "recorder.json", "recorder-config.json"
FOUND = "found.json"

VERSION = 3
"""Raised when the recorder records something that it did not before."""

JUMP = 5.0
"""Seconds by which the clock must be set to be worth a word."""


class ClockWatch:
    """Notices when somebody sets the clock. Time that the machine slept through is no jump."""

    def __init__(self) -> None:
        self._ahead = self._measure()

    @staticmethod
    def _measure() -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def look(self) -> float:
        """Return by how many seconds the clock was set since the last look; 0 when it was not."""
        ahead = self._measure()
        jump = ahead - self._ahead
        if abs(jump) < JUMP:
            return 0.0  # a drift that NTP corrects by and by adds up until it is worth a word
        self._ahead = ahead
        return jump


def next_tick(due: float, interval: float, now: float) -> float:
    """Return the next time on the grid of `due`; ticks that were missed are left out, not made up for."""
    due += interval
    if due < now:
        due += interval * (int((now - due) / interval) + 1)
    return min(due, now + interval)


def describe_self() -> dict[str, Any]:
    """Return what identifies this process and its code."""
    pid = os.getpid()
    return {
        "pid": pid,
        "ticks": procstat.start_ticks(pid),
        "digest": place.digest(),
        "proto": PROTO,
        "version": VERSION,
    }


def is_older(status: dict[str, Any]) -> bool:
    """Tell whether a recorder is to be replaced by one of this code.

    Only an older one is: two clients of different versions must not replace each other's recorder for ever. A
    newer one goes on and serves this client, too.
    """
    return (int(status.get("proto") or 0), int(status.get("version") or 0)) < (PROTO, VERSION)
