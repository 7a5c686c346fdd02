"""How far a pull is: bytes, rate, time to go, for the command line and the screens alike."""

from __future__ import annotations

import math
from collections import deque

import msgspec

WINDOW_S = 10.0
"""The rate is that of so many seconds: steady enough to read, quick enough to show that a line has become slow."""
SHORTEST_S = 0.5


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pull under way."""

    phase: str
    """``connecting``, ``listing``, ``comparing``, ``pulling``, ``closing`` or ``done``."""
    files: int = 0
    """To be taken in this run."""
    files_done: int = 0
    bytes: int = 0
    bytes_done: int = 0
    """Of these; what a run before has left and proved good counts as well."""
    rate: float | None = None
    """Bytes per second of what really came; None = too early to tell."""
    eta: float | None = None
    """Seconds; None = cannot be told."""
    path: str = ""
    """The file that was begun last."""
    problems: int = 0
    """Refused, changed or failed by now."""

    @property
    def share(self) -> float:
        """Of the bytes, 0 to 1."""
        return min(1.0, self.bytes_done / self.bytes) if self.bytes else float(self.phase == "done")


class Rate:
    """Bytes per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float, total: int) -> float | None:
        """Take a reading; return the rate.

        Args:
            now: Seconds of a clock that only goes forward.
            total: Bytes by now.
        """
        self._seen.append((now, total))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        begun, first = self._seen[0]
        return max(0, total - first) / (now - begun) if now - begun >= SHORTEST_S else None


def time_to_go(left: int, rate: float | None) -> float | None:
    """Return the seconds that so many bytes take; None where that cannot be told."""
    if left <= 0:
        return 0.0
    return left / rate if rate and math.isfinite(rate) else None
