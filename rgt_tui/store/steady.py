"""Whether the clock may be believed when it says that something is old. Pure but for what it remembers.

What is thrown away because it is old is gone, so a clock that has just been set, or that stands far from where the file
left it, is given time to be put right first: a computer whose battery is empty starts years away from now.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FAR_SECONDS = 86400.0
"""A file whose newest entry is further away from now than this makes one ask whether now is now."""
JUMP_SECONDS = 3600.0
"""By so much the clock is not adjusted, but set."""
DOUBT_SECONDS = 900.0
"""So long it is then doubted."""


class Steady:
    """Looks at the clock again and again.

    Args:
        monotonic: Seconds of a clock that nobody sets.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last: tuple[float, float] | None = None
        self._until = float("-inf")

    def opened(self, now: float, newest: float | None) -> None:
        """Compare the clock with the newest time that stands in the file; None = it is empty."""
        if newest is not None and abs(now - newest) > FAR_SECONDS:
            self._until = self._monotonic() + DOUBT_SECONDS

    def look(self, now: float) -> bool:
        """Tell whether the clock may be believed."""
        at, last = self._monotonic(), self._last
        self._last = (now, at)
        if last is not None and abs((now - last[0]) - (at - last[1])) > JUMP_SECONDS:
            self._until = at + DOUBT_SECONDS
        return at >= self._until
