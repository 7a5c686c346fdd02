"""The journal: events of the fleet or of one box, across restarts, below the night's report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, cast

import msgspec
from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.history.moment_fleet import SOON, place_of_event
from rgt_tui.fleet.history.morning_report import (
    ENDED,
    NextClock,
    NightReport,
    ReportEntry,
    morning_report,
    report_words,
)
from rgt_tui.fleet.history.spoken_times import night_began
from rgt_tui.health import BY_ID, clock_readings
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    BoxState,
    EventFilter,
    Finding,
    FleetState,
    Happening,
    Happenings,
    ScreenPosition,
    how_many,
    moment,
)
from rgt_tui.store import HistoryError
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import JOURNAL, MOVE, Command, build_bindings, key_for
from rgt_tui.ui.enduring import describe_error, report_fault_to_app
from rgt_tui.ui.notation import compact_time, current_glyphs, format_thousands
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, MoveKeys
from rgt_tui.ui.screens.log import log_of
from rgt_tui.ui.widgets.box_context import BoxContext
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.fleet_rows import FleetRow
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.panes import PaneSection, out_of_sight
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_name,
    fit_text,
    make_line,
    name_width,
    width_of,
    wrap_text,
)
from rgt_tui.ui.widgets.why import READ_FROM, why_lines

ALL_BOXES = "all boxes"
"""Shown instead of a box's name for events about no single box."""
NO_HISTORY = "no history is kept here: only events since rgt was started"


def format_stamp(at: float, now: float) -> str:
    """Return the time of an event, with its date if that is more than a day ago."""
    then = time.localtime(at)
    form = "%m-%d %H:%M:%S"
    if abs(now - at) < 86400.0:
        form = "%H:%M:%S"
    return time.strftime(form, then)


def row_lines(
    row: Happening,
    width: int,
    names: int,
    now: float,
    *,
    held: float | None,
    stamps: int,
    whole: bool = False,
) -> list[Line]:
    """Draw an event: time, mark, box and text; in one line, or `whole`.

    `held` is how long the condition lasted that the event ends, in seconds; None if it ends none.
    """
    g = current_glyphs()
    # An event that ends a condition has the mark of a proof.
    default_glyph = g.check
    if held is None:
        default_glyph = g.unknown
    mark = {"error": g.trouble, "warn": g.warn}.get(row.level, default_glyph)
    tone = level_tone(row.level)
    head = make_line(
        dim_span(f" {fit_text(format_stamp(row.at, now), stamps, right=True)} "),
        Span(f"{mark} ", tone),
    )
    name = (
        (Span(f"{fit_name(row.box or translate(ALL_BOXES), names)}  ", Tone.TEXT),)
        if names
        else EMPTY
    )
    if held is None or held < 1 or has_own_duration(row):
        after = EMPTY
    else:
        after = (dim_span(translate("  after {held}", held=compact_time(held))),)
    made = make_line(head, name, Span(row.text, tone), after)
    beside = width - width_of(head) - width_of(name)
    # Minimum cells next to times and name to wrap an event's text.
    least_text = 20
    if not whole or width_of(made) <= width or beside < least_text:
        return [clip_line(made, width)]
    # Maximum lines of the selected event.
    most_lines = 8
    first, *rest = wrap_text(row.text, beside, tone, most=most_lines)
    rows = [
        make_line(head, name, *first),
        *(make_line(" " * (width - beside), *more) for more in rest),
    ]
    return [*rows[:-1], clip_line(make_line(rows[-1], after), width)]


def pack_words(found: Sequence[ReportEntry], width: int) -> list[Line]:
    """Return the words of the report in as many lines as needed, without breaking a word."""
    rows: list[Line] = []
    row: Line = EMPTY
    for word in found:
        label = ""
        if word.label:
            label = f"{word.label} "
        piece = make_line(dim_span(label), Span(word.text, level_tone(word.level)))
        if row and width_of(row) + 3 + width_of(piece) > width - 2:
            rows.append(row)
            row = EMPTY
        if row:
            row = make_line(row, "   ", piece)
        else:
            row = make_line(" ", piece)
    return [*rows, row]


