"""The key line at the bottom: the screen's most important commands, each clickable, and the SIM badge."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from rgt_tui.ui.commands import Command
from rgt_tui.ui.glyphs import plain
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, line, spread, width_of

SHOWN_AT_MOST = 9


def layout_keys(commands: Sequence[Command], width: int) -> list[tuple[int, int, Command]]:
    """Return ``(first column, last column + 1, command)`` of those that fit; less important ones give way."""
    wanted = sorted((c for c in commands if c.footer), key=lambda c: c.footer)[:SHOWN_AT_MOST]
    while wanted:
        places: list[tuple[int, int, Command]] = []
        x = 1
        for command in wanted:
            end = x + len(plain(command.shown_key)) + 1 + len(command.title)
            places.append((x, end, command))
            x = end + 3
        if places[-1][1] <= width - 1:
            return places
        # Help stays: it is the way to all others.
        wanted.pop(-2 if len(wanted) > 1 else -1)
    return []


class KeyLine(LineWidget):
    """Keys of the screen at the left, badges at the right."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__(id="keys")
        self._commands = commands
        self._badges: tuple[str, ...] = ()

    def set_badges(self, *badges: str) -> None:
        """Show words at the right end, e.g. that a GPU is simulated."""
        if badges != self._badges:
            self._badges = badges
            self.redraw()

    def _right(self) -> Line:
        return line(*(Span(f" {badge} ", Tone.BADGE) for badge in self._badges)) if self._badges else ()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the keys that fit."""
        spans: list[Span] = []
        x = 0
        right = self._right()
        for start, end, command in layout_keys(self._commands, width - width_of(right)):
            spans.append(Span(" " * (start - x)))
            spans.append(Span(plain(command.shown_key), Tone.WARN if command.dangerous else Tone.ACCENT))
            spans.append(dim(f" {command.title}"))
            x = end
        return [spread(tuple(spans), right, width)]

    async def on_click(self, event: events.Click) -> None:
        """Run the command under the pointer."""
        for start, end, command in layout_keys(self._commands, self.size.width - width_of(self._right())):
            if start <= event.x < end:
                await self.screen.run_action(command.does)
                return
