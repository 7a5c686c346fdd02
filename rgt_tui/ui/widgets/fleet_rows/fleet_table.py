"""The table of boxes: order and groups of its rows, with a selection that stays on its box."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_letters
from typing import NamedTuple

import msgspec
from rich.cells import cell_len
from textual import events

from rgt_tui.files import locked_file, replace_file, state_directory
from rgt_tui.language import translate
from rgt_tui.model import BoxHealth, FrozenStruct, format_sums, how_many
from rgt_tui.profiles import prices
from rgt_tui.ui.box_status import count_by_health, health_mark, is_limited
from rgt_tui.ui.enduring import describe_error, report_fault_to_app
from rgt_tui.ui.notation import current_glyphs, make_displayable
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import FleetRow, clock_cells
from rgt_tui.ui.widgets.fleet_rows.fleet_columns import (
    COLUMNS,
    FleetColumn,
    VisibleRange,
    choose_columns,
    draw_heading,
    mark_line,
    row_line,
    value_of,
)
from rgt_tui.ui.widgets.lines import SortAsked
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, make_line

TROUBLE = "state"
FILE = "file"


class FleetTable(SelectableList[str]):
    """Rows with a selection that stays on its box when the order changes."""

    DEFAULT_CSS = "FleetTable { height: 5; }"
    WHEEL = 2
    DOUBLE_CLICK = True

    def __init__(self) -> None:
        super().__init__(id="table")
        self._boxes: Sequence[FleetRow] = ()
        self._order = SortOrder()
        self._lines: list[int | Line] = []
        """Lines below the titles: indexes of rows, and headings of groups."""
        self._drawn_rows: dict[int, tuple[FleetRow, Line]] = {}
        """Drawn rows by identity, so that moving the cursor or sorting draws none again."""
        self._drawn_for: Sequence[tuple[FleetColumn, int]] = ()
        self._longest = 0
        self._clock = 0
        """Cells of the longest clock."""
        # Whether the person has chosen a box; until then the first row is selected.
        self._held = False
        self._marks: set[str] = set()
        self._range_from: str | None = None
        """Name of the box at which a range of marks begins; None = no range is being marked."""

    @property
    def marked_names(self) -> list[str]:
        """Names of the shown boxes that are marked, in their order."""
        marked = self._marks | self._names_in_range()
        return [name for name in self._keys if name in marked]

    def _names_in_range(self) -> set[str]:
        if self._range_from not in self._keys:
            return set()
        begin, end = sorted((self._keys.index(self._range_from), self.selected_index))
        return {*self._keys[begin : end + 1]}

    def toggle_mark(self) -> None:
        """Mark the selected box, or unmark it, and select the next one."""
        if self._picked is not None:
            self._marks ^= {self._picked}
            self.move_by(1)

    def mark_range(self) -> bool:
        """Begin a range at the selected box, and return True; a second call marks the range."""
        begins = self._range_from is None
        self._marks |= self._names_in_range()
        self._range_from = self._picked if begins else None
        self.hold_selection()
        return begins

    def toggle_all_marks(self) -> None:
        """Mark all shown boxes; if all are marked, unmark them."""
        shown = {*self._keys}
        if shown <= self._marks:
            self._marks -= shown
        else:
            self._marks |= shown
        self.redraw()

    def clear_marks(self) -> bool:
        """Unmark all boxes; return whether one was marked."""
        had = bool(self._marks) or self._range_from is not None
        self._marks, self._range_from = set(), None
        return had

    def show_boxes(
        self,
        rows: Sequence[FleetRow],
        *,
        order: SortOrder,
        heads: Mapping[int, Line] | None = None,
        empty: Sequence[Line] = (),
    ) -> None:
        """Set the rows in their order; the selection follows the chosen box.

        Until the person chooses a box, the first row is selected: the box in trouble explains
        itself.

        Args:
            rows: In their order.
            order: How they are sorted.
            heads: Headings, keyed by the index of the row below them.
            empty: Lines to show if there are no rows.
        """
        self._boxes, self._order, self._empty = rows, order, [make_line(" ", *row) for row in empty]
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
            if rows:
                self._picked = self._keys[0]
            else:
                self._picked = None
            self._top = 0
        self._keep_in_sight(follow=False)
        self.redraw()

    def wanted_height(self, width: int) -> int:
        """Return the height that shows everything."""
        if self._keys:
            return 1 + len(self._lines)
        return len(self._empty)

    @property
    def shown_columns(self) -> Sequence[tuple[FleetColumn, int]]:
        """The shown columns, each with its width."""
        return choose_columns(self.size.width, self._longest, self._clock, self._order.key)

    @property
    def row_names(self) -> Sequence[str]:
        """Names in the order of the rows."""
        return self._keys

    @property
    def _line_index(self) -> int:
        """Line index of the selected row."""
        if self._keys:
            return self._lines.index(self.selected_index)
        return 0

    def trouble_out_of_sight(self, rows: Sequence[FleetRow]) -> int:
        """Return how many of `rows` are in trouble and scrolled out of sight."""
        shown = range(self._top, self._top + self.page_rows)
        return sum(
            row.verdict.health is BoxHealth.TROUBLE and place not in shown
            for place, row in enumerate(rows)
        )

    def follow_first(self) -> None:
        """Select the first row, and follow it until the person chooses a box."""
        self._held = False
        self.redraw()

    @property
    def page_rows(self) -> int:
        """Number of visible rows."""
        return max(1, self.size.height - 1)

    def hold_selection(self) -> None:
        """Keep the selection on its box and visible: a key is about to act on it."""
        self._held = self._picked is not None
        self._keep_in_sight(follow=True)
        self.redraw()

    def select_index(self, index: int) -> None:
        """Select the row at `index`."""
        self._picked = self._keys[index]
        self.hold_selection()
        super().select_index(index)

    def _keep_in_sight(self, *, follow: bool) -> None:
        last = max(0, len(self._lines) - self.page_rows)
        if follow:
            place = self._line_index
            # Its group's heading is shown, too.
            if place and not isinstance(self._lines[place - 1], int):
                first = place - 1
            else:
                first = place
            self._top = min(max(self._top, place - self.page_rows + 1), first)
        self._top = min(self._top, last)

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the titles and the visible rows and headings."""
        self._keep_in_sight(follow=False)
        columns = choose_columns(width, self._longest, self._clock, self._order.key)
        self._owners = ()
        if not self._keys:
            return list(self._empty)
        shown = self._lines[self._top : self._top + height - 1]
        places = [one for one in shown if isinstance(one, int)]
        some = len(shown) < len(self._lines) and bool(places)
        if some:
            seen = VisibleRange(places[0] + 1, places[-1] + 1, len(self._keys))
        else:
            seen = None
        out = [draw_heading(columns, self._order.key, rising=self._order.is_ascending, shown=seen)]
        # The drawn rows have other columns or widths.
        if columns != self._drawn_for:
            self._drawn_for, self._drawn_rows = columns, {}
        marked = {*self.marked_names}
        for one in shown:
            if not isinstance(one, int):
                out.append(one)
            elif self._keys[one] in marked:
                out.append(mark_line(self._drawn_row(self._boxes[one])))
            else:
                out.append(self._drawn_row(self._boxes[one]))
        self._owners = [None, *(self._keys[one] if isinstance(one, int) else None for one in shown)]
        return out

    def draw_ahead(self, rows: Sequence[FleetRow]) -> Iterator[None]:
        """Draw the rows that will be visible in advance, in steps, at the current width."""
        for row in rows[self._top : self._top + self.page_rows]:
            self._drawn_row(row)
            yield

    def _drawn_row(self, row: FleetRow) -> Line:
        known = self._drawn_rows.get(id(row))
        if known is None:
            # Kept together with its row, whose identity could be another row's otherwise.
            known = self._drawn_rows[id(row)] = (row, self._row_line(row, self._drawn_for))
        return known[1]

    def _row_line(self, row: FleetRow, columns: Sequence[tuple[FleetColumn, int]]) -> Line:
        """Draw a row; if that fails, the row shows the error and the others are unaffected."""
        try:
            return row_line(row, columns)
        except Exception as error:
            if not report_fault_to_app(self, error):
                raise
            name = Span(f"{row.name}  ", Tone.STRONG)
            return make_line(
                " ",
                Span(f"{current_glyphs().trouble} ", Tone.TROUBLE),
                name,
                translate("this row cannot be drawn: {error}", error=describe_error(error)),
            )

    def on_click(self, event: events.Click) -> None:
        """Select a row, open it on a double click, or sort by the clicked column title."""
        if event.y > 0:
            super().on_click(event)
            return
        x = 1
        for column, width in self.shown_columns:
            # The gap before a title belongs to it: the sort arrow may be drawn there.
            if event.x < x + width:
                self.post_message(SortAsked(column.key))
                return
            x += width + 1

    def scroll_lines(self, count: int) -> None:
        """Scroll the rows; the selection stays."""
        self._top = max(0, self._top + count)
        self.redraw()