class HappeningList(SelectableList[str]):
    """Events, oldest first; the selected one in full. Older ones are read while moving up."""

    def __init__(self) -> None:
        super().__init__(id="happenings")
        self._happenings: tuple[Happening, ...] = ()
        self._older = False
        self._over: Mapping[int, float] = {}
        self._extra = 0
        """Lines of the selected event below its first one."""
        self._names = self._stamps = 0
        self._now = 0.0

    def show_events(
        self,
        rows: tuple[Happening, ...],
        empty: str,
        now: float,
        *,
        named: bool,
        older: bool = False,
    ) -> None:
        """Set the rows; the selection stays on its event, or at the end if it was there.

        `older` = there are earlier events that are not read yet.
        """
        self._older, self._empty, self._now = older, (EMPTY, make_line(dim_span(f" {empty}"))), now
        if named:
            self._names = name_width(
                (row.box or translate(ALL_BOXES) for row in rows), self.size.width
            )
        else:
            self._names = 0
        # The screen makes a new tuple only if the events have changed; ages are drawn at every
        # tick.
        if rows is self._happenings:
            self.redraw()
            return
        keys = [str(row.n) for row in rows]
        before = self.selected_index
        # At the end the selection follows new events; elsewhere it stays on its event.
        if before >= len(self._keys) - 1 or self._picked not in keys:
            self._picked = keys[-1] if keys else None
        self._happenings, self._over = rows, find_durations(rows)
        self._keys = keys
        # Older events were put in front: the same rows stay in sight.
        self._top = max(0, self._top + self.selected_index - before)
        self.redraw()

    @property
    def selected_event(self) -> Happening | None:
        """The selected event."""
        if self._happenings:
            return self._happenings[self.selected_index]
        return None

    def wanted_height(self, width: int) -> int:
        """Return the height that shows every event, with the selected one at its usual length."""
        # Lines below the first one that most events do not exceed.
        # Fixed, so that the panes below do not move with the selection.
        usual_more = 2
        return len(self._keys) + max(self._extra, usual_more)

    def pick_time(self, at: float) -> None:
        """Select the last event up to a time."""
        before = [place for place, row in enumerate(self._happenings) if row.at <= at]
        if self._keys:
            self.select_index(before[-1] if before else 0)

    def draw_row(self, index: int, width: int, *, whole: bool) -> list[Line]:
        """Draw one event."""
        row = self._happenings[index]
        held = self._over.get(row.n)
        made = row_lines(
            row, width, self._names, self._now, held=held, stamps=self._stamps, whole=whole
        )
        if whole:
            self._extra = len(made) - 1
        return made

    def hidden_rows_line(self, above: int, below: int) -> Line:
        """Return the count of events out of sight."""
        return make_line(
            out_of_sight(above, below),
            dim_span(translate(" and older ones") if self._older and above else ""),
        )

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        """Draw the visible events; the time column is as wide as the widest time around."""
        # Only rows that may be in sight count for the width.
        near = self._happenings[max(0, self.selected_index - height) : self.selected_index + height]
        self._stamps = max((len(format_stamp(row.at, self._now)) for row in near), default=0)
        return super().make_lines(width, height)


def find_durations(rows: Iterable[Happening]) -> dict[int, float]:
    """Return the duration in seconds, by event number, for events that end a condition."""
    held: dict[tuple[str, str], float] = {}
    found = {}
    for row in rows:
        key = (row.box, row.about)
        if row.level in ("warn", "error"):
            # From the first: a warning that becomes an error is one trouble.
            held.setdefault(key, row.at)
        elif row.about and key in held:
            found[row.n] = row.at - held.pop(key)
    return found


