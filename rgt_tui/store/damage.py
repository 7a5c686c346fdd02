"""A damaged history: found, and set aside under its own name."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

from rgt_tui.store.connect import BUSY_SECONDS
from rgt_tui.store.errors import Damaged, judged
from rgt_tui.store.locked import locked
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import TABLES

LOCKING = ("-wal", "-shm")


def set_aside(path: Path, inode: int | None) -> Path | None:
    """Move a damaged file away, with its -wal and -shm; return where to, or None when another process already did.

    Args:
        path: The history.
        inode: Of the file that was found damaged; None = whatever stands there.

    Raises:
        Trouble: it cannot be moved.
    """
    try:
        with locked(path):
            if inode is not None and inode_of(path) != inode:
                return None
            stamp = time.strftime("%Y%m%dT%H%M%S")
            target = path.with_name(f"{path.name}.damaged-{stamp}")
            number = 1
            while target.exists():
                number += 1
                target = path.with_name(f"{path.name}.damaged-{stamp}.{number}")
            # The file first: SQLite throws away a log that it finds beside an empty new file.
            path.rename(target)
            for tail in LOCKING:
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{path}{tail}").rename(f"{target}{tail}")
            return target
    except OSError as error:
        raise judged(error, path) from error


def inode_of(path: Path) -> int | None:
    """Return the inode that stands at `path`; None when nothing does."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def verify(con: sqlite3.Connection, path: Path) -> Generator[int]:
    """Read every row and prove its seal, a slice at a time; yields the rows of each slice.

    Raises:
        Damaged: a row is not what was written.
        Trouble: it cannot be read now.
    """
    try:
        for table in TABLES:
            rows = con.execute(table.select)
            while part := rows.fetchmany(200):
                for row in part:
                    checked(table.name, row)
                yield len(part)
    except (sqlite3.Error, OverflowError) as error:
        raise (
            judged(error, path) if isinstance(error, sqlite3.Error) else Damaged(f"{path}: {error}")
        ) from error


def read_only(path: Path) -> sqlite3.Connection:
    """Open a history to read it, whatever is wrong with it."""
    quoted = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{quoted}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_SECONDS)
