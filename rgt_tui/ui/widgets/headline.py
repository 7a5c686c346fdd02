"""The first line (where am I, how is it) and the line above the keys (what happened last)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rgt_tui.model.fleet import FleetEvent
from rgt_tui.ui.format import clean, clock
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, dim, line, pick, spread, width_of

Parts = list[tuple[int, Line]]
"""What stands at the right end, each part with its importance (lower stays longer)."""


class HeaderLine(LineWidget):
    """Crumbs at the left, the summary at the right."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._crumbs: tuple[str, ...] = ()
        self._parts: Parts = []

    def show(self, crumbs: tuple[str, ...], parts: Parts) -> None:
        """Set both ends."""
        if crumbs != self._crumbs or parts != self._parts:
            self._crumbs, self._parts = crumbs, parts
            self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the line."""
        left: list[Span] = [Span(" rgt", Tone.ACCENT), Span("  ")]
        for index, crumb in enumerate(self._crumbs):
            last = index == len(self._crumbs) - 1
            left.append(Span(clean(crumb), Tone.STRONG if last else Tone.DIM))
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
        advice = line(" ", Span(clean(self._advice), Tone.STRONG), " ")
        room = width - width_of(advice)
        return [
            clip(line(clip(line(" ", Span(clean(self._words), Tone.WARN)), max(0, room)), *advice), width)
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
        self, events: Sequence[FleetEvent], now: float, resting: str = "", seen_at: float = -math.inf
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
            return [clip(line(" ", Span(clean(self._hint), Tone.ACCENT)), width)]
        if self._event is None:
            return [clip(line(" ", dim(clean(self._resting))), width) if self._resting else EMPTY]
        event = self._event
        tone = {"error": Tone.TROUBLE, "warn": Tone.WARN}.get(event.level, Tone.TEXT)
        body = line(
            dim(f" {clock(event.at)} "),
            Span(clean(event.box), Tone.STRONG),
            " ",
            Span(clean(event.text), tone),
        )
        newer = line(dim(f" {self._since} since ")) if self._since else EMPTY
        return [spread(body, newer, width)]
