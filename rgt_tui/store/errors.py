"""What can be wrong with the history's file. None of it stops rgt: it goes on without a history and says so."""

from __future__ import annotations

import sqlite3


class HistoryError(Exception):
    """The history cannot be used now."""


class Refused(HistoryError):
    """The file is left alone: it is a newer rgt's, or somebody else's."""


class Trouble(HistoryError):
    """It does not work at the moment (disk full, read-only, locked); it is tried again."""


class Damaged(HistoryError):
    """The file is not what was written. It is set aside and a new one begun."""


_PASSING = frozenset(
    (
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
    )
)
"""Primary result codes (https://sqlite.org/rescode.html) that say nothing about what is in the file."""


def judged(error: sqlite3.Error | OSError, path: object) -> HistoryError:
    """Return what an error of SQLite or the system means for the file at `path`."""
    if isinstance(error, OSError):
        return Trouble(f"{path}: {error.strerror or error}")
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _PASSING:
        return Trouble(f"{path}: {error}")
    # Our statements fit our tables: whatever else is said of them, the tables are not what we made.
    return Damaged(f"{path}: {error}")
