"""The time machine: shows the fleet at any recorded minute.

Every screen can open at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.history.moment_fleet import (
    MomentFleet,
    MomentPosition,
    event_from,
    minute_from,
    place_of,
    place_of_event,
)
from rgt_tui.fleet.history.spoken_times import day_and_clock, parse_past_time
from rgt_tui.language import translate
from rgt_tui.model import FleetState, Happening
from rgt_tui.store import HistoryError
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import LOOKING, MACHINE, MOVE, SCREEN, Command, build_bindings, key_for
from rgt_tui.ui.enduring import describe_error
from rgt_tui.ui.legends import Legend, legend_of
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.screens.fleet import FleetScreen
from rgt_tui.ui.widgets.fixed_lines import EventLine
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    make_line,
    merge_spans,
)

NO_MOMENTS = "no history is kept here, so there is nothing to go back to"
RANKS = {"error": 2, "warn": 1}
EVERY = ((24, 1), (12, 2), (8, 3), (4, 6), (2, 12))
"""Labels per day, and the hours between two of them; the first row that fits is used."""


class TimeMachineScreen(FleetScreen, inherit_bindings=False):
    """The fleet screen at an earlier moment, below a strip of that day."""

    PLACE = "time machine"
    KEYS: ClassVar[tuple[Command, ...]] = (*MACHINE, *LOOKING, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings((*KEYS, *SCREEN))

    ABOVE = 2
    WAITING = "reading the history"

    def __init__(self, fleet: FleetSource, box_name: str | None = None) -> None:
        # The screen has no fleet until the first moment is loaded.
        super().__init__(None)
        self._live = fleet
        self._only = box_name
        """The box that the screen was opened for: it is selected, and only its events are
        visited."""
        chronicle = fleet.chronicle
        if chronicle is None:
            self._past = None
        else:
            self._past = MomentFleet(fleet, chronicle, self._show_refusal)
        if chronicle is not None:
            self._trouble = ""
        else:
            self._trouble = translate(NO_MOMENTS)
        self._happened: tuple[Happening, ...] = ()
        self._bound: MomentPosition | None = None
        """The moment that is being loaded; the next key continues from there."""
        self._early: list[Callable[[], None]] = []
        """Actions requested before the first moment was loaded."""

    def compose_body(self) -> Iterable[Widget]:
        """Return the day strip, with the fleet below it."""
        yield DayStrip()
        yield from super().compose_body()

    def on_mount(self) -> None:
        """Read which moments are recorded."""
        if self._past is None:
            self._show_trouble()
        else:
            self.begin_travel()

    def build_legend(self) -> Legend:
        """Return the legend of the fleet screen, whose marks and columns this screen uses."""
        return legend_of("fleet")

    def build_crumbs(self) -> tuple[str, ...]:
        """Return the path of this screen."""
        return ("fleet", self.PLACE)

    @work(
        group="travel",
        exclusive=True,
        exit_on_error=False,
        description="read which moments were kept",
    )
    # Starts at the requested moment, else at the last event, else at the newest moment.
    async def begin_travel(self) -> None:
        """Read which moments are recorded, and go to the first one to show."""
        past = self._past
        assert past is not None
        try:
            await past.load_history()
        except Exception as error:
            self._show_failure(error)
            return
        self._happened = tuple(row for row in past.events if self._only in (None, row.box))
        spot, self.spot = self.spot, None
        place = None
        if spot is not None and spot.at is not None:
            place = place_of_event(past.line, spot.at)
        elif self._happened:
            place = place_of_event(past.line, self._happened[-1].at)
        if place is None and past.line.ns:
            last = len(past.line.ns) - 1
            place = MomentPosition(last, past.line.ats[last])
            if spot is not None and spot.at is not None:
                self._show_hint(
                    translate(
                        "not kept: the first moment is {ats}",
                        ats=self._format_time(past.line.ats[0]),
                    )
                )
                place = MomentPosition(0, past.line.ats[0])
        if place is None:
            self._trouble = translate("nothing is recorded yet: one moment is recorded each minute")
            self._show_trouble()
            return
        await self._load_moment(place)
        early, self._early = self._early, []
        for asked in early:
            asked()

    async def _load_moment(self, place: MomentPosition) -> None:
        past = self._past
        assert past is not None
        try:
            await past.show_position(place)
        except Exception as error:
            self._show_failure(error)
            return
        # Unless a key has moved the target meanwhile.
        finally:
            if self._bound == place:
                self._bound = None
        if not self.has_fleet:
            self.attach_fleet(past)
            # The table has rows only after a state was drawn, and a box is selected among them.
            self.fleet_state = past.state
            self._select_box()
        self.fleet_state = past.state

    def _select_box(self) -> None:
        table = self.query_one(FleetTable)
        if self._only is not None and self._only in table.row_names:
            table.select_index(table.row_names.index(self._only))

    def go_to_place(self, place: MomentPosition) -> None:
        """Go to another moment; clear the hint, which was about the previous one."""
        self.query_one(EventLine).show_hint(None)
        on_the_way = self._bound is not None
        self._bound = place
        if not on_the_way:
            self._load_target()

    @work(group="travel", exit_on_error=False, description="read an earlier moment")
    async def _load_target(self) -> None:
        while self._bound is not None:  # further keys may have moved the target meanwhile
            await self._load_moment(self._bound)

    def _current_place(self, again: Callable[[], None]) -> MomentPosition | None:
        """Return the current moment, or the one being loaded.

        Before the first is loaded, queue `again`.
        """
        past = self._past
        if past is None or self._trouble:
            self._show_hint(self._trouble)
        elif past.place is None:
            self._early.append(again)
        else:
            return self._bound or past.place
        return None

    def go_to_time(self, at: float) -> None:
        """Go to a time."""
        past = self._past
        if past is None:
            place = None
        else:
            place = place_of_event(past.line, at)
        if place is None:
            self._show_hint(translate("not kept: that is before the first moment"))
        else:
            self.go_to_place(place)

    def _show_failure(self, error: Exception) -> None:
        if isinstance(error, HistoryError):
            why = str(error)
        else:
            why = describe_error(error)
        self._trouble = translate("the history cannot be read: {why}", why=why)
        self._show_trouble()

    def _show_trouble(self) -> None:
        self.query_one(DayStrip).show_day((), (), 0.0, self._trouble)
        self._show_hint(self._trouble)

    def _show_hint(self, text: str) -> None:
        self.hint(text, 8.0)

    def _show_refusal(self, why: str) -> None:
        """Show why actions are refused, on the top screen and after its own hint."""
        self.app.call_later(lambda: getattr(self.app.screen, "hint", self.hint)(why))

    def _format_time(self, at: float) -> str:
        return day_and_clock(at, self._live.now())

    def receive_state(self, state: FleetState, now: float) -> None:
        """Show the recorded state; the live state is ignored here."""
        if self.has_fleet:
            self.fleet_state = self.fleet.state

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the fleet as it was, and the day around that moment."""
        super().show_state(state, now)
        if self._past is not None:
            self.query_one(DayStrip).show_day(self._past.line.ats, self._happened, now)

    def action_event(self, direction: int) -> None:
        """Go to the next or the previous event."""
        past, here = self._past, self._current_place(lambda: self.action_event(direction))
        if past is None or here is None:
            return
        row = event_from(self._happened, here.at, direction)
        # Several events may belong to one recorded moment: skip those of the current one.
        while row is not None:
            place = place_of_event(past.line, row.at)
            if place is not None and place.at != here.at:
                self.go_to_place(place)
                self.hint(f"{row.box}: {row.text}", 8.0)
                return
            row = event_from(self._happened, row.at, direction)
        if direction > 0:
            self._show_hint(
                translate(
                    "that is the last event; {key} goes back to now", key=key_for("screen.escape")
                )
            )
        else:
            self._show_hint(translate("there is no event before this"))

    def action_minute(self, direction: int) -> None:
        """Go forward or back by a minute."""
        past, here = self._past, self._current_place(lambda: self.action_minute(direction))
        if past is None or here is None:
            return
        place = minute_from(past.line, here, direction)
        if place is None:
            if direction > 0:
                self._show_hint(
                    translate(
                        "that is the newest moment; {key} goes back to now",
                        key=key_for("screen.escape"),
                    )
                )
            else:
                self._show_hint(translate("not kept: that is the first moment"))
        else:
            self.go_to_place(place)

    def action_go_to(self) -> None:
        """Open the entry line for a time."""
        self.open_entry(translate("go to (02:30, yesterday 14:00, 3h)"), done=self._seek_typed_time)

    def _seek_typed_time(self, text: str) -> None:
        past = self._past
        if not text or past is None or past.place is None:
            return
        try:
            at = parse_past_time(text, self._live.now())
        except ValueError as error:
            self._show_hint(str(error))
            return
        if at > self._live.now():
            self._show_hint(translate("{words} is in the future", words=text))
            return
        place = place_of(past.line, at)
        if place is None:
            self._show_hint(
                translate(
                    "not kept: the first moment is {ats}", ats=self._format_time(past.line.ats[0])
                )
            )
        else:
            self.go_to_place(place)

    def on_click(self, event: events.Click) -> None:
        """Go to the time that was clicked on the strip."""
        strip = self.query_one(DayStrip)
        past = self._past
        if past is not None and past.place is not None and event.widget is strip:
            place = place_of(past.line, strip.time_at(event.x))
            if place is not None:
                self.go_to_place(place)

    def action_refuse(self) -> None:
        """Show why nothing can be done here."""
        # Without a history there is no past that could refuse.
        self._show_hint(self._trouble if self._past is None else self._past.why_nothing)

    def action_open_past(self, place: str) -> None:
        """Open the journal at this moment; a second time machine is refused with a hint."""
        if place == "time machine":
            self.hint(
                translate(
                    "this is the time machine; {key} goes to a time, {key_2} back to now",
                    key=key_for("past.go"),
                    key_2=key_for("screen.escape"),
                )
            )
        else:
            super().action_open_past(place)

    def to_copy(self) -> ClipboardText | None:
        """Return the moment and the reason shown for the selected box."""
        if self._past is None or self._past.place is None:
            return None
        if self.fleet_state is None or self.target_box is None:
            box = None
        else:
            box = self.fleet_state.find_box(self.target_box)
        if box is None:
            what = ""
        else:
            what = f"  {box.spec.name}: {self.verdict(box).why}"
        return ClipboardText(what=translate("the moment"), text=f"{self._past.moment_text}{what}")