def has_own_duration(row: Happening) -> bool:
    """Return whether the text of an event that ends a condition says how long it lasted.

    The ends of alerts do, and the return of a connection.
    """
    return row.about == "link" or row.about.partition(":")[0] in BY_ID


def alert_of(row: Happening, alerts: Iterable[Alert]) -> Alert | None:
    """Return the current alert that an event is about, if there is one."""
    alerts = tuple(alerts)
    key = row.about.partition(":")[2]
    exact = [alert for alert in alerts if alert.id == row.about]
    same = [alert for alert in alerts if key and alert.id.partition(":")[2] == key]
    link = [
        alert
        for alert in alerts
        # Events about the connection are all of "link"; its alerts are named after the reason.
        if row.about == "link" and alert.kind in ("unreachable", "login", "host-key")
    ]
    return next(iter((*exact, *same, *link)), None)


def proof_of(row: Happening, box: BoxState) -> Finding | None:
    """Return the finding that an event is about if a log line proves it.

    None without such a finding.
    """
    about = (
        finding
        for finding in box.findings
        # With a colon at the end, so that `/data` is not taken for `/data2`.
        if f"{row.about}:".startswith(f"finding:{finding.gotcha}:{finding.resource}:")
        and finding.where not in READ_FROM
    )
    return next(about, None)


