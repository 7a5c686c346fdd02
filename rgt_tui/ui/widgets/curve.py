"""The plot of curves with its pointer, the legend beside it, and the colours of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.message import Message

from rgt_tui.ui.notation import clean, compact_time, glyphs, number, thousands
from rgt_tui.ui.plot.view import tag
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, fit, line

if TYPE_CHECKING:
    from rgt_tui.ui.plot.frame import Board, Frame

DARK = ("#6ea8e0", "#c59af0", "#58c5d8", "#e28fc2", "#c9ced6", "#8d93f5")
LIGHT = ("#2563a8", "#7a4fc0", "#0b7f92", "#b03a86", "#2a2f36", "#4048c8")
DARK_LOST = ("#3c546c", "#5d4d70", "#355f68", "#6a4a5e", "#5b6068", "#494c73")
LIGHT_LOST = ("#a9c0d8", "#c8b8e2", "#a2ccd3", "#dcb2cd", "#b0b4ba", "#b4b7e6")


def curve_tone(number: int, *, lost: bool = False) -> Tone:
    """Return the tone of a run's curve, or of the part that a resume threw away.

    Tones are names of component classes; these exist on the widgets that declare `CLASSES`, nowhere else.
    """
    return cast(Tone, f"{'lost' if lost else 'curve'}-{number % len(DARK)}")


CLASSES = {f"tone--{kind}-{i}" for kind in ("curve", "lost") for i in range(len(DARK))}


def css(widget: str) -> str:
    """Return the style rules of `CLASSES` for a widget."""
    rules = []
    for theme, kinds in (("dark", (DARK, DARK_LOST)), ("light", (LIGHT, LIGHT_LOST))):
        for kind, colours in zip(("curve", "lost"), kinds, strict=True):
            for i, colour in enumerate(colours):
                rules.append(f"{widget}:{theme} > .tone--{kind}-{i} {{ color: {colour}; }}")
    return "\n".join(rules)


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


_FIXED = {0: Tone.TEXT, 1: Tone.DIM, 2: Tone.DIM, 3: Tone.ACCENT, 4: Tone.WARN}
_FIRST_CURVE = 8


class CurvePlot(LineWidget):
    """Curves over steps."""

    COMPONENT_CLASSES: ClassVar[set[str]] = CLASSES
    DEFAULT_CSS = css("CurvePlot")

    class Pointed(Message):
        """The pointer is over a step (None: it left), or clicked on it."""

        def __init__(self, step: float | None, *, clicked: bool = False) -> None:
            super().__init__()
            self.step = step
            self.clicked = clicked

    class Zoomed(Message):
        """The wheel asked for another window."""

        def __init__(self, factor: float, step: float) -> None:
            super().__init__()
            self.factor = factor
            self.step = step

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._board: Board | None = None
        self._frame: Frame | None = None
        self._empty: Sequence[str] = ()

    @property
    def frame(self) -> Frame | None:
        """What was drawn last."""
        return self._frame

    def show(self, board: Board | None, empty: Sequence[str]) -> None:
        """Draw a board, or the lines `empty` where there is nothing to draw."""
        self._board, self._empty = board, empty
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the plot, or say why there is none."""
        self._frame = None
        if self._board is not None and width >= 20 and height >= 5:
            self._frame = self._board.frame((width, height), ascii_only=not glyphs().braille)
        if self._frame is None:
            return _centred(self._empty, width, height)
        return [tuple(Span(text, _tone(style)) for text, style in row) for row in self._frame.rows]

    def _step(self, event: events.MouseEvent) -> float | None:
        frame = self._frame
        if frame is None or event.x < frame.gutter:
            return None
        return frame.step_at(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the crosshair."""
        self.post_message(self.Pointed(self._step(event)))

    def on_leave(self, event: events.Leave) -> None:
        """Take the crosshair away."""
        self.post_message(self.Pointed(None))

    def on_click(self, event: events.Click) -> None:
        """Pin the crosshair."""
        step = self._step(event)
        if step is not None:
            self.post_message(self.Pointed(step, clicked=True))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Closer."""
        self._zoom(event, 0.8)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out."""
        self._zoom(event, 1.25)

    def _zoom(self, event: events.MouseEvent, factor: float) -> None:
        step = self._step(event)
        if step is not None:
            event.stop()
            self.post_message(self.Zoomed(factor, step))


def _tone(style: int) -> Tone:
    fixed = _FIXED.get(style)
    return curve_tone((style - _FIRST_CURVE) // 2, lost=bool(style % 2)) if fixed is None else fixed


def _centred(texts: Sequence[str], width: int, height: int) -> list[Line]:
    """Put a few lines where the eye is: a little above the middle."""
    lines: list[Line] = [EMPTY] * max(0, (height - len(texts)) * 2 // 5)
    for index, text in enumerate(texts):
        pad = " " * max(1, (width - len(text)) // 2)
        lines.append(line(pad, Span(text) if index == 0 else dim(text)))
    return lines
