"""Who is missing when the ranks do not all come to what they do together.

Before each collective a rank writes down, where the ranks have found each other, how many it has come to (some 10 µs:
the answer is not waited for). When one of them fails, those that have come to fewer are the ones that are waited for.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, List, Optional, Sequence

PATIENCE_S = 1.0
"""Seconds for the slower ranks: a connection that breaks is noticed before they have come."""
ANSWER_S = 5.0
"""Seconds after which a store that does not answer is left alone: its machine may be gone."""
_POLL_S = 0.05


class RollCall:
    """Counts the collectives of one group of ranks.

    Args:
        store: A ``torch.distributed.Store`` that all ranks reach.
        name: Tells this group from others, and this attempt of a launcher from the one before.
        rank: Number of this rank.
        world: How many there are.
    """

    def __init__(self, store: Any, name: str, rank: int, world: int) -> None:
        self._store, self._name, self._rank, self._world = store, name, rank, world
        self._count = 0

    def came(self) -> None:
        """Note that this rank comes to the next collective.

        Raises:
            RuntimeError: The store is gone.
        """
        self._count += 1
        self._store.set(self._key(self._rank), str(self._count))

    def absent(self, patience_s: float = PATIENCE_S) -> Optional[List[int]]:
        """Return the ranks that have not come to where this one is; None where the store does not answer."""
        found: List[List[int]] = []
        asking = threading.Thread(target=self._ask, args=(found, time.monotonic() + patience_s), daemon=True)
        asking.start()
        asking.join(patience_s + ANSWER_S)
        return found[-1] if found else None

    def _ask(self, found: List[List[int]], deadline: float) -> None:
        with suppress(RuntimeError):
            while True:
                found.append([rank for rank in range(self._world) if self._count_of(rank) < self._count])
                if not found[-1] or time.monotonic() >= deadline:
                    return
                time.sleep(_POLL_S)

    def _count_of(self, rank: int) -> int:
        key = self._key(rank)
        return int(self._store.get(key)) if self._store.check([key]) else 0

    def _key(self, rank: int) -> str:
        return f"rgt-came/{self._name}/{rank}"


def in_words(absent: Optional[Sequence[int]], timeout_s: float) -> str:
    """Say what `RollCall.absent` has found."""
    if absent is None:
        return "nobody answers where the ranks found each other: that machine may be gone"
    if not absent:
        return "all had come, but one has ended since, or the connection to it broke"
    *others, last = (str(rank) for rank in absent)
    who = f"ranks {', '.join(others)} and {last} have" if others else f"rank {last} has"
    return f"{who} not come: ended, or busy with something else for more than {timeout_s:.0f} s"
