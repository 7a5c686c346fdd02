"""The list of alerts: one line each, and what is known of the selected one below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events

from rgt_tui.model.alert import Alert
from rgt_tui.ui.format import clean, clock, compact_time
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.messages import RowChosen
from rgt_tui.ui.verdict import level_tone
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, fit, line
from rgt_tui.ui.widgets.wrap import labelled


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
