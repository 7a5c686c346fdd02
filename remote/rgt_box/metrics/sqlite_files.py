"""Reads SQLite files of other programs without leaving files and without blocking the writer.

Opening a database in WAL mode creates ``-wal`` and ``-shm`` files, even read-only, and the last
process to close it may leave them (seen with trackio 0.43). So the method depends on the files
next to it:

- rollback journal mode, no journal: opened read-only; SQLite then creates no files.
- WAL mode without a log: there is no writer; opened as immutable, and refused if it changed.
- a log or a journal: copied to a private directory together with it, and read there.

`DatabaseReader` is the base of the readers: its cursor is a row ID, and an unchanged file is not
read again.

Everything here runs only in a child process, see `sqlite_child`.

A cursor is ``{"inode", "id", "version", "done"}`` plus the fields of the format.
"""

from __future__ import annotations

import os
import time

from rgt_box.files import open_regular, size_or_zero
from rgt_box.metrics.reader_base import MetricReader
from rgt_box.metrics.rows import FirmStepFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType
    from typing import Any, Callable

    from rgt_wire import JsonObject

    from rgt_box.metrics.reader_base import ReadBatch

MAGIC = b"SQLite format 3\x00"
MAX_COPY = 256 << 20
"""A larger database is read only once its writer has removed the log."""
REST = 20.0
"""After a copy, wait this many times its duration before the next one: at most 5% of the time."""
LONGEST = 64 << 10
"""Characters of one schema statement that are inspected."""
STEPS = 20000
"""Limit of one read in thousands of SQLite instructions, as a schema can make queries expensive."""
LENGTH = 64 << 20
"""Maximum bytes of a text that SQLite may create, if Python can set the limit (3.11)."""
FUNCTIONS = ("count", "length", "like", "max")
"""SQL functions that our own statements use."""
SELECT, READ, FUNCTION = 21, 20, 31
"""Action codes of SQLite's authorizer (sqlite3.h); Python 3.8 has no name for the last."""


class BusyError(Exception):
    """The database cannot be read now without disturbing its writer: retry at the next read."""


class DatabaseSnapshot:
    """A consistent view of one database, as a context manager.

    Args:
        path: The database.
        rested: Returns whether a copy may be made now.

    Raises:
        OSError: when the file cannot be read.
        ValueError: when it is not a database, or too large to copy.
        BusyError: when it is being written right now.
    """

    def __init__(self, path: str, rested: Callable[[], bool] = lambda: True) -> None:
        self._path = path
        self._directory = ""
        self._immutable = False
        self.copy_seconds = 0.0
        self.before = file_version(path)
        self.db = self._open_database(rested)

    def __enter__(self) -> DatabaseSnapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.db.close()
        self._remove_copy()

    def require_unchanged(self) -> None:
        """Check that everything read belongs to one state of the database.

        Raises:
            BusyError: when it was written meanwhile.
        """
        if self._immutable and file_version(self._path) != self.before:
            raise BusyError

    def _open_database(self, rested: Callable[[], bool]) -> sqlite3.Connection:
        with open(open_regular(self._path), "rb") as file:
            head = file.read(100)
        if head[:16] != MAGIC or len(head) < 100:
            raise ValueError("not a SQLite database")
        # The file format's write version: 1 is a rollback journal, 2 a write-ahead log.
        wal = head[18] == 2
        beside = self._path + ("-wal" if wal else "-journal")
        if size_or_zero(beside):
            if not rested():
                raise BusyError
            return self._open_copy(beside)
        self._immutable = wal
        return open_restricted(self._path, "immutable=1" if wal else "mode=ro")

    def _open_copy(self, beside: str) -> sqlite3.Connection:
        from rgt_box import place

        if size_or_zero(self._path) + size_or_zero(beside) > MAX_COPY:
            raise ValueError("being written, and too large to copy")
        began = time.monotonic()
        self._directory = place.make_folder()
        copy = os.path.join(self._directory, "db")
        try:
            # A writer may commit during a copy. After three tries the next read has its turn.
            for _ in range(3):
                before = generation(self._path, beside)
                copy_file(self._path, copy)
                copy_file(beside, copy + beside[len(self._path) :])
                if generation(self._path, beside) == before:
                    self.copy_seconds = time.monotonic() - began
                    # SQLite has to write to the copy: it rolls a journal back, or moves the log
                    # into the database.
                    return open_restricted(copy, "mode=rw")
        except FileNotFoundError:
            pass  # the log was removed just now
        except BaseException:
            self._remove_copy()
            raise
        self._remove_copy()
        raise BusyError

    def _remove_copy(self) -> None:
        if self._directory:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


