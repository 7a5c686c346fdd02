"""The first line (where am I, how is it) and the line above the keys (what happened last)."""

from __future__ import annotations

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


class EventLine(LineWidget):
    """The last event of the fleet, or a hint for as long as one is given."""

    def __init__(self) -> None:
        super().__init__(id="event")
        self._event: FleetEvent | None = None
        self._hint: str | None = None
        self._resting = ""

    def show(self, event: FleetEvent | None, resting: str = "") -> None:
        """Set the last event, and what to say while there is none."""
        if event != self._event or resting != self._resting:
            self._event, self._resting = event, resting
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
        return [clip(body, width)]
