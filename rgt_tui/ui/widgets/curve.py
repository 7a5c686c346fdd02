"""The plot of curves with its crosshair, the legend of the runs, and a grid of small plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.message import Message

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.ui.notation import compact_time, current_glyphs, format_thousands, number_or_dash
from rgt_tui.ui.plot.view import PlotSettings, RunKey, run_tag
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    make_line,
    width_of,
)

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.canvas import Row
    from rgt_tui.ui.plot.frame import PlotFrame


# Neither red, yellow nor green, which mean trouble and proof.
DARK = ("#6ea8e0", "#c59af0", "#58c5d8", "#e28fc2", "#c9ced6", "#8d93f5")
LIGHT = ("#2563a8", "#7a4fc0", "#0b7f92", "#b03a86", "#2a2f36", "#4048c8")
DARK_LOST = ("#3c546c", "#5d4d70", "#355f68", "#6a4a5e", "#5b6068", "#494c73")
LIGHT_LOST = ("#a9c0d8", "#c8b8e2", "#a2ccd3", "#dcb2cd", "#b0b4ba", "#b4b7e6")
STROKES = ("⠒⠒⠒", "⠒⠂⠒", "⠐⠐⠐", "⠒⠐⠐")
"""A sample of each run's line style, in the order of `rgt_tui.ui.plot.canvas.DASHES`."""
WIDEST_NAME = 32
LEAST_WIDTH, LEAST_HEIGHT = 38, 8
"""Minimum size of a small plot in cells, title included."""
GAP = 2
NAMES = 1
"""Lines above the plots, with the names of the runs."""


def curve_tone(number: int, *, lost: bool = False) -> Tone:
    """Return the tone of a run's curve, or of the part that was lost on a resume.

    Tones are names of component classes; these exist only on widgets that add the rules of
    `build_css`.
    """
    return cast(Tone, f"{'lost' if lost else 'curve'}-{number % len(DARK)}")


def build_css(widget: str) -> str:
    """Return the style rules of `curve_tone` for a widget."""
    rules = []
    for theme, kinds in (("dark", (DARK, DARK_LOST)), ("light", (LIGHT, LIGHT_LOST))):
        for kind, colours in zip(("curve", "lost"), kinds, strict=True):
            for i, colour in enumerate(colours):
                rules.append(f"{widget}:{theme} > .tone--{kind}-{i} {{ color: {colour}; }}")
    return "\n".join(rules)


# The styles of `plot.frame`, which is not imported because it loads numpy.
_FIXED = {0: Tone.TEXT, 1: Tone.DIM, 2: Tone.DIM, 3: Tone.ACCENT, 4: Tone.WARN}


class CurvePlot(LineWidget):
    """Curves over the chosen x axis."""

    DEFAULT_CSS = build_css("CurvePlot")

    ALLOW_SELECT = False  # the mouse moves the crosshair

    class Pointed(Message):
        """The pointer moved over the x axis (None: it left the plot), or clicked on it."""

        def __init__(self, x: float | None, *, clicked: bool = False) -> None:
            super().__init__()
            self.x = x
            self.clicked = clicked

    class Zoomed(Message):
        """The wheel requested a larger or smaller window."""

        def __init__(self, factor: float, x: float) -> None:
            super().__init__()
            self.factor = factor
            self.x = x

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._board: Board | None = None
        self._frame: PlotFrame | None = None
        self._empty: Sequence[str] = ()

    @property
    def drawn_frame(self) -> PlotFrame | None:
        """The last drawn frame."""
        return self._frame

    def forget_frame(self) -> None:
        """Forget the last frame, so that the plot is redrawn from the start."""
        self._frame = None

    def show_board(self, board: Board | None, empty: Sequence[str]) -> None:
        """Draw a board, or the lines `empty` if there is nothing to draw."""
        self._board, self._empty = board, empty
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the plot, or say why it is missing."""
        # The mouse must not point into a plot that is no longer drawn.
        self._frame = None
        if self._board is not None and width >= 20 and height >= 5:
            self._frame = self._board.draw_plot_frame(
                (width, height), ascii_only=not current_glyphs().braille
            )
        if self._frame is None:
            return _centre_lines(self._empty, width, height)
        return [tone_row(row) for row in self._frame.rows]

    def _x_at(self, event: events.MouseEvent) -> float | None:
        frame = self._frame
        if frame is None or event.x < frame.gutter:
            return None
        return frame.x_at(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the crosshair."""
        self.post_message(self.Pointed(self._x_at(event)))

    def on_leave(self, event: events.Leave) -> None:
        """Hide the crosshair."""
        self.post_message(self.Pointed(None))

    def on_click(self, event: events.Click) -> None:
        """Pin the crosshair."""
        x = self._x_at(event)
        if x is not None:
            self.post_message(self.Pointed(x, clicked=True))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in."""
        self._post_zoom(event, 0.8)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out."""
        # The inverse of zooming in: a turn back restores the window.
        self._post_zoom(event, 1.25)

    def _post_zoom(self, event: events.MouseEvent, factor: float) -> None:
        x = self._x_at(event)
        if x is not None:
            event.stop()
            self.post_message(self.Zoomed(factor, x))


