"""The legend of the curves: every run with its line style, value, state and step, and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rgt_tui.ui.notation import compact_time, glyphs, number, thousands
from rgt_tui.ui.plot.view import RunKey, tag
from rgt_tui.ui.widgets.curve import css, curve_tone
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line, width_of

STROKES = ("⠒⠒⠒", "⠒⠂⠒", "⠐⠐⠐", "⠒⠐⠐")
"""A piece of each of the lines that runs are drawn with, in the order of `rgt_tui.ui.plot.canvas.DASHES`."""
WIDEST_NAME = 32


@dataclass(frozen=True)
class Entry:
    """One run in the legend."""

    key: RunKey
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
    name: str = ""
    """What it is called here: with its box where there are several."""
    aside: str = ""
    """Why it is not shown, or not all of it."""
    differs: str = ""
    """In what it was started differently from the pinned run."""
    unseen: str = ""
    """The glyph that says why its box has not been heard of for a while; empty where it has."""

    @property
    def shown_name(self) -> str:
        """The name as it is written."""
        return self.name or self.key.run


class CurveLegend(SelectableList[RunKey]):
    """All runs that are listed, the selected one marked."""

    DEFAULT_CSS = css("CurveLegend")
    WHEEL = 1

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title = ""
        self._entries: Sequence[Entry] = ()
        self.brief = 0
        """1 = without what happened to the runs, 2 = and in what they differ: where that would hide a curve."""

    def show_runs(self, title: str, entries: Sequence[Entry], selected: RunKey | None) -> None:
        """Set what is listed."""
        self._title, self._entries, self._picked = title, entries, selected
        self._keys = [entry.key for entry in entries]
        self.redraw()

    def needed(self, *, brief: int = 0) -> int:
        """Return how many lines it would take."""
        if brief:
            return 1 + len(self._entries)
        return 1 + sum(1 + (len(entry.notes) if entry.shown else 0) for entry in self._entries)

    def needed_width(self, *, brief: int = 0) -> int:
        """Return how many columns it would take."""
        names = max((len(entry.shown_name) for entry in self._entries), default=0)
        lines = [entry_line(entry, 0, min(names, WIDEST_NAME), brief=brief) for entry in self._entries]
        if not brief:
            lines += [note_line(note) for entry in self._entries if entry.shown for note in entry.notes]
        return max([width_of(each) for each in lines] + [len(self._title) + 1], default=0) + 1

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the entries around the selected one."""
        lines: list[Line] = []
        owners: list[RunKey | None] = []
        names = min(max((len(entry.shown_name) for entry in self._entries), default=0), WIDEST_NAME)
        for entry in self._entries:
            lines.append(entry_line(entry, width, names, brief=self.brief))
            owners.append(entry.key)
            for note in entry.notes if entry.shown and not self.brief else ():
                lines.append(note_line(note))
                owners.append(entry.key)
        room = max(1, height - 1)
        at = owners.index(self._picked) if self._picked in owners else 0
        first = min(max(0, at - room // 2), max(0, len(lines) - room))
        below = len(lines) - first - room
        self._owners = [None, *owners[first : first + room]]
        title = self._title if below <= 0 else f"{self._title}  {below} more below"
        return [line(" ", dim(title)), *lines[first : first + room]]


def note_line(note: tuple[str, Tone]) -> Line:
    """Draw what happened to a run, below it."""
    return line("       ", Span(*note))


def state_mark(state: str) -> tuple[str, Tone]:
    """Return the glyph of a cell's state and its tone."""
    g = glyphs()
    return {
        "running": (g.ok, Tone.TEXT),
        "holding": (g.trouble, Tone.TROUBLE),
        "done": (g.finished, Tone.TEXT),
        "failed": (g.trouble, Tone.TROUBLE),
        "interrupted": (g.warn, Tone.WARN),
    }.get(state, (g.unknown, Tone.DIM))


def stroke(entry: Entry) -> str:
    """Return a piece of the line that a run is drawn with."""
    if not glyphs().braille:
        return "---"
    return STROKES[entry.number % len(STROKES)] if entry.shown else "   "


def entry_line(entry: Entry, width: int, names: int, *, brief: int = 0) -> Line:
    """Draw one run: tag, line, name, value, state, step, age, and in what it differs from the pinned one.

    Args:
        entry: The run.
        width: Columns there are; 0 = as many as it takes. What does not fit is cut from the name.
        names: Columns of the longest name.
        brief: 2 = without what differs.
    """
    tone = curve_tone(entry.number)
    glyph, state_tone = state_mark(entry.state)
    quiet = bool(entry.unseen) or not entry.shown
    age = compact_time(entry.age) if entry.age is not None else ""
    stale = f"{entry.unseen} {age}" if entry.unseen and age else age
    right = line(
        Span(f"{' ' + number(entry.value):>8}", Tone.DIM if quiet or entry.value is None else Tone.TEXT),
        "  ",
        Span(glyph, Tone.DIM if quiet else state_tone),
        Span(f"{' ' + thousands(entry.step):>8}", Tone.DIM if quiet else Tone.TEXT),
        dim(f"{stale:>7}" if stale else ""),
        dim(f"  {entry.aside}" if entry.aside else ""),
    )
    room = names if not width else min(names, max(4, width - width_of(right) - 8))
    differs = Span(f"  {entry.differs}", Tone.ACCENT) if entry.differs and brief < 2 else Span("")
    return line(
        " ", Span(tag(entry.number), tone), Span(f" {stroke(entry)} ", tone if entry.shown else Tone.DIM),
        Span(fit(entry.shown_name, room), Tone.DIM if not entry.shown else Tone.TEXT), *right, differs,
    )  # fmt: skip