# A day in one line: recorded minutes, events, and the current position.


def day_around(at: float) -> tuple[float, float]:
    """Return the begin and the end of the local day that contains a time."""
    here = time.localtime(at)
    begin = time.mktime((here.tm_year, here.tm_mon, here.tm_mday, 0, 0, 0, 0, 0, -1))
    # `mktime` carries a day that the month does not have over into the next month.
    end = time.mktime((here.tm_year, here.tm_mon, here.tm_mday + 1, 0, 0, 0, 0, 0, -1))
    return begin, end


def strip_line(
    day: tuple[float, float],
    watched: Iterable[float],
    rows: Sequence[Happening],
    at: float,
    width: int,
) -> Line:
    """Draw a day in `width` cells: the worst event of each, dots where recorded, and the cursor."""
    begin, end = day
    g = current_glyphs()

    def cell_of(then: float) -> int:
        # The last instant may be rounded up to the end.
        return min(width - 1, int((then - begin) / (end - begin) * width))

    cells = [Span(" ")] * width
    for then in watched:
        if begin <= then < end:
            cells[cell_of(then)] = dim_span(g.bar_rest)
    worst: dict[int, Happening] = {}
    for row in rows:
        if begin <= row.at < end:
            place = cell_of(row.at)
            # Of equally bad events the newest is kept.
            if place not in worst or RANKS.get(row.level, 0) >= RANKS.get(worst[place].level, 0):
                worst[place] = row
    for place, row in worst.items():
        default_glyph = "•"
        if g.name == "ascii":
            default_glyph = g.dot
        mark = {"error": g.trouble, "warn": g.warn}.get(row.level, default_glyph)
        tone = Tone.DIM
        if row.level in RANKS:
            tone = level_tone(row.level)
        cells[place] = Span(mark, tone)
    if begin <= at < end:
        cells[cell_of(at)] = Span(g.cursor, Tone.ACCENT)
    return merge_spans(cells)