def tone_row(row: Row) -> Line:
    """Return a line of a plot in the tones of its styles."""
    return tuple(Span(text, _tone_of_style(style)) for text, style in row)


def _tone_of_style(style: int) -> Tone:
    fixed = _FIXED.get(style)
    if fixed is None:
        # `FIRST_CURVE` of `plot.frame`; the odd styles are for points that a resume has lost.
        first_curve = 8
        return curve_tone((style - first_curve) // 2, lost=bool(style % 2))
    return fixed


def _centre_lines(texts: Sequence[str], width: int, height: int) -> list[Line]:
    """Centre a few lines, slightly above the middle."""
    lines: list[Line] = [EMPTY] * max(0, (height - len(texts)) * 2 // 5)
    for index, text in enumerate(texts):
        pad = " " * max(1, (width - cell_len(text)) // 2)
        if index == 0:
            part = Span(text)
        else:
            part = dim_span(text)
        lines.append(make_line(pad, part))
    return lines


# The legend: every run with its line style, value, state and step, and its notes.


class LegendEntry(FrozenStruct):
    """One run in the legend."""

    key: RunKey
    number: int
    value: float | None
    """At the crosshair if it is shown, otherwise the newest."""
    state: str
    """A cell's state; empty if the box does not report one."""
    step: int | None
    age: float | None
    """Seconds since its last progress, for a run that should progress."""
    shown: bool
    notes: tuple[tuple[str, Tone], ...] = ()
    name: str = ""
    """The displayed name, with the box if there are several; empty = the run's own name."""
    aside: str = ""
    """Why it is hidden, or only partly shown."""
    differs: str = ""
    """How its start parameters differ from the pinned run's."""
    unseen: str = ""
    """Glyph for why its box has not reported for a while; empty if it has."""

    @property
    def shown_name(self) -> str:
        """The displayed name."""
        return self.name or self.key.run


class CurveLegend(SelectableList[RunKey]):
    """All listed runs, the selected one marked."""

    DEFAULT_CSS = build_css("CurveLegend")
    WHEEL = 1

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title = ""
        self._entries: Sequence[LegendEntry] = ()
        self.brief = 0
        """1 = no notes, 2 = also no differences; used where they would hide a curve."""

    def show_runs(
        self, title: str, entries: Sequence[LegendEntry], selected: RunKey | None
    ) -> None:
        """Set the title, the entries and the selected run."""
        self._title, self._entries, self._picked = title, entries, selected
        self._keys = [entry.key for entry in entries]
        self.redraw()

    def needed_height(self, *, brief: int = 0) -> int:
        """Return how many lines the legend needs."""
        if brief:
            return 1 + len(self._entries)
        return 1 + sum(1 + (len(entry.notes) if entry.shown else 0) for entry in self._entries)

    def needed_width(self, *, brief: int = 0) -> int:
        """Return how many columns the legend needs."""
        names = max((cell_len(entry.shown_name) for entry in self._entries), default=0)
        lines = [
            entry_line(entry, 0, min(names, WIDEST_NAME), brief=brief) for entry in self._entries
        ]
        if not brief:
            lines += [
                note_line(note) for entry in self._entries if entry.shown for note in entry.notes
            ]
        return max([width_of(each) for each in lines] + [cell_len(self._title) + 1], default=0) + 1

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the entries around the selected one."""
        lines: list[Line] = []
        owners: list[RunKey | None] = []
        names = min(
            max((cell_len(entry.shown_name) for entry in self._entries), default=0), WIDEST_NAME
        )
        for entry in self._entries:
            lines.append(entry_line(entry, width, names, brief=self.brief))
            owners.append(entry.key)
            for note in entry.notes if entry.shown and not self.brief else ():
                lines.append(note_line(note))
                owners.append(entry.key)
        room = max(1, height - 1)
        at = 0
        if self._picked in owners:
            at = owners.index(self._picked)
        first = min(max(0, at - room // 2), max(0, len(lines) - room))
        below = len(lines) - first - room
        self._owners = [None, *owners[first : first + room]]
        if below <= 0:
            title = self._title
        else:
            title = translate("{title}  {below} more below", title=self._title, below=below)
        return [make_line(" ", dim_span(title)), *lines[first : first + room]]


def note_line(note: tuple[str, Tone]) -> Line:
    """Draw a note below its run."""
    return make_line("       ", Span(*note))


def state_mark(state: str) -> tuple[str, Tone]:
    """Return the glyph of a cell's state and its tone."""
    g = current_glyphs()
    return {
        "running": (g.ok, Tone.TEXT),
        "holding": (g.trouble, Tone.TROUBLE),
        "done": (g.finished, Tone.TEXT),
        "failed": (g.trouble, Tone.TROUBLE),
        "interrupted": (g.warn, Tone.WARN),
    }.get(state, (g.unknown, Tone.DIM))


def line_sample(entry: LegendEntry) -> str:
    """Return a sample of the line that a run is drawn with."""
    if not current_glyphs().braille:
        return "---"
    if entry.shown:
        return STROKES[entry.number % len(STROKES)]
    return "   "


def entry_line(entry: LegendEntry, width: int, names: int, *, brief: int = 0) -> Line:
    """Draw one run: tag, line, name, value, state, step, age, and differences to the pinned run.

    Args:
        entry: The run.
        width: Available columns; 0 = unlimited. The name is cut to fit.
        names: Columns of the longest name.
        brief: 2 = without the differences.
    """
    tone = curve_tone(entry.number)
    glyph, state_tone = state_mark(entry.state)
    quiet = bool(entry.unseen) or not entry.shown
    age = ""
    if entry.age is not None:
        age = compact_time(entry.age)
    if entry.unseen and age:
        stale = f"{entry.unseen} {age}"
    else:
        stale = age
    value_tone = Tone.TEXT
    if quiet or entry.value is None:
        value_tone = Tone.DIM
    glyph_tone = state_tone
    step_tone = Tone.TEXT
    if quiet:
        glyph_tone = Tone.DIM
        step_tone = Tone.DIM
    right = make_line(
        Span(f"{' ' + number_or_dash(entry.value):>8}", value_tone),
        "  ",
        Span(glyph, glyph_tone),
        Span(f"{' ' + format_thousands(entry.step):>8}", step_tone),
        dim_span(f"{stale:>7}" if stale else ""),
        dim_span(f"  {entry.aside}" if entry.aside else ""),
    )
    if not width:
        room = names
    else:
        # 8 cells: the tag, the sample of the line and the blanks.
        room = min(names, max(4, width - width_of(right) - 8))
    if entry.differs and brief < 2:
        differs = Span(f"  {entry.differs}", Tone.ACCENT)
    else:
        differs = Span("")
    line_tone = Tone.DIM
    if entry.shown:
        line_tone = tone
    name_tone = Tone.TEXT
    if not entry.shown:
        name_tone = Tone.DIM
    return make_line(
        " ", Span(run_tag(entry.number), tone), Span(f" {line_sample(entry)} ", line_tone),
        Span(fit_text(entry.shown_name, room), name_tone), *right, differs
    )  # fmt: skip


# All metrics as small plots, as many as fit at a readable size.


def choose_grid(count: int, width: int, height: int) -> tuple[int, int]:
    """Return the columns and rows for `count` plots: those nearest to the best shape that fit."""
    width, height = max(1, width), max(1, height)  # may be drawn before the first layout
    most = max(1, (width + GAP) // (LEAST_WIDTH + GAP)), max(1, height // LEAST_HEIGHT)
    fitting = [(columns, -(-count // columns)) for columns in range(1, min(count, most[0]) + 1)]
    fitting = [each for each in fitting if each[1] <= most[1]]

    def rate_shape(each: tuple[int, int]) -> float:
        columns, rows = each
        # Columns per row. A cell is twice as high as wide, so a plot is about 1.7 times as wide as
        # high.
        best_shape = 3.5
        # Empty places count a little: among similar shapes, the fuller one is chosen.
        return abs(math.log(width / columns / (height / rows) / best_shape)) + 0.1 * (
            columns * rows - count
        )

    if fitting:
        return min(fitting, key=rate_shape)
    return (min(max(1, count), most[0]), most[1] if count else 1)


def format_newest(value: float) -> str:
    """Return the newest value: a loss with its decimals, thousands of tokens a second without."""
    if 1e3 <= abs(value) < 1e6:
        return format_thousands(value)
    return number_or_dash(value)


class MetricGrid(LineWidget):
    """Small plots, the chosen one marked."""

    DEFAULT_CSS = build_css("MetricGrid")

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

    def show_plots(
        self, boards: Mapping[str, Board], metrics: Sequence[str], chosen: str, empty: Sequence[str]
    ) -> None:
        """Set the plots; `empty` says why there are none."""
        self._boards, self._metrics, self._empty = boards, metrics, empty
        if chosen in metrics:
            self._at = metrics.index(chosen)
        else:
            self._at = 0
        self.redraw()

    @property
    def column_count(self) -> int:
        """Number of plots side by side."""
        return self._grid_shape[0]

    @property
    def _grid_shape(self) -> tuple[int, int]:
        return choose_grid(len(self._metrics), self.size.width, self.size.height - NAMES)

    def shown_metrics(self) -> Sequence[str]:
        """Return the metrics on screen: the page with the chosen one."""
        columns, rows = self._grid_shape
        first = self._at // (columns * rows) * columns * rows
        return self._metrics[first : first + columns * rows]

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the plots, row by row."""
        shown = self.shown_metrics()
        if not shown:
            return [
                make_line(" ", Span(text) if place == 0 else dim_span(text))
                for place, text in enumerate(self._empty)
            ]
        columns, rows = choose_grid(len(self._metrics), width, height - NAMES)
        across, down = (width + GAP) // columns - GAP, (height - NAMES) // rows
        lines = [run_names(self._boards[shown[0]], width)]
        for first in range(0, len(shown), columns):
            cells = [
                self._draw_cell(metric, across, down) for metric in shown[first : first + columns]
            ]
            for parts in zip(*cells, strict=True):
                lines.append(
                    make_line(
                        *(piece for part in parts for piece in (clip_line(part, across), " " * GAP))
                    )
                )
        return lines

    def _draw_cell(self, metric: str, width: int, height: int) -> list[Line]:
        board = self._boards[metric]
        chosen = metric == self._metrics[self._at]
        # With several runs, only the selected one has its value in the title.
        newest = [
            series.last_point[1]
            for each in board.runs
            if each.key == board.selected or len(board.runs) == 1
            if (series := each.run.series.get(metric)) is not None and series.last_point is not None
        ]
        pointer = "  "
        metric_tone = Tone.TEXT
        if chosen:
            pointer = f"{current_glyphs().cursor} "
            metric_tone = Tone.STRONG
        title = make_line(
            Span(pointer, Tone.ACCENT),
            Span(metric, metric_tone),
            dim_span(f"  {format_newest(newest[-1])}" if newest else ""),
        )
        if height > 6:
            frame = board.draw_plot_frame(
                (width, height - 2), ascii_only=not current_glyphs().braille
            )
        else:
            frame = None
        if frame is not None:
            rows = [tone_row(row) for row in frame.rows]
        else:
            rows = [make_line("  ", dim_span(translate("nothing to draw")))]
        made = [title, *rows]
        return [*made[:height], *[EMPTY] * (height - len(made))]

    def on_click(self, event: events.Click) -> None:
        """Choose the plot under the pointer."""
        columns, rows = self._grid_shape
        across, down = (
            (self.size.width + GAP) // columns,
            max(1, (self.size.height - NAMES) // rows),
        )
        place = (event.y - NAMES) // down * columns + min(event.x // across, columns - 1)
        shown = self.shown_metrics()
        if event.y >= NAMES and 0 <= place < len(shown):
            self.post_message(self.Chosen(shown[place]))


def run_names(board: Board, width: int) -> Line:
    """Draw the key of the small plots: numbered and coloured run names, as many as fit."""
    drawn_ = [each for each in board.runs if each.key not in board.settings.hidden]
    several = len({each.box for each in drawn_}) > 1
    numbered = len(drawn_) > 1
    out: Line = (Span(" "),)
    for place, each in enumerate(drawn_):
        number_, name = (
            board.run_number(each.key),
            f"{each.box} {each.run.name}" if several else each.run.name,
        )
        tag = " "
        if numbered:
            tag = f" {run_tag(number_)} "
        part = make_line(Span(tag, curve_tone(number_)), name, " ")
        # Room for how many are left out.
        left = len(drawn_) - place
        if width_of(out) + width_of(part) > width - (10 if left > 1 else 0):
            return clip_line(
                make_line(*out, dim_span(translate(" and {left} more", left=left))), width
            )
        out = (*out, *part)
    return out


def grid_settings(settings: PlotSettings, metric: str) -> PlotSettings:
    """Return the settings of a small plot: those of the large one, minus what does not fit."""
    return replace(settings, metric=metric, evaluations=False, best=False)
