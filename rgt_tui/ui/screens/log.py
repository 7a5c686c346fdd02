"""A log on the whole screen, with search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.commands import LOG, LOG_LINES, MOVE, Command, bindings
from rgt_tui.ui.messages import EntryChanged, EntryClosed
from rgt_tui.ui.screens.follow import LogKeys
from rgt_tui.ui.widgets.log_pane import LogPane


class LogScreen(LogKeys):
    """The log of a box."""

    PLACE = "log"
    KEYS: ClassVar[tuple[Command, ...]] = (*LOG, *LOG_LINES, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def body(self) -> Iterable[Widget]:
        """One pane."""
        yield LogPane(id="log")

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the new lines."""
        if self.box is not None:
            self.show_log(self.box, now)

    def action_search(self) -> None:
        """Open the entry line of the search."""
        self.open_entry("search", self.log_pane.cursor.searched)

    def on_entry_changed(self, message: EntryChanged) -> None:
        """Mark matches while typing."""
        self.log_pane.cursor.search(message.text)
        self.log_pane.redraw()

    def on_entry_closed(self, message: EntryClosed) -> None:
        """Go to the newest match, or end the search."""
        if not message.text:
            self.clear()
            return
        self.log_pane.cursor.search(message.text)
        self.action_next_match(-1)

    def action_next_match(self, direction: int) -> None:
        """Go to another matching line."""
        pane = self.log_pane
        if not pane.cursor.searched:
            self.hint("no active search; / starts one")
        elif not pane.cursor.next_match(direction, pane.rows):
            self.hint("no more matches in the lines kept here")
        pane.redraw()

    def action_toggle_wrap(self) -> None:
        """Wrap or cut long lines."""
        self.log_pane.wrap = not self.log_pane.wrap
        self.log_pane.redraw()

    def action_sideways(self, direction: int) -> None:
        """Scroll cut lines."""
        self.log_pane.sideways(direction)

    def clear(self) -> bool:
        """End the search."""
        had = bool(self.log_pane.cursor.searched)
        self.log_pane.cursor.search("")
        self.log_pane.redraw()
        return had
