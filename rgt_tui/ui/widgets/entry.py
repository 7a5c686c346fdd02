"""One line to type into, in place of the event line: a filter or a search."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from rgt_tui.ui.enduring import Enduring
from rgt_tui.ui.messages import EntryChanged, EntryClosed
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import Line, Span, Tone, line


class EntryLabel(LineWidget):
    """What is being typed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.styles.width = len(text) + 3

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the label."""
        return [line(" ", Span(self._text, Tone.ACCENT))]


class EntryLine(Enduring, Horizontal):
    """Sends each change; Enter keeps the text, Escape gives it up. Either way it goes away."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    def __init__(self, label: str, text: str) -> None:
        super().__init__()
        self._label, self._text = label, text
        self._leaving = False
        self._before: Widget | None = None

    @property
    def takes_keys(self) -> bool:
        """True while what is typed comes here."""
        return not self._leaving and any(entry.has_focus for entry in self.query(Input))

    def compose(self) -> ComposeResult:
        """Lay out label and input."""
        yield EntryLabel(self._label)
        yield Input(self._text, select_on_focus=False, compact=True)

    def on_mount(self) -> None:
        """Take the keys and the place of the event line."""
        self.screen.query_one("#event").display = False
        self._before = self.screen.focused
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Pass the text on."""
        event.stop()
        if self.is_mounted and event.value != self._text:
            self._text = event.value
            self.post_message(EntryChanged(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the text."""
        event.stop()
        self._close(event.value)

    def action_give_up(self) -> None:
        """Drop the text."""
        self._close(None)

    def _close(self, text: str | None) -> None:
        self._leaving = True
        self.screen.set_focus(self._before)
        self.screen.query_one("#event").display = True
        self.screen.post_message(EntryClosed(text))
        self.remove()
