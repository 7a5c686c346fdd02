"""The legend: one line per run with its value, state and step, and under it what happened to the curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.message import Message

from rgt_tui.ui.format import clean, compact_time, number, thousands
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.plot.settings import tag
from rgt_tui.ui.widgets.curve_tones import CLASSES, css, curve_tone
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line


@dataclass(frozen=True)
class Entry:
    """One run in the legend."""

    run: str
    number: int
    value: float | None
    """At the crosshair if there is one, else the newest."""
    state: str
    """A cell's state, or empty where the box has no word for it."""
    step: int | None
    age: float | None
    """Seconds since it last moved on, for a run that should be moving."""
    shown: bool
    notes: tuple[tuple[str, Tone], ...] = ()


class CurveLegend(LineWidget):
    """All runs of the box, the selected one marked."""

    COMPONENT_CLASSES: ClassVar[set[str]] = CLASSES
    DEFAULT_CSS = css("CurveLegend")

    class Picked(Message):
        """A run was clicked."""

        def __init__(self, run: str) -> None:
            super().__init__()
            self.run = run

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title = ""
        self._entries: Sequence[Entry] = ()
        self._cursor: str | None = None
        self._stale = False
        self._owners: list[str | None] = []

    def show(self, title: str, entries: Sequence[Entry], selected: str | None, *, stale: bool) -> None:
        """Set what is listed."""
        self._title, self._entries, self._cursor, self._stale = title, entries, selected, stale
        self.redraw()

    def needed(self) -> int:
        """Return how many lines everything would take."""
        return 1 + sum(1 + len(entry.notes) for entry in self._entries)

    def selected_line(self) -> int | None:
        """The first line of the selected run."""
        if self._cursor is None or self._cursor not in self._owners:
            return None
        return self._owners.index(self._cursor)

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the entries around the selected one."""
        lines: list[Line] = []
        owners: list[str | None] = []
        for entry in self._entries:
            lines.append(entry_line(entry, width, stale=self._stale))
            owners.append(entry.run)
            for note, tone in entry.notes if entry.shown else ():
                lines.append(line("     ", Span(note, tone)))
                owners.append(entry.run)
        room = max(1, height - 1)
        at = owners.index(self._cursor) if self._cursor in owners else 0
        first = min(max(0, at - room // 2), max(0, len(lines) - room))
        below = len(lines) - first - room
        self._owners = [None, *owners[first : first + room]]
        title = self._title if below <= 0 else f"{self._title}  {below} more below"
        return [line(" ", dim(title)), *lines[first : first + room]]

    def on_click(self, event: events.Click) -> None:
        """Hand the run under the pointer to the screen."""
        run = self._owners[event.y] if 0 <= event.y < len(self._owners) else None
        if run is not None:
            self.post_message(self.Picked(run))


def state_mark(state: str) -> tuple[str, Tone]:
    """Return the glyph of a cell's state and its tone."""
    g = glyphs()
    return {
        "running": (g.ok, Tone.TEXT),
        "done": (g.finished, Tone.TEXT),
        "failed": (g.trouble, Tone.TROUBLE),
        "interrupted": (g.warn, Tone.WARN),
    }.get(state, (g.unknown, Tone.DIM))


def entry_line(entry: Entry, width: int, *, stale: bool) -> Line:
    """Draw one run: tag, line, name, value, state, step, age, as far as there is room."""
    tone = curve_tone(entry.number)
    stroke = "-" if not glyphs().braille else ("━" if entry.shown else "┄")
    glyph, state_tone = state_mark(entry.state)
    quiet = stale or not entry.shown
    value_tone = Tone.DIM if quiet or entry.value is None else Tone.TEXT
    word = f"{glyph} {entry.state}" if width >= 42 and entry.state else glyph
    right = line(
        Span(f"{number(entry.value):>8}", value_tone),
        "  ",
        Span(fit(word, 11 if width >= 42 else len(glyph)), Tone.DIM if quiet else state_tone),
        Span(f"{thousands(entry.step):>8}", Tone.DIM if quiet else Tone.TEXT),
        dim(f"{compact_time(entry.age) if entry.age is not None else '':>6}"),
    )
    used = sum(len(span.text) for span in right) + 6
    name = fit(clean(entry.run), min(32, max(4, width - used)))
    return line(
        " ", Span(tag(entry.number), tone), Span(f" {stroke} ", tone if entry.shown else Tone.DIM),
        Span(name, Tone.DIM if not entry.shown else Tone.TEXT), *right,
    )  # fmt: skip
