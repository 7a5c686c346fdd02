"""The plot: shows a board's frame, and tells the screen where the pointer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.message import Message

from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.curve_tones import CLASSES, css, curve_tone
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.frame import Frame

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