def hours_line(day: tuple[float, float], width: int) -> Line:
    """Draw the hours below a day of `width` cells; one with a change of the clocks has 23 or 25."""
    # Minimum cells per label, which has 5: labels must not touch.
    label_limit = 8
    hours = next((hours for count, hours in EVERY if width // count >= label_limit), 24)
    begin, end = day
    here = time.localtime(begin)
    text = [" "] * width
    for hour in range(0, 24, hours):
        at = time.mktime((here.tm_year, here.tm_mon, here.tm_mday, hour, 0, 0, 0, 0, -1))
        label = time.strftime("%H:%M", time.localtime(at))
        start = int(at - begin) * width // int(end - begin)
        # A label at the right edge is cut.
        text[start : start + len(label)] = label[: max(0, width - start)]
    return (dim_span("".join(text)[:width]),)


class DayStrip(LineWidget):
    """The day of the moment on screen."""

    DEFAULT_CSS = "DayStrip { height: 2; }"

    def __init__(self) -> None:
        super().__init__(id="strip")
        self._watched: Sequence[float] = ()
        self._rows: Sequence[Happening] = ()
        self._at = 0.0
        self._words = ""

    def show_day(
        self, watched: Sequence[float], rows: Sequence[Happening], at: float, words: str = ""
    ) -> None:
        """Set what to draw. `words`, if given, replace the day: they say why it is missing."""
        self._watched, self._rows, self._at, self._words = watched, rows, at, words
        self.redraw()

    def time_at(self, x: int) -> float:
        """Return the time at a column."""
        begin, end = day_around(self._at)
        return begin + (end - begin) * (x - 1 + 0.5) / max(1, self.size.width - 2)

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the day."""
        if self._words:
            return [clip_line(make_line(" ", Span(self._words, Tone.WARN)), width), EMPTY]
        room = max(1, width - 2)
        day = day_around(self._at)
        return [
            make_line(" ", *strip_line(day, self._watched, self._rows, self._at, room)),
            make_line(" ", *hours_line(day, room)),
        ]
