"""The garbage of a program that people type into: all of it is looked through while nobody does.

Python looks through every object there is once enough new ones have outlived the smaller looks
(https://docs.python.org/3/library/gc.html#gc.set_threshold). Beside 200 boxes that takes many times as long as a key
may wait for its effect, and it comes in the midst of whatever goes on. The look at what is of middle age comes more
often, so that it is shorter: by itself it goes through ten times as many objects as that at the youngest.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable

NEVER = 1 << 30
"""Of the smaller looks before a whole one."""
MIDDLE = 1
"""Looks at the youngest before one at those of middle age."""
EVERY_SECONDS = 60.0
"""Between two whole looks, while somebody rests."""
LATEST_SECONDS = 600.0
"""After this one takes place even while somebody types: memory must not grow without end."""
REST_SECONDS = 3.0
"""Without a key: nobody is about to press the next one of a row."""


class QuietGarbage:
    """Looks through all objects while nobody types.

    Args:
        clock: Seconds, monotonic.
        collect: The whole look.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, collect: Callable[[], object] = gc.collect
    ) -> None:
        self._clock = clock
        self._collect = collect
        self._before: tuple[int, int, int] | None = None
        self._typed_at = -math.inf
        self._looked_at = -math.inf

    def begin(self) -> None:
        """Let no whole look come by itself, and pass over what is there already: modules, and what they made."""
        if self._before is None:
            self._before = gc.get_threshold()
            self._looked_at = self._clock()
            gc.freeze()
            gc.set_threshold(self._before[0], MIDDLE, NEVER)

    def typed(self) -> None:
        """Take in that somebody pressed or clicked something."""
        self._typed_at = self._clock()

    def look(self) -> bool:
        """Look through everything, if it is time for that and disturbs nobody; tell whether that was done."""
        now = self._clock()
        since = now - self._looked_at
        due = since >= EVERY_SECONDS and now - self._typed_at >= REST_SECONDS
        if self._before is None or not (due or since >= LATEST_SECONDS):
            return False
        self._collect()
        self._looked_at = self._clock()
        return True

    def end(self) -> None:
        """Leave the collector as it was found."""
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None
