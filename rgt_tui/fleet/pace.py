"""Which boxes are looked at now: for findings and alerts not every sample of hundreds of boxes counts. Pure."""

from __future__ import annotations

from rgt_tui.model.box import BoxState


class Pace:
    """Looks at a box at most once in so many seconds, at once where something cannot wait, and never not at all.

    Args:
        seconds: The least time between two looks.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looked: dict[str, float] = {}
        self._behind: set[str] = set()

    def due(self, old: BoxState, new: BoxState, now: float, *, at_once: bool = False) -> bool:
        """Say whether to look at a box now; one that is not looked at is remembered.

        Args:
            old: What was shown of it.
            new: What it is.
            now: A clock that is never set.
            at_once: Somebody has a reason to look.
        """
        name = new.spec.name
        last = self._looked.get(name)
        if not at_once and last is not None and now - last < self._seconds and not urgent(old, new):
            self._behind.add(name)
            return False
        self._looked[name] = now
        self._behind.discard(name)
        return True

    def late(self, now: float) -> set[str]:
        """Return the boxes that have changed since they were looked at, and whose time has come."""
        return {name for name in self._behind if now - self._looked[name] >= self._seconds}


def urgent(old: BoxState, new: BoxState) -> bool:
    """Say whether something has changed that must not wait."""
    return old.link is not new.link or old.queues is not new.queues or old.meter is not new.meter
