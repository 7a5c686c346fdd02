"""Those who look at what the fleet does: the history on disk, a recording, the alerts' sinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetEvent, FleetState

Tap = Callable[[str, float, bytes], None]
"""Called with box, client clock and one raw line as it came over the wire, before it is decoded."""

Remember = Callable[[BoxSpec], BoxState | None]
"""Returns what an earlier rgt knew of a box, or None."""


class Observer(Protocol):
    """Told of every published state. It must not block: whatever writes to a disk does so in a thread of its own."""

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Take in a new fleet state and the boxes that changed, as pairs (old, new)."""
        ...

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Take in what happened, in words."""
        ...

    async def close(self) -> None:
        """Bring what is held to its place."""
        ...
