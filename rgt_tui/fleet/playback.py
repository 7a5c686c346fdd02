"""The clock of a recording: it runs faster or slower than ours, stands still when held, and never runs ahead."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

FULL = math.inf
"""The speed that waits for nothing."""


class PlaybackClock:
    """Maps our time to the recording's.

    Args:
        start: The recording's time at which it begins.
        speed: Its seconds per one of ours.
        real: Our clock, seconds; any that runs evenly.
    """

    def __init__(self, start: float, speed: float, real: Callable[[], float] = time.monotonic) -> None:
        self._real = real
        self._speed = speed
        self._held = False
        self._ceiling = start
        self._anchor = (real(), start)
        self._changed = asyncio.Event()

    @property
    def speed(self) -> float:
        """Seconds of the recording per one of ours."""
        return self._speed

    @property
    def held(self) -> bool:
        """True while it stands still."""
        return self._held

    def now(self) -> float:
        """The recording's time; not later than the next thing that is to be shown."""
        real, then = self._anchor
        if self._held or self._speed == FULL:
            return then
        return min(self._ceiling, then + (self._real() - real) * self._speed)

    def set_speed(self, speed: float) -> None:
        """Go on with another speed.

        Raises:
            ValueError: it is not above 0.
        """
        if not speed > 0:
            raise ValueError("a speed must be above 0; hold the clock instead")
        self._stay(self.now())
        self._speed = speed
        self._changed.set()

    def hold(self, held: bool) -> None:
        """Stand still, or go on."""
        self._stay(self.now())
        self._held = held
        self._changed.set()

    def jump(self, to: float) -> None:
        """Be at another time at once."""
        self._ceiling = to
        self._stay(to)

    async def reach(self, at: float) -> None:
        """Wait until the recording's time is `at`; at once for what is past."""
        self._ceiling = max(self._ceiling, at)
        while self._held or self.now() < at:
            if not self._held and self._speed == FULL:
                self._stay(at)
                return
            self._changed.clear()
            left = None if self._held else (at - self.now()) / self._speed
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                if not self._held:
                    self._stay(at)
                    return

    def _stay(self, at: float) -> None:
        self._anchor = (self._real(), at)
