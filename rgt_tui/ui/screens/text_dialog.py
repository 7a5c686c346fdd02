"""The base of dialogs that show a text: copy it, scroll it, close it."""

from __future__ import annotations

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.mouse import MouseSelection
from rgt_tui.ui.notation import make_displayable


class TextDialog(FaultTolerant, MouseSelection, ModalScreen[None]):
    """A frame (`Vertical`) with a text that scrolls (`VerticalScroll`)."""

    def to_copy(self) -> ClipboardText:
        """Return the whole text."""
        raise NotImplementedError

    def hint(self, said: str) -> None:
        """Show a message on the frame."""
        self.query_one(Vertical).border_subtitle = Content(make_displayable(said))

    def action_copy(self) -> None:
        """Copy the text selected with the mouse, otherwise the whole text."""
        copied = self.find_selection() or self.to_copy()
        self.clear_selection()
        self.hint(copy_to_clipboard(self.app, copied))

    def action_close(self) -> None:
        """Clear the mouse selection, else close."""
        if not self.end_selection():
            self.dismiss()

    def action_scroll(self, pages: int) -> None:
        """Scroll by half a page."""
        part = self.query_one(VerticalScroll)
        part.scroll_relative(y=pages * max(1, part.size.height // 2), animate=False)
