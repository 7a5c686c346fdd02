"""The fleet: every box on one screen, the one in trouble first."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from rgt_tui.fleet.source import FleetSource
from rgt_tui.ui.commands import BOX_TARGET, FLEET, MOVE, Command, bindings
from rgt_tui.ui.screens.base import FleetAwareScreen


class FleetScreen(FleetAwareScreen):
    """Table of boxes, and a pane that says why the selected one is where it is."""

    PLACE = "fleet"
    KEYS: ClassVar[tuple[Command, ...]] = (*FLEET, *BOX_TARGET, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def __init__(self, fleet: FleetSource | None) -> None:
        super().__init__(fleet)

    def show_failure(self, error: BaseException) -> None:
        """Say why there is no fleet."""
