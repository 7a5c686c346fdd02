"""What is done to the file every few minutes: what is old is summed up, what is too old or too much is dropped."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from rgt_tui.store import events, minutes, room, samples
from rgt_tui.store.connect import transaction

SECONDS = 300.0
MANY_NAMES = 256
"""So many lists of names are not looked through for those that nothing has any more."""


class Upkeep:
    """Keeps one file in order.

    Args:
        path: The file.
        max_bytes: Its bound.
        audit: The audit log to index, if any.
    """

    def __init__(self, path: Path, max_bytes: int, audit: Path | None) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._audit = audit
        self._at = float("-inf")
        self._names_at = MANY_NAMES

    def due(self, now: float) -> bool:
        """Tell, once, whether it is time again."""
        if 0 <= now - self._at < SECONDS:
            return False
        self._at = now
        return True

    def run(self, con: sqlite3.Connection, now: float, *, believed: bool) -> None:
        """Do it.

        Args:
            con: Not in a transaction.
            now: Epoch seconds.
            believed: The clock may be believed; otherwise nothing is dropped, or closed, because of its age.
        """
        if believed:
            with transaction(con):
                samples.drop_old(con, now)
        with transaction(con):
            if believed:
                minutes.roll_up(con, now)
            if self._audit is not None:
                with contextlib.suppress(OSError):
                    events.index_audit(con, self._audit)
            events.trim(con)
        if samples.count_names(con) > self._names_at:
            with transaction(con):
                samples.drop_names(con)
            self._names_at = MANY_NAMES + 2 * samples.count_names(con)
        room.make_room(con, self._max_bytes)
        room.drop_old_damaged(self._path)
