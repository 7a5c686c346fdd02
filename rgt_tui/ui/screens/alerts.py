"""Alerts: the active ones of one box or all boxes, since when, and what to do; muting."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import ClassVar, NamedTuple, cast

from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.history.spoken_times import coming_time, day_and_clock
from rgt_tui.health import alert_advice
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    BoxHealth,
    BoxState,
    EventFilter,
    Finding,
    FleetEvent,
    FleetState,
    Happening,
    ScreenPosition,
    how_many,
)
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import ALERTS, BOX_FIX, MOVE, Command, build_bindings, key_for
from rgt_tui.ui.notation import clock_or_dash, compact_time, current_glyphs, make_displayable
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.box_context import BoxContext
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.fleet_rows import story_section
from rgt_tui.ui.widgets.panes import PaneSection
from rgt_tui.ui.widgets.selectable_list import ListRow, SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_name,
    fit_text,
    label_lines,
    make_line,
    name_width,
    width_of,
)
from rgt_tui.ui.widgets.why import READ_FROM, finding_details

PAGE = 500
"""Number of events searched for the ends of alerts."""
MOST_ENDED = 50
MORNING = "07:00"


class AlertRow(NamedTuple):
    """One alert of one box."""

    box: str
    alert: Alert
    advice: str = ""
    finding: Finding | None = None
    """The finding that raised it, with its fixes."""
    ended_at: float | None = None
    """None = it is active."""
    before: tuple[int, float] = (0, 0.0)
    """How often it was active before, within the events read, and when it last ended."""

    @property
    def began_at(self) -> float | None:
        """Client clock at which it began, if known; the alert or its finding may be older."""
        found = (self.alert.since, self.finding.since if self.finding is not None else None)
        return min((at for at in found if at), default=None)

    @property
    def key(self) -> str:
        """Identity of the row."""
        return f"{self.box}\0{self.alert.id}\0{self.ended_at or ''}"


def row_line(row: AlertRow, names: int, now: float) -> Line:
    """Draw an alert: mark, box, duration, and the reading that proves it."""
    alert = row.alert
    if alert.level == "error":
        mark = current_glyphs().trouble
    else:
        mark = current_glyphs().warn
    if alert.muted:
        tone = Tone.DIM
    else:
        tone = level_tone(alert.level)
    since = ""
    if row.began_at is not None:
        since = compact_time(now - row.began_at)
    if row.ended_at is not None:
        held = translate(
            "held {ended_at}, ended {ended_at_2}  ",
            ended_at=compact_time(row.ended_at - (alert.since or row.ended_at)),
            ended_at_2=clock_or_dash(row.ended_at),
        )
        name = fit_name(row.box, names)
        return make_line(
            dim_span(f" {current_glyphs().check} {name}  {fit_text('', 6)}  {held}{alert.text}")
        )
    head = f"{fit_name(row.box, names)}  {fit_text(since, 6, right=True)}  "
    muted = "muted  " if alert.muted else ""
    text_tone = Tone.TEXT
    if alert.muted:
        text_tone = Tone.DIM
    return make_line(
        Span(f" {mark} ", tone), dim_span(head), dim_span(muted), Span(alert.text, text_tone)
    )


def _time_and_age(at: float, now: float) -> str:
    return translate("{at}, {age} ago", at=clock_or_dash(at), age=compact_time(now - at))


def detail_lines(row: AlertRow, width: int, now: float, *, said: bool) -> list[Line]:
    """Return what an alert's line leaves out: since when, what to do, the place, the proof.

    Args:
        row: The alert.
        width: Cells.
        now: Client clock.
        said: Whether its line is shown in full; then its text is not repeated.
    """
    alert = row.alert
    if said or row.finding is not None:
        out = []
    elif row.ended_at is None:
        out = label_lines("now", alert.text, width, most=4)
    else:
        out = label_lines("was", alert.text, width, most=4)
    if row.began_at is not None:
        out += label_lines("since", _time_and_age(row.began_at, now), width)
    if row.before[0]:
        times = how_many(row.before[0], "time")
        out += label_lines(
            "before",
            translate(
                "{times}, ended last {before}",
                times=times,
                before=day_and_clock(row.before[1], now),
            ),
            width,
        )
    if row.ended_at is not None:
        out += label_lines("ended", _time_and_age(row.ended_at, now), width)
    elif row.finding is not None:
        return [*out, *finding_details(row.finding, width, said=said)]
    if row.advice:
        out += label_lines("do", translate(row.advice), width, Tone.STRONG, most=3)
    out += label_lines("id", alert.id, width, Tone.DIM)
    return out


def finding_of(box: BoxState, alert: Alert) -> Finding | None:
    """Return the finding that an alert reports, if it is one."""
    return next(
        (f for f in box.findings if alert.id == f"finding:{f.gotcha}:{f.resource}:{f.run or ''}"),
        None,
    )


def ended_rows(rows: Iterable[Happening], most: int = MOST_ENDED) -> list[AlertRow]:
    """Return the alerts whose end is among the events, the last one first."""
    began: dict[tuple[str, str], Happening] = {}
    out: list[AlertRow] = []
    for row in rows:
        key = (row.box, row.about)
        if row.level in ORDER:
            # From the first one: a warning that becomes an error is one alert.
            began.setdefault(key, row)
        # An end without a begin in these events: its text is unknown, so it is not listed.
        elif row.about and (first := began.pop(key, None)) is not None:
            alert = Alert(row.about, first.level, first.text, since=first.at)
            out.append(AlertRow(row.box, alert, ended_at=row.at))
    return out[::-1][:most]


ORDER = {"error": 0, "warn": 1}
UNTIL_OVER = -1

UNKNOWN = frozenset(
    {
        BoxHealth.CONNECTING,
        BoxHealth.PAUSED,
        BoxHealth.STALE,
        BoxHealth.UNREACHABLE,
        BoxHealth.UNKNOWN,
    }
)
"""States in which a box without alerts is not known to be well."""


class AlertsScreen(MoveKeys, FleetAwareScreen):
    """One line per alert, worst first; muted ones are at the end."""

    PLACE = "alerts"
    KEYS: ClassVar[tuple[Command, ...]] = (*ALERTS, *BOX_FIX, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)

    def __init__(self, fleet: FleetSource, box_name: str | None = None) -> None:
        super().__init__(fleet, box_name)
        self._happened: tuple[Happening, ...] = ()
        self._asked_at = -math.inf
        self._shows_ended = True
        self._copied: tuple[str, int] = ("", 0)
        """Key of the alert whose fixes were copied, and how many of them."""
        self.shown: dict[str, AlertRow] = {}
        """The rows of the list by their keys, in order."""

    def compose_body(self) -> Iterable[Widget]:
        """Return the list, and below it more about the box of the selected alert."""
        yield SelectableList(
            id="alerts", more=translate("more on its box: {key}", key=key_for("alerts.open"))
        )
        yield BoxContext()

    @property
    def picked_alert(self) -> AlertRow | None:
        """The selected alert."""
        return self.shown.get(self.main_list.picked_key or "")

    @property
    def target_box(self) -> str | None:
        """The box of the selected alert."""
        picked = self.picked_alert
        if picked is None:
            return self.box_name
        return picked.box or None

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the active alerts, and below them the ended ones."""
        # The history is written at the same rate.
        every_seconds = 5.0
        if self.fleet.chronicle is None:
            self._happened = tuple(
                Happening(place, event.at, event.box, event.text, event.level, event.about)
                for place, event in enumerate(state.events)
            )
        # Read at once if the clock was set back.
        elif not 0.0 <= now - self._asked_at < every_seconds:
            self._asked_at = now
            self.read_ended()
        self.shown = {row.key: row for row in self._list_rows(state)}
        names = name_width((row.box for row in self.shown.values()), self.size.width)
        rows = [ListRow(key, row_line(row, names, now)) for key, row in self.shown.items()]
        self.main_list.show_rows(
            rows,
            (EMPTY, make_line(dim_span(f" {self._calm_text(state)}"))),
            lambda key, width: self._make_details(self.shown[key], names, width, now),
        )
        self._show_context(state, now)

    def _show_context(self, state: FleetState, now: float) -> None:
        """Show the events of the selected alert's box, if the list leaves room."""

        def make_story(box: BoxState, width: int, height: int) -> PaneSection:
            name = box.spec.name
            kept = [one for one in self._happened if one.box == name]
            last = kept[-1].at if kept else -math.inf
            told = [FleetEvent(one.at, one.box, one.text, one.level) for one in kept]
            # The history is written a few seconds later than the live events.
            told += [one for one in state.events if one.box == name and one.at > last]
            return story_section(told, name, width, height, now)

        picked = self.picked_alert
        box_name = None
        if picked is not None:
            box_name = picked.box
        self.show_context(box_name, self.main_list.wanted_height(self.size.width), make_story)

    def on_resize(self, event: events.Resize) -> None:
        """Divide the room for the new size."""
        self.redraw_now()

    def _make_details(self, row: AlertRow, names: int, width: int, now: float) -> list[Line]:
        said = width_of(row_line(row, names, now)) <= self.size.width
        return detail_lines(row, width, now, said=said)

    def _calm_text(self, state: FleetState) -> str:
        """Return a text for no active alert; it counts the boxes whose state is unknown."""
        boxes = [box for box in state.boxes if self.box_name in (None, box.spec.name)]
        if not boxes:
            return translate("no box is watched")
        # No alert of a box that sends nothing proves nothing.
        unknown = sum(self.verdict(box).health in UNKNOWN for box in boxes)
        if not unknown:
            return translate("nothing is wrong")
        if len(boxes) == 1:
            return translate("no active alerts, but the box sends no data right now")
        return translate(
            "no active alerts, but {unknown} of {boxes} boxes send no data right now",
            unknown=unknown,
            boxes=len(boxes),
        )

    def _list_rows(self, state: FleetState) -> list[AlertRow]:
        boxes = [box for box in state.boxes if self.box_name in (None, box.spec.name)]
        rows = [
            AlertRow(box.spec.name, alert, alert_advice(alert), finding_of(box, alert))
            for box in boxes
            for alert in self.verdict(box).alerts
        ]
        # Alerts of the fleet itself, such as a sink that fails, belong to no box.
        if self.box_name is None:
            rows += [AlertRow("", alert, alert_advice(alert)) for alert in state.alerts]
        rows.sort(key=lambda row: (row.alert.muted, ORDER.get(row.alert.level, 2), row.box))
        # More than are listed, to count how often an alert was active before.
        ended = ended_rows(
            (row for row in self._happened if self.box_name in (None, row.box)), PAGE
        )
        before: dict[tuple[str, str], tuple[int, float]] = {}
        for row in ended:
            # The newest end is first, and it is the one that is kept.
            count, last = before.get((row.box, row.alert.id), (0, row.ended_at or 0.0))
            before[row.box, row.alert.id] = count + 1, last
        rows = [
            row._replace(before=before.get((row.box, row.alert.id), row.before)) for row in rows
        ]
        if not self._shows_ended:
            return rows
        # An alert that is active again is not listed as ended, too.
        holds = {(row.box, row.alert.id) for row in rows}
        return [*rows, *[row for row in ended if (row.box, row.alert.id) not in holds][:MOST_ENDED]]

    @work(
        group="ended",
        exclusive=True,
        exit_on_error=False,
        description="read which alerts have ended",
    )
    async def read_ended(self) -> None:
        """Read the events, which include the begin and the end of each alert."""
        chronicle = self.fleet.chronicle
        if chronicle is None:
            return
        wanted = EventFilter(box=self.box_name, until=self.fleet.shown_moment)
        try:
            found = await chronicle.read_event_page(wanted, None, PAGE)
        except Exception as error:
            self.hint(translate("the history cannot be read: {error}", error=error))
            return
        # Unchanged rows are not drawn again, because this is read every few seconds.
        if found.rows != self._happened:
            self._happened = found.rows
            self.redraw_now()

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return how many alerts are active and how many have ended."""
        rows = self._list_rows(state)
        ended = sum(row.ended_at is not None for row in rows)
        if len(rows) > ended:
            told = how_many(len(rows) - ended, "alert")
        else:
            told = self._calm_text(state)
        if self._shows_ended:
            hint = translate("   {ended} ended", ended=ended)
        else:
            hint = translate("   {key} shows the ended ones", key=key_for("alerts.ended"))
        return [
            (
                1,
                make_line(Span(told), dim_span(hint)),
            )
        ]

    def open_row(self) -> None:
        """Open the box."""
        self.action_open()

    def follow_row(self) -> None:
        """Show the events of the box."""
        if self.fleet_state is not None:
            self._show_context(self.fleet_state, self.now)

    def action_open(self) -> None:
        """Open the box of the selected alert."""
        picked = self.picked_alert
        if picked is not None and picked.box:
            cast("Dashboard", self.app).open_screen("box", picked.box)

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the alert's box: the log at the proof, the handbook at its page."""
        picked = self.picked_alert
        if picked is None:
            finding = None
        else:
            finding = picked.finding
        spot = None
        if finding is not None and place == "handbook":
            spot = ScreenPosition(gotcha=finding.gotcha)
        # A finding from a reading has no line in a log.
        elif finding is not None and place == "log" and finding.where not in READ_FROM:
            spot = ScreenPosition(log=finding.where, line_no=finding.line_no, text=finding.evidence)
        if spot is None:
            super().action_open_for_box(place)
        else:
            cast("Dashboard", self.app).open_screen(place, self.target_box, spot)

    def chosen_finding(self, box: BoxState) -> Finding | None:
        """Return the finding of the selected alert."""
        picked = self.picked_alert
        if picked is None or picked.ended_at is not None:
            return None
        return picked.finding

    def action_mute(self, seconds: int) -> None:
        """Mute the selected alert for `seconds`; 0 = unmute, negative = until it ends."""
        picked = self._find_mutable()
        if picked is None:
            return
        if seconds == UNTIL_OVER:
            until = None
        else:
            until = float(seconds)
        self.fleet.mute_alert(picked.box, picked.alert.id, until)
        name = translate("{alert} on {box}", alert=picked.alert.id, box=picked.box)
        how = {
            None: translate("muted {name} until it clears", name=name),
            0.0: translate("unmuted {name}", name=name),
        }
        self.hint(how.get(until, translate("muted {name} for an hour", name=name)))

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; None if it works on the selected alert."""
        if (
            self.fleet_state is not None
            and command.id.startswith("alerts.")
            and command.id != "alerts.ended"
        ):
            picked = self.picked_alert
            if picked is None or not picked.box:
                if picked is not None:
                    return translate("it is not about a single box")
                return translate("no alert is selected")
            if command.id != "alerts.open" and picked.ended_at is not None:
                return translate("the selected alert has ended")
            if command.id == "alerts.unmute" and not picked.alert.muted:
                return translate("the selected alert is not muted")
        return super().why_not(command)

    def _find_mutable(self) -> AlertRow | None:
        picked = self.picked_alert
        if picked is None or not picked.box:
            self.hint(translate("nothing to mute"))
        elif picked.ended_at is not None:
            self.hint(translate("it has ended: there is nothing to mute"))
        else:
            return picked
        return None

    def action_mute_until(self) -> None:
        """Open the entry for the time until which to mute the alert."""
        picked = self._find_mutable()
        if picked is not None:
            self.open_entry(translate("mute until"), MORNING, partial(self._mute_until, picked))

    def _mute_until(self, picked: AlertRow, text: str) -> None:
        try:
            until = coming_time(text, self.now)
        except ValueError as error:
            self.hint(translate("not muted: {error}", error=error))
            return
        self.fleet.mute_alert(picked.box, picked.alert.id, until - self.now)
        when = day_and_clock(until, self.now)
        self.hint(
            translate(
                "muted {id} on {box} until {when}", id=picked.alert.id, box=picked.box, when=when
            )
        )

    def action_toggle_ended(self) -> None:
        """Show or hide the ended alerts."""
        self._shows_ended = not self._shows_ended
        self.redraw_now()

    def to_copy(self) -> ClipboardText | None:
        """Return the next fix of the selected alert.

        One command per copy, because a shell runs everything that is pasted.
        """
        picked = self.picked_alert
        if picked is None:
            return None
        # A command is copied only if it looks on screen exactly as it is.
        commands = [
            (place, fix.command)
            for place, fix in enumerate(
                picked.finding.fixes if picked.finding is not None else (), 1
            )
            if fix.command and make_displayable(fix.command) == fix.command
        ]
        if not commands:
            text = f"{picked.box}: {picked.alert.text}" + (
                translate("; do: {advice}", advice=picked.advice) if picked.advice else ""
            )
            return ClipboardText(what=translate("the alert {id}", id=picked.alert.id), text=text)
        key, count = self._copied
        # Another alert begins with its first fix.
        count = count if key == picked.key else 0
        self._copied = (picked.key, count + 1)
        place, command = commands[count % len(commands)]
        return ClipboardText(
            what=translate("fix {place} of {id}", place=place, id=picked.alert.id), text=command
        )