def open_restricted(path: str, options: str) -> sqlite3.Connection:
    """Open a database by URI, restricted to short reads."""
    import sqlite3
    from urllib.parse import quote

    db = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{options}", uri=True, timeout=0.2)
    left = [STEPS]

    def count_steps() -> int:
        left[0] -= 1
        return left[0] < 0

    db.set_progress_handler(count_steps, 1000)
    if hasattr(db, "setlimit"):
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH)
    for pragma in ("query_only=1", "cache_size=-2000", "trusted_schema=0", "cell_size_check=1"):
        db.execute("PRAGMA " + pragma)
    # After the pragmas, which it would refuse.
    db.set_authorizer(authorize)
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow reading columns and the few functions our statements use: 0 allows, 1 denies."""
    if action in (SELECT, READ) or (action == FUNCTION and second in FUNCTIONS):
        return 0
    return 1


def query_table_schema(path: str) -> str:
    """Return the CREATE TABLE statements of a database; "" if it cannot be read."""
    import sqlite3

    try:
        with DatabaseSnapshot(path) as snapshot:
            rows = snapshot.db.execute(
                "SELECT sql FROM sqlite_master WHERE type = 'table' LIMIT 200"
            )
            return "\n".join(str(row[0])[:LONGEST] for row in rows)
    except (OSError, ValueError, BusyError, sqlite3.Error):
        return ""


def is_unchanged(path: str, cursor: Any) -> bool:
    """Return whether a database is unchanged since it was read to its end."""
    return bool(cursor and cursor.get("done") and cursor.get("version") == file_version(path))


def copy_file(source: str, target: str) -> None:
    """Copy a regular file.

    Raises:
        OSError: when it is not a regular file, or cannot be copied.
    """
    import shutil

    with open(open_regular(source), "rb") as reader, open(target, "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)


def is_settled(path: str) -> bool:
    """Return whether the last change is old enough that another one would get another mtime."""
    newest = 0.0
    for each in (path, path + "-wal", path + "-journal"):
        try:
            newest = max(newest, os.stat(each).st_mtime)
        except OSError:
            pass
    # Seconds within which mtimes do not distinguish two changes, because file system clocks are
    # coarse.
    fresh = 2.0
    return time.time() - newest > fresh


def file_version(path: str) -> list[int]:
    """Return a value that changes whenever the database or its log changes.

    Raises:
        OSError: when there is no database.
    """
    found = os.stat(path)
    result = [found.st_ino, found.st_size, found.st_mtime_ns]
    for beside in ("-wal", "-journal"):
        try:
            found = os.stat(path + beside)
            result += [found.st_size, found.st_mtime_ns]
        except OSError:
            result += [0, 0]
    return result


def generation(path: str, beside: str) -> tuple[int, int, bytes, bytes]:
    """Return values that must stay equal while a database and its log or journal are copied.

    A write-ahead log keeps all pages that it moves into the database until it restarts with other
    salts, so its header is enough. A journal is only valid for the transaction it was written for,
    so the database must not commit meanwhile: its change counter and mtime show that.
    """
    with open(open_regular(beside), "rb") as file:
        head = file.read(32)
    if beside.endswith("-wal"):
        return 0, 0, b"", head
    found = os.stat(path)
    with open(open_regular(path), "rb") as file:
        return found.st_size, found.st_mtime_ns, file.read(100)[24:28], head


MAX_JSON = 1 << 20
"""Maximum bytes of a row of metrics."""


class DatabaseReader(MetricReader):
    """One database file. Subclasses query it in `_query_rows`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._rest_until = 0.0

    def _may_copy_again(self) -> bool:
        return time.monotonic() >= self._rest_until

    def _read_into(self, batch: ReadBatch, limit: int) -> None:
        import sqlite3

        os.close(open_regular(self.path))
        state = dict(batch.cursor or {})
        if is_unchanged(self.path, batch.cursor):
            return
        # Before the read: a change during it must not count as read.
        now = file_version(self.path)
        quiet = is_settled(self.path)
        try:
            with DatabaseSnapshot(self.path, self._may_copy_again) as snapshot:
                if snapshot.copy_seconds:
                    self._rest_until = time.monotonic() + REST * snapshot.copy_seconds
                self._read_rows(snapshot.db, now[0], state, batch, limit)
                snapshot.require_unchanged()
        except BusyError:
            batch.discard_points()
            return
        except sqlite3.Error as error:
            batch.discard_points()
            # A database that changed while it was read is not damaged: the next read shows.
            if file_version(self.path) == now and "locked" not in str(error):
                batch.add_problem(state.get("id", 0), f"database: {error}")
            return
        except ValueError as error:
            batch.add_problem(0, str(error))
            return
        state.update(version=now, done=quiet and not batch.more, inode=now[0])
        batch.cursor = state

    def _read_rows(
        self,
        db: sqlite3.Connection,
        inode: int,
        state: JsonObject,
        batch: ReadBatch,
        limit: int,
    ) -> None:
        if state and (state.get("inode") != inode or not self._is_continuation(db, state)):
            state.clear()
            batch.reset = True
        state.setdefault("id", 0)
        # In a database of several runs, each may find its own step, and each time all is read
        # again.
        for _ in range(100):
            try:
                self._query_rows(db, state, batch, limit)
                return
            except FirmStepFound as upgrade:
                self._restart_state(upgrade, state)
                batch.points = []
                batch.reset = True
                batch.more = False

    def _restart_state(self, upgrade: FirmStepFound, state: JsonObject) -> None:
        """Reset the state, to read everything again along another axis."""
        state.clear()
        state["id"] = 0

    def _is_continuation(self, db: sqlite3.Connection, state: JsonObject) -> bool:
        """Return whether the rows up to the cursor still exist."""
        (last,) = db.execute("SELECT max(rowid) FROM metrics").fetchone()
        return bool((last or 0) >= state.get("id", 0))

    def _query_rows(
        self, db: sqlite3.Connection, state: JsonObject, batch: ReadBatch, limit: int
    ) -> None:
        """Read rows after ``state["id"]``, advance it, and set ``batch.more``."""
        raise NotImplementedError
