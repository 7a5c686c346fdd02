"""A list of lines with one selected, and the details of that one below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from textual import events

from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import glyphs
from rgt_tui.ui.widgets.lines import LineWidget, RowChosen
from rgt_tui.ui.widgets.panes import out_of_sight
from rgt_tui.ui.widgets.spans import EMPTY, Line, clip, dim, line

LEAST_ROWS = 3
"""Of the list, however much there is to say of the selected one."""


class PickRow(NamedTuple):
    """One row; its first cell is for the cursor."""

    key: str
    line: Line


class PickList(LineWidget):
    """Rows with a selection that stays on its row when the order changes."""

    DEFAULT_CSS = "PickList { height: 1fr; }"
    WHEEL = 3

    def __init__(self, *, id: str, more: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._more = f"more; {key_for('screen.copy')} copies all of it" if more is None else more
        self._rows: Sequence[PickRow] = ()
        self._empty: Sequence[Line] = ()
        self._detail: Callable[[str, int], Sequence[Line]] = lambda key, width: ()
        self._picked: str | None = None
        self._top = 0

    def show(
        self, rows: Sequence[PickRow], empty: Sequence[Line], detail: Callable[[str, int], Sequence[Line]]
    ) -> None:
        """Set the rows in their order, what stands there without any, and what is said of one."""
        self._rows, self._empty, self._detail = rows, empty, detail
        if all(row.key != self._picked for row in rows):
            self._picked = rows[0].key if rows else None
        self.redraw()

    @property
    def picked(self) -> str | None:
        """Key of the selected row."""
        return self._picked

    def select(self, key: str) -> None:
        """Select a row by its key, once it is shown."""
        self._picked = key

    @property
    def _index(self) -> int:
        return next((i for i, row in enumerate(self._rows) if row.key == self._picked), 0)

    def move(self, count: int) -> None:
        """Select another row."""
        if self._rows:
            self._pick(min(max(self._index + count, 0), len(self._rows) - 1))

    def scroll_lines(self, count: int) -> None:
        """Move with the wheel."""
        self.move(count)

    def _pick(self, index: int) -> None:
        self._picked = self._rows[index].key
        self.redraw()
        self.post_message(RowChosen(self._picked, opened=False))

    def wanted_height(self, width: int) -> int:
        """Return the height that shows every row, and all that is said of the selected one."""
        if self._picked is None:
            return len(self._empty)
        return len(self._rows) + 1 + len(self._detail(self._picked, width - 3))

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the rows in sight, and the details of the selected one."""
        if not self._rows or self._picked is None:
            return list(self._empty)
        below = list(self._detail(self._picked, width - 3))
        room = max(min(LEAST_ROWS, len(self._rows)), height - len(below) - 1)
        if room + 1 + len(below) > height:
            below = [
                *below[: max(0, height - room - 2)],
                line(dim(f"{glyphs().more} {self._more}")),
            ]
        room = min(room, len(self._rows))
        self._top = min(max(self._top, self._index - room + 1), self._index, max(0, len(self._rows) - room))
        shown = [clip(row.line, width) for row in self._rows[self._top : self._top + room]]
        unseen = out_of_sight(self._top, len(self._rows) - self._top - room)
        return [*shown, line(" ", *unseen) if unseen else EMPTY, *(line("   ", made) for made in below)]

    def selected_line(self) -> int | None:
        """The selected row's line."""
        return self._index - self._top if self._rows else None

    def on_click(self, event: events.Click) -> None:
        """Select a row; a second click opens it."""
        index = self._top + event.y
        if event.y < len(self._rows) - self._top and index < len(self._rows):
            again = self._rows[index].key == self._picked
            self._pick(index)
            if again:
                self.post_message(RowChosen(self._rows[index].key, opened=True))
