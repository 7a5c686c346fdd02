"""The fixed lines of every screen: header and notice at the top, last event, text entry and keys at the bottom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol, cast

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from rgt_tui.model import FleetEvent
from rgt_tui.ui.commands import Command
from rgt_tui.ui.enduring import Enduring
from rgt_tui.ui.notation import clock, glyphs, plain
from rgt_tui.ui.widgets.lines import EntryChanged, EntryClosed, LineWidget
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip,
    dim,
    line,
    pick,
    spread,
    width_of,
)

Parts = list[tuple[int, Line]]
"""What stands at the right end, each part with its importance (lower stays longer)."""


class CrumbChosen(Message):
    """A crumb of the header was clicked."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


BACK = -1
"""In place of a crumb: one screen back."""


class HeaderLine(LineWidget):
    """Crumbs at the left, the summary at the right; where there is a screen below, the name goes back to it."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._crumbs: tuple[str, ...] = ()
        self._parts: Parts = []

    def show(self, crumbs: tuple[str, ...], parts: Parts) -> None:
        """Set both ends."""
        if crumbs != self._crumbs or parts != self._parts:
            self._crumbs, self._parts = crumbs, parts
            self.redraw()

    def crumb_at(self, column: int) -> int | None:
        """Return which crumb stands at a column; the name of the program goes back, else it counts as the first."""
        x = len(" rgt  ")
        if column < x:
            if self._goes_back:
                return BACK
            if self._crumbs:
                return 0
            return None
        for index, crumb in enumerate(self._crumbs):
            end = x + cell_len(crumb)
            if x <= column < end:
                return index
            x = end + len(glyphs().crumb) + 2
        return None

    @property
    def _goes_back(self) -> bool:
        return len(self._crumbs) > 1

    def on_click(self, event: events.Click) -> None:
        """Go to the screen whose crumb is under the pointer."""
        index = self.crumb_at(event.x)
        if index is not None:
            self.post_message(CrumbChosen(index))

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        left: list[Span] = [
            Span(f"{glyphs().back if self._goes_back else ' '}rgt", Tone.ACCENT),
            Span("  "),
        ]
        for index, crumb in enumerate(self._crumbs):
            last = index == len(self._crumbs) - 1
            left.append(Span(crumb, Tone.STRONG if last else Tone.DIM))
            if not last:
                left.append(dim(f" {glyphs().crumb} "))
        room = width - width_of(tuple(left)) - 3
        return [spread(tuple(left), line(pick(room, self._parts), " "), width)]


class NoticeLine(LineWidget):
    """What a person must know of the whole session, for as long as it lasts.

    Args:
        words: What holds, shortest last word first to go.
        advice: What to do; it stays where both do not fit.
    """

    def __init__(self, words: str, advice: str) -> None:
        super().__init__(id="notice")
        self._words, self._advice = words, advice

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        advice = line(" ", Span(self._advice, Tone.STRONG), " ")
        room = width - width_of(advice)
        return [
            clip(line(clip(line(" ", Span(self._words, Tone.WARN)), max(0, room)), *advice), width)
        ]


RANKS = {"error": 2, "warn": 1}
HOLDS_S = {"error": 600.0, "warn": 60.0}
"""For so long an event keeps the line from milder ones."""


def standing(
    events: Sequence[FleetEvent], now: float, seen_at: float = -math.inf
) -> tuple[FleetEvent | None, int]:
    """Return the event that the line says, and how many have come since.

    That is the newest one, unless a worse one before it is recent and nothing has been said since of what it is
    about: an error is not wiped away by *gpt-c started*, but by its own end.

    Args:
        events: Oldest first.
        now: Client clock.
        seen_at: Client clock at which somebody said to have seen what was there.
    """
    if not events:
        return None, 0
    chosen = len(events) - 1
    since: set[tuple[str, str]] = set()
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        if now - event.at >= max(HOLDS_S.values()):
            break
        holds = now - event.at < HOLDS_S.get(event.level, 0.0)
        worse = RANKS.get(event.level, 0) > RANKS.get(events[chosen].level, 0)
        if holds and worse and event.at > seen_at and (event.box, event.about) not in since:
            chosen = place
        if event.about:
            since.add((event.box, event.about))
    return events[chosen], len(events) - 1 - chosen


class EventLine(LineWidget):
    """The event that matters most now (see `standing`), or a hint for as long as one is given."""

    def __init__(self) -> None:
        super().__init__(id="event")
        self._event: FleetEvent | None = None
        self._since = 0
        self._hint: str | None = None
        self._resting = ""

    def show(
        self,
        events: Sequence[FleetEvent],
        now: float,
        resting: str = "",
        seen_at: float = -math.inf,
    ) -> None:
        """Set the last events, oldest first, and what to say while there is none."""
        event, since = standing(events, now, seen_at)
        if (event, since, resting) != (self._event, self._since, self._resting):
            self._event, self._since, self._resting = event, since, resting
            self.redraw()

    def hint(self, text: str | None) -> None:
        """Say something instead of the last event; None ends it."""
        self._hint = text
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        if self._hint:
            return [clip(line(" ", Span(self._hint, Tone.ACCENT)), width)]
        if self._event is None:
            return [clip(line(" ", dim(self._resting)), width) if self._resting else EMPTY]
        event = self._event
        tone = {"error": Tone.TROUBLE, "warn": Tone.WARN}.get(event.level, Tone.TEXT)
        body = line(
            dim(f" {clock(event.at)} "),
            Span(event.box, Tone.STRONG),
            " ",
            Span(event.text, tone),
        )
        newer = line(dim(f" {self._since} since ")) if self._since else EMPTY
        return [spread(body, newer, width)]


SHOWN_AT_MOST = 9
HELP = "app.help"


def layout_keys(commands: Sequence[Command], width: int) -> list[tuple[int, int, Command]]:
    """Return ``(first column, last column + 1, command)`` of those that fit; less important ones give way."""
    wanted = sorted((c for c in commands if c.footer), key=lambda c: (c.id == HELP, c.footer))
    wanted = [*wanted[:-1][: SHOWN_AT_MOST - 1], *wanted[-1:]]
    while wanted:
        places: list[tuple[int, int, Command]] = []
        x = 1
        for command in wanted:
            end = x + len(plain(command.shown_key)) + 1 + len(command.title)
            places.append((x, end, command))
            x = end + 3
        if places[-1][1] <= width - 1:
            return places
        # Help stays: it is the way to all others.
        wanted.pop(-2 if len(wanted) > 1 else -1)
    return []


class KeyLine(LineWidget):
    """Keys of the screen at the left, badges at the right."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__(id="keys")
        self._commands = commands
        self._badges: tuple[str, ...] = ()

    def offer(self, commands: Sequence[Command]) -> None:
        """Show the keys of these commands from now on."""
        if tuple(commands) != tuple(self._commands):
            self._commands = commands
            self.redraw()

    def set_badges(self, *badges: str) -> None:
        """Show words at the right end, e.g. that a GPU is simulated."""
        if badges != self._badges:
            self._badges = badges
            self.redraw()

    def _right(self) -> Line:
        if self._badges:
            return line(*(Span(f" {badge} ", Tone.BADGE) for badge in self._badges))
        return ()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the keys that fit."""
        spans: list[Span] = []
        x = 0
        right = self._right()
        for start, end, command in layout_keys(self._commands, width - width_of(right)):
            spans.append(Span(" " * (start - x)))
            spans.append(
                Span(plain(command.shown_key), Tone.WARN if command.dangerous else Tone.ACCENT)
            )
            spans.append(dim(f" {command.title}"))
            x = end
        return [spread(tuple(spans), right, width)]

    async def on_click(self, event: events.Click) -> None:
        """Run the command under the pointer."""
        for start, end, command in layout_keys(
            self._commands, self.size.width - width_of(self._right())
        ):
            if start <= event.x < end:
                await self.screen.run_action(command.does)
                return


class EntryLabel(LineWidget):
    """What is being typed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.styles.width = len(text) + 3

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the label."""
        return [line(" ", Span(self._text, Tone.ACCENT))]


class EntryNote(LineWidget):
    """What is to be said of what is being typed."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self.styles.width = 0

    def say(self, text: str) -> None:
        """Say something else."""
        self._text = text
        self.styles.width = len(self._text) + 2 if text else 0
        self.styles.max_width = "60%"
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw it."""
        return [clip(line(" ", Span(self._text, Tone.WARN)), width)]


class EntryHost(Protocol):
    """A screen that an entry line is put on."""

    def main_widget(self) -> Widget | None:
        """Return the widget that gets the keys when the entry closes; None = the screen itself."""
        ...


class EntryLine(Enduring, Horizontal):
    """Sends each change; Enter keeps the text, Escape gives it up. Then it goes away and the list has the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    def __init__(self, label: str, text: str) -> None:
        super().__init__()
        self._label, self._text = label, text
        self.leaving = False
        """It is closed: nothing of it is seen any more."""

    @property
    def takes_keys(self) -> bool:
        """True while what is typed comes here."""
        return not self.leaving and any(entry.has_focus for entry in self.query(Input))

    def compose(self) -> ComposeResult:
        """Lay out label and input."""
        yield EntryLabel(self._label)
        yield Input(self._text, select_on_focus=False, compact=True)
        yield EntryNote()

    def say(self, text: str) -> None:
        """Say something of what is being typed, at the right; empty = nothing."""
        for note in self.query(EntryNote):  # there is none any more once the entry goes
            note.say(text)

    def on_mount(self) -> None:
        """Take the keys and the place of the event line."""
        self.screen.query_one("#event").display = False
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Pass the text on."""
        event.stop()
        if self.is_mounted and event.value != self._text:
            self._text = event.value
            self.post_message(EntryChanged(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the text."""
        event.stop()
        self._close(event.value)

    def action_give_up(self) -> None:
        """Drop the text."""
        self._close(None)

    def _close(self, text: str | None) -> None:
        self.leaving = True
        self.screen.set_focus(cast("EntryHost", self.screen).main_widget())
        self.display = False
        self.screen.query_one("#event").display = True
        self.screen.post_message(EntryClosed(text))
        self.remove()
