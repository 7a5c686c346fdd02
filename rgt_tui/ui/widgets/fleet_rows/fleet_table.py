"""The table of boxes: a widget that redraws only changed cells, and keeps the selection on its box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from textual import events

from rgt_tui.model.box import Health
from rgt_tui.ui.enduring import endured, words
from rgt_tui.ui.notation import clean, glyphs
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import (
    Column,
    InSight,
    Row,
    clock_cells,
    heading,
    layout,
    row_line,
)
from rgt_tui.ui.widgets.fleet_rows.fleet_order import Order
from rgt_tui.ui.widgets.lines import LineWidget, RowChosen, SortAsked
from rgt_tui.ui.widgets.spans import Line, Span, Tone, clip, line


class FleetTable(LineWidget):
    """Rows with a selection that stays on its box when the order changes."""

    DEFAULT_CSS = "FleetTable { height: 5; }"
    WHEEL = 2

    def __init__(self) -> None:
        super().__init__(id="table")
        self._rows: Sequence[Row] = ()
        self._empty: Sequence[Line] = ()
        self._order = Order()
        self._lines: list[int | Line] = []
        """What stands below the titles: rows by their place, and headings of groups."""
        self._drawn_rows: dict[int, tuple[Row, Line]] = {}
        """Rows that were drawn, by their identity: a key that moves the cursor or sorts draws none anew."""
        self._drawn_for: Sequence[tuple[Column, int]] = ()
        self._longest = 0
        self._clock = 0
        """Cells of the longest clock."""
        self._top = 0
        """The first of these in sight."""
        self._picked: str | None = None
        self._held = False

    def show(
        self,
        rows: Sequence[Row],
        *,
        order: Order,
        heads: Mapping[int, Line] | None = None,
        empty: Sequence[Line] = (),
    ) -> None:
        """Set the rows in their order; the selection follows the box that a person chose.

        Until someone has chosen, the first row is selected: the box in trouble explains itself untouched.

        Args:
            rows: In their order.
            order: What that is.
            heads: Headings, by the place of the row below them.
            empty: What stands where there are no rows.
        """
        self._rows, self._order, self._empty = rows, order, empty
        self._lines = []
        here = set(map(id, rows))
        self._drawn_rows = {key: drawn for key, drawn in self._drawn_rows.items() if key in here}
        for place in range(len(rows)):
            if heads and place in heads:
                self._lines.append(heads[place])
            self._lines.append(place)
        self._longest = max((cell_len(clean(row.name)) for row in rows), default=0)
        self._clock = max(map(clock_cells, rows), default=0)
        if not self._held or all(row.name != self._picked for row in rows):
            self._picked = rows[0].name if rows else None
            self._top = 0
        self._keep_in_sight(follow=False)
        self.redraw()

    @property
    def wanted_height(self) -> int:
        """Lines that show everything."""
        return 1 + len(self._lines) if self._rows else len(self._empty)

    @property
    def columns(self) -> Sequence[tuple[Column, int]]:
        """The columns that are shown, each with its width."""
        return layout(self.size.width, self._longest, self._clock, self._order.key)

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
    def _place(self) -> int:
        """Line of the selected row among all lines."""
        return self._lines.index(self._index) if self._rows else 0

    def trouble_out_of_sight(self, rows: Sequence[Row]) -> int:
        """Return how many of the rows that are about to be shown are in trouble, and above or below what fits."""
        shown = range(self._top, self._top + self.page_rows)
        return sum(
            row.verdict.health is Health.TROUBLE and place not in shown for place, row in enumerate(rows)
        )

    def release(self) -> None:
        """Select the first row again, whichever box that is, until somebody chooses one."""
        self._held = False
        self.redraw()

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
        last = max(0, len(self._lines) - self.page_rows)
        if follow:
            place = self._place
            first = place - 1 if place and not isinstance(self._lines[place - 1], int) else place
            self._top = min(max(self._top, place - self.page_rows + 1), first)
        self._top = min(self._top, last)

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the titles, and what is in sight of rows and headings."""
        self._keep_in_sight(follow=False)
        columns = layout(width, self._longest, self._clock, self._order.key)
        if not self._rows:
            return [clip(line(" ", *row), width) for row in self._empty]
        shown = self._lines[self._top : self._top + height - 1]
        places = [one for one in shown if isinstance(one, int)]
        some = len(shown) < len(self._lines) and bool(places)
        seen = InSight(places[0] + 1, places[-1] + 1, len(self._rows)) if some else None
        out = [heading(columns, self._order.key, rising=self._order.rising, shown=seen)]
        if columns != self._drawn_for:
            self._drawn_for, self._drawn_rows = columns, {}
        out += [self._drawn_row(self._rows[one]) if isinstance(one, int) else one for one in shown]
        return out

    def ahead(self, rows: Sequence[Row]) -> Iterator[None]:
        """Draw, in steps, what will be in sight of rows that are about to be shown, most likely as wide as now."""
        for row in rows[self._top : self._top + self.page_rows]:
            self._drawn_row(row)
            yield

    def _drawn_row(self, row: Row) -> Line:
        known = self._drawn_rows.get(id(row))
        if known is None:
            known = self._drawn_rows[id(row)] = (row, self._row_line(row, self._drawn_for))
        return known[1]

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
        place = self._place - self._top + 1
        return place if self._rows and 1 <= place <= self.page_rows else None

    def on_click(self, event: events.Click) -> None:
        """Select a row, open it on a double click, or sort by the column whose title was clicked."""
        if event.y == 0:
            x = 1
            for column, width in self.columns:
                # The gap in front belongs to it: the mark of the order may stand there.
                if event.x < x + width:
                    self.post_message(SortAsked(column.key))
                    return
                x += width + 1
            return
        at = self._top + event.y - 1
        index = self._lines[at] if at < len(self._lines) else None
        if isinstance(index, int):
            again = self._rows[index].name == self._picked
            self.pick(index)
            if again and event.chain > 1:
                self.post_message(RowChosen(self._rows[index].name, opened=True))

    def scroll_lines(self, count: int) -> None:
        """Scroll the rows; the selection stays."""
        self._top = max(0, self._top + count)
        self.redraw()
