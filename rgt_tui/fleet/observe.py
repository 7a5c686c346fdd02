"""Those who look at what the fleet does: the history on disk, a recording, the alerts' sinks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetEvent, FleetState, Spend

Tap = Callable[[str, float, bytes], None]
"""Called with box, client clock and one raw line as it came over the wire, before it is decoded."""

Remember = Callable[[Sequence[BoxSpec]], Awaitable[Mapping[str, BoxState]]]
"""Returns what an earlier rgt knew, by box; boxes that it knew nothing of are left out."""


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


@runtime_checkable
class Keeper(Observer, Protocol):
    """An observer that keeps count and has something to say itself; asked with every published state."""

    @property
    def spend(self) -> Spend | None:
        """What the fleet has cost today."""
        ...

    def news(self) -> tuple[FleetEvent, ...]:
        """Return what it has to say, once; such as that nothing can be kept, and why."""
        ...
