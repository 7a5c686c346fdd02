"""The plot of curves with its pointer, and the colours of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from textual import events
from textual.message import Message

from rgt_tui.ui.notation import glyphs
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.canvas import Row
    from rgt_tui.ui.plot.frame import Frame

DARK = ("#6ea8e0", "#c59af0", "#58c5d8", "#e28fc2", "#c9ced6", "#8d93f5")
LIGHT = ("#2563a8", "#7a4fc0", "#0b7f92", "#b03a86", "#2a2f36", "#4048c8")
DARK_LOST = ("#3c546c", "#5d4d70", "#355f68", "#6a4a5e", "#5b6068", "#494c73")
LIGHT_LOST = ("#a9c0d8", "#c8b8e2", "#a2ccd3", "#dcb2cd", "#b0b4ba", "#b4b7e6")


def curve_tone(number: int, *, lost: bool = False) -> Tone:
    """Return the tone of a run's curve, or of the part that a resume threw away.

    Tones are names of component classes; these have rules on the widgets that ask for them with `css`, nowhere else.
    """
    return cast(Tone, f"{'lost' if lost else 'curve'}-{number % len(DARK)}")


def css(widget: str) -> str:
    """Return the style rules of `curve_tone` for a widget."""
    rules = []
    for theme, kinds in (("dark", (DARK, DARK_LOST)), ("light", (LIGHT, LIGHT_LOST))):
        for kind, colours in zip(("curve", "lost"), kinds, strict=True):
            for i, colour in enumerate(colours):
                rules.append(f"{widget}:{theme} > .tone--{kind}-{i} {{ color: {colour}; }}")
    return "\n".join(rules)


_FIXED = {0: Tone.TEXT, 1: Tone.DIM, 2: Tone.DIM, 3: Tone.ACCENT, 4: Tone.WARN}
_FIRST_CURVE = 8


class CurvePlot(LineWidget):
    """Curves over the x axis that was chosen."""

    DEFAULT_CSS = css("CurvePlot")

    ALLOW_SELECT = False  # the mouse moves the crosshair

    class Pointed(Message):
        """The pointer is over a place of the x axis (None: it left), or clicked on it."""

        def __init__(self, x: float | None, *, clicked: bool = False) -> None:
            super().__init__()
            self.x = x
            self.clicked = clicked

    class Zoomed(Message):
        """The wheel asked for another window."""

        def __init__(self, factor: float, x: float) -> None:
            super().__init__()
            self.factor = factor
            self.x = x

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._board: Board | None = None
        self._frame: Frame | None = None
        self._empty: Sequence[str] = ()

    @property
    def frame(self) -> Frame | None:
        """What was drawn last."""
        return self._frame

    def forget(self) -> None:
        """Draw anew, whatever was drawn."""
        self._frame = None

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
        return [drawn(row) for row in self._frame.rows]

    def _place(self, event: events.MouseEvent) -> float | None:
        frame = self._frame
        if frame is None or event.x < frame.gutter:
            return None
        return frame.x_at(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the crosshair."""
        self.post_message(self.Pointed(self._place(event)))

    def on_leave(self, event: events.Leave) -> None:
        """Take the crosshair away."""
        self.post_message(self.Pointed(None))

    def on_click(self, event: events.Click) -> None:
        """Pin the crosshair."""
        x = self._place(event)
        if x is not None:
            self.post_message(self.Pointed(x, clicked=True))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Closer."""
        self._zoom(event, 0.8)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out."""
        self._zoom(event, 1.25)

    def _zoom(self, event: events.MouseEvent, factor: float) -> None:
        x = self._place(event)
        if x is not None:
            event.stop()
            self.post_message(self.Zoomed(factor, x))


def drawn(row: Row) -> Line:
    """Return a line of a plot in the tones of its styles."""
    return tuple(Span(text, _tone(style)) for text, style in row)


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
