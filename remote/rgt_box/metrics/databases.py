"""What the readers of databases have in common: a row number as the cursor, and nothing to read when nothing changed.

They are used in a child process alone, see `confined`.

A cursor is ``{"inode", "id", "version", "done"}`` and what the format adds.
"""

from __future__ import annotations

import os
import time

from rgt_box.files import open_regular
from rgt_box.metrics.base import Reader
from rgt_box.metrics.rows import Upgrade
from rgt_box.metrics.snapshot import REST, BusyError, Snapshot, is_unchanged, settled, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from rgt_box.metrics.base import Batch

MAX_JSON = 1 << 20
"""Longest row of metrics in a database."""


class Database(Reader):
    """One database file. Subclasses query it in `_query`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._rest_until = 0.0

    def _rested(self) -> bool:
        return time.monotonic() >= self._rest_until

    def _read(self, batch: Batch, limit: int) -> None:
        import sqlite3

        os.close(open_regular(self.path))
        state = dict(batch.cursor or {})
        if is_unchanged(self.path, batch.cursor):
            return
        now, quiet = version(self.path), settled(self.path)
        try:
            with Snapshot(self.path, self._rested) as snapshot:
                if snapshot.copy_seconds:
                    self._rest_until = time.monotonic() + REST * snapshot.copy_seconds
                self._from(snapshot.db, now[0], state, batch, limit)
                snapshot.check()
        except BusyError:
            batch.forget()
            return
        except sqlite3.Error as error:
            batch.forget()
            if version(self.path) == now and "locked" not in str(error):
                batch.problem(state.get("id", 0), "database: %s" % error)
            return
        except ValueError as error:
            batch.problem(0, str(error))
            return
        state.update(version=now, done=quiet and not batch.more, inode=now[0])
        batch.cursor = state

    def _from(
        self, db: sqlite3.Connection, inode: int, state: dict[str, Any], batch: Batch, limit: int
    ) -> None:
        if state and (state.get("inode") != inode or not self._goes_on(db, state)):
            state.clear()
            batch.reset = True
        state.setdefault("id", 0)
        for _ in range(100):
            try:
                self._query(db, state, batch, limit)
                return
            except Upgrade as upgrade:
                self._anew(upgrade, state)
                batch.points, batch.reset, batch.more = [], True, False

    def _anew(self, upgrade: Upgrade, state: dict[str, Any]) -> None:
        """Prepare for reading everything again along another axis."""
        state.clear()
        state["id"] = 0

    def _goes_on(self, db: sqlite3.Connection, state: dict[str, Any]) -> bool:
        """Tell whether the rows up to the cursor are still there."""
        (last,) = db.execute("SELECT max(rowid) FROM metrics").fetchone()
        return bool((last or 0) >= state.get("id", 0))

    def _query(self, db: sqlite3.Connection, state: dict[str, Any], batch: Batch, limit: int) -> None:
        """Read rows behind ``state["id"]``, move it, set ``batch.more``."""
        raise NotImplementedError
