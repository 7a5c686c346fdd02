"""Alerts: what holds now on one box or on all of them, since when, and what to do; muting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, cast

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.health import advice
from rgt_tui.model.alert import Alert
from rgt_tui.model.box import Health
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.commands import ALERTS, MOVE, Command, bindings
from rgt_tui.ui.notation import clean, clock, compact_time, glyphs
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, Moves
from rgt_tui.ui.widgets.lines import LineWidget, RowChosen
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, fit, labelled, line


class AlertRow(NamedTuple):
    """One alert of one box."""

    box: str
    alert: Alert
    advice: str = ""

    @property
    def key(self) -> str:
        """Identity of the row."""
        return f"{self.box}\0{self.alert.id}"


def row_line(row: AlertRow, width: int, names: int, now: float) -> Line:
    """Return the line of an alert: mark, box, since when, and the reading that proves it."""
    alert = row.alert
    mark = glyphs().trouble if alert.level == "error" else glyphs().warn
    tone = Tone.DIM if alert.muted else level_tone(alert.level)
    since = compact_time(now - alert.since) if alert.since is not None else ""
    head = f"{fit(clean(row.box), names)}  {fit(since, 6, right=True)}  "
    muted = "muted  " if alert.muted else ""
    return line(
        Span(f" {mark} ", tone),
        dim(head),
        dim(muted),
        Span(clean(alert.text), Tone.DIM if alert.muted else Tone.TEXT),
    )


class AlertList(LineWidget):
    """Rows with a selection that stays on its alert when the order changes."""

    DEFAULT_CSS = "AlertList { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__(id="alerts")
        self._rows: Sequence[AlertRow] = ()
        self._empty: Sequence[Line] = ()
        self._picked: str | None = None
        self._top = 0
        self._now = 0.0

    def show(self, rows: Sequence[AlertRow], empty: Sequence[Line], now: float) -> None:
        """Set the rows in their order."""
        self._rows, self._empty, self._now = rows, empty, now
        if all(row.key != self._picked for row in rows):
            self._picked = rows[0].key if rows else None
        self.redraw()

    @property
    def picked(self) -> AlertRow | None:
        """The selected row."""
        return next((row for row in self._rows if row.key == self._picked), None)

    @property
    def _index(self) -> int:
        return next((i for i, row in enumerate(self._rows) if row.key == self._picked), 0)

    def move(self, count: int) -> None:
        """Select another row."""
        if self._rows:
            self._pick(min(max(self._index + count, 0), len(self._rows) - 1))

    def _pick(self, index: int) -> None:
        self._picked = self._rows[index].key
        self.redraw()
        self.post_message(RowChosen(self._picked, opened=False))

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the rows in sight and the details of the selected one."""
        if not self._rows:
            return list(self._empty)
        chosen = self.picked
        below = [] if chosen is None else detail_lines(chosen, width - 3, self._now)
        room = max(1, height - len(below) - 1)
        self._top = min(max(self._top, self._index - room + 1), self._index, max(0, len(self._rows) - room))
        names = min(20, max(len(clean(row.box)) for row in self._rows))
        shown = [row_line(row, width, names, self._now) for row in self._rows[self._top : self._top + room]]
        return [*shown, EMPTY, *(line("   ", *made) for made in below)]

    def selected_line(self) -> int | None:
        """The selected row's line."""
        return self._index - self._top if self._rows else None

    def on_click(self, event: events.Click) -> None:
        """Select a row, or open the box of the one that is selected."""
        index = self._top + event.y
        if index < len(self._rows):
            again = self._rows[index].key == self._picked
            self._pick(index)
            if again:
                self.post_message(RowChosen(self._rows[index].key, opened=True))


def detail_lines(row: AlertRow, width: int, now: float) -> list[Line]:
    """Return everything known of one alert: its whole text, since when, what to do."""
    alert = row.alert
    out = labelled("now", clean(alert.text), width, most=4)
    if alert.since is not None:
        out += labelled("since", f"{clock(alert.since)}, {compact_time(now - alert.since)} ago", width)
    if row.advice:
        out += labelled("do", clean(row.advice), width, Tone.STRONG, most=3)
    out += labelled("id", clean(alert.id), width, Tone.DIM)
    return out


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
            cast("Dashboard", self.app).open_screen("box", picked.box)

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
