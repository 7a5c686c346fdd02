"""The file stays within its bound: what is oldest goes first."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rgt_tui.store import samples
from rgt_tui.store.connect import transaction

MAX_BYTES = 256 << 20
LOW_WATER = 0.9
SLICE = 2000
"""Rows deleted in one go, so that no other writer waits long."""
VACUUM_PAGES = 2000
KEPT_DAMAGED = 3

_OLDEST = (
    "DELETE FROM events WHERE at <= (SELECT at FROM events ORDER BY at LIMIT 1 OFFSET {slice})",
    """DELETE FROM samples WHERE (box, width, slot) IN
       (SELECT box, width, slot FROM samples ORDER BY slot * width LIMIT {slice})""",
    """DELETE FROM curves WHERE (box, run) IN
       (SELECT box, run FROM runs ORDER BY at LIMIT 1)""",
)
"""What is given up in turn: a little of each, the oldest of it."""


def used(con: sqlite3.Connection) -> int:
    """Return the bytes of the file that hold something."""
    pages, free, size = (
        int(con.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def make_room(con: sqlite3.Connection, most: int) -> int:
    """Delete what is oldest until the file is below its bound; return how many rows went.

    Args:
        con: Not in a transaction.
        most: Bytes.
    """
    gone = 0
    if used(con) > most:
        with transaction(con):
            gone += samples.drop_names(con)
        while used(con) > LOW_WATER * most:
            before = gone
            for statement in _OLDEST:
                with transaction(con):
                    gone += con.execute(statement.format(slice=SLICE)).rowcount
                    if "curves" in statement:
                        gone += con.execute(
                            "DELETE FROM runs WHERE (box, run) IN (SELECT box, run FROM runs ORDER BY at LIMIT 1)"
                        ).rowcount
            if gone == before:
                break
    if int(con.execute("PRAGMA freelist_count").fetchone()[0]):
        con.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    return gone


def drop_old_damaged(path: Path) -> None:
    """Keep the newest few of the files that were set aside: they are bounded, too."""
    aside = sorted(path.parent.glob(f"{path.name}.damaged-*"), key=lambda each: each.name)
    mains = [each for each in aside if not each.name.endswith(("-wal", "-shm"))]
    for main in mains[:-KEPT_DAMAGED]:
        for each in (main, Path(f"{main}-wal"), Path(f"{main}-shm")):
            each.unlink(missing_ok=True)