# Order and groups of the fleet's rows, and the part of it that is saved.
#
# Sorting is pure and stable: rows that do not differ keep their places.


class SortOrder(NamedTuple):
    """The sort order of the rows."""

    key: str = TROUBLE
    """Key of a column, or `FILE`."""
    flipped: bool = False

    @property
    def is_ascending(self) -> bool:
        """Whether the smallest is first."""
        value = value_of(self.key)
        return (value.rising if value is not None else self.key == "name") != self.flipped

    @property
    def order_text(self) -> str:
        """Description of the order."""
        value = value_of(self.key)
        if value is not None:
            return translate(
                "by {words}, {more} first",
                words=translate(value.words),
                more="least" if self.is_ascending else "most",
            )
        if self.key == FILE:
            return translate("as in the fleet file") + (", reversed" if self.flipped else "")
        if self.key == "name":
            return translate("by name") + ("" if self.is_ascending else translate(", from the end"))
        if self.flipped:
            return translate("trouble last")
        return translate("trouble first")


def sort_choices() -> list[tuple[str, str, str]]:
    """Return the keys that rows can be sorted by: the letter to press, the title, the key."""
    columns = [column for column in COLUMNS if can_sort(column.key)]
    # `o` sorts by the next column, and `f` is the order of the fleet file.
    taken = {"o", "f", *(column.sort_letter for column in columns)}
    found: list[tuple[str, str, str]] = []
    for column in columns:
        free = (one for one in column.key + ascii_letters if one not in taken)
        letter = column.sort_letter or next(free)
        taken.add(letter)
        found.append((letter, column.shown_title.strip(), column.key))
    return [*found, ("f", translate("fleet file"), FILE)]


