"""Help and palette: every key of the screen below, generated from its commands."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import ModalScreen

from rgt_tui.ui.commands import APP, MOVE, Command, bindings
from rgt_tui.ui.enduring import Enduring
from rgt_tui.ui.notation import plain
from rgt_tui.ui.screens.base import Moves
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.panes import framed
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line, wrapped


class ScreenCommands(Provider):
    """Offers every command of the current screen."""

    def _commands(self) -> tuple[Command, ...]:
        commands = getattr(self.screen, "offered", None) or getattr(self.screen, "commands", None)
        return commands() if callable(commands) else APP

    async def discover(self) -> Hits:
        """List all commands while nothing is typed."""
        for command in self._commands():
            yield DiscoveryHit(self._label(command), self._runner(command), help=command.help)

    async def search(self, query: str) -> Hits:
        """List the commands that match."""
        matcher = self.matcher(query)
        for command in self._commands():
            score = matcher.match(f"{command.title} {command.help}")
            if score > 0:
                yield Hit(score, self._label(command), self._runner(command), help=command.help)

    def _label(self, command: Command) -> str:
        return f"{command.title}  ({command.shown_key})".replace("[", r"\[")

    def _runner(self, command: Command) -> partial[Coroutine[object, object, None]]:
        return partial(self.screen.run_action, command.does)


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
        tone = Tone.WARN if command.dangerous else Tone.ACCENT
        for index, row in enumerate(wrapped(command.help, room, Tone.DIM)):
            key = plain(command.shown_keys) if index == 0 else ""
            name = command.title if index == 0 else ""
            out.append(line(Span(fit(key, keys, right=True), tone), "  ", Span(fit(name, names)), "  ", *row))
    return out


class HelpPanel(LineWidget):
    """The list of keys in a frame."""

    DEFAULT_CSS = "HelpPanel { width: 1fr; height: 1fr; }"
    WHEEL = 2

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


class HelpScreen(Moves, Enduring, ModalScreen[None]):
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

    @property
    def page_rows(self) -> int:
        """Rows of the panel."""
        return self.size.height - 4
