"""The fleet as a whole at one moment."""

from __future__ import annotations

import msgspec

from rgt_tui.model.box import BoxState


class FleetEvent(msgspec.Struct, frozen=True):
    """Something that happened anywhere in the fleet, for the line above the keys."""

    at: float
    """Client clock."""
    box: str
    text: str
    level: str = "info"


class FleetState(msgspec.Struct, frozen=True):
    """All boxes, in the order of the fleet file, and the last events, oldest first."""

    boxes: tuple[BoxState, ...] = ()
    events: tuple[FleetEvent, ...] = ()
    at: float = 0.0

    def box(self, name: str) -> BoxState | None:
        """Return the state of the box called `name`."""
        return next((box for box in self.boxes if box.spec.name == name), None)