def can_sort(key: str) -> bool:
    """Return whether rows can be sorted by a column."""
    return key in (TROUBLE, FILE, "name") or value_of(key) is not None


def _trouble_key(row: FleetRow) -> tuple[object, ...]:
    # Leaves out the age of progress: rows must not swap every second while all is well.
    health, *alerts = row.verdict.rank[:3]
    return (health, not is_limited(row.box, row.verdict), *alerts, row.name)


def sort_rows(rows: Sequence[FleetRow], order: SortOrder) -> list[FleetRow]:
    """Return the sorted rows.

    Rows without a value come last in either direction; ties go by name.
    """
    key, flipped = order
    if key == FILE:
        if flipped:
            return list(reversed(rows))
        return list(rows)
    if key == TROUBLE:
        return sorted(rows, key=_trouble_key, reverse=flipped)
    by_name = sorted(rows, key=lambda row: row.name)
    if key == "name":
        if flipped:
            return by_name[::-1]
        return by_name
    value = value_of(key)
    assert value is not None, "an order that cannot be sorted by"
    known: list[tuple[str, float, FleetRow]] = []
    unknown: list[FleetRow] = []
    for row in by_name:
        found = value.read(row)
        if found is None or math.isnan(found):
            unknown.append(row)
        else:
            coarse = (
                math.floor(found / value.step) if value.step and math.isfinite(found) else found
            )
            # Amounts in different currencies are not compared.
            known.append((value.currency(row) if value.currency else "", coarse, row))
    # Reverses the values, but not the order of the currencies.
    sign = 1.0 if order.is_ascending else -1.0
    known.sort(key=lambda one: (one[0], sign * one[1]))
    return [row for _, _, row in known] + unknown


def _account_heading(row: FleetRow) -> str:
    provider = row.box.spec.provider
    if provider is None:
        return translate("no account")
    return f"{provider.kind}  {provider.account}"


FLEET_GROUPS: dict[str, tuple[str, Callable[[FleetRow], str]]] = {
    "": ("not grouped", lambda row: ""),
    "platform": ("grouped by platform", lambda row: row.platform or row.box.spec.profile),
    "state": ("grouped by state", lambda row: row.verdict.health.value),
    "account": ("grouped by account", _account_heading),
}
"""Keyed by their name in the settings: the description, and the function that returns a row's
group."""


def group_rows(rows: Sequence[FleetRow], by: str) -> tuple[list[FleetRow], dict[int, Line]]:
    """Return the rows sorted into groups, and the groups' headings by the index of their first row.

    Groups are in the order of their first rows: with trouble first, the worst box's group is on
    top.
    """
    if not by:
        return list(rows), {}
    found: dict[str, list[FleetRow]] = {}
    for row in rows:
        found.setdefault(FLEET_GROUPS[by][1](row), []).append(row)
    out: list[FleetRow] = []
    heads: dict[int, Line] = {}
    for name, members in found.items():
        heads[len(out)] = group_line(name, members)
        out += members
    return out, heads


