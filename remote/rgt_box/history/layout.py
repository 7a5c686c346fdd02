"""Names in the state directory, and the clock that recorder and watch share."""

from __future__ import annotations

import os

from rgt_box import place, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCK, STATUS, CONFIG, RING = "recorder.lock", "recorder.json", "recorder-config.json", "ring"


def next_tick(due: float, interval: float, now: float) -> float:
    """Return the next time on the grid of `due`; ticks that were missed are left out, not made up for."""
    due += interval
    if due < now:
        due += interval * (int((now - due) / interval) + 1)
    return min(due, now + interval)


def describe_self() -> dict[str, Any]:
    """Return what identifies this process and its code."""
    pid = os.getpid()
    return {"pid": pid, "ticks": procstat.start_ticks(pid), "digest": place.digest()}
