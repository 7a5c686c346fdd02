"""The list of checks with the phases at its left, and the pane that shows one check in full."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from rgt_tui.ui.widgets.checklist_view import RAIL, Phase, Row, detail_lines, rail_line, row_line, rows_of
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, line

WITH_RAIL = 76
"""From this width on the phases have a column of their own."""


class Checklist(LineWidget):
    """Phases and checks, one of them selected."""

    class Picked(Message):
        """A line was clicked; `phase` is set where it is a phase."""

        def __init__(self, key: str, phase: int | None) -> None:
            super().__init__()
            self.key = key
            self.phase = phase

    def __init__(self) -> None:
        super().__init__(id="checks")
        self._phases: Sequence[Phase] = ()
        self._opened: frozenset[int] = frozenset()
        self._cursor: str | None = None
        self._now = 0.0
        self._first = 0
        self._empty: Sequence[str] = ()

    @property
    def rows(self) -> list[Row]:
        """All lines that the selection can go to."""
        return rows_of(self._phases, self._opened, closed_too=self.size.width < WITH_RAIL)

    @property
    def cursor_row(self) -> Row | None:
        """The selected line."""
        return next((row for row in self.rows if row.key == self._cursor), None)

    def show(
        self,
        phases: Sequence[Phase],
        opened: frozenset[int],
        cursor: str | None,
        now: float,
        empty: Sequence[str] = (),
    ) -> None:
        """Set what is listed, or the lines `empty` where there is nothing to list."""
        self._phases, self._opened, self._cursor, self._now, self._empty = phases, opened, cursor, now, empty
        self.redraw()

    def _scroll(self, rows: Sequence[Row], height: int) -> int:
        """Return the first line on screen, moved no more than the selection asks for."""
        at = next((i for i, row in enumerate(rows) if row.key == self._cursor), 0)
        first = min(self._first, at if at > 1 else 0)
        first = max(first, at - height + 1)
        self._first = min(max(0, first), max(0, len(rows) - height))
        return self._first

    def selected_line(self) -> int | None:
        """The line of the selection among those on screen."""
        at = next((i for i, row in enumerate(self.rows) if row.key == self._cursor), None)
        return None if at is None else at - self._first

    @property
    def selected_from(self) -> int:
        """Behind the rail, which is about phases, not about the selected check."""
        return self.rail

    @property
    def rail(self) -> int:
        """Columns that the phases take at the left; none where it is narrow."""
        return RAIL + 2 if self.size.width >= WITH_RAIL else 0

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw both columns."""
        if self._empty:
            return [
                EMPTY,
                *(line("  ", Span(t, Tone.TEXT if i == 0 else Tone.DIM)) for i, t in enumerate(self._empty)),
            ]
        rows = self.rows
        first = self._scroll(rows, height)
        rail = self.rail
        lines: list[Line] = []
        for y in range(height):
            left: Line = EMPTY
            if rail and y < len(self._phases):
                phase = self._phases[y]
                left = rail_line(phase, opened=phase.number in self._opened)
            right: Line = EMPTY
            if first + y < len(rows):
                row = rows[first + y]
                right = row_line(row, width - rail - 2, self._now, opened=row.phase.number in self._opened)
                right = line(" ", right)
            lines.append(line(clip(left, rail), right) if rail else right)
        return lines

    def on_click(self, event: events.Click) -> None:
        """Hand the line under the pointer to the screen."""
        if self.rail and event.x < self.rail:
            if event.y < len(self._phases):
                number = self._phases[event.y].number
                self.post_message(self.Picked(f"phase {number}", number))
            return
        rows = self.rows
        if 0 <= self._first + event.y < len(rows):
            row = rows[self._first + event.y]
            self.post_message(self.Picked(row.key, row.phase.number if row.check is None else None))


class CheckDetail(LineWidget):
    """One check in full."""

    def __init__(self) -> None:
        super().__init__(id="check-detail")
        self._row: Row | None = None
        self._now = 0.0

    def show(self, row: Row | None, now: float) -> None:
        """Set the check."""
        self._row, self._now = row, now
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw it."""
        return [line(" ", made) for made in detail_lines(self._row, max(8, width - 2), height, self._now)]