def group_line(name: str, rows: Sequence[FleetRow]) -> Line:
    """Return the heading of a group: its name, its boxes by state, and their cost per hour."""
    out: list[Span] = [dim_span(f" {current_glyphs().opened} "), Span(name, Tone.STRONG)]
    out.append(dim_span(f"  {how_many(len(rows), 'box', 'boxes')}"))
    for health, count in count_by_health(row.verdict.health for row in rows):
        glyph, tone = health_mark(health)
        out.append(Span(f"  {glyph} {count}", tone))
    rate = prices.fleet_rate(row.box.meter for row in rows)
    if rate:
        out += [Span(make_displayable(f"   {format_sums(rate)}")), dim_span(" /h")]
    return make_line(*out)


# The saved part, in ``$XDG_STATE_HOME/rgt/fleet-view.json``. The active filter is not saved, so
# that every start of rgt shows all boxes.

VERSION = 1
MOST_BYTES = 1 << 20


class Arrangement(FrozenStruct):
    """How the rows of one fleet are arranged."""

    sort: str = "state"
    flipped: bool = False
    group: str = ""

    @property
    def sort_order(self) -> SortOrder:
        """The sort order; the default if the file's order is unknown."""
        if can_sort(self.sort):
            return SortOrder(self.sort, self.flipped)
        return SortOrder()

    @property
    def valid_grouping(self) -> str:
        """The grouping; none if the file's grouping is unknown."""
        if self.group in FLEET_GROUPS:
            return self.group
        return ""


class FleetView(FrozenStruct):
    """The contents of the file."""

    version: int = VERSION
    fleets: dict[str, Arrangement] = {}
    """Arrangement by fleet file: an order that suits one fleet could hide trouble in another."""
    filters: dict[str, str] = {}
    """Saved filters by name."""

    def arrangement_of(self, fleet: str) -> Arrangement:
        """Return the arrangement of a fleet; the default if none is saved."""
        return self.fleets.get(fleet, Arrangement())


class Unreadable(Exception):
    """The file is damaged or from a newer rgt. It is left unchanged, and nothing is saved."""


def view_path(env: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    return state_directory(env) / "fleet-view.json"


def read_view(path: Path) -> FleetView:
    """Return the saved view; the default if there is no file.

    Raises:
        Unreadable: The file is damaged or from another version.
    """
    try:
        with path.open("rb") as file:
            view = msgspec.json.decode(file.read(MOST_BYTES), type=FleetView)
    except FileNotFoundError:
        return FleetView()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(
            translate(
                "{path} cannot be read ({error}): fix or delete it; until then the view is "
                "not saved",
                path=path,
                error=error,
            )
        ) from None
    if view.version != VERSION:
        raise Unreadable(
            translate(
                "{path} was written by another rgt (version {version}): the view is not saved",
                path=path,
                version=view.version,
            )
        )
    return view


def save_view(path: Path, change: Callable[[FleetView], FleetView]) -> FleetView:
    """Change the saved view and return it. Changes by another rgt are kept. Blocks briefly.

    Raises:
        Unreadable: The file is damaged or from another version.
        OSError: It cannot be written.
    """
    with locked_file(path):
        view = change(read_view(path))
        replace_file(path, msgspec.json.format(msgspec.json.encode(view)))
        return view


def with_arrangement(
    view: FleetView, fleet: str, change: Callable[[Arrangement], Arrangement]
) -> FleetView:
    """Return the view with one fleet's arrangement changed.

    If there are too many, drop the oldest.
    """
    others = {known: kept for known, kept in view.fleets.items() if known != fleet}
    most_fleets = 100
    fleets = {
        **dict(list(others.items())[-(most_fleets - 1) :]),
        fleet: change(view.arrangement_of(fleet)),
    }
    return msgspec.structs.replace(view, fleets=fleets)


def with_filter(view: FleetView, name: str, text: str | None) -> FleetView:
    """Return the view with a filter saved, or deleted if `text` is None.

    If there are too many filters, the oldest is dropped. Names are compared case-insensitively.
    """
    others = {
        known: kept for known, kept in view.filters.items() if known.casefold() != name.casefold()
    }
    if text is not None:
        most_filters = 100
        others = {**dict(list(others.items())[-(most_filters - 1) :]), name: text}
    return msgspec.structs.replace(view, filters=others)
