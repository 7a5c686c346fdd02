"""Small numbers that the file remembers about itself."""

from __future__ import annotations

import sqlite3

from rgt_tui.store.seal import checked
from rgt_tui.store.tables import MARKS


def get(con: sqlite3.Connection, name: str) -> int:
    """Return a number; 0 when it was never written."""
    row = con.execute(MARKS.select + " WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(checked("marks", row)[1])


def put(con: sqlite3.Connection, name: str, value: int) -> None:
    """Write a number."""
    con.execute(MARKS.insert(), MARKS.sealed((name, value)))
