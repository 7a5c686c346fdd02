"""The fleet screen: every box, trouble first, and a detail pane; or why the fleet did not start."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

import msgspec
from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui import health
from rgt_tui.fleet import FleetSource
from rgt_tui.language import translate
from rgt_tui.model import BoxState, EventFilter, FleetEvent, FleetState
from rgt_tui.ui.box_status import build_failed_assessment, choose_log
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import (
    BOX_CARE,
    BOX_FIX,
    BOX_SHELL,
    BOX_TARGET,
    BOX_WORK,
    FLEET,
    MOVE,
    REPLAY,
    Command,
    build_bindings,
    key_for,
)
from rgt_tui.ui.enduring import report_fault_to_app
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.screens.base import (
    HINT_SECONDS,
    Dashboard,
    FleetAwareScreen,
    MoveKeys,
    StateAssessments,
)
from rgt_tui.ui.screens.dialogs import Choice, ChoiceScreen
from rgt_tui.ui.screens.fleet_marks import MarkKeys
from rgt_tui.ui.widgets.box_context import (
    PANE_SIZES,
    PANES,
    TAILS,
    detail_sections,
    lower_widths,
    newest_lines,
    past_of,
    split_heights,
    split_left,
    tail_widths,
)
from rgt_tui.ui.widgets.fixed_lines import EntryLine, Parts
from rgt_tui.ui.widgets.fleet_rows import (
    COLUMNS,
    FILE,
    FLEET_GROUPS,
    Arrangement,
    FilterError,
    FleetRow,
    FleetTable,
    FleetView,
    LossPane,
    SortOrder,
    Unreadable,
    can_sort,
    complete_from,
    filter_rows,
    group_rows,
    idle_foot,
    parse_filter,
    read_view,
    save_view,
    since_section,
    sort_choices,
    sort_rows,
    view_path,
    with_arrangement,
    with_filter,
)
from rgt_tui.ui.widgets.fleet_rows.fleet_filter import FilteredRows, FleetFilter
from rgt_tui.ui.widgets.fleet_rows.since_lines import day_of
from rgt_tui.ui.widgets.lines import SideBySideWidgets, SortAsked
from rgt_tui.ui.widgets.panes import Pane, PaneSection, set_height, set_width
from rgt_tui.ui.widgets.platform_lines import unlisted_parts, worst_parts
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim_span, make_line, wrap_text
from rgt_tui.ui.widgets.why import LEAST_MORE, CopyableFix, WhyPane, blocks_of, steps_of, title_of

if TYPE_CHECKING:
    from textual import events

    from rgt_tui.fleet import Chronicle
    from rgt_tui.health import FleetWorstCase, WorstCase


def failure_lines(error: BaseException, width: int) -> list[Line]:
    """Return what went wrong and what to do, in words instead of a traceback."""
    text = str(error).strip() or type(error).__name__
    return [
        EMPTY,
        make_line(
            Span(
                translate("{trouble} the fleet did not start", trouble=current_glyphs().trouble),
                Tone.TROUBLE,
            )
        ),
        EMPTY,
        *(row for part in text.splitlines() or [text] for row in wrap_text(part, width)),
        make_line(dim_span(f"({type(error).__name__})")),
        EMPTY,
        make_line(
            dim_span(translate("check  ")),
            Span("rgt doctor", Tone.ACCENT),
            translate(" shows what is missing and how to get it"),
        ),
        make_line(
            dim_span(translate("retry  ")),
            Span(key_for("box.connect"), Tone.ACCENT),
            translate(" starts the fleet again"),
        ),
        make_line(dim_span(translate("quit   ")), Span(key_for("app.quit"), Tone.ACCENT)),
    ]


class RecalledEvents(NamedTuple):
    """A query to the history, and its answer."""

    since: float | None = None
    until: float = 0.0
    events: tuple[FleetEvent, ...] | None = None
    """None = not answered yet, or failed."""
    older: bool = False
    """Whether there are more events between `since` and these."""

    def complete_since(self, began: float) -> float:
        """Return the time from which no event is missing.

        The recalled events are joined with events that are complete from `began` on.
        """
        if self.since is None or self.events is None or self.until < began:
            return began
        # The history has more than was read: from the oldest one read on, nothing is missing.
        if self.older and self.events:
            return self.events[0].at
        return self.since


class AssessedRows(NamedTuple):
    """The rows of a state, and the fleet's worst case."""

    judged: StateAssessments = StateAssessments()
    rows: Sequence[FleetRow] = ()
    worst: FleetWorstCase | None = None


