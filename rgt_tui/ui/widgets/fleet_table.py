"""The table of boxes: its order and filter, and the widget that draws only the cells that changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from textual import events

from rgt_tui.ui.enduring import endured, words
from rgt_tui.ui.notation import clean, glyphs
from rgt_tui.ui.widgets.fleet_cells import Column, Row, heading, layout, row_line
from rgt_tui.ui.widgets.lines import LineWidget, RowChosen, SortAsked
from rgt_tui.ui.widgets.spans import Line, Span, Tone, clip, cut, dim, line


class FleetTable(LineWidget):
    """Rows with a selection that stays on its box when the order changes."""

    DEFAULT_CSS = "FleetTable { height: 5; }"
    WHEEL = 2

    def __init__(self) -> None:
        super().__init__(id="table")
        self._rows: Sequence[Row] = ()
        self._empty: Sequence[Line] = ()
        self._sort = ""
        self._top = 0
        self._picked: str | None = None
        self._held = False

    def show(self, rows: Sequence[Row], *, sort: str, empty: Sequence[Line] = ()) -> None:
        """Set the rows in their order; the selection follows the box that a person chose.

        Until someone has chosen, the first row is selected: the box in trouble explains itself untouched.
        """
        self._rows, self._sort, self._empty = rows, sort, empty
        if not self._held or all(row.name != self._picked for row in rows):
            self._picked = rows[0].name if rows else None
            self._top = 0
        self._keep_in_sight(follow=False)
        self.redraw()

    @property
    def picked(self) -> str | None:
        """Name of the selected box."""
        return self._picked

    @property
    def names(self) -> list[str]:
        """Names in the order in which they stand."""
        return [row.name for row in self._rows]

    @property
    def _index(self) -> int:
        return next((i for i, row in enumerate(self._rows) if row.name == self._picked), 0)

    @property
    def page_rows(self) -> int:
        """How many rows are visible."""
        return max(1, self.size.height - 1)

    def move(self, count: int) -> None:
        """Select another row."""
        if self._rows:
            self.pick(min(max(self._index + count, 0), len(self._rows) - 1))

    def hold(self) -> None:
        """Keep the selection on its box from now on, and in sight: a key is about to act on it."""
        self._held = self._picked is not None
        self._keep_in_sight(follow=True)
        self.redraw()

    def pick(self, index: int) -> None:
        """Select the row at `index`."""
        self._picked = self._rows[index].name
        self.hold()
        self.post_message(RowChosen(self._picked, opened=False))

    def _keep_in_sight(self, *, follow: bool) -> None:
        last = max(0, len(self._rows) - self.page_rows)
        if follow:
            self._top = min(max(self._top, self._index - self.page_rows + 1), self._index)
        self._top = min(self._top, last)

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the titles and the rows in sight."""
        self._keep_in_sight(follow=False)
        columns = layout(width)
        if not self._rows:
            return [clip(line(" ", *row), width) for row in self._empty]
        shown = self._rows[self._top : self._top + height - 1]
        out = [heading(columns, self._sort), *(self._row_line(row, columns) for row in shown)]
        below = len(self._rows) - self._top - len(shown)
        if below > 0 or self._top > 0:
            last = self._top + len(shown)
            note = f"{self._top + 1}-{last} of {len(self._rows)} "
            out[0] = line(cut(out[0], max(0, width - len(note) - 1)), dim(" " + note))
        return out

    def _row_line(self, row: Row, columns: Sequence[tuple[Column, int]]) -> Line:
        """Draw a row; one that cannot be drawn says so, and the others are drawn all the same."""
        try:
            return row_line(row, columns)
        except Exception as error:
            if not endured(self, error):
                raise
            name = Span(f"{clean(row.name)}  ", Tone.STRONG)
            return line(
                " ", Span(f"{glyphs().trouble} ", Tone.TROUBLE), name, f"this row failed: {words(error)}"
            )

    def selected_line(self) -> int | None:
        """The selected row's line, if it is in sight."""
        place = self._index - self._top + 1
        return place if self._rows and 1 <= place <= self.page_rows else None

    def on_click(self, event: events.Click) -> None:
        """Select a row, open the one that is selected, or sort by the column whose title was clicked."""
        if event.y == 0:
            x = 1
            for column, width in layout(self.size.width):
                if x <= event.x < x + width + 1:
                    self.post_message(SortAsked(column.key))
                    return
                x += width + 1
            return
        index = self._top + event.y - 1
        if index < len(self._rows):
            again = self._rows[index].name == self._picked
            self.pick(index)
            if again:
                self.post_message(RowChosen(self._rows[index].name, opened=True))

    def scroll_lines(self, count: int) -> None:
        """Scroll the rows; the selection stays."""
        self._top = max(0, self._top + count)
        self.redraw()


Key = Callable[[Row], tuple[object, ...]]


def _trouble(row: Row) -> tuple[object, ...]:
    # Without the age of progress in it: rows must not change places every second while all is well.
    return (*row.verdict.rank[:3], row.name)


def _age(row: Row) -> tuple[object, ...]:
    age = row.verdict.progress_age
    return (-math.inf if age is None else -age if age > 10 else 0.0, row.name)


def _spent(row: Row) -> tuple[object, ...]:
    return (row.box.meter.currency, -(row.box.meter.spent or 0.0), row.name)


SORTS: dict[str, tuple[str, Key | None]] = {
    "state": ("trouble first", _trouble),
    "name": ("name", lambda row: (row.name,)),
    "age": ("longest without progress first", _age),
    "spent": ("most spent first", _spent),
    "file": ("as in the fleet file", None),
}
"""By the key of the column that the order is about: what it is called, and the order itself."""


def ordered(rows: Sequence[Row], sort: str) -> list[Row]:
    """Return the rows in the order called `sort`."""
    key = SORTS[sort][1]
    return list(rows) if key is None else sorted(rows, key=key)


def matches(row: Row, query: str) -> bool:
    """Say whether a row matches every word of a filter; ``!word`` must not match."""
    text = " ".join(
        (
            row.name,
            row.platform,
            row.box.spec.profile,
            row.verdict.health.value,
            row.verdict.word,
            *(alert.word + " " + alert.text for alert in row.verdict.alerts),
        )
    )
    text = clean(text).casefold()
    for word in query.casefold().split():
        if word.startswith("!"):
            if len(word) > 1 and word[1:] in text:
                return False
        elif word not in text:
            return False
    return True
