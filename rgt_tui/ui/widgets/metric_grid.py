"""All metrics of the runs as small plots, as many as fit at a readable size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message

from rgt_tui.ui.notation import glyphs, number, thousands
from rgt_tui.ui.plot.view import Settings, tag
from rgt_tui.ui.widgets.curve import css, curve_tone, drawn
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, dim, line, width_of

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board

LEAST_WIDTH, LEAST_HEIGHT = 38, 8
"""Cells of a small plot, its title included."""
GAP = 2
NAMES = 1
"""Lines above the plots, with the names of the runs."""


BEST_SHAPE = 3.5
"""Columns per row of cells: a plot some 1.7 times as wide as it is high, as a cell is twice as high as it is wide."""


def layout(count: int, width: int, height: int) -> tuple[int, int]:
    """Return into how many columns and rows so many plots are put: all where they fit, in the best shape."""
    width, height = max(1, width), max(1, height)  # it may be drawn before it is laid out
    most = max(1, (width + GAP) // (LEAST_WIDTH + GAP)), max(1, height // LEAST_HEIGHT)
    fitting = [(columns, -(-count // columns)) for columns in range(1, min(count, most[0]) + 1)]
    fitting = [each for each in fitting if each[1] <= most[1]]

    def odd(each: tuple[int, int]) -> float:
        columns, rows = each
        return abs(math.log(width / columns / (height / rows) / BEST_SHAPE)) + 0.1 * (columns * rows - count)

    return min(fitting, key=odd) if fitting else (min(max(1, count), most[0]), most[1] if count else 1)


def newest_told(value: float) -> str:
    """Return a value of any metric: a loss with its decimals, thousands of tokens a second without."""
    return thousands(value) if 1e3 <= abs(value) < 1e6 else number(value)


class MetricGrid(LineWidget):
    """Small plots, the chosen one marked."""

    DEFAULT_CSS = css("MetricGrid")

    class Chosen(Message):
        """A plot was clicked."""

        def __init__(self, metric: str) -> None:
            super().__init__()
            self.metric = metric

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._boards: Mapping[str, Board] = {}
        self._metrics: Sequence[str] = ()
        self._at = 0
        self._empty: Sequence[str] = ()

    def show(
        self, boards: Mapping[str, Board], metrics: Sequence[str], chosen: str, empty: Sequence[str]
    ) -> None:
        """Set what is drawn; `empty` says why where there is nothing."""
        self._boards, self._metrics, self._empty = boards, metrics, empty
        self._at = metrics.index(chosen) if chosen in metrics else 0
        self.redraw()

    @property
    def columns(self) -> int:
        """Plots beside each other."""
        return self._layout[0]

    @property
    def _layout(self) -> tuple[int, int]:
        return layout(len(self._metrics), self.size.width, self.size.height - NAMES)

    def shown_metrics(self) -> Sequence[str]:
        """Return those on screen: the page with the chosen one."""
        columns, rows = self._layout
        first = self._at // (columns * rows) * columns * rows
        return self._metrics[first : first + columns * rows]

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the plots, row by row."""
        shown = self.shown_metrics()
        if not shown:
            return [
                line(" ", Span(text) if place == 0 else dim(text)) for place, text in enumerate(self._empty)
            ]
        columns, rows = layout(len(self._metrics), width, height - NAMES)
        across, down = (width + GAP) // columns - GAP, (height - NAMES) // rows
        lines = [run_names(self._boards[shown[0]], width)]
        for first in range(0, len(shown), columns):
            cells = [self._cell(metric, across, down) for metric in shown[first : first + columns]]
            for parts in zip(*cells, strict=True):
                lines.append(line(*(piece for part in parts for piece in (clip(part, across), " " * GAP))))
        return lines

    def _cell(self, metric: str, width: int, height: int) -> list[Line]:
        board = self._boards[metric]
        chosen = metric == self._metrics[self._at]
        newest = [
            series.last[1]
            for each in board.runs
            if each.key == board.selected or len(board.runs) == 1
            if (series := each.run.series.get(metric)) is not None and series.last is not None
        ]
        title = line(
            Span(f"{glyphs().cursor} " if chosen else "  ", Tone.ACCENT),
            Span(metric, Tone.STRONG if chosen else Tone.TEXT),
            dim(f"  {newest_told(newest[-1])}" if newest else ""),
        )
        frame = board.frame((width, height - 2), ascii_only=not glyphs().braille) if height > 6 else None
        rows = (
            [drawn(row) for row in frame.rows] if frame is not None else [line("  ", dim("nothing to draw"))]
        )
        made = [title, *rows]
        return [*made[:height], *[EMPTY] * (height - len(made))]

    def on_click(self, event: events.Click) -> None:
        """Hand the plot under the pointer to the screen."""
        columns, rows = self._layout
        across, down = (self.size.width + GAP) // columns, max(1, (self.size.height - NAMES) // rows)
        place = (event.y - NAMES) // down * columns + min(event.x // across, columns - 1)
        shown = self.shown_metrics()
        if event.y >= NAMES and 0 <= place < len(shown):
            self.post_message(self.Chosen(shown[place]))


def run_names(board: Board, width: int) -> Line:
    """Return what the numbers and the colours of the small plots mean: as many runs as fit, the others counted."""
    drawn_ = [each for each in board.runs if each.key not in board.settings.hidden]
    several = len({each.box for each in drawn_}) > 1
    numbered = len(drawn_) > 1
    out: Line = (Span(" "),)
    for place, each in enumerate(drawn_):
        number_, name = (
            board.number(each.key),
            f"{each.box} {each.run.name}" if several else each.run.name,
        )
        part = line(Span(f" {tag(number_)} " if numbered else " ", curve_tone(number_)), name, " ")
        left = len(drawn_) - place
        if width_of(out) + width_of(part) > width - (10 if left > 1 else 0):
            return clip(line(*out, dim(f" and {left} more")), width)
        out = (*out, *part)
    return out


def grid_settings(settings: Settings, metric: str) -> Settings:
    """Return how a small plot is drawn: as the large one, without what has no room."""
    return replace(settings, metric=metric, evaluations=False, best=False)