class JournalScreen(MoveKeys, FleetAwareScreen):
    """The report of the night, with all events below it."""

    PLACE = "journal"
    KEYS: ClassVar[tuple[Command, ...]] = (*JOURNAL, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)

    def __init__(self, fleet: FleetSource, box_name: str | None = None) -> None:
        super().__init__(fleet, box_name)
        self._wanted = EventFilter(box=box_name)
        self._rows: tuple[Happening, ...] = ()
        self._older = False
        self._kept: int | None = None
        self._report: NightReport | None = None
        self._trouble = ""
        self._asked_at = self._reported_at = float("-inf")
        self._read = False
        self._opens = False
        """Whether to open the log once a row is selected, because the key came before the rows were
        read."""
        self._reading_older = False

    def compose_body(self) -> Iterable[Widget]:
        """Return the report and the list, and below them the current state of the event's box."""
        yield FittedLines(self._report_lines, id="report")
        yield HappeningList()
        yield BoxContext()

    @property
    def happening_list(self) -> HappeningList:
        """The list."""
        return self.query_one(HappeningList)

    @property
    def target_box(self) -> str | None:
        """The box of the selected event."""
        picked = self.happening_list.selected_event
        if picked is None:
            return self.box_name
        return picked.box

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the events, and read new ones."""
        # Seconds between two reads of new events; the history is written at the same rate.
        every_seconds = 5.0
        if self.fleet.chronicle is None:
            self._show_session_events(state)
        # Not `now - asked >= …`: a clock set back must not stop the reading.
        elif not 0.0 <= now - self._asked_at < every_seconds:
            self._asked_at = now
            self.read_newest(self._wanted)
            # Seconds between two reports: a report adds up what every box has cost.
            report_seconds = 30.0
            if not 0.0 <= now - self._reported_at < report_seconds:
                self._reported_at = now
                self.read_report()
        self.query_one(FittedLines).update()
        self.happening_list.show_events(
            self._rows, self._empty_text(), now, named=self.box_name is None, older=self._older
        )
        self._show_box()

    def _report_lines(self, width: int) -> list[Line]:
        found = () if self._report is None else report_words(self._report, self.now)
        if found:
            return [*pack_words(found, width), EMPTY]
        return []

    def _show_box(self) -> None:
        """Show the current state of the selected event's box, if the list leaves room."""
        picked = self.happening_list.selected_event
        width = self.size.width
        wanted = len(self._report_lines(width)) + self.happening_list.wanted_height(width)
        box_name = None
        if picked is not None:
            box_name = picked.box
        self.show_context(box_name, wanted, self._box_section, steady=True)

    def _box_section(self, box: BoxState, width: int, height: int) -> PaneSection:
        row = FleetRow(
            box, self.verdict(box), (), self.fleet.profile_of(box.spec.name).name, self.now
        )
        title = make_line(
            Span(box.spec.name),
            dim_span(translate("  now") if self.shown_until is None else translate("  then")),
        )
        return PaneSection(title, why_lines(row, width, self.now))

    def _show_session_events(self, state: FleetState) -> None:
        """Show the events of this session if no history is kept."""
        from rgt_tui.store.happenings import matches_filter

        self._trouble = translate(NO_HISTORY)
        rows = [
            Happening(place, event.at, event.box, event.text, event.level, event.about)
            for place, event in enumerate(state.events)
        ]
        rows = [row for row in rows if matches_filter(row, self._wanted)]
        if rows != list(self._rows):
            self._rows = tuple(rows)

    def _empty_text(self) -> str:
        if self._trouble:
            return self._trouble
        if not self._read and self.fleet.chronicle is not None:
            return translate("reading the history")
        if self._is_filtered:
            return translate(
                "nothing matches; {key} clears the filter", key=key_for("screen.escape")
            )
        return translate("nothing has happened yet")

    @property
    def _is_filtered(self) -> bool:
        return bool(self._wanted.term or self._wanted.errors)

    @work(
        group="journal", exclusive=True, exit_on_error=False, description="read the newest events"
    )
    async def read_newest(self, wanted: EventFilter) -> None:
        """Read the events after the newest row."""
        found = await self._read_page(wanted, None)
        # The filter has changed while this was read.
        if found is None or wanted != self._wanted:
            return
        if self._rows:
            newest = self._rows[-1].n
        else:
            newest = -1
        fresh = tuple(row for row in found.rows if row.n > newest)
        # The page joins the rows if it overlaps them, or if no event is older than it.
        joins = not self._rows or not found.rows or found.rows[0].n <= newest or not found.older
        if not self._rows or not joins:
            # There is a gap between the pages: it starts again from the newest.
            self._rows, self._older = found.rows, found.older
        elif fresh:
            self._rows = (*self._rows, *fresh)
        self._read, self._kept = True, found.kept
        if self.spot is not None and self.spot.at is not None:
            at, self.spot = self.spot.at, None
            # The list needs the new rows before one of them can be selected.
            self.redraw_now()
            self.happening_list.pick_time(at)
        self.redraw_now()
        if self._opens:
            self._opens = False
            self.action_log_then()

    async def _read_page(self, wanted: EventFilter, before: int | None) -> Happenings | None:
        chronicle = self.fleet.chronicle
        if chronicle is None:
            return None
        # At an earlier moment: only events up to then.
        wanted = msgspec.structs.replace(wanted, until=self.shown_until)
        try:
            # Events per page that is read.
            page = 200
            found = await chronicle.read_event_page(wanted, before, page)
        except Exception as error:
            self._show_failure(error)
            return None
        self._trouble = ""
        return found

    @property
    def shown_until(self) -> float | None:
        """The shown moment, if it is not the present."""
        return self.fleet.shown_moment

    def _show_failure(self, error: Exception) -> None:
        if isinstance(error, HistoryError):
            why = str(error)
        else:
            why = describe_error(error)
        self._trouble = translate("the history cannot be read: {why}", why=why)
        self.hint(self._trouble)
        self.redraw_now()

    @work(group="older", exit_on_error=False, description="read older events")
    async def read_older(self, wanted: EventFilter, oldest: Happening) -> None:
        """Read the page before the oldest row."""
        found = await self._read_page(wanted, oldest.n)
        self._reading_older = False
        # Many new events or another filter may have replaced the rows while this was read.
        if found is not None and wanted == self._wanted and oldest in self._rows[:1]:
            self._rows = (*found.rows, *self._rows)
            self._older = found.older
            self.redraw_now()

    @work(
        group="report",
        exclusive=True,
        exit_on_error=False,
        description="make the report of the night",
    )
    async def read_report(self) -> None:
        """Read the facts of the night, and make the report."""
        chronicle = self.fleet.chronicle
        if chronicle is None or self.fleet_state is None:
            return
        now = self.now
        last = getattr(self.app, "last_look", None)
        if last is None:
            look = None
        else:
            look = last.since(now)
        seen_at = None
        if look is not None:
            seen_at = look.at
        since = night_began(now, seen_at)
        try:
            night = await chronicle.read_night(since, now, self.box_name)
        except Exception as error:
            self._show_failure(error)
            return
        boxes = [box for box in self.fleet_state.boxes if self.box_name in (None, box.spec.name)]
        clocks: list[NextClock] = []
        for box in boxes:
            try:
                readings = clock_readings(self.fleet.profile_of(box.spec.name), box, now)
            except Exception as error:
                if not report_fault_to_app(self, error):
                    raise
                continue
            clocks += [
                NextClock(box.spec.name, reading) for reading in readings if reading.counting
            ]
        self._report = morning_report(night, boxes, clocks)
        self.redraw_now()

    def on_resize(self, event: events.Resize) -> None:
        """Divide the room for the new size."""
        self.redraw_now()

    def open_row(self) -> None:
        """Open the log at the time of the event."""
        self.action_log_then()

    def follow_row(self) -> None:
        """Show the box, and read older events before the selection reaches the top."""
        self._show_box()
        # Rows left above the selection when the page before is read.
        ahead = 50
        if self._older and not self._reading_older and self.happening_list.selected_index < ahead:
            self._reading_older = True
            self.read_older(self._wanted, self._rows[0])

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the active filters and the number of recorded events."""
        parts: Parts = []
        if self._trouble:
            parts.append((0, make_line(Span(self._trouble, Tone.WARN))))
        if self._wanted.errors:
            parts.append((1, make_line(Span(translate("errors only"), Tone.ACCENT))))
        if self._wanted.term:
            parts.append((1, make_line(dim_span("/"), Span(self._wanted.term, Tone.ACCENT))))
        if self._kept is not None:
            parts.append(
                (
                    2,
                    make_line(
                        dim_span(
                            translate(
                                "{kept} {split} kept",
                                kept=format_thousands(self._kept),
                                split=how_many(self._kept, "event").split(" ", 1)[1],
                            )
                        )
                    ),
                )
            )
        return parts

    # Actions on an event.

    def _find_picked(self) -> Happening | None:
        picked = self.happening_list.selected_event
        if picked is None:
            self.hint(translate("no event is selected"))
        return picked

    def find_moment(self, box: BoxState) -> tuple[float, BoxState | None] | None:
        """Return the time of the selected event."""
        picked = self.happening_list.selected_event
        if picked is None:
            return None
        return picked.at, None

    def action_log_then(self) -> None:
        """Open the log of the event's box at that time; if no row is read yet, do so later."""
        self._opens = (
            not self._read
            and self.fleet.chronicle is not None
            and self.happening_list.selected_event is None
        )
        if self._opens:
            return
        picked = self._find_picked()
        if picked is None:
            return
        state = self.fleet_state
        if state is None:
            box = None
        else:
            box = state.find_box(picked.box)
        if picked.about == ENDED and picked.level == "info":
            from rgt_tui.ui.screens.receipt import ReceiptScreen

            self.app.push_screen(ReceiptScreen(self.fleet, picked.box))
            return
        if not picked.box:
            self.hint(translate("this event is about several boxes: it has no log"))
            return
        if box is None:
            self.hint(
                translate(
                    "{box} is no longer in the fleet; {key} shows it as it was then",
                    box=picked.box,
                    key=key_for("past.machine"),
                )
            )
            return
        if picked.about.startswith("finding:"):
            self.open_proof(picked, box)
            return
        log = log_of(box, picked.about.partition(":")[2])
        cast("Dashboard", self.app).open_screen(
            "log", picked.box, ScreenPosition(at=picked.at, log=log)
        )

    @work(
        group="proof",
        exclusive=True,
        exit_on_error=False,
        description="find the line that an event is about",
    )
    async def open_proof(self, row: Happening, box: BoxState) -> None:
        """Open the log at the line that proved a finding, as of now, else as recorded."""
        now = found = proof_of(row, box)
        chronicle = self.fleet.chronicle
        # The current finding may be a later occurrence of the same failure.
        if chronicle is not None and (now is None or abs(now.since - row.at) > SOON):
            try:
                line = await chronicle.read_timeline()
                place = place_of_event(line, row.at)
                if place is None:
                    then = None
                else:
                    then = await chronicle.read_moment(line.ns[place.tick], place.at, frozenset())
                if then is not None:
                    stood = [one for one in then.boxes if one.spec.name == row.box]
                else:
                    stood = []
                found = next((proof_of(row, one) for one in stood), None) or now
            except Exception as error:
                self._show_failure(error)
        if found is None:
            spot = ScreenPosition(at=row.at)
        else:
            spot = ScreenPosition(at=row.at, log=found.where, text=found.evidence)
        cast("Dashboard", self.app).open_screen("log", row.box, spot)

    def action_open_past(self, place: str) -> None:
        """Open the time machine at the selected event."""
        picked = self.happening_list.selected_event
        if place == "time machine" and picked is not None:
            cast("Dashboard", self.app).open_screen(
                place, self.box_name, ScreenPosition(at=picked.at)
            )
        elif place == "time machine":
            super().action_open_past(place)
        else:
            self.hint(translate("this is the journal"))

    def action_errors_only(self) -> None:
        """Switch between errors only and all events."""
        self._change_filter(errors=not self._wanted.errors)

    def _change_filter(self, **changes: object) -> None:
        wanted = msgspec.structs.replace(self._wanted, **changes)
        if wanted != self._wanted:
            self._wanted = wanted
            self._rows, self._older, self._read, self._opens = (), False, False, False
            # Read at once instead of at the end of the interval.
            self._asked_at = float("-inf")
            self.redraw_now()

    def action_find(self) -> None:
        """Open the entry line."""
        self.open_entry(
            translate("events with"),
            self._wanted.term,
            changed=lambda text: self._change_filter(term=text),
        )

    def clear_on_escape(self) -> bool:
        """Clear the filter; return whether there was one."""
        had = self._is_filtered
        self._change_filter(term="", errors=False)
        return had

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; some need an event, or an active alert."""
        if (
            command.id == "journal.mute"
            and self.fleet_state is not None
            and self._alert_now() is None
        ):
            return translate("the alert of the selected event is not active now")
        if (
            command.id == "journal.log"
            and self._read
            and self.happening_list.selected_event is None
        ):
            return translate("no event is selected")
        return super().why_not(command)

    def _alert_now(self) -> Alert | None:
        """Return the alert that the selected event is about, if it is active."""
        picked = self.happening_list.selected_event
        state = self.fleet_state
        if state is None or picked is None:
            box = None
        else:
            box = state.find_box(picked.box)
        if box is None or picked is None:
            return None
        return alert_of(picked, box.alerts)

    def action_mute(self) -> None:
        """Mute the alert of the selected event for an hour, if it is active."""
        picked = self._find_picked()
        if picked is None:
            return
        alert = self._alert_now()
        if alert is None:
            self.hint(translate("nothing to mute: the alert of this event is not active now"))
            return
        mute_seconds = 3600.0
        self.fleet.mute_alert(picked.box, alert.id, mute_seconds)
        self.hint(translate("muted {id} on {box} for an hour", id=alert.id, box=picked.box))

    def to_copy(self) -> ClipboardText | None:
        """Return the selected event as a line."""
        picked = self.happening_list.selected_event
        if picked is None:
            return None
        when = moment(picked.at)
        return ClipboardText(
            what=translate("the event of {when}", when=when),
            text=f"{when}  {picked.box}  {picked.level}  {picked.text}",
        )
