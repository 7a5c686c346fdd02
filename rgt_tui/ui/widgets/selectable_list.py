"""The list of every screen: rows with one selected by keys or mouse, and details of that row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, NamedTuple, TypeVar

from textual import events

from rgt_tui.language import translate
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.widgets.lines import LineWidget, RowChosen
from rgt_tui.ui.widgets.panes import out_of_sight
from rgt_tui.ui.widgets.spans import EMPTY, Line, dim_span, make_line

Key = TypeVar("Key")


class ListRow(NamedTuple):
    """One row; its first cell is reserved for the cursor."""

    key: str
    line: Line


Details = Callable[[str, int], Sequence[Line]]
"""Returns the detail lines for a row's key and a width."""


class SelectableList(LineWidget, Generic[Key]):
    """Rows with a selection that stays on its row when the order changes.

    A subclass with rows of several lines overrides `draw_row`, or `make_lines`, which sets
    `_owners`.
    """

    DEFAULT_CSS = "SelectableList { height: 1fr; }"
    WHEEL = 3
    DOUBLE_CLICK: ClassVar[bool] = False
    """Whether only a double click opens a row; otherwise any click on the selected row does."""

    def __init__(self, *, id: str, more: str = "", indent: int = 3) -> None:  # noqa: A002
        super().__init__(id=id)
        self._more = more or translate("more; {key} copies all of it", key=key_for("screen.copy"))
        self._indent = indent
        self._rows: Sequence[ListRow] = ()
        self._keys: Sequence[Key] = ()
        self._empty: Sequence[Line] = ()
        self._details: Details | None = None
        self._picked: Key | None = None
        self._top = 0
        """Index of the first visible row."""
        self._owners: Sequence[Key | None] = ()
        """Key of the row that each line on screen belongs to."""

    def show_rows(
        self, rows: Sequence[ListRow], empty: Sequence[Line], details: Details | None = None
    ) -> None:
        """Set the rows in order, the lines to show without one, and the details."""
        self._rows, self._empty, self._details = rows, empty, details
        self.set_keys([row.key for row in rows])  # type: ignore[misc]

    def set_keys(self, keys: Sequence[Key]) -> None:
        """Set the keys of the rows; if the selected row is gone, select the first."""
        self._keys = keys
        if self._picked not in keys:
            self._picked = keys[0] if keys else None
        self.redraw()

    @property
    def picked_key(self) -> Key | None:
        """Key of the selected row."""
        return self._picked

    def select_key(self, key: Key | None) -> None:
        """Select a row by its key; takes effect when it is shown."""
        self._picked = key

    @property
    def selected_index(self) -> int:
        """Index of the selected row."""
        if self._picked in self._keys:
            return self._keys.index(self._picked)
        return 0

    @property
    def page_rows(self) -> int:
        """Number of visible rows."""
        return max(1, len({*self._owners} - {None}))

    def move_by(self, count: int) -> None:
        """Select another row, `count` rows away."""
        if self._keys:
            self.select_index(min(max(self.selected_index + count, 0), len(self._keys) - 1))

    def scroll_lines(self, count: int) -> None:
        """Move the selection with the wheel."""
        if count:
            self.move_by(count)

    def select_index(self, index: int) -> None:
        """Select the row at `index`."""
        self._picked = self._keys[index]
        self.redraw()
        self.post_message(RowChosen(self._picked, opened=False))

    def wanted_height(self, width: int) -> int:
        """Return the height that shows every row, and all details of the selected one."""
        if self._keys:
            return len(self._keys) + 1 + len(self._detail_lines(width))
        return len(self._empty)

    def _detail_lines(self, width: int) -> list[Line]:
        if self._details is None:
            return []
        return [
            make_line(" " * self._indent, row)
            for row in self._details(str(self._picked), width - self._indent)
        ]

    def draw_row(self, index: int, width: int, *, whole: bool) -> list[Line]:
        """Draw one row; only the selected row, with `whole`, may take several lines."""
        return [self._rows[index].line]

    def hidden_rows_line(self, above: int, below: int) -> Line:
        """Return the line that counts the rows out of sight."""
        return out_of_sight(above, below)

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        """Draw the visible rows, and the details of the selected one."""
        self._owners = ()
        if not self._keys:
            return list(self._empty)
        here, total = self.selected_index, len(self._keys)
        picked = self.draw_row(here, width, whole=True)[:height]
        below = self._detail_lines(width)
        taken = len(picked) - 1
        # Rows that stay visible, however long the details are.
        least_rows = 3
        # A line between rows and details, or with the number of rows out of sight.
        gap = bool(below) or total + taken > height > least_rows
        if below:
            least = min(least_rows, total)
        else:
            least = 1
        room = min(total, max(least, height - taken - gap - len(below)))
        if room + taken + gap + len(below) > height and below:
            below = [
                *below[: max(0, height - room - 2)],
                make_line(" " * self._indent, dim_span(f"{current_glyphs().more} {self._more}")),
            ]
        self.scroll_into_view(here, total, room)
        lines: list[Line] = []
        owners: list[Key | None] = []
        for index in range(self._top, self._top + room):
            if index == here:
                drawn = picked
            else:
                drawn = self.draw_row(index, width, whole=False)
            lines += drawn
            owners += [self._keys[index]] * len(drawn)
        self._owners = owners
        if gap:
            unseen = self.hidden_rows_line(self._top, total - self._top - room)
            lines.append(make_line(" ", *unseen) if unseen else EMPTY)
        return [*lines, *below]

    def scroll_into_view(self, at: int, total: int, room: int) -> None:
        """Scroll as little as needed to show line `at` of `total`, with room for `room` lines."""
        self._top = max(0, min(max(self._top, at - room + 1), at, total - room))

    def selected_line(self) -> int | None:
        """Return the first line of the selected row, if it is visible."""
        owned = self._picked is not None and self._picked in self._owners
        if owned:
            return self._owners.index(self._picked)
        return None

    def on_click(self, event: events.Click) -> None:
        """Select a row; a second click opens it."""
        if event.y < len(self._owners):
            key = self._owners[event.y]
        else:
            key = None
        if key is None:
            return
        # Read before the selection changes.
        again = key == self._picked
        self.select_index(self._keys.index(key))
        if again and (not self.DOUBLE_CLICK or event.chain > 1):
            self.post_message(RowChosen(key, opened=True))
