"""Messages that widgets send to their screen. They carry what it needs to know."""

from __future__ import annotations

from textual.message import Message


class RowChosen(Message):
    """A row of a list was selected, or opened (Enter, a second click)."""

    def __init__(self, key: str, *, opened: bool) -> None:
        super().__init__()
        self.key = key
        self.opened = opened


class EntryClosed(Message):
    """The entry line is closed; `text` is None when it was given up with Escape."""

    def __init__(self, text: str | None) -> None:
        super().__init__()
        self.text = text


class EntryChanged(Message):
    """The text of the entry line changed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class SortAsked(Message):
    """The title of a column was clicked."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column
