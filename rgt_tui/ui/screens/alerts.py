"""Alerts: what holds now on one box or on all of them, since when, and what to do; muting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.health import advice
from rgt_tui.model.box import Health
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.commands import ALERTS, MOVE, Command, bindings
from rgt_tui.ui.format import clean
from rgt_tui.ui.messages import RowChosen
from rgt_tui.ui.screens.base import BoxOpener, FleetAwareScreen, Moves
from rgt_tui.ui.widgets.alert_list import AlertList, AlertRow
from rgt_tui.ui.widgets.spans import EMPTY, dim, line

ORDER = {"error": 0, "warn": 1}
UNTIL_OVER = -1

UNKNOWN = frozenset({Health.CONNECTING, Health.STALE, Health.UNREACHABLE, Health.UNKNOWN})
"""States in which a box without an alert is not known to be well."""


class AlertsScreen(Moves, FleetAwareScreen):
    """One line per alert, worst first; what is muted stands at the end."""

    PLACE = "alerts"
    KEYS: ClassVar[tuple[Command, ...]] = (*ALERTS, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def body(self) -> Iterable[Widget]:
        """Return the list."""
        yield AlertList()

    def crumbs(self) -> tuple[str, ...]:
        """Return where the screen is."""
        return ("fleet", self.PLACE) if self.box_name is None else super().crumbs()

    @property
    def alert_list(self) -> AlertList:
        """The list."""
        return self.query_one(AlertList)

    @property
    def target_box(self) -> str | None:
        """The box of the selected alert."""
        picked = self.alert_list.picked
        return self.box_name if picked is None else picked.box or None

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the alerts that hold now."""
        self.alert_list.show(self._rows(state), (EMPTY, line(dim(f" {self._calm(state)}"))), now)

    def _calm(self, state: FleetState) -> str:
        """Say that no alert holds, and of how many boxes nobody can say so."""
        boxes = [box for box in state.boxes if self.box_name in (None, box.spec.name)]
        unknown = sum(self.verdict(box).health in UNKNOWN for box in boxes)
        if not unknown:
            return "nothing is wrong"
        if len(boxes) == 1:
            return "no active alerts, but nothing is known about the box right now"
        return f"no active alerts, but nothing is known about {unknown} of {len(boxes)} boxes right now"

    def _rows(self, state: FleetState) -> list[AlertRow]:
        boxes = [box for box in state.boxes if self.box_name in (None, box.spec.name)]
        rows = [
            AlertRow(box.spec.name, alert, advice(alert))
            for box in boxes
            for alert in self.verdict(box).alerts
        ]
        if self.box_name is None:
            rows += [AlertRow("", alert, advice(alert)) for alert in state.alerts]
        return sorted(rows, key=lambda row: (row.alert.muted, ORDER.get(row.alert.level, 2), row.box))

    def on_row_chosen(self, message: RowChosen) -> None:
        """Open on the second click."""
        if message.opened:
            self.action_open()

    def action_open(self) -> None:
        """Open the box of the selected alert."""
        picked = self.alert_list.picked
        if picked is not None and picked.box:
            cast("BoxOpener", self.app).open_screen("box", picked.box)

    def action_mute(self, seconds: int) -> None:
        """Be quiet about the selected alert for so long: 0 = speak again, negative = until it is over."""
        picked = self.alert_list.picked
        if picked is None or not picked.box:
            self.hint("nothing to mute")
            return
        until = None if seconds == UNTIL_OVER else float(seconds)
        self.fleet.mute(picked.box, picked.alert.id, until)
        name = f"{clean(picked.alert.id)} on {clean(picked.box)}"
        how = {None: f"muted {name} until it clears", 0.0: f"unmuted {name}"}
        self.hint(how.get(until, f"muted {name} for an hour"))

    def action_move(self, count: int) -> None:
        """Select another alert."""
        self.alert_list.move(count)

    @property
    def page_rows(self) -> int:
        """Half of the list: the details of the selected alert take the rest."""
        return self.alert_list.size.height // 2
