"""The fixed lines of every screen: header, notice, last event, text entry and keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, cast

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from rgt_tui.language import translate
from rgt_tui.model import FleetEvent
from rgt_tui.ui.commands import Command
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.notation import clock_or_dash, current_glyphs, make_displayable
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    join_fitting,
    make_line,
    spread_line,
    width_of,
)

Parts = list[tuple[int, Line]]
"""Parts of the right end with their rank; parts with a higher rank are dropped first."""


class CrumbChosen(Message):
    """A crumb of the header was clicked."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


BACK = -1
"""Returned instead of a crumb's index: go back one screen."""


class HeaderLine(LineWidget):
    """Crumbs at the left, the summary at the right; a click on the program's name goes back."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._crumbs: tuple[str, ...] = ()
        self._parts: Parts = []

    def show_parts(self, crumbs: tuple[str, ...], parts: Parts) -> None:
        """Set both ends."""
        if crumbs != self._crumbs or parts != self._parts:
            self._crumbs, self._parts = crumbs, parts
            self.redraw()

    def crumb_at(self, column: int) -> int | None:
        """Return the index of the crumb at a column, or None.

        The program's name goes back one screen, or counts as the first crumb if there is no screen
        below.
        """
        # The same cells before the crumbs as in `make_lines`.
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
            x = end + len(current_glyphs().crumb) + 2
        return None

    @property
    def _goes_back(self) -> bool:
        return len(self._crumbs) > 1

    def on_click(self, event: events.Click) -> None:
        """Go to the screen whose crumb was clicked."""
        index = self.crumb_at(event.x)
        if index is not None:
            self.post_message(CrumbChosen(index))

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        left: list[Span] = [
            Span(
                f"{current_glyphs().back if self._goes_back else ' '}rgt",
                Tone.ACCENT,
            ),
            Span("  "),
        ]
        for index, crumb in enumerate(self._crumbs):
            last = index == len(self._crumbs) - 1
            tone = Tone.DIM
            if last:
                tone = Tone.STRONG
            left.append(Span(crumb, tone))
            if not last:
                left.append(dim_span(f" {current_glyphs().crumb} "))
        room = width - width_of(tuple(left)) - 3
        return [spread_line(tuple(left), make_line(join_fitting(room, self._parts), " "), width)]


class NoticeLine(LineWidget):
    """A warning that applies to the whole session.

    Args:
        words: The warning; cut if both parts do not fit.
        advice: What to do about it; never cut in favour of the warning.
    """

    def __init__(self, words: str, advice: str) -> None:
        super().__init__(id="notice")
        self._words, self._advice = words, advice

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        advice = make_line(" ", Span(self._advice, Tone.STRONG), " ")
        room = width - width_of(advice)
        return [
            clip_line(
                make_line(
                    clip_line(make_line(" ", Span(self._words, Tone.WARN)), max(0, room)), *advice
                ),
                width,
            )
        ]


RANKS = {"error": 2, "warn": 1}
HOLDS_S = {"error": 600.0, "warn": 60.0}
"""Seconds for which an event of that level stays on the line despite newer, milder ones."""


def choose_event(
    events: Sequence[FleetEvent], now: float, seen_at: float = -math.inf
) -> tuple[FleetEvent | None, int]:
    """Return the event to show, and how many newer ones there are.

    This is the newest event, unless a worse one is recent and no later event is about the same
    thing: an error is not replaced by *gpt-c started*, only by the event that ends it.

    Args:
        events: Oldest first.
        now: Client clock.
        seen_at: Client clock up to which the person has marked events as seen.
    """
    if not events:
        return None, 0
    chosen = len(events) - 1
    since: set[tuple[str, str]] = set()
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        # No older event can stay on the line.
        if now - event.at >= max(HOLDS_S.values()):
            break
        holds = now - event.at < HOLDS_S.get(event.level, 0.0)
        worse = RANKS.get(event.level, 0) > RANKS.get(events[chosen].level, 0)
        if holds and worse and event.at > seen_at and (event.box, event.about) not in since:
            chosen = place
        # A later event about the same thing has ended or replaced the older one.
        if event.about:
            since.add((event.box, event.about))
    return events[chosen], len(events) - 1 - chosen


class EventLine(LineWidget):
    """The most important current event (see `choose_event`), or a hint while one is set."""

    def __init__(self) -> None:
        super().__init__(id="event")
        self._event: FleetEvent | None = None
        self._since = 0
        self._hint: str | None = None
        self._resting = ""

    def show_events(
        self,
        events: Sequence[FleetEvent],
        now: float,
        resting: str = "",
        seen_at: float = -math.inf,
    ) -> None:
        """Set the last events, oldest first, and the text to show without one."""
        event, since = choose_event(events, now, seen_at)
        if (event, since, resting) != (self._event, self._since, self._resting):
            self._event, self._since, self._resting = event, since, resting
            self.redraw()

    def show_hint(self, text: str | None) -> None:
        """Show a hint instead of the last event; None ends it."""
        self._hint = text
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        if self._hint:
            return [clip_line(make_line(" ", Span(self._hint, Tone.ACCENT)), width)]
        if self._event is None:
            resting = EMPTY
            if self._resting:
                resting = clip_line(make_line(" ", dim_span(self._resting)), width)
            return [resting]
        event = self._event
        tone = {"error": Tone.TROUBLE, "warn": Tone.WARN}.get(event.level, Tone.TEXT)
        body = make_line(
            dim_span(f" {clock_or_dash(event.at)} "),
            Span(event.box, Tone.STRONG),
            " ",
            Span(event.text, tone),
        )
        if self._since:
            newer = make_line(dim_span(translate(" {count} more ", count=self._since)))
        else:
            newer = EMPTY
        return [spread_line(body, newer, width)]


HELP = "app.help"


def layout_keys(commands: Sequence[Command], width: int) -> list[tuple[int, int, Command]]:
    """Return ``(first column, last column + 1, command)`` of the keys that fit, by importance."""
    wanted = sorted((c for c in commands if c.footer), key=lambda c: (c.id == HELP, c.footer))
    shown_at_most = 9
    # The last one is Help, see the sort key.
    wanted = [*wanted[:-1][: shown_at_most - 1], *wanted[-1:]]
    while wanted:
        places: list[tuple[int, int, Command]] = []
        x = 1
        for command in wanted:
            end = x + len(make_displayable(command.shown_key)) + 1 + cell_len(command.shown_title)
            places.append((x, end, command))
            x = end + 3
        if places[-1][1] <= width - 1:
            return places
        # Help is never dropped: it leads to all other keys.
        wanted.pop(-2 if len(wanted) > 1 else -1)
    return []


ENTRY = (
    Command("entry.keep", ("enter",), "done", "", footer=1),
    Command("entry.give-up", ("escape",), "cancel", "", footer=2),
)
"""The keys that count while a line is typed; all others are typed."""


class KeyLine(LineWidget):
    """Keys of the screen at the left, badges at the right."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__(id="keys")
        self._commands = commands
        self._badges: tuple[str, ...] = ()
        self._entry: EntryLine | None = None

    @property
    def _shown_commands(self) -> Sequence[Command]:
        if self._entry is None:
            return self._commands
        return ENTRY

    def follow_entry(self, entry: EntryLine | None) -> None:
        """Show the keys of an entry line while it is open; None = those of the screen again."""
        self._entry = entry
        self.redraw()

    def show_commands(self, commands: Sequence[Command]) -> None:
        """Show the keys of these commands."""
        if tuple(commands) != tuple(self._commands):
            self._commands = commands
            self.redraw()

    def set_badges(self, *badges: str) -> None:
        """Set the badges at the right end, e.g. that a GPU is simulated."""
        if badges != self._badges:
            self._badges = badges
            self.redraw()

    def _badge_line(self) -> Line:
        if self._badges:
            return make_line(*(Span(f" {badge} ", Tone.BADGE) for badge in self._badges))
        return ()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the keys that fit."""
        spans: list[Span] = []
        x = 0
        right = self._badge_line()
        for start, end, command in layout_keys(self._shown_commands, width - width_of(right)):
            spans.append(Span(" " * (start - x)))
            tone = Tone.ACCENT
            if command.dangerous:
                tone = Tone.WARN
            spans.append(Span(make_displayable(command.shown_key), tone))
            spans.append(dim_span(f" {command.shown_title}"))
            x = end
        return [spread_line(tuple(spans), right, width)]

    async def on_click(self, event: events.Click) -> None:
        """Run the command that was clicked."""
        for start, end, command in layout_keys(
            self._shown_commands, self.size.width - width_of(self._badge_line())
        ):
            if start <= event.x < end:
                await (self._entry or self.screen).run_action(command.textual_action)
                return


class EntryLabel(LineWidget):
    """The label of an entry."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.styles.width = cell_len(text) + 3

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the label."""
        return [make_line(" ", Span(self._text, Tone.ACCENT))]


class EntryNote(LineWidget):
    """A message about the text being typed."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self.styles.width = 0

    def show_note(self, text: str) -> None:
        """Set the message; empty hides it."""
        self._text = text
        if text:
            self.styles.width = cell_len(self._text) + 2
        else:
            self.styles.width = 0
        # The text being typed keeps the rest of the line.
        self.styles.max_width = "60%"
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the message."""
        return [clip_line(make_line(" ", Span(self._text, Tone.WARN)), width)]


class EntryHost(Protocol):
    """A screen that shows an entry line."""

    def main_widget(self) -> Widget | None:
        """Return the widget to focus when the entry closes; None = the screen itself."""
        ...


class EntryLine(FaultTolerant, Horizontal):
    """Enter keeps the text, Escape discards it. Then the entry closes.

    Args:
        label: Left of the text.
        text: To begin with.
        done: Called with the text that Enter keeps.
        changed: Called with the text while it is typed, and with an empty one if Escape discards
            it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    def __init__(
        self, label: str, text: str, done: Callable[[str], None], changed: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._label, self._text, self._done, self._changed = label, text, done, changed
        self.leaving = False
        """Whether it is closed and about to be removed."""

    @property
    def takes_keys(self) -> bool:
        """Whether the keyboard input goes here."""
        # The input gets the focus a moment after it was added.
        return not self.leaving and any(entry.has_focus for entry in self.query(Input))

    def compose(self) -> ComposeResult:
        """Lay out label and input."""
        yield EntryLabel(self._label)
        yield Input(self._text, select_on_focus=False, compact=True)
        yield EntryNote()

    def show_note(self, text: str) -> None:
        """Show a message about the text at the right; empty hides it."""
        for note in self.query(EntryNote):  # the note is already gone while the entry closes
            note.show_note(text)

    def on_mount(self) -> None:
        """Focus the input, and hide the event line."""
        self.screen.query_one("#event").display = False
        for keys in self.screen.query(KeyLine):
            keys.follow_entry(self)
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Forward the changed text."""
        event.stop()
        if self.is_mounted and event.value != self._text:
            self._text = event.value
            self._changed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the text."""
        event.stop()
        self.action_keep()

    def action_keep(self) -> None:
        """Close with the text."""
        text = self.query_one(Input).value
        # Closed first, because `done` may open the next entry.
        self._close_entry()
        self._done(text)

    def action_give_up(self) -> None:
        """Close without the text."""
        self._close_entry()
        self._changed("")

    def _close_entry(self) -> None:
        self.leaving = True
        for keys in self.screen.query(KeyLine):
            keys.follow_entry(None)
        # First: Textual moves the focus to any other widget when this one disappears.
        self.screen.set_focus(cast("EntryHost", self.screen).main_widget())
        # At once, because `remove` takes effect later.
        self.display = False
        self.screen.query_one("#event").display = True
        self.remove()
