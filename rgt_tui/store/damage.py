"""A damaged history: found, set aside under its own name, and what can still be read is taken over."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

from rgt_tui.store import runs
from rgt_tui.store.connect import BUSY_SECONDS, connect, transaction
from rgt_tui.store.errors import Damaged, judged
from rgt_tui.store.locked import locked
from rgt_tui.store.seal import checked, seal
from rgt_tui.store.tables import CURVES, TABLES, Table

SALVAGE_SECONDS = 5.0
"""Taking over is a kindness; it must not keep anybody waiting."""
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


def salvage(damaged: Path, path: Path) -> int:
    """Take over, within a few seconds, every row that still proves its seal; return how many.

    A run of which a piece of a curve is missing is left out: the box tells it anew.

    Args:
        damaged: The file that was set aside.
        path: The new history.

    Raises:
        HistoryError: the new one cannot be written.
    """
    until = time.monotonic() + SALVAGE_SECONDS
    new = connect(path)
    try:
        old = read_only(damaged)
    except sqlite3.Error:
        new.close()
        return 0
    try:
        with transaction(new):
            count = sum(_take_over(old, new, table, until) for table in TABLES)
            count -= _drop_orphans(new) + _drop_incomplete(new)
        return count
    except sqlite3.Error as error:
        raise judged(error, path) from error
    finally:
        old.close()
        new.close()


def read_only(path: Path) -> sqlite3.Connection:
    """Open a history to read it, whatever is wrong with it."""
    quoted = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{quoted}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_SECONDS)


def _take_over(old: sqlite3.Connection, new: sqlite3.Connection, table: Table, until: float) -> int:
    """Read from both ends, so that one bad page costs no more than what lies between."""
    count = 0
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{column} {direction}" for column in table.columns[: table.key])
        try:
            for row in old.execute(f"{table.select} ORDER BY {order}"):
                if time.monotonic() > until:
                    return count
                if seal(row[:-1]) == row[-1]:
                    count += new.execute(table.insert("IGNORE"), row).rowcount
            return count
        except (sqlite3.Error, OverflowError, TypeError):
            continue
    return count


def _drop_orphans(new: sqlite3.Connection) -> int:
    """Drop what lost its box, or its names: their numbers will be given to others."""
    dropped = 0
    for table in TABLES:
        if table.columns[0] == "box":
            dropped += new.execute(
                f"DELETE FROM {table.name} WHERE box NOT IN (SELECT id FROM boxes)"
            ).rowcount
    dropped += new.execute("DELETE FROM events WHERE box <> 0 AND box NOT IN (SELECT id FROM boxes)").rowcount
    return dropped + new.execute("DELETE FROM samples WHERE names NOT IN (SELECT id FROM names)").rowcount


def _drop_incomplete(new: sqlite3.Connection) -> int:
    dropped = 0
    for (box,) in new.execute(
        "SELECT DISTINCT box FROM runs UNION SELECT DISTINCT box FROM curves"
    ).fetchall():
        names = {row[0] for row in new.execute("SELECT run FROM runs WHERE box = ?", (box,))}
        names |= {
            row[0] for row in new.execute(f"SELECT DISTINCT run FROM {CURVES.name} WHERE box = ?", (box,))
        }
        for name in names:
            if not runs.whole(new, box, name):
                dropped += new.execute("DELETE FROM runs WHERE box = ? AND run = ?", (box, name)).rowcount
                dropped += new.execute("DELETE FROM curves WHERE box = ? AND run = ?", (box, name)).rowcount
    return dropped
