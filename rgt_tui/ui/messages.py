"""Messages that widgets send to their screen. They carry what it needs to know."""

from __future__ import annotations

from textual.message import Message


class RowChosen(Message):
    """A row of a list was selected, or opened (Enter, a second click)."""

    def __init__(self, key: str, *, opened: bool) -> None:
        super().__init__()
        self.key = key
        self.opened = opened


class TextEntered(Message):
    """The text of an entry line changed, or was accepted with Enter, or given up with Escape."""

    def __init__(self, text: str, *, accepted: bool = False, given_up: bool = False) -> None:
        super().__init__()
        self.text = text
        self.accepted = accepted
        self.given_up = given_up
