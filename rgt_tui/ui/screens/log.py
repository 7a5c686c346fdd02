"""A log on the whole screen, with search; and the keys that the box screen shares with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.model.box import BoxState, LogView
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.box_status import current_cell
from rgt_tui.ui.commands import LOG, LOG_LINES, MOVE, Command, bindings
from rgt_tui.ui.screens.base import FleetAwareScreen, Moves
from rgt_tui.ui.widgets.lines import EntryChanged, EntryClosed
from rgt_tui.ui.widgets.log_pane import LogPane


def choose_log(box: BoxState, wanted: str | None) -> LogView | None:
    """Return the log that was asked for, else that of the running cell, else the one that moved last."""
    if wanted is not None:
        found = next((view for view in box.logs if view.path == wanted), None)
        if found is not None:
            return found
    current = current_cell(box)
    if current is not None and current[1].log is not None:
        found = next((view for view in box.logs if view.path == current[1].log), None)
        if found is not None:
            return found
    return max(box.logs, key=lambda view: view.at or 0.0, default=None)


class LogKeys(Moves, FleetAwareScreen):
    """A screen with a log pane called ``#log``."""

    _wanted_log: str | None = None
    _asked: str | None = None

    @property
    def log_pane(self) -> LogPane:
        """The pane with the log."""
        return self.query_one("#log", LogPane)

    def show_log(self, box: BoxState, now: float) -> None:
        """Give the pane the newest lines, and ask for the running cell's log where it is not followed yet."""
        current = current_cell(box)
        path = current[1].log if current else None
        if path is not None and path != self._asked and all(view.path != path for view in box.logs):
            self._asked = path
            self.fleet.follow(box.spec.name, path)
        view = choose_log(box, self._wanted_log)
        old = view is not None and view.at is not None and now - view.at > 60
        age = now - view.at if old and view is not None and view.at is not None else None
        empty = "no log is followed on this box" if view is None else "the log is empty so far"
        if view is None and box.sample is None:
            empty = "no log is known yet"
        self.log_pane.show(view, age=age, empty=empty)

    def action_move(self, count: int) -> None:
        """Scroll by lines."""
        self.log_pane.scroll_lines(count)

    @property
    def page_rows(self) -> int:
        """One line stays in sight."""
        return self.log_pane.rows - 1

    def action_follow(self) -> None:
        """Follow the end."""
        self.log_pane.cursor.follow()
        self.log_pane.redraw()

    def action_next_error(self, direction: int) -> None:
        """Go to the next line with an error."""
        if not self.log_pane.cursor.next_error(direction, self.log_pane.rows):
            self.hint("no more errors in the lines kept here")
        self.log_pane.redraw()

    def action_next_log(self, direction: int) -> None:
        """Show another log of the box."""
        box = self.box
        if box is None or not box.logs:
            self.hint("no log is followed on this box")
            return
        paths = [view.path for view in box.logs]
        here = self.log_pane.cursor.path
        place = paths.index(here) if here in paths else 0
        self._wanted_log = paths[(place + direction) % len(paths)]
        self.redraw_now()


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
