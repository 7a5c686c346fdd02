"""Help: every key of the screen below, generated from its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from rgt_tui.ui.commands import MOVE, Command, bindings
from rgt_tui.ui.enduring import Enduring
from rgt_tui.ui.glyphs import plain
from rgt_tui.ui.widgets.frame import framed
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line

CLOSE = Command(
    "help.close", ("q", "escape", "question_mark", "f1"), "close", "Close the help.", "close", footer=1
)


def help_lines(commands: Sequence[Command], width: int) -> list[Line]:
    """Return a line for each command: keys, name, and what it does."""
    keys = max((len(plain(c.shown_keys)) for c in commands), default=0)
    names = max((len(c.title) for c in commands), default=0)
    out: list[Line] = []
    for command in commands:
        room = max(0, width - keys - names - 4)
        words, text = command.help.split(), ""
        rows: list[str] = []
        for word in words:
            if text and len(text) + 1 + len(word) > room:
                rows.append(text)
                text = word
            else:
                text = f"{text} {word}" if text else word
        rows.append(text)
        tone = Tone.WARN if command.dangerous else Tone.ACCENT
        for index, row in enumerate(rows):
            first = index == 0
            out.append(
                line(
                    Span(fit(plain(command.shown_keys) if first else "", keys, right=True), tone),
                    "  ",
                    Span(fit(command.title if first else "", names)),
                    "  ",
                    dim(row),
                )
            )
    return out


class HelpPanel(LineWidget):
    """The list of keys in a frame."""

    DEFAULT_CSS = "HelpPanel { width: 1fr; height: 1fr; }"

    def __init__(self, commands: Sequence[Command], place: str) -> None:
        super().__init__(id="help-panel")
        self._commands, self._place = commands, place
        self._top = 0

    def scroll_lines(self, count: int) -> None:
        """Move through a list that is longer than the screen."""
        most = len(help_lines(self._commands, self.size.width - 4)) - (self.size.height - 2)
        self._top = max(0, min(self._top + count, most))
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the list."""
        body = help_lines(self._commands, width - 4)[self._top :]
        title = line(f"{self._place} keys" if self._place else "keys")
        return framed(body, width, height, title=title, hint=line(dim("esc closes")), active=True)


class HelpScreen(Enduring, ModalScreen[None]):
    """Covers the screen whose keys it explains."""

    PLACE = "help"
    KEYS: ClassVar[tuple[Command, ...]] = (CLOSE, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def __init__(self, commands: Sequence[Command], place: str) -> None:
        super().__init__()
        self._commands, self._place = commands, place

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The commands of the help itself."""
        return cls.KEYS

    def compose(self) -> ComposeResult:
        """Lay out the panel."""
        yield HelpPanel(self._commands, self._place)

    def action_close(self) -> None:
        """Close the help."""
        self.dismiss()

    def action_move(self, count: int) -> None:
        """Scroll by lines."""
        self.query_one(HelpPanel).scroll_lines(count)

    def action_page(self, count: int) -> None:
        """Scroll by pages."""
        self.query_one(HelpPanel).scroll_lines(count * max(1, self.size.height - 4))

    def action_move_top(self) -> None:
        """Go to the first line."""
        self.query_one(HelpPanel).scroll_lines(-10_000)

    def action_move_bottom(self) -> None:
        """Go to the last line."""
        self.query_one(HelpPanel).scroll_lines(10_000)

    def on_mouse_scroll_down(self) -> None:
        """Scroll with the wheel."""
        self.action_move(2)

    def on_mouse_scroll_up(self) -> None:
        """Scroll with the wheel."""
        self.action_move(-2)
