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
from rgt_tui.model import BoxState, FleetEvent, FleetState, Wanted
from rgt_tui.ui.box_status import choose_log, failed
from rgt_tui.ui.clipboard import Copied
from rgt_tui.ui.commands import (
    BOX_CARE,
    BOX_TARGET,
    FLEET,
    MOVE,
    REPLAY,
    Command,
    bindings,
    key_for,
)
from rgt_tui.ui.enduring import endured
from rgt_tui.ui.notation import glyphs
from rgt_tui.ui.screens.base import HINT_SECONDS, Dashboard, FleetAwareScreen, Judged, Moves
from rgt_tui.ui.widgets.box_context import (
    PANE_SHARE,
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
    GROUPS,
    Arrangement,
    FilterError,
    FleetTable,
    FleetView,
    LossPane,
    Order,
    Row,
    Unreadable,
    at_hand_from,
    can_sort,
    grouped,
    idle_foot,
    keep_view,
    matching,
    ordered,
    parse,
    read_view,
    since_section,
    view_path,
    with_arrangement,
    with_filter,
)
from rgt_tui.ui.widgets.fleet_rows.fleet_filter import Filter, Filtered
from rgt_tui.ui.widgets.fleet_rows.since_lines import day_of
from rgt_tui.ui.widgets.lines import Beside, SortAsked
from rgt_tui.ui.widgets.panes import Pane, Section, set_height, set_width
from rgt_tui.ui.widgets.platform_lines import unseen_parts, worst_parts
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line, wrapped
from rgt_tui.ui.widgets.why import LEAST_MORE, Step, WhyPane, blocks_of, steps_of, title_of

if TYPE_CHECKING:
    from textual import events

    from rgt_tui.fleet import Chronicle
    from rgt_tui.health import Worst, WorstCase


def failure_lines(error: BaseException, width: int) -> list[Line]:
    """Return what went wrong and what to do, in words instead of a traceback."""
    text = str(error).strip() or type(error).__name__
    return [
        EMPTY,
        line(Span(f"{glyphs().trouble} the fleet did not start", Tone.TROUBLE)),
        EMPTY,
        *(row for part in text.splitlines() or [text] for row in wrapped(part, width)),
        line(dim(f"({type(error).__name__})")),
        EMPTY,
        line(
            dim("check  "),
            Span("rgt doctor", Tone.ACCENT),
            " shows what is missing and how to get it",
        ),
        line(dim("retry  "), Span(key_for("box.connect"), Tone.ACCENT), " starts the fleet again"),
        line(dim("quit   "), Span(key_for("app.quit"), Tone.ACCENT)),
    ]


MOST_RECALLED = 200
"""Maximum events from before this rgt; a pane has no room for more."""


class Recalled(NamedTuple):
    """A query to the history, and its answer."""

    since: float | None = None
    until: float = 0.0
    events: tuple[FleetEvent, ...] | None = None
    """None = not answered yet, or failed."""
    older: bool = False
    """Whether there are more events between `since` and these."""

    def reaches(self, began: float) -> float:
        """Return the time from which no event is missing.

        The recalled events are joined with events that are complete from `began` on.
        """
        if self.since is None or self.events is None or self.until < began:
            return began
        if self.older and self.events:
            return self.events[0].at
        return self.since


class Looked(NamedTuple):
    """The rows of a state, and the fleet's worst case."""

    judged: Judged = Judged()
    rows: Sequence[Row] = ()
    worst: Worst | None = None