class FleetScreen(MarkKeys, MoveKeys, FleetAwareScreen):
    """Table of boxes, and panes that explain the selected one."""

    PLACE = "fleet"
    KEYS: ClassVar[tuple[Command, ...]] = (
        *FLEET,
        *BOX_TARGET,
        *BOX_FIX,
        *BOX_SHELL,
        *BOX_WORK,
        *BOX_CARE,
        *(one for one in REPLAY if one.id != "replay.hold"),  # here `fleet.mark` does it
        *MOVE,
    )
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)
    AT_ONCE = 50
    AUTO_FOCUS = ""
    """Empty: the table handles the keys until a pane is focused."""
    ABOVE: ClassVar[int] = 0
    """Lines above the table."""
    WAITING: ClassVar[str] = "connecting to the fleet"

    def __init__(self, fleet: FleetSource | None) -> None:
        super().__init__(fleet)
        self._view = FleetView()
        self._filter = ""
        """The last filter text that was valid."""
        self._asked = FleetFilter()
        self._wrong = ""
        """Error in the typed filter; the previous filter stays active."""
        self._filtered = FilteredRows([], 0, 0)
        self._failure: BaseException | None = None
        self._began = math.inf
        """Client clock of the first state."""
        self._rows_shown: Sequence[FleetRow] = ()
        self._looked = AssessedRows()
        self._recalled = RecalledEvents()
        self._since_told: tuple[object, ...] = ()
        """Inputs of the "since" section; it is made again when they change."""
        self._since_made: dict[tuple[int, int], list[PaneSection]] = {}
        """The "since" section per size of its pane."""
        self._has_log = self._has_past = False
        """Whether the selected box has a log, and a history."""
        self._copied: tuple[str, CopyableFix] | None = None
        """Box and fix that were copied last; the next `y` copies the following fix."""

    def compose_body(self) -> Iterable[Widget]:
        """Return the table, and below it the panes of the selected box."""
        yield FleetTable()
        with SideBySideWidgets(id="lower"):
            yield WhyPane(id="why")
            yield LossPane(id="loss")
            yield Pane(id="since", focusable=True)
            yield Pane(id="detail", focusable=True)
        with SideBySideWidgets(id="tail"):
            # Not focusable, because they do not scroll; tab passes over them.
            yield Pane(id="log")
            yield Pane(id="past")

    def on_mount(self) -> None:
        """Show that the fleet is being started."""
        if not self.has_fleet:
            self._show_empty((EMPTY, make_line(dim_span(self.waiting_text))))
        self.load_view()

    @work(
        exclusive=True,
        group="view",
        exit_on_error=False,
        description="read the fleet view",
    )
    async def load_view(self) -> None:
        """Restore order, groups and saved filters."""
        try:
            self._view = await asyncio.to_thread(read_view, view_path(os.environ))
        except Unreadable as error:
            self.hint(str(error), 2 * HINT_SECONDS)
        self.redraw_now()

    @property
    def waiting_text(self) -> str:
        """What is awaited while there are no boxes to show."""
        return getattr(self.app, "waiting_text", "") or self.WAITING

    @property
    def _fleet_key(self) -> str:
        """Path of the fleet file.

        Empty without one (such as in a demo), and nothing is saved then.
        """
        path = getattr(self._fleet, "fleet_file", None)
        if path is None:
            return ""
        return str(path.absolute())

    @property
    def _arrangement(self) -> Arrangement:
        return self._view.arrangement_of(self._fleet_key)

    def _arrange_rows(self, change: Callable[[Arrangement], Arrangement]) -> None:
        """Change order or groups of this fleet, and save them for this fleet only."""
        key = self._fleet_key
        if key:
            self._change_view(lambda view: with_arrangement(view, key, change))
        else:
            self._view = with_arrangement(self._view, key, change)
            self.redraw_now()

    def _change_view(self, change: Callable[[FleetView], FleetView]) -> None:
        """Change how the fleet is shown, and save it."""
        self._view = change(self._view)
        # As a change and not as a whole: another rgt may have changed the file since.
        self.save_view(change)
        self.redraw_now()

    @work(group="view", exit_on_error=False, description="save the fleet view")
    async def save_view(self, change: Callable[[FleetView], FleetView]) -> None:
        """Save it; show a hint on failure, because the next rgt will not have it."""
        try:
            await asyncio.to_thread(save_view, view_path(os.environ), change)
        except (Unreadable, OSError) as error:
            self.hint(translate("not kept: {error}", error=error))

    def show_failure(self, error: BaseException) -> None:
        """Show why there is no fleet, and what to do."""
        self._failure = error
        self.query_one(WhyPane).show_blocks(EMPTY, EMPTY, lambda width: ())
        self._show_empty(failure_lines(error, max(20, self.size.width - 4)))

    @property
    def target_box(self) -> str | None:
        """The selected box."""
        return self.query_one(FleetTable).picked_key

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the selected box, or for all boxes.

        Opening one for the box counts as choosing it, so the selection stays on it.
        """
        # On this screen, both are about all boxes.
        if place in ("alerts", "handbook") and self.has_fleet:
            cast("Dashboard", self.app).open_screen(place, None)
            return
        self.query_one(FleetTable).hold_selection()
        super().action_open_for_box(place)

    def assess_in_steps(self, state: FleetState, now: float) -> Iterator[None]:
        """Assess the boxes, and make the rows, in steps."""
        judged, rows = StateAssessments(state, now, {}), []
        cases: list[WorstCase] = []
        for box in state.boxes:
            row = self._make_row(box, judged)
            rows.append(row)
            try:
                # One box that cannot be judged must not take the sum of the others away.
                cases.append(health.worst_case_of(box, row.clocks, now))
            except Exception as error:
                if not report_fault_to_app(self, error):
                    raise
            yield
        # The next drawing of this state uses both, see `watch_fleet_state` and `_find_rows`.
        self._ahead = judged
        self._looked = AssessedRows(judged, rows, health.worst_of(cases))
        yield
        yield from self.query_one(FleetTable).draw_ahead(
            sort_rows(filter_rows(rows, self._asked).rows, self._arrangement.sort_order)
        )

    def _find_rows(self, state: FleetState) -> AssessedRows:
        """Return the rows of the drawn state; make them now if they were not made in advance."""
        if self._looked.judged is not self._judged:
            # Not prepared in steps, for example when the screen has just opened: now, at once.
            for _ in self.assess_in_steps(state, self._judged.at):
                pass
            self._judged = self._ahead
        return self._looked

    def _make_row(self, box: BoxState, judged: StateAssessments) -> FleetRow:
        verdict, now = self.assess_cached(box, judged), judged.at
        try:
            profile = self.fleet.profile_of(box.spec.name)
            return FleetRow(
                box, verdict, health.clock_readings(profile, box, now), profile.name, now
            )
        except Exception as error:
            if not report_fault_to_app(self, error):
                raise
            return FleetRow(box, build_failed_assessment(box, error), (), box.spec.profile, now)

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the boxes counted by state, the fleet's rate and bill, and its worst case."""
        # The header is drawn before the body, so the rows are found here.
        looked = self._find_rows(state)
        self._filtered = filter_rows(looked.rows, self._asked)
        said = self._filtered.count_text
        shown: Parts
        if said:
            shown = [(0, make_line(Span(said, Tone.ACCENT)))]
        else:
            shown = []
        order, hidden = self._arrangement.sort_order, 0
        # In the default order, trouble is on top anyway.
        if order != SortOrder():
            hidden = self.query_one(FleetTable).trouble_out_of_sight(
                sort_rows(self._filtered.rows, order)
            )
        if hidden:
            words = translate(
                "{trouble} {hidden} out of sight: {key}",
                trouble=current_glyphs().trouble,
                hidden=hidden,
                key=key_for("fleet.trouble-first"),
            )
            shown.append((0, make_line(Span(words, Tone.TROUBLE))))
        return [
            *self.marked_parts(),
            *shown,
            *super().build_summary(state, now),
            *unlisted_parts(state),
            *worst_parts(looked.worst),
        ]

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the changed rows, and the panes of the selected box."""
        # The failure fills the screen until the start is tried again.
        if self._failure is not None:
            return
        rows, heads = group_rows(
            sort_rows(self._filtered.rows, self._arrangement.sort_order),
            self._arrangement.valid_grouping,
        )
        self.query_one(FleetTable).show_boxes(
            rows,
            order=self._arrangement.sort_order,
            heads=heads,
            empty=self._empty_lines(self._filtered.total),
        )
        self._rows_shown = rows
        self._show_panes(rows, state, now)

    def _empty_lines(self, total: int) -> tuple[Line, ...]:
        if total:
            return (
                EMPTY,
                make_line(translate("no box matches "), Span(self._filter, Tone.ACCENT)),
                make_line(
                    dim_span(translate("{key} clears the filter", key=key_for("screen.escape")))
                ),
            )
        # "No boxes" would be wrong while the fleet file is still being read.
        if getattr(self.app, "starting", False):
            return (EMPTY, make_line(dim_span(self.waiting_text)))
        return (
            EMPTY,
            make_line(translate("the fleet has no boxes")),
            make_line(
                dim_span(translate("add one to the fleet file, or try ")),
                Span("rgt demo", Tone.ACCENT),
            ),
        )

    def _show_empty(self, lines: Sequence[Line]) -> None:
        self.query_one(FleetTable).show_boxes([], order=self._arrangement.sort_order, empty=lines)
        self._arrange_panes()

    def _arrange_panes(self) -> None:
        """Size the table and the panes; nothing is laid out again while the sizes stay the same."""
        rows = self.query_one(FleetTable).wanted_height(self.size.width)
        room = self.body_height - self.ABOVE
        width = self.size.width
        left, below = split_left(max(0, room - rows - 1))
        shared = len(lower_widths(width, left)) > 1 and left >= int(room * PANE_SIZES.pane_share)
        why = self.query_one(WhyPane)
        if why.has_content and shared:
            wanted = left
        else:
            wanted = why.wanted_height(width)
            if why.has_content and left > wanted + LEAST_MORE:
                wanted = left
        table_height, pane_height = split_heights(rows, room, wanted)
        set_height(self.query_one(FleetTable), table_height)
        set_height(self.query_one("#lower"), pane_height)
        if pane_height:
            widths = lower_widths(width, pane_height)
        else:
            widths = {}
        for name in PANES:
            set_width(self.query_one(f"#{name}"), widths.get(name, 0))
        if not shared or not pane_height:
            below = 0
        below = below if self._has_log else 0
        set_height(self.query_one("#tail"), below)
        if below:
            widths = tail_widths(width, past=self._has_past)
        else:
            widths = {}
        for name in TAILS:
            set_width(self.query_one(f"#{name}"), widths.get(name, 0))

    def _show_panes(self, rows: Sequence[FleetRow], state: FleetState, now: float) -> None:
        picked = self.query_one(FleetTable).picked_key
        chosen = next((row for row in rows if row.name == picked), None)
        why, loss = self.query_one(WhyPane), self.query_one(LossPane)
        since, detail = self.query_one("#since", Pane), self.query_one("#detail", Pane)
        log, past = self.query_one("#log", Pane), self.query_one("#past", Pane)
        if chosen is None:
            why.show_blocks(EMPTY, EMPTY, lambda width: ())
            loss.show_box(None, stale=False)
            for pane in (since, detail, log, past):
                pane.show_sections(lambda width: ())
            self._has_log = False
            self._arrange_panes()
            return
        step = self._next_step(chosen)
        if step is None:
            hint_text = translate("{key} opens", key=key_for("fleet.open"))
        else:
            hint_text = translate(
                "{key} copies {pane_label}",
                key=key_for("screen.copy"),
                pane_label=step.pane_label,
            )
        hint = make_line(dim_span(hint_text))
        title = title_of(chosen.box, chosen.platform)
        if step is not None:
            title = make_line(Span(translate("what to do  ")), *title)
        if step is None:
            marked = ""
        else:
            marked = step.fix.command or ""
        why.show_blocks(
            title,
            hint,
            lambda width: blocks_of(chosen, state, width, now, marked),
            # Without room for the detail pane, the other one shows its sections.
            None if detail.display else (lambda width: detail_sections(chosen, state, width, now)),
        )
        loss.show_box(chosen.box, stale=chosen.verdict.stale)
        self._show_since(since, state, now)
        detail.show_sections(lambda width: detail_sections(chosen, state, width, now))
        box, old = chosen.box, chosen.verdict.stale
        view = choose_log(box, None)
        self._has_log, self._has_past = (
            bool(view and view.lines),
            bool(box.past.at or box.recent.at),
        )
        log.show_sections(lambda width: newest_lines(box, width, log.size.height - 2, stale=old))
        past.show_sections(lambda width: past_of(box, width, past.size.height - 2, now))
        self._arrange_panes()

    def _show_since(self, pane: Pane, state: FleetState, now: float) -> None:
        self._began = min(self._began, now, *(event.at for event in state.events[:1]))
        look = getattr(self.app, "last_look", None)
        if look is None:
            last = None
        else:
            last = look.since(now)
        events, began = state.events, complete_from(state.events, self._began)
        # The fleet's own events begin later than the visit: the history has the rest.
        if last is not None and last.at < began:
            chronicle = self.fleet.chronicle
            # Once per visit: the history before this rgt does not change any more.
            if self._recalled.since != last.at and chronicle is not None:
                self._recalled = RecalledEvents(last.at, began)
                self.recall_events(chronicle, last.at, began)
            if self._recalled.since == last.at and self._recalled.events is not None:
                earlier = tuple(event for event in self._recalled.events if event.at < began)
                events, began = (*earlier, *events), self._recalled.complete_since(began)
        journal = any(
            command.id == "past.journal" and self.why_not(command) is None
            for command in self.commands()
        )
        # The texts also depend on which times are past, and on today's date.
        ago = (last is not None and last.at <= now, began <= now, day_of(now))
        # Made at every redraw, this was a quarter of the work of an idle dashboard.
        if (told := (events, last, began, journal, ago)) != self._since_told:
            self._since_told, self._since_made = told, {}

        def make_since(width: int) -> list[PaneSection]:
            size = (width, max(0, pane.size.height - 2))
            if size not in self._since_made:
                section = since_section(
                    events, last, began, width, now, journal=journal, height=size[1]
                )
                self._since_made[size] = [section]
            return self._since_made[size]

        pane.show_sections(make_since, idle_foot(state, last, now))

    @work(
        exclusive=True,
        group="recall",
        exit_on_error=False,
        description="read what happened before this rgt",
    )
    async def recall_events(self, chronicle: Chronicle, since: float, until: float) -> None:
        """Read the events from before this rgt. If that fails, the pane refers to the journal."""
        # Maximum events from before this rgt; a pane has no room for more.
        most_recalled = 200
        found = await chronicle.read_event_page(
            EventFilter(since=since, until=until), None, most_recalled
        )
        events = tuple(
            FleetEvent(one.at, one.box, one.text, one.level, one.about) for one in found.rows
        )
        self._recalled = RecalledEvents(since, until, events, found.older)
        self.redraw_now()

    def _next_step(self, row: FleetRow) -> CopyableFix | None:
        """Return the fix that the next ``y`` copies; after the last one, the first again."""
        steps = steps_of(row)
        # By the fix itself and not by its place, because the list may have changed since.
        if self._copied is not None and self._copied[0] == row.name and self._copied[1] in steps:
            return steps[(steps.index(self._copied[1]) + 1) % len(steps)]
        if steps:
            return steps[0]
        return None

    def _chosen_row(self) -> FleetRow | None:
        picked = self.query_one(FleetTable).picked_key
        if picked is None or self.fleet_state is None:
            box = None
        else:
            box = self.fleet_state.find_box(picked)
        if box is None:
            return None
        return self._make_row(box, self._judged)

    def to_copy(self) -> ClipboardText | None:
        """Return the next fix of the selected box, else its name."""
        if self.has_fleet:
            row = self._chosen_row()
        else:
            row = None
        if row is None:
            return None
        step = self._next_step(row)
        if step is None:
            return ClipboardText(what=translate("the box's name"), text=row.name)
        self._copied = (row.name, step)
        # From now on, trouble elsewhere must not move the selection.
        self.query_one(FleetTable).hold_selection()
        self.redraw_now()
        return step.copy_text

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Open the next tear-down page of the marked boxes when one has closed."""
        super().on_screen_resume(event)
        self.call_after_refresh(self.open_next_teardown)

    def on_loss_pane_opened(self, message: LossPane.Opened) -> None:
        """Open the curves of the selected box."""
        self.action_open_for_box("curves")

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        # Until the layout is done, the widgets have their old sizes.
        self.call_after_refresh(self.redraw_now)
        if self._failure is not None:
            self.show_failure(self._failure)

    def open_row(self) -> None:
        """Open the box."""
        self.action_open()

    def follow_row(self) -> None:
        """Update the panes for the selection."""
        self.call_after_refresh(self._show_selected)

    def _show_selected(self) -> None:
        """Show the selected box.

        Done after the cursor is drawn, so that the cursor does not wait.
        """
        if self.fleet_state is not None:
            self._show_panes(self._rows_shown, self.fleet_state, self.now)

    def on_sort_asked(self, message: SortAsked) -> None:
        """Sort by the clicked column; another click reverses the order."""
        if not can_sort(message.column):
            return
        again = message.column == self._arrangement.sort_order.key
        self._set_order(
            SortOrder(message.column, again and not self._arrangement.sort_order.flipped)
        )

    def action_open(self) -> None:
        """Open the selected box."""
        self.action_open_for_box("box")

    def action_next_pane(self, direction: int) -> None:
        """Focus the next pane that has content; after the last one, the table."""
        panes = [
            pane
            for pane in self.query(Pane)
            if pane.can_focus and pane.display and pane.size.height
        ]
        # None is the table, which needs no focus for its keys.
        ring: list[Pane | None] = [None, *panes]
        here = 0
        if isinstance(self.focused, Pane) and self.focused in panes:
            here = ring.index(self.focused)
        self.set_focus(ring[(here + direction) % len(ring)])

    def action_connect(self) -> None:
        """Connect to the selected box now; after a failed start, start the fleet again."""
        if self._failure is None:
            super().action_connect()
            return
        self._failure = None
        self._show_empty((EMPTY, make_line(dim_span(self.waiting_text))))
        cast("Dashboard", self.app).start_fleet()

    def action_answer(self) -> None:
        """Open the oldest question."""
        if not cast("Dashboard", self.app).show_next_question(again=True):
            self.hint(translate("no question is open"))

    def action_sort(self) -> None:
        """Offer the columns to sort by."""
        choices = [Choice(*one) for one in sort_choices()]
        next_one = Choice(key_for("fleet.sort"), "next", "")
        self.app.push_screen(
            ChoiceScreen(translate("sort by"), [*choices, next_one]), self._sort_by
        )

    def _sort_by(self, key: str | None) -> None:
        if key is None:
            return
        if key:
            self.on_sort_asked(SortAsked(key))
        else:
            self._sort_by_next()

    def _sort_by_next(self) -> None:
        """Sort by the next column, which then stays visible.

        After the last one, as in the fleet file.
        """
        keys = [*(column.key for column in COLUMNS if can_sort(column.key)), FILE]
        here = self._arrangement.sort_order.key
        self._set_order(
            SortOrder(keys[(keys.index(here) + 1) % len(keys)] if here in keys else "state")
        )

    def action_trouble_first(self) -> None:
        """Sort by trouble and select the worst box."""
        self._set_order(SortOrder())
        self.query_one(FleetTable).follow_first()

    def action_turn_order(self) -> None:
        """Reverse the order."""
        self._set_order(
            SortOrder(self._arrangement.sort_order.key, not self._arrangement.sort_order.flipped)
        )

    def _set_order(self, order: SortOrder) -> None:
        self._arrange_rows(
            lambda one: msgspec.structs.replace(one, sort=order.key, flipped=order.flipped)
        )
        self.hint(
            translate(
                "sorted {order_text}; {key} reverses it",
                order_text=order.order_text,
                key=key_for("fleet.turn-order"),
            )
        )

    def action_group(self) -> None:
        """Group by the next criterion, or not at all."""
        names = list(FLEET_GROUPS)
        group = names[(names.index(self._arrangement.valid_grouping) + 1) % len(names)]
        self._arrange_rows(lambda one: msgspec.structs.replace(one, group=group))
        self.hint(translate(FLEET_GROUPS[group][0]))

    def action_filter(self) -> None:
        """Open the entry line of the filter."""
        self.open_entry(translate("filter"), self._filter, self._keep_filter, self._apply_filter)

    def action_kept_filter(self) -> None:
        """Use the next saved filter; after the last one, none."""
        names = sorted(self._view.filters, key=str.casefold)
        if not names:
            self.hint(translate("no filter is kept; save:NAME in a filter keeps it"))
            return
        texts = [f"@{name}" for name in names]
        # The filter's own text says which one is used; it may have been typed in another case.
        here = self._filter.casefold()
        place = next((at for at, text in enumerate(texts, 1) if text.casefold() == here), 0)
        if place == len(texts):
            self.clear_on_escape()
            self.hint(translate("no filter"))
            return
        self._apply_filter(texts[place])
        self.hint(self._wrong or f"{texts[place]}  {self._view.filters[names[place]]}")

    def _apply_filter(self, text: str) -> None:
        """Filter by a text; if it is invalid, keep the previous filter and show the error."""
        try:
            self._asked = parse_filter(text, self._view.filters)
        except FilterError as error:
            self._wrong = str(error)
        else:
            self._filter, self._wrong = self._asked.source, ""
        for entry in self.query(EntryLine):
            entry.show_note(self._wrong)
        self.redraw_now()

    def _keep_filter(self, _: str) -> None:
        """Report the error in the filter, or save it if it says so."""
        if self._wrong:
            self.hint(self._wrong, 2 * HINT_SECONDS)
            self._wrong = ""
            return
        save, drop, text = self._asked.save, self._asked.drop, self._asked.source
        if drop is not None:
            self._change_view(lambda view: with_filter(view, drop, None))
            self.hint(translate("@{drop} is no longer kept", drop=drop))
        if save is not None:
            self._change_view(lambda view: with_filter(view, save, text))
            self.hint(
                translate(
                    "kept as @{save}; {key} switches between kept filters",
                    save=save,
                    key=key_for("fleet.kept-filter"),
                )
            )

    def clear_on_escape(self) -> bool:
        """Clear the filter; return whether there was one."""
        if self.clear_marks():
            return True
        had = bool(self._filter)
        self._filter, self._asked, self._wrong = "", FleetFilter(), ""
        self.redraw_now()
        return had

    def resting_hint(self) -> str:
        """Return a reminder that a filter hides boxes."""
        if self._filter:
            return translate(
                "filter: {filter}  ({key} clears it)",
                filter=self._filter,
                key=key_for("screen.escape"),
            )
        return super().resting_hint()
