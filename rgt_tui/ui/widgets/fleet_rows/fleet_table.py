"""The table of boxes: a widget that redraws only changed cells, and keeps the selection on its box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from textual import events

from rgt_tui.model import Health
from rgt_tui.ui.enduring import endured, words
from rgt_tui.ui.notation import glyphs
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import Row, clock_cells
from rgt_tui.ui.widgets.fleet_rows.fleet_columns import Column, InSight, heading, layout, row_line
from rgt_tui.ui.widgets.fleet_rows.fleet_order import Order
from rgt_tui.ui.widgets.lines import SortAsked
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import Line, Span, Tone, line


class FleetTable(SelectableList[str]):
    """Rows with a selection that stays on its box when the order changes."""

    DEFAULT_CSS = "FleetTable { height: 5; }"
    WHEEL = 2
    DOUBLE_CLICK = True

    def __init__(self) -> None:
        super().__init__(id="table")
        self._boxes: Sequence[Row] = ()
        self._order = Order()
        self._lines: list[int | Line] = []
        """What stands below the titles: rows by their place, and headings of groups."""
        self._drawn_rows: dict[int, tuple[Row, Line]] = {}
        """Rows that were drawn, by their identity: a key that moves the cursor or sorts draws none anew."""
        self._drawn_for: Sequence[tuple[Column, int]] = ()
        self._longest = 0
        self._clock = 0
        """Cells of the longest clock."""
        self._held = False

    def show_boxes(
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
        self._boxes, self._order, self._empty = rows, order, [line(" ", *row) for row in empty]
        self._lines = []
        here = set(map(id, rows))
        self._drawn_rows = {key: drawn for key, drawn in self._drawn_rows.items() if key in here}
        for place in range(len(rows)):
            if heads and place in heads:
                self._lines.append(heads[place])
            self._lines.append(place)
        self._longest = max((cell_len(row.name) for row in rows), default=0)
        self._clock = max(map(clock_cells, rows), default=0)
        self._keys = [row.name for row in rows]
        if not self._held or self._picked not in self._keys:
            self._picked = self._keys[0] if rows else None
            self._top = 0
        self._keep_in_sight(follow=False)
        self.redraw()

    def wanted_height(self, width: int) -> int:
        """Return the height that shows everything."""
        return 1 + len(self._lines) if self._keys else len(self._empty)

    @property
    def columns(self) -> Sequence[tuple[Column, int]]:
        """The columns that are shown, each with its width."""
        return layout(self.size.width, self._longest, self._clock, self._order.key)

    @property
    def names(self) -> Sequence[str]:
        """Names in the order of the rows."""
        return self._keys

    @property
    def _place(self) -> int:
        """Line of the selected row among all lines."""
        return self._lines.index(self.index) if self._keys else 0

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

    def hold(self) -> None:
        """Keep the selection on its box from now on, and in sight: a key is about to act on it."""
        self._held = self._picked is not None
        self._keep_in_sight(follow=True)
        self.redraw()

    def pick(self, index: int) -> None:
        """Select the row at `index`."""
        self._picked = self._keys[index]
        self.hold()
        super().pick(index)

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
        self._owners = ()
        if not self._keys:
            return list(self._empty)
        shown = self._lines[self._top : self._top + height - 1]
        places = [one for one in shown if isinstance(one, int)]
        some = len(shown) < len(self._lines) and bool(places)
        seen = InSight(places[0] + 1, places[-1] + 1, len(self._keys)) if some else None
        out = [heading(columns, self._order.key, rising=self._order.rising, shown=seen)]
        if columns != self._drawn_for:
            self._drawn_for, self._drawn_rows = columns, {}
        out += [self._drawn_row(self._boxes[one]) if isinstance(one, int) else one for one in shown]
        self._owners = [None, *(self._keys[one] if isinstance(one, int) else None for one in shown)]
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
            name = Span(f"{row.name}  ", Tone.STRONG)
            return line(
                " ", Span(f"{glyphs().trouble} ", Tone.TROUBLE), name, f"this row failed: {words(error)}"
            )

    def on_click(self, event: events.Click) -> None:
        """Select a row, open it on a double click, or sort by the column whose title was clicked."""
        if event.y > 0:
            super().on_click(event)
            return
        x = 1
        for column, width in self.columns:
            # The gap in front belongs to it: the mark of the order may stand there.
            if event.x < x + width:
                self.post_message(SortAsked(column.key))
                return
            x += width + 1

    def scroll_lines(self, count: int) -> None:
        """Scroll the rows; the selection stays."""
        self._top = max(0, self._top + count)
        self.redraw()
