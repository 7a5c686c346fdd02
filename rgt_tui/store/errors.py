"""What can be wrong with the history's file. None of it stops rgt: it goes on without a history and says so."""

from __future__ import annotations

import sqlite3
import struct


class HistoryError(Exception):
    """The history cannot be used now."""


class Refused(HistoryError):
    """The file is left alone: it is a newer rgt's, or somebody else's."""


class Trouble(HistoryError):
    """It does not work at the moment (disk full, read-only, locked); it is tried again."""


class Damaged(HistoryError):
    """The file is not what was written. It is set aside and a new one begun."""


class Unfit(HistoryError):
    """What was to be written of a box fits no history; nothing is wrong with the file.

    Args:
        box: Whose it is.
        part: Which field of a `Batch`; of this box it alone is left out.
        why: In words.
    """

    def __init__(self, box: str, part: str, why: str) -> None:
        super().__init__(f"of what {box} told, its {part} fit no history and are left out: {why}")
        self.box = box
        self.part = part


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


_VALUES = (OverflowError, ValueError, TypeError, struct.error, sqlite3.DataError, sqlite3.InterfaceError)


def is_unfit(error: Exception) -> bool:
    """Tell whether an error, met while something was written, is of the values that were to be written.

    Numbers beyond 64 bits, or beyond a float of 32, text that is no text, a NaN (which SQLite takes for NULL).
    """
    if isinstance(error, _VALUES):
        return True
    # A value of a type that SQLite does not know is a ProgrammingError without a code of the library.
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.ProgrammingError):
        return code is None
    return isinstance(error, sqlite3.IntegrityError) and code == sqlite3.SQLITE_CONSTRAINT_NOTNULL
