"""How long to wait before the next try."""

from __future__ import annotations

import random

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 120.0


class Backoff:
    """Doubles from 1 s to 120 s, each wait drawn from the upper half, so that boxes do not come back in step."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        """Begin anew after a connection that lived."""
        self._next = FIRST_SECONDS

    def wait(self) -> float:
        """Return the next waiting time in seconds."""
        seconds = self._next * self._rng.uniform(0.5, 1.0)
        self._next = min(LONGEST_SECONDS, 2 * self._next)
        return seconds
