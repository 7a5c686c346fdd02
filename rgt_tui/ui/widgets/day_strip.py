"""A day in one line: what was watched, what happened, and the current position."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rgt_tui.model import Happening
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.notation import glyphs
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, dim, line, merged

RANKS = {"error": 2, "warn": 1}
EVERY = ((24, 1), (12, 2), (8, 3), (4, 6), (2, 12))
"""Labels of a day, and the hours between them."""
LABEL = 6
"""Cells that a label takes at least."""


def day_around(at: float) -> tuple[float, float]:
    """Return the local day that a time is in: from when to when."""
    here = time.localtime(at)
    begin = time.mktime((here.tm_year, here.tm_mon, here.tm_mday, 0, 0, 0, 0, 0, -1))
    end = time.mktime((here.tm_year, here.tm_mon, here.tm_mday + 1, 0, 0, 0, 0, 0, -1))
    return begin, end


def strip_line(
    day: tuple[float, float], watched: Iterable[float], rows: Sequence[Happening], at: float, width: int
) -> Line:
    """Return a day in so many cells: the worst event of each, dots where somebody watched, and where one is."""
    begin, end = day
    g = glyphs()

    def cell(then: float) -> int:
        return min(width - 1, int((then - begin) / (end - begin) * width))

    cells = [Span(" ")] * width
    for then in watched:
        if begin <= then < end:
            cells[cell(then)] = dim(g.bar_rest)
    worst: dict[int, Happening] = {}
    for row in rows:
        if begin <= row.at < end:
            place = cell(row.at)
            if place not in worst or RANKS.get(row.level, 0) >= RANKS.get(worst[place].level, 0):
                worst[place] = row
    for place, row in worst.items():
        mark = {"error": g.trouble, "warn": g.warn}.get(row.level, g.dot if g.name == "ascii" else "•")
        cells[place] = Span(mark, level_tone(row.level) if row.level in RANKS else Tone.DIM)
    if begin <= at < end:
        cells[cell(at)] = Span(g.cursor, Tone.ACCENT)
    return merged(cells)


def hours_line(width: int) -> Line:
    """Return the hours below a day of so many cells."""
    count, hours = next(((count, hours) for count, hours in EVERY if width // count >= LABEL), (1, 24))
    text = [" "] * width
    for number in range(count):
        label = f"{number * hours:02d}:00"
        start = number * width // count
        text[start : start + len(label)] = label[: max(0, width - start)]
    return (dim("".join(text)[:width]),)


class DayStrip(LineWidget):
    """The day of the moment that is shown."""

    DEFAULT_CSS = "DayStrip { height: 2; }"

    def __init__(self) -> None:
        super().__init__(id="strip")
        self._watched: Sequence[float] = ()
        self._rows: Sequence[Happening] = ()
        self._at = 0.0
        self._words = ""

    def show(self, watched: Sequence[float], rows: Sequence[Happening], at: float, words: str = "") -> None:
        """Set what there is; `words` stand in place of it where there is nothing."""
        self._watched, self._rows, self._at, self._words = watched, rows, at, words
        self.redraw()

    def time_at(self, x: int) -> float:
        """Return the time of a cell."""
        begin, end = day_around(self._at)
        return begin + (end - begin) * (x - 1 + 0.5) / max(1, self.size.width - 2)

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the day."""
        if self._words:
            return [clip(line(" ", Span(self._words, Tone.WARN)), width), EMPTY]
        room = max(1, width - 2)
        day = day_around(self._at)
        return [
            line(" ", *strip_line(day, self._watched, self._rows, self._at, room)),
            line(" ", *hours_line(room)),
        ]
