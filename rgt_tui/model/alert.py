"""An alert: a condition over samples, runs, money or clocks that holds now, and since when."""

from __future__ import annotations

import msgspec


class Alert(msgspec.Struct, frozen=True):
    """One condition that holds now."""

    id: str
    """Stable while the condition lasts, e.g. ``inodes:/workspace``; what stands before the first colon is its kind."""
    level: str
    """warn or error."""
    text: str
    """One line, with the reading that proves it."""
    word: str = ""
    """The one word that a row shows for it, e.g. ``inodes``."""
    since: float | None = None
    """Client clock of the rise; None where nobody keeps count."""
    muted: bool = False
    """Someone said to be quiet about it: still shown, dimmed; never sent to a sink."""

    @property
    def kind(self) -> str:
        """The rule that it comes from."""
        return self.id.partition(":")[0]
