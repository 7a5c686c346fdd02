"""The fleet: every box on one screen, the one in trouble first; the detail pane, and a fleet that did not start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.health import WorstCase, clock_readings, worst_case, worst_of
from rgt_tui.model.box import BoxState
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.box_status import failed, level_tone
from rgt_tui.ui.commands import BOX_CARE, BOX_TARGET, FLEET, MOVE, REPLAY, Command, bindings
from rgt_tui.ui.enduring import endured
from rgt_tui.ui.notation import clean, clock, glyphs
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, Moves
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.fleet_cells import Row
from rgt_tui.ui.widgets.fleet_table import SORTS, FleetTable, matches, ordered
from rgt_tui.ui.widgets.lines import EntryChanged, EntryClosed, RowChosen, SortAsked
from rgt_tui.ui.widgets.panes import Pane, Section
from rgt_tui.ui.widgets.platform_lines import worst_parts
from rgt_tui.ui.widgets.queue_lines import queue_lines
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line, wrapped
from rgt_tui.ui.widgets.unseen_lines import unseen_parts, unseen_section
from rgt_tui.ui.widgets.vitals import disk_lines, gpu_sections, memory_lines
from rgt_tui.ui.widgets.why import title_of, why_lines

if TYPE_CHECKING:
    from textual import events


def event_lines(state: FleetState, box: str, width: int, most: int = 6) -> list[Line]:
    """Return the last events of one box, newest first."""
    mine = [event for event in state.events if event.box == box][-most:]
    return [
        line(dim(f"{clock(event.at)}  "), Span(clean(event.text), level_tone(event.level)))
        for event in reversed(mine)
    ]


def detail_sections(row: Row, state: FleetState, width: int, now: float) -> list[Section]:
    """Return the sections of the detail pane."""
    parts = gpu_sections(row.box, width)
    parts.append(Section(line("memory"), memory_lines(row.box, width)))
    parts.append(Section(line("disks"), disk_lines(row.box, None, width)))
    parts.append(Section(line("queue"), queue_lines(row.box, width, now)))
    events = event_lines(state, row.name, width)
    if events:
        parts.append(Section(line("events"), events))
    return parts


def failure_lines(error: BaseException, width: int) -> list[Line]:
    """Return what went wrong and what to do, in words instead of a traceback."""
    text = clean(str(error)).strip() or type(error).__name__
    return [
        EMPTY,
        line(Span(f"{glyphs().trouble} the fleet did not start", Tone.TROUBLE)),
        EMPTY,
        *(row for part in text.splitlines() or [text] for row in wrapped(part, width)),
        line(dim(f"({type(error).__name__})")),
        EMPTY,
        line(dim("check  "), Span("rgt doctor", Tone.ACCENT), " says what is missing and how to get it"),
        line(dim("retry  "), Span("r", Tone.ACCENT), " starts the fleet again"),
        line(dim("quit   "), Span("ctrl+q", Tone.ACCENT)),
    ]


LEAST_PANE = 4
PANE_SHARE = 0.4


def split_heights(rows: int, room: int, wanted: int) -> tuple[int, int]:
    """Return the heights of a table of `rows` lines and of the pane below it.

    Where both do not fit, the pane has a fixed share, so that the table does not jump with the selection.
    """
    if rows + 1 + wanted <= room:
        return rows + 1, wanted
    if room < LEAST_PANE + 4:
        return room, 0
    table = min(rows, room - max(LEAST_PANE, int(room * PANE_SHARE)))
    return table, room - table


def set_height(widget: Widget, height: int) -> None:
    """Set a height in lines, if it differs."""
    if widget.styles.height is None or widget.styles.height.value != height:
        widget.styles.height = height


class FleetScreen(Moves, FleetAwareScreen):
    """Table of boxes, and a pane that says why the selected one is where it is."""

    PLACE = "fleet"
    KEYS: ClassVar[tuple[Command, ...]] = (*FLEET, *BOX_TARGET, *BOX_CARE, *REPLAY, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)
    AUTO_FOCUS = ""
    """The table has the keys, unless somebody gives them to a pane."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (200, "-detail")]  # noqa: RUF012

    def __init__(self, fleet: FleetSource | None) -> None:
        super().__init__(fleet)
        self._sort = "state"
        self._filter = ""
        self._failure: BaseException | None = None

    def body(self) -> Iterable[Widget]:
        """Table and pane; at 200 columns a second pane at the right."""
        with Horizontal(id="split"):
            with Vertical(id="main"):
                yield FleetTable()
                yield Pane(id="why", focusable=True)
            yield Pane(id="detail", focusable=True)

    def on_mount(self) -> None:
        """Show that something is about to happen, before there is a fleet."""
        if not self.has_fleet:
            self._show_table([], (EMPTY, line(dim("connecting to the fleet"))))

    def show_failure(self, error: BaseException) -> None:
        """Say why there is no fleet, and what to do."""
        self._failure = error
        self._show_table([], failure_lines(error, max(20, self.size.width - 4)))

    @property
    def target_box(self) -> str | None:
        """The selected box."""
        return self.query_one(FleetTable).picked

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the selected box, or the alerts of all; whoever does so has chosen the box."""
        if place in ("alerts", "handbook") and self.has_fleet:
            cast("Dashboard", self.app).open_screen(place, None)
            return
        self.query_one(FleetTable).hold()
        super().action_open_for_box(place)

    def _rows(self, state: FleetState, now: float) -> list[Row]:
        return [self._row(box, now) for box in state.boxes]

    def _row(self, box: BoxState, now: float) -> Row:
        verdict = self.verdict(box)
        try:
            profile = self.fleet.profile(box.spec.name)
            return Row(box, verdict, clock_readings(profile, box, now), profile.name)
        except Exception as error:
            if not endured(self, error):
                raise
            return Row(box, failed(box, error), (), box.spec.profile)

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return the fleet counted by state, its rate and bill, and what it can still cost at most."""
        cases: list[WorstCase] = []
        for box in state.boxes:
            try:
                readings = clock_readings(self.fleet.profile(box.spec.name), box, now)
                cases.append(worst_case(box, readings, now))
            except Exception as error:
                if not endured(self, error):
                    raise
        return [*super().summary(state, now), *unseen_parts(state), *worst_parts(worst_of(cases))]

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the rows that changed, and the pane of the selected box."""
        if self._failure is not None:
            return
        rows = self._rows(state, now)
        shown = ordered([row for row in rows if matches(row, self._filter)], self._sort)
        self._show_table(shown, self._empty_lines(len(rows)))
        self._show_panes(shown, state, now)

    def _empty_lines(self, total: int) -> tuple[Line, ...]:
        if total:
            return (
                EMPTY,
                line("no box matches ", Span(self._filter, Tone.ACCENT)),
                line(dim("esc clears the filter")),
            )
        return (
            EMPTY,
            line("the fleet has no boxes"),
            line(dim("add one to the fleet file, or try "), Span("rgt demo", Tone.ACCENT)),
        )

    def _show_table(self, rows: list[Row], empty: tuple[Line, ...] | list[Line]) -> None:
        self.query_one(FleetTable).show(rows, sort=self._sort, empty=empty)
        self._arrange(len(rows) + 1 if rows else len(empty))

    def _arrange(self, rows: int) -> None:
        """Give the table and the panes their heights; the layout is made anew only when one changes."""
        pane, detail = self.query_one("#why", Pane), self.query_one("#detail", Pane)
        room = self.size.height - 3 - (self.notice is not None)
        width = self.size.width - (62 if self.has_class("-detail") else 0)
        table_height, pane_height = split_heights(rows, room, pane.wanted_height(width))
        set_height(self.query_one(FleetTable), table_height)
        set_height(pane, pane_height)
        set_height(detail, min(room, detail.wanted_height(62)))

    def _show_panes(self, rows: list[Row], state: FleetState, now: float) -> None:
        pane, detail = self.query_one("#why", Pane), self.query_one("#detail", Pane)
        picked = self.query_one(FleetTable).picked
        chosen = next((row for row in rows if row.name == picked), None)
        if chosen is None:
            pane.show(lambda width: ())
            detail.show(lambda width: ())
            return
        hint = line(dim("enter opens"))

        def why(width: int) -> list[Section]:
            unseen = unseen_section(state, width, now)
            told = Section(title_of(chosen.box, chosen.platform), why_lines(chosen, width, now), hint)
            return [told] if unseen is None else [told, unseen]

        pane.show(why)
        if self.has_class("-detail"):
            detail.show(lambda width: detail_sections(chosen, state, width, now))
        self._arrange(len(rows) + 1)

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        self.call_after_refresh(self.redraw_now)
        if self._failure is not None:
            self.show_failure(self._failure)

    def on_row_chosen(self, message: RowChosen) -> None:
        """Follow the selection with the panes; open on the second click."""
        if message.opened:
            self.action_open()
        else:
            self.redraw_now()

    def on_sort_asked(self, message: SortAsked) -> None:
        """Sort by the column whose title was clicked."""
        if message.column in SORTS:
            self._set_sort(message.column)

    def action_open(self) -> None:
        """Open the selected box."""
        self.action_open_for_box("box")

    def action_move(self, count: int) -> None:
        """Select another row, or scroll the pane that has the keys."""
        pane = self.focused
        if isinstance(pane, Pane):
            pane.scroll_lines(count)
        else:
            self.query_one(FleetTable).move(count)

    @property
    def page_rows(self) -> int:
        """Rows of what has the keys."""
        return (
            self.focused.page_rows if isinstance(self.focused, Pane) else self.query_one(FleetTable).page_rows
        )

    def action_next_pane(self, direction: int) -> None:
        """Give the keys to the next pane with something in it, and behind the last one back to the table."""
        panes = [pane for pane in self.query(Pane) if pane.display and pane.size.height]
        ring: list[Pane | None] = [None, *panes]
        here = ring.index(self.focused) if isinstance(self.focused, Pane) and self.focused in panes else 0
        self.set_focus(ring[(here + direction) % len(ring)])

    def action_connect(self) -> None:
        """Connect to the selected box now; after a failed start, start the fleet again."""
        if self._failure is None:
            super().action_connect()
            return
        self._failure = None
        self._show_table([], (EMPTY, line(dim("connecting to the fleet"))))
        cast("Dashboard", self.app).begin()

    def action_answer(self) -> None:
        """Open the oldest question."""
        if not cast("Dashboard", self.app).ask_next(again=True):
            self.hint("no box is asking for anything")

    def action_sort(self) -> None:
        """Sort by the next order."""
        names = list(SORTS)
        self._set_sort(names[(names.index(self._sort) + 1) % len(names)])

    def _set_sort(self, sort: str) -> None:
        self._sort = sort
        self.hint(f"sorted: {SORTS[sort][0]}")
        self.redraw_now()

    def action_filter(self) -> None:
        """Open the entry line of the filter."""
        self.open_entry("filter", self._filter)

    def on_entry_changed(self, message: EntryChanged) -> None:
        """Filter while typing."""
        self._filter = message.text
        self.redraw_now()

    def on_entry_closed(self, message: EntryClosed) -> None:
        """Keep the filter, or clear it when the entry was given up."""
        if message.text is None:
            self.clear()

    def clear(self) -> bool:
        """Clear the filter."""
        had = bool(self._filter)
        self._filter = ""
        self.redraw_now()
        return had

    def resting_hint(self) -> str:
        """Say that a filter hides boxes."""
        return f"filter: {self._filter}  (esc clears it)" if self._filter else super().resting_hint()
