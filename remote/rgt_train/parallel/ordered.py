"""The writer's persister where there are other ranks: what is collective is ordered from them first."""

from __future__ import annotations

import time
from typing import Any, Optional, Tuple

from rgt_train.parallel.crew import Crew
from rgt_train.persister import Outcome, Persister, Request
from rgt_train.state import Restored, RunState

_HEARD_S = 5.0
"""Seconds between two signs of life in a wait."""
_FIRST_S, _LAST_S = 0.0005, 0.02
"""Seconds between two looks at a save, at first and in a long wait."""


class Ordered:
    """Passes everything on; `begin`, `again` and `load` are carried out by all ranks.

    Args:
        inner: This rank's part.
        crew: Its orders ``begin``, ``again`` and ``load`` call `inner`.
    """

    def __init__(self, inner: Persister, crew: Crew) -> None:
        self._inner, self._crew = inner, crew

    @property
    def busy(self) -> bool:
        """Whether a save is in flight."""
        return self._inner.busy

    def prepare(self, state: RunState) -> None:
        """Get ready for saves of this size."""
        self._inner.prepare(state)

    def begin(self, request: Request, state: RunState) -> None:
        """Take the state as it is now, on all ranks, and start to write it."""
        self._crew.order("begin", request)

    def again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin` once more."""
        self._crew.order("again", give_up)

    def before_change(self) -> None:
        """Wait until parameters and optimizer state may change."""
        self._inner.before_change()

    def poll(self) -> Optional[Outcome]:
        """Return how the save in flight ended, once; None while it goes on."""
        return self._inner.poll()

    def wait(self) -> Optional[Outcome]:
        """Like `poll`, but waits; the other ranks hear now and then that this one does."""
        heard, pause = time.monotonic(), _FIRST_S
        while self._crew.leading and self._inner.busy:
            outcome = self._inner.poll()
            if outcome is not None:
                return outcome
            if time.monotonic() - heard >= _HEARD_S:
                self._crew.alive()
                heard = time.monotonic()
            time.sleep(pause)
            pause = min(2 * pause, _LAST_S)
        return self._inner.wait()

    def load(self, directory: str, state: RunState) -> Restored:
        """Put a checkpoint back on all ranks."""
        found: Any = self._crew.order("load", directory)
        restored: Restored = found
        return restored

    def close(self) -> None:
        """Give up what is in flight."""
        self._inner.close()

    def needs(self) -> Tuple[int, int]:
        """Return the bytes and the inodes of one checkpoint, as far as known."""
        return self._inner.needs()
