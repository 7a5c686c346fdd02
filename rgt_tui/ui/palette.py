"""The command palette's source: the commands of the screen that is on top, and of the app."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from rgt_tui.ui.commands import APP, Command


class ScreenCommands(Provider):
    """Offers every command of the current screen."""

    def _commands(self) -> tuple[Command, ...]:
        commands = getattr(self.screen, "commands", None)
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