class FleetScreen(Moves, FleetAwareScreen):
    """Table of boxes, and panes that explain the selected one."""

    PLACE = "fleet"
    KEYS: ClassVar[tuple[Command, ...]] = (*FLEET, *BOX_TARGET, *BOX_CARE, *REPLAY, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)
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
        self._asked = Filter()
        self._wrong = ""
        """Error in the typed filter; the previous filter stays active."""
        self._filtered = Filtered([], 0, 0)
        self._failure: BaseException | None = None
        self._began = math.inf
        """Client clock of the first state."""
        self._rows_shown: Sequence[Row] = ()
        self._looked = Looked()
        self._recalled = Recalled()
        self._since_told: tuple[object, ...] = ()
        """Inputs of the "since" section; it is made again when they change."""
        self._since_made: dict[tuple[int, int], list[Section]] = {}
        """The "since" section per size of its pane."""
        self._has_log = self._has_past = False
        """Whether the selected box has a log, and a history."""
        self._copied: tuple[str, Step] | None = None
        """Box and fix that were copied last; the next `y` copies the following fix."""

    def body(self) -> Iterable[Widget]:
        """Return the table, and below it the panes of the selected box."""
        yield FleetTable()
        with Beside(id="lower"):
            yield WhyPane(id="why")
            yield LossPane(id="loss")
            yield Pane(id="since", focusable=True)
            yield Pane(id="detail", focusable=True)
        with Beside(id="tail"):
            yield Pane(id="log")
            yield Pane(id="past")

    def on_mount(self) -> None:
        """Show that the fleet is being started."""
        if not self.has_fleet:
            self._show_empty((EMPTY, line(dim(self.WAITING))))
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
        return self._view.of(self._fleet_key)

    def _arrange_rows(self, change: Callable[[Arrangement], Arrangement]) -> None:
        """Change order or groups of this fleet, and save them for this fleet only."""
        key = self._fleet_key
        if key:
            self._keep(lambda view: with_arrangement(view, key, change))
        else:
            self._view = with_arrangement(self._view, key, change)
            self.redraw_now()

    def _keep(self, change: Callable[[FleetView], FleetView]) -> None:
        """Change how the fleet is shown, and save it."""
        self._view = change(self._view)
        self.keep_view(change)
        self.redraw_now()

    @work(group="view", exit_on_error=False, description="save the fleet view")
    async def keep_view(self, change: Callable[[FleetView], FleetView]) -> None:
        """Save it; show a hint on failure, because the next rgt will not have it."""
        try:
            await asyncio.to_thread(keep_view, view_path(os.environ), change)
        except (Unreadable, OSError) as error:
            self.hint(f"not kept: {error}")

    def show_failure(self, error: BaseException) -> None:
        """Show why there is no fleet, and what to do."""
        self._failure = error
        self.query_one(WhyPane).tell(EMPTY, EMPTY, lambda width: ())
        self._show_empty(failure_lines(error, max(20, self.size.width - 4)))

    @property
    def target_box(self) -> str | None:
        """The selected box."""
        return self.query_one(FleetTable).picked

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the selected box, or for all boxes.

        Opening one for the box counts as choosing it, so the selection stays on it.
        """
        if place in ("alerts", "handbook") and self.has_fleet:
            cast("Dashboard", self.app).open_screen(place, None)
            return
        self.query_one(FleetTable).hold()
        super().action_open_for_box(place)

    def judging(self, state: FleetState, now: float) -> Iterator[None]:
        """Assess the boxes, and make the rows, in steps."""
        judged, rows = Judged(state, now, {}), []
        cases: list[WorstCase] = []
        for box in state.boxes:
            row = self._row(box, judged)
            rows.append(row)
            try:
                cases.append(health.worst_case_of(box, row.clocks, now))
            except Exception as error:
                if not endured(self, error):
                    raise
            yield
        self._ahead = judged
        self._looked = Looked(judged, rows, health.worst_of(cases))
        yield
        yield from self.query_one(FleetTable).ahead(
            ordered(matching(rows, self._asked).rows, self._arrangement.order)
        )

    def _look(self, state: FleetState) -> Looked:
        """Return the rows of the drawn state; make them now if they were not made in advance."""
        if self._looked.judged is not self._judged:
            for _ in self.judging(state, self._judged.at):
                pass
            self._judged = self._ahead
        return self._looked

    def _row(self, box: BoxState, judged: Judged) -> Row:
        verdict, now = self.judge(box, judged), judged.at
        try:
            profile = self.fleet.profile(box.spec.name)
            return Row(box, verdict, health.clock_readings(profile, box, now), profile.name, now)
        except Exception as error:
            if not endured(self, error):
                raise
            return Row(box, failed(box, error), (), box.spec.profile, now)

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return the boxes counted by state, the fleet's rate and bill, and its worst case."""
        looked = self._look(state)
        self._filtered = matching(looked.rows, self._asked)
        said = self._filtered.words
        shown: Parts = [(0, line(Span(said, Tone.ACCENT)))] if said else []
        order, hidden = self._arrangement.order, 0
        if order != Order():
            hidden = self.query_one(FleetTable).trouble_out_of_sight(
                ordered(self._filtered.rows, order)
            )
        if hidden:
            words = f"{glyphs().trouble} {hidden} out of sight: {key_for('fleet.trouble-first')}"
            shown.append((0, line(Span(words, Tone.TROUBLE))))
        return [
            *shown,
            *super().summary(state, now),
            *unseen_parts(state),
            *worst_parts(looked.worst),
        ]

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the changed rows, and the panes of the selected box."""
        if self._failure is not None:
            return
        rows, heads = grouped(
            ordered(self._filtered.rows, self._arrangement.order), self._arrangement.grouping
        )
        self.query_one(FleetTable).show_boxes(
            rows,
            order=self._arrangement.order,
            heads=heads,
            empty=self._empty_lines(self._filtered.total),
        )
        self._rows_shown = rows
        self._show_panes(rows, state, now)

    def _empty_lines(self, total: int) -> tuple[Line, ...]:
        if total:
            return (
                EMPTY,
                line("no box matches ", Span(self._filter, Tone.ACCENT)),
                line(dim(f"{key_for('screen.escape')} clears the filter")),
            )
        if getattr(self.app, "starting", False):
            return (EMPTY, line(dim(self.WAITING)))
        return (
            EMPTY,
            line("the fleet has no boxes"),
            line(dim("add one to the fleet file, or try "), Span("rgt demo", Tone.ACCENT)),
        )

    def _show_empty(self, lines: Sequence[Line]) -> None:
        self.query_one(FleetTable).show_boxes([], order=self._arrangement.order, empty=lines)
        self._arrange()

    def _arrange(self) -> None:
        """Size the table and the panes; nothing is laid out again while the sizes stay the same."""
        rows = self.query_one(FleetTable).wanted_height(self.size.width)
        room = self.body_height - self.ABOVE
        width = self.size.width
        left, below = split_left(max(0, room - rows - 1))
        shared = len(lower_widths(width, left)) > 1 and left >= int(room * PANE_SHARE)
        why = self.query_one(WhyPane)
        if why.says_something and shared:
            wanted = left
        else:
            wanted = why.wanted_height(width)
            if why.says_something and left > wanted + LEAST_MORE:
                wanted = left
        table_height, pane_height = split_heights(rows, room, wanted)
        set_height(self.query_one(FleetTable), table_height)
        set_height(self.query_one("#lower"), pane_height)
        widths = lower_widths(width, pane_height) if pane_height else {}
        for name in PANES:
            set_width(self.query_one(f"#{name}"), widths.get(name, 0))
        if not shared or not pane_height:
            below = 0
        below = below if self._has_log else 0
        set_height(self.query_one("#tail"), below)
        widths = tail_widths(width, past=self._has_past) if below else {}
        for name in TAILS:
            set_width(self.query_one(f"#{name}"), widths.get(name, 0))

    def _show_panes(self, rows: Sequence[Row], state: FleetState, now: float) -> None:
        picked = self.query_one(FleetTable).picked
        chosen = next((row for row in rows if row.name == picked), None)
        why, loss = self.query_one(WhyPane), self.query_one(LossPane)
        since, detail = self.query_one("#since", Pane), self.query_one("#detail", Pane)
        log, past = self.query_one("#log", Pane), self.query_one("#past", Pane)
        if chosen is None:
            why.tell(EMPTY, EMPTY, lambda width: ())
            loss.tell(None, stale=False)
            for pane in (since, detail, log, past):
                pane.show(lambda width: ())
            self._has_log = False
            self._arrange()
            return
        step = self._next_step(chosen)
        hint = line(
            dim(
                f"{key_for('fleet.open')} opens"
                if step is None
                else f"{key_for('screen.copy')} copies {step.label}"
            )
        )
        title = title_of(chosen.box, chosen.platform)
        if step is not None:
            title = line(Span("what to do  "), *title)
        marked = "" if step is None else step.fix.command or ""
        why.tell(
            title,
            hint,
            lambda width: blocks_of(chosen, state, width, now, marked),
            None if detail.display else (lambda width: detail_sections(chosen, state, width, now)),
        )
        loss.tell(chosen.box, stale=chosen.verdict.stale)
        self._show_since(since, state, now)
        detail.show(lambda width: detail_sections(chosen, state, width, now))
        box, old = chosen.box, chosen.verdict.stale
        view = choose_log(box, None)
        self._has_log, self._has_past = (
            bool(view and view.lines),
            bool(box.past.at or box.recent.at),
        )
        log.show(lambda width: newest_lines(box, width, log.size.height - 2, stale=old))
        past.show(lambda width: past_of(box, width, past.size.height - 2, now))
        self._arrange()

    def _show_since(self, pane: Pane, state: FleetState, now: float) -> None:
        self._began = min(self._began, now, *(event.at for event in state.events[:1]))
        look = getattr(self.app, "last_look", None)
        last = None if look is None else look.since(now)
        events, began = state.events, at_hand_from(state.events, self._began)
        if last is not None and last.at < began:
            chronicle = self.fleet.chronicle
            if self._recalled.since != last.at and chronicle is not None:
                self._recalled = Recalled(last.at, began)
                self.recall(chronicle, last.at, began)
            if self._recalled.since == last.at and self._recalled.events is not None:
                earlier = tuple(event for event in self._recalled.events if event.at < began)
                events, began = (*earlier, *events), self._recalled.reaches(began)
        journal = any(
            command.id == "past.journal" and self.why_not(command) is None
            for command in self.commands()
        )
        ago = (last is not None and last.at <= now, began <= now, day_of(now))
        if (told := (events, last, began, journal, ago)) != self._since_told:
            self._since_told, self._since_made = told, {}

        def made(width: int) -> list[Section]:
            size = (width, max(0, pane.size.height - 2))
            if size not in self._since_made:
                section = since_section(
                    events, last, began, width, now, journal=journal, height=size[1]
                )
                self._since_made[size] = [section]
            return self._since_made[size]

        pane.show(made, idle_foot(state, last, now))

    @work(
        exclusive=True,
        group="recall",
        exit_on_error=False,
        description="read what happened before this rgt",
    )
    async def recall(self, chronicle: Chronicle, since: float, until: float) -> None:
        """Read the events from before this rgt. If that fails, the pane refers to the journal."""
        found = await chronicle.happened(Wanted(since=since, until=until), None, MOST_RECALLED)
        events = tuple(
            FleetEvent(one.at, one.box, one.text, one.level, one.about) for one in found.rows
        )
        self._recalled = Recalled(since, until, events, found.older)
        self.redraw_now()

    def _next_step(self, row: Row) -> Step | None:
        """Return the fix that the next ``y`` copies; after the last one, the first again."""
        steps = steps_of(row)
        if self._copied is not None and self._copied[0] == row.name and self._copied[1] in steps:
            return steps[(steps.index(self._copied[1]) + 1) % len(steps)]
        if steps:
            return steps[0]
        return None

    def _chosen(self) -> Row | None:
        picked = self.query_one(FleetTable).picked
        box = None if picked is None or self.fleet_state is None else self.fleet_state.box(picked)
        if box is None:
            return None
        return self._row(box, self._judged)

    def to_copy(self) -> Copied | None:
        """Return the next fix of the selected box, else its name."""
        row = self._chosen() if self.has_fleet else None
        if row is None:
            return None
        step = self._next_step(row)
        if step is None:
            return Copied(what="the box's name", text=row.name)
        self._copied = (row.name, step)
        self.query_one(FleetTable).hold()
        self.redraw_now()
        return step.copied

    def on_loss_pane_opened(self, message: LossPane.Opened) -> None:
        """Open the curves of the selected box."""
        self.action_open_for_box("curves")

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        self.call_after_refresh(self.redraw_now)
        if self._failure is not None:
            self.show_failure(self._failure)

    def open_row(self) -> None:
        """Open the box."""
        self.action_open()

    def follow_row(self) -> None:
        """Update the panes for the selection."""
        self.call_after_refresh(self._follow)

    def _follow(self) -> None:
        """Show the selected box.

        Done after the cursor is drawn, so that the cursor does not wait.
        """
        if self.fleet_state is not None:
            self._show_panes(self._rows_shown, self.fleet_state, self.now)

    def on_sort_asked(self, message: SortAsked) -> None:
        """Sort by the clicked column; another click reverses the order."""
        if not can_sort(message.column):
            return
        again = message.column == self._arrangement.order.key
        self._set_order(
            Order(message.column, not self._arrangement.order.flipped if again else False)
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
        ring: list[Pane | None] = [None, *panes]
        here = (
            ring.index(self.focused)
            if isinstance(self.focused, Pane) and self.focused in panes
            else 0
        )
        self.set_focus(ring[(here + direction) % len(ring)])

    def action_connect(self) -> None:
        """Connect to the selected box now; after a failed start, start the fleet again."""
        if self._failure is None:
            super().action_connect()
            return
        self._failure = None
        self._show_empty((EMPTY, line(dim(self.WAITING))))
        cast("Dashboard", self.app).begin()

    def action_answer(self) -> None:
        """Open the oldest question."""
        if not cast("Dashboard", self.app).ask_next(again=True):
            self.hint("no box is asking for anything")

    def action_sort(self) -> None:
        """Sort by the next column, which then stays visible.

        After the last one, as in the fleet file.
        """
        keys = [*(column.key for column in COLUMNS if can_sort(column.key)), FILE]
        here = self._arrangement.order.key
        self._set_order(
            Order(keys[(keys.index(here) + 1) % len(keys)] if here in keys else "state")
        )

    def action_trouble_first(self) -> None:
        """Sort by trouble and select the worst box."""
        self._set_order(Order())
        self.query_one(FleetTable).release()

    def action_turn_order(self) -> None:
        """Reverse the order."""
        self._set_order(Order(self._arrangement.order.key, not self._arrangement.order.flipped))

    def _set_order(self, order: Order) -> None:
        self._arrange_rows(
            lambda one: msgspec.structs.replace(one, sort=order.key, flipped=order.flipped)
        )
        self.hint(f"sorted {order.words}; {key_for('fleet.turn-order')} reverses it")

    def action_group(self) -> None:
        """Group by the next criterion, or not at all."""
        names = list(GROUPS)
        group = names[(names.index(self._arrangement.grouping) + 1) % len(names)]
        self._arrange_rows(lambda one: msgspec.structs.replace(one, group=group))
        self.hint(GROUPS[group][0])

    def action_filter(self) -> None:
        """Open the entry line of the filter."""
        self.open_entry("filter", self._filter, self._keep_filter, self._ask)

    def action_kept_filter(self) -> None:
        """Use the next saved filter; after the last one, none."""
        names = sorted(self._view.filters, key=str.casefold)
        if not names:
            self.hint("no filter is kept; save:NAME in a filter keeps it")
            return
        texts = [f"@{name}" for name in names]
        here = self._filter.casefold()
        place = next((at for at, text in enumerate(texts, 1) if text.casefold() == here), 0)
        if place == len(texts):
            self.clear()
            self.hint("no filter")
            return
        self._ask(texts[place])
        self.hint(self._wrong or f"{texts[place]}  {self._view.filters[names[place]]}")

    def _ask(self, text: str) -> None:
        """Filter by a text; if it is invalid, keep the previous filter and show the error."""
        try:
            self._asked = parse(text, self._view.filters)
        except FilterError as error:
            self._wrong = str(error)
        else:
            self._filter, self._wrong = self._asked.source, ""
        for entry in self.query(EntryLine):
            entry.say(self._wrong)
        self.redraw_now()

    def _keep_filter(self, _: str) -> None:
        """Report the error in the filter, or save it if it says so."""
        if self._wrong:
            self.hint(self._wrong, 2 * HINT_SECONDS)
            self._wrong = ""
            return
        save, drop, text = self._asked.save, self._asked.drop, self._asked.source
        if drop is not None:
            self._keep(lambda view: with_filter(view, drop, None))
            self.hint(f"@{drop} is no longer kept")
        if save is not None:
            self._keep(lambda view: with_filter(view, save, text))
            self.hint(
                f"kept as @{save}; {key_for('fleet.kept-filter')} switches between kept filters"
            )

    def clear(self) -> bool:
        """Clear the filter; return whether there was one."""
        had = bool(self._filter)
        self._filter, self._asked, self._wrong = "", Filter(), ""
        self.redraw_now()
        return had

    def resting_hint(self) -> str:
        """Return a reminder that a filter hides boxes."""
        if self._filter:
            return f"filter: {self._filter}  ({key_for('screen.escape')} clears it)"
        return super().resting_hint()
