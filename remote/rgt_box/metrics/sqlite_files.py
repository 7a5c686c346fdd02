"""SQLite files of other programs: how they are opened, and what their readers share.

SQLite files of other programs, read without leaving anything behind and without holding their writer up.

Opening a database in WAL mode creates ``-wal`` and ``-shm`` files, even read-only, and whoever closes last may leave
them (seen with trackio 0.43). So, by what lies beside the file:

- rollback journal mode, no journal: opened read-only; SQLite creates nothing then.
- WAL mode without a log: nobody is writing; opened as immutable, and refused if it changed meanwhile.
- a log or a journal: copied to a private directory together with it, and read there.

What the readers of databases have in common: a row number as the cursor, and nothing to read when nothing changed.

They are used in a child process alone, see `sqlite_child`.

A cursor is ``{"inode", "id", "version", "done"}`` and what the format adds.
"""

from __future__ import annotations

import os
import time

from rgt_box.files import open_regular, size
from rgt_box.metrics.reader_base import Reader
from rgt_box.metrics.rows import Upgrade

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType
    from typing import Any, Callable

    from rgt_box.metrics.reader_base import Batch

MAGIC = b"SQLite format 3\x00"
MAX_COPY = 256 << 20
"""A larger database is read when its writer has put its log away."""
REST = 20.0
"""After a copy, this many times its duration passes before the next one: at most 5% of the time."""
LONGEST = 64 << 10
"""Characters of one statement of a schema that are looked at."""
FRESH = 2.0
"""Seconds for which the time of a file does not tell two changes apart (clocks of file systems tick coarsely)."""
STEPS = 20000
"""Thousands of SQLite instructions that one reading may take, whatever the schema does."""
LENGTH = 64 << 20
"""Bytes of the longest text that SQLite may make, where Python can tell it so (3.11)."""
FUNCTIONS = ("count", "length", "like", "max")
"""SQL functions that our own statements use."""
SELECT, READ, FUNCTION = 21, 20, 31
"""Action codes of SQLite's authorizer (sqlite3.h); Python 3.8 lacks the name of the last."""


class BusyError(Exception):
    """The database cannot be read now without disturbing it: next time."""


class Snapshot:
    """A consistent view of one database; use it as a context manager.

    Args:
        path: The database.
        rested: Whether a copy may be made now.

    Raises:
        OSError: when the file cannot be read.
        ValueError: when it is no database, or too large to copy.
        BusyError: when it is being written right now.
    """

    def __init__(self, path: str, rested: Callable[[], bool] = lambda: True) -> None:
        self._path = path
        self._directory = ""
        self._immutable = False
        self.copy_seconds = 0.0
        self.before = version(path)
        self.db = self._open(rested)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.db.close()
        self._remove()

    def check(self) -> None:
        """Make sure that what was read is one state of the database.

        Raises:
            BusyError: when a writer came meanwhile.
        """
        if self._immutable and version(self._path) != self.before:
            raise BusyError

    def _open(self, rested: Callable[[], bool]) -> sqlite3.Connection:
        with open(open_regular(self._path), "rb") as file:
            head = file.read(100)
        if head[:16] != MAGIC or len(head) < 100:
            raise ValueError("not a SQLite database")
        wal = head[18] == 2
        beside = self._path + ("-wal" if wal else "-journal")
        if size(beside):
            if not rested():
                raise BusyError
            return self._copied(beside)
        self._immutable = wal
        return connect(self._path, "immutable=1" if wal else "mode=ro")

    def _copied(self, beside: str) -> sqlite3.Connection:
        from rgt_box import own_temporary

        if size(self._path) + size(beside) > MAX_COPY:
            raise ValueError("being written, and too large to copy")
        began = time.monotonic()
        self._directory = own_temporary.make()
        copy = os.path.join(self._directory, "db")
        try:
            for _ in range(3):
                before = generation(self._path, beside)
                copy_file(self._path, copy)
                copy_file(beside, copy + beside[len(self._path) :])
                if generation(self._path, beside) == before:
                    self.copy_seconds = time.monotonic() - began
                    return connect(copy, "mode=rw")
        except FileNotFoundError:
            pass  # the log was put away right now
        except BaseException:
            self._remove()
            raise
        self._remove()
        raise BusyError

    def _remove(self) -> None:
        if self._directory:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


def connect(path: str, options: str) -> sqlite3.Connection:
    """Open a database by URI; reading is all it can do, and not for long."""
    import sqlite3
    from urllib.parse import quote

    db = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{options}", uri=True, timeout=0.2)
    left = [STEPS]

    def tick() -> int:
        left[0] -= 1
        return left[0] < 0

    db.set_progress_handler(tick, 1000)
    if hasattr(db, "setlimit"):
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH)
    for pragma in ("query_only=1", "cache_size=-2000", "trusted_schema=0", "cell_size_check=1"):
        db.execute("PRAGMA " + pragma)
    db.set_authorizer(authorize)
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Tell SQLite what a statement may do: read columns, by the few functions that ours use; 0 = yes, 1 = no."""
    if action in (SELECT, READ) or (action == FUNCTION and second in FUNCTIONS):
        return 0
    return 1


def schema(path: str) -> str:
    """Return the statements that made the tables of a database; "" where it cannot be read."""
    import sqlite3

    try:
        with Snapshot(path) as snapshot:
            rows = snapshot.db.execute(
                "SELECT sql FROM sqlite_master WHERE type = 'table' LIMIT 200"
            )
            return "\n".join(str(row[0])[:LONGEST] for row in rows)
    except (OSError, ValueError, BusyError, sqlite3.Error):
        return ""


def is_unchanged(path: str, cursor: Any) -> bool:
    """Tell whether a database is what it was when it was read to its end."""
    return bool(cursor and cursor.get("done") and cursor.get("version") == version(path))


def copy_file(source: str, target: str) -> None:
    """Copy a regular file.

    Raises:
        OSError: when it is none, or cannot be copied.
    """
    import shutil

    with open(open_regular(source), "rb") as reader, open(target, "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)


def settled(path: str) -> bool:
    """Tell whether the last change is old enough that a later one must have another time."""
    newest = 0.0
    for each in (path, path + "-wal", path + "-journal"):
        try:
            newest = max(newest, os.stat(each).st_mtime)
        except OSError:
            pass
    return time.time() - newest > FRESH


def version(path: str) -> list[int]:
    """Return what changes whenever the database or its log does.

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
    """Return what must stay the same while a database and its log or journal are copied.

    A write-ahead log keeps everything that goes from it into the database until it begins anew with other salts, so
    its header is enough. A journal undoes what it was written for, so the database must not commit meanwhile: its
    change counter and time tell that.
    """
    with open(open_regular(beside), "rb") as file:
        head = file.read(32)
    if beside.endswith("-wal"):
        return 0, 0, b"", head
    found = os.stat(path)
    with open(open_regular(path), "rb") as file:
        return found.st_size, found.st_mtime_ns, file.read(100)[24:28], head


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
                batch.problem(state.get("id", 0), f"database: {error}")
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

    def _query(
        self, db: sqlite3.Connection, state: dict[str, Any], batch: Batch, limit: int
    ) -> None:
        """Read rows behind ``state["id"]``, move it, set ``batch.more``."""
        raise NotImplementedError
