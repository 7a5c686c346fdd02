"""Open the history's file: the right kind, the right version, or not at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from rgt_tui.store.errors import Damaged, Refused, judged
from rgt_tui.store.locked import locked
from rgt_tui.store.steps import STEPS, Step

APPLICATION_ID = 0x72677468
BUSY_SECONDS = 10.0
WAL_BYTES = 4 << 20
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "afs")
"""On these the shared memory that WAL needs is not shared (https://sqlite.org/wal.html)."""


def connect(path: Path, steps: Sequence[Step] = STEPS) -> sqlite3.Connection:
    """Open the history at `path`, made or migrated where need be.

    Raises:
        Refused: it is a newer rgt's, or no history of rgt at all. It is left as it is.
        Trouble: it cannot be opened now.
        Damaged: it is no database any more.
    """
    try:
        with locked(path):
            # SQLite gives its -wal and -shm the rights of this file.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            con = sqlite3.connect(
                path,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            try:
                _prepare(con, path, steps)
            except BaseException:
                con.close()
                raise
            return con
    except (sqlite3.Error, OSError) as error:
        raise judged(error, path) from error


def _prepare(con: sqlite3.Connection, path: Path, steps: Sequence[Step]) -> None:
    version, kind = _number(con, "user_version"), _number(con, "application_id")
    empty = _number(con, "page_count") == 0
    if empty and path.stat().st_size:
        raise Damaged(f"{path} is cut off: too short for a database")
    if not empty and kind != APPLICATION_ID:
        raise Refused(f"{path} is not a history of rgt; name another file by RGT_HISTORY")
    if version > steps[-1].version:
        raise Refused(
            f"{path} was written by a newer rgt (version {version}, this one knows {steps[-1].version}); "
            "it is left as it is. Update rgt, or name another file by RGT_HISTORY"
        )
    if empty:
        con.execute("PRAGMA auto_vacuum = INCREMENTAL")
        con.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    con.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network(path) else 'WAL'}")
    con.execute("PRAGMA synchronous = NORMAL")
    con.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    con.execute("PRAGMA temp_store = MEMORY")
    con.execute("PRAGMA cache_size = -4096")
    for step in steps:
        _migrate(con, step)


def _migrate(con: sqlite3.Connection, step: Step) -> None:
    if _number(con, "user_version") >= step.version:
        return
    with transaction(con):
        if _number(con, "user_version") >= step.version:
            return
        for statement in step.statements:
            con.execute(statement)
        con.execute(f"PRAGMA user_version = {step.version}")


@contextlib.contextmanager
def transaction(con: sqlite3.Connection) -> Iterator[None]:
    """Write in one transaction. It waits for another writer first, so that nothing in it can find a lock later."""
    con.execute("BEGIN IMMEDIATE")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            con.execute("ROLLBACK")
        raise


def shape_of(con: sqlite3.Connection, path: Path) -> str | None:
    """Return what is wrong with the file's structure; None when nothing is.

    Raises:
        HistoryError: it cannot even be asked.
    """
    try:
        found = [str(row[0]) for row in con.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as error:
        raise judged(error, path) from error
    return None if found == ["ok"] else "; ".join(found)[:200]


def on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Tell whether `path` lies on a network file system; False where the system does not say."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    target = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        words = line.split()
        if len(words) > 2:
            point = words[1].replace("\\040", " ").rstrip("/")
            if target.startswith(point + "/") and len(point) >= best:
                best, kind = len(point), words[2]
    return kind in NETWORK


def _number(con: sqlite3.Connection, pragma: str) -> int:
    return int(con.execute(f"PRAGMA {pragma}").fetchone()[0])
