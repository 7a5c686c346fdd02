"""The history's SQLite file: open, check, move away when damaged, restore from the daily backup."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rgt_tui.files import lock_file
from rgt_tui.model import BoxSpec, FrozenStruct
from rgt_tui.store import happenings, moments, spending


class DatabaseSettings(FrozenStruct):
    """Marks of the database's file, and how it is kept."""

    application_id: int = 0x72677468
    """``rgth`` in ASCII, so that ``file`` and we recognise the database."""
    version: int = 6
    """Version of the tables."""
    busy_s: float = 10.0
    """Seconds to wait while another rgt writes."""
    wal_bytes: int = 4 << 20
    """Size to which the write-ahead log is truncated."""
    backup_s: float = 86400.0
    """Seconds between two backups."""
    kept_damaged: int = 3
    """Damaged databases kept, the newest."""


DATABASE = DatabaseSettings()

NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "afs")
"""File systems without the shared memory that WAL needs (https://sqlite.org/wal.html)."""

TABLES = (
    "CREATE TABLE boxes (id INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE, name TEXT NOT NULL)",
    """CREATE TABLE fleets (fleet TEXT NOT NULL, name TEXT NOT NULL, box INTEGER NOT NULL,
       PRIMARY KEY (fleet, name, box)) WITHOUT ROWID""",
    """CREATE TABLE samples (box INTEGER NOT NULL, width INTEGER NOT NULL, chunk INTEGER NOT NULL,
       body BLOB NOT NULL, PRIMARY KEY (box, width, chunk)) WITHOUT ROWID""",
    """CREATE TABLE runs (box INTEGER NOT NULL, run TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
       PRIMARY KEY (box, run))""",
    """CREATE TABLE curves (box INTEGER NOT NULL, run TEXT NOT NULL, metric TEXT NOT NULL, chunk INTEGER NOT NULL,
       body BLOB NOT NULL, PRIMARY KEY (box, run, metric, chunk))""",
    """CREATE TABLE days (box INTEGER NOT NULL, day TEXT NOT NULL, currency TEXT NOT NULL, billed REAL NOT NULL,
       idle REAL NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (box, day, currency)) WITHOUT ROWID""",
    """CREATE TABLE sums (box INTEGER NOT NULL, currency TEXT NOT NULL, since REAL NOT NULL, at REAL NOT NULL,
       spent REAL NOT NULL, billed REAL NOT NULL, seconds REAL NOT NULL,
       PRIMARY KEY (box, currency, since)) WITHOUT ROWID""",
    "CREATE TABLE losses (start REAL NOT NULL, stop REAL NOT NULL)",
    happenings.TABLE,
    *moments.TABLES,
    spending.ESTIMATES,
    spending.BOUNDS,
)


class HistoryError(Exception):
    """The history cannot be used now. rgt runs without it and reports that."""


class HistoryRefused(HistoryError):
    """The file is not touched: it belongs to a newer rgt, or is not a history."""


class HistoryUnavailable(HistoryError):
    """A temporary failure (disk full, read-only, locked); it is tried again."""


class HistoryDamaged(HistoryError):
    """The file's content is invalid. It is moved away and replaced by its backup."""


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
"""Primary result codes (https://sqlite.org/rescode.html) of failures that prove nothing about the
file's content."""
_VALUES = (
    OverflowError,
    ValueError,
    TypeError,
    struct.error,
    sqlite3.DataError,
    sqlite3.InterfaceError,
)


def convert_error(error: sqlite3.Error | OSError, path: object) -> HistoryError:
    """Convert an error of SQLite or the system to the matching exception for the file at `path`."""
    if isinstance(error, OSError):
        return HistoryUnavailable(f"{path}: {error.strerror or error}")
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _PASSING:
        return HistoryUnavailable(f"{path}: {error}")
    # Our statements match our tables: on any other error, the tables are not the ones we created.
    return HistoryDamaged(f"{path}: {error}")


def is_unfit(error: Exception) -> bool:
    """Return whether a write failed because of the values to be written.

    Such values are numbers beyond 64 bits, invalid text, and NaN (which SQLite stores as NULL).
    """
    if isinstance(error, _VALUES):
        return True
    # For a value of a type unknown to SQLite, Python raises a ProgrammingError without an SQLite
    # error code.
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.ProgrammingError):
        return code is None
    return isinstance(error, sqlite3.IntegrityError) and code == sqlite3.SQLITE_CONSTRAINT_NOTNULL


@contextlib.contextmanager
def locked_history(path: Path) -> Iterator[None]:
    """Hold the lock under which a history is created, replaced or backed up.

    Raises:
        HistoryUnavailable: another process holds the lock for too long.
        OSError: the lock file cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(path.name + ".lock")
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            lock_file(fd, DATABASE.busy_s)
        except TimeoutError:
            raise HistoryUnavailable(
                f"another rgt has held {lock} for {DATABASE.busy_s:.0f} s"
            ) from None
        yield
    finally:
        os.close(fd)


class BoxWriters:
    """Decides which boxes this process writes.

    There is one lock per box, which the kernel releases when the process ends.

    Args:
        path: The history.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".writers")
        self._fd: int | None = None
        self._mine: set[str] = set()

    def acquire_box(self, place: str) -> bool:
        """Become or stay the writer of a box; return False while another process is.

        Raises:
            OSError: the file system has no locks, or they fail.
        """
        if place in self._mine:
            return True
        if self._fd is None:
            self._fd = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        byte = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=6).digest())
        try:
            # Byte locks, not flock: flock locks an entire file, and 200 boxes would need 200 files.
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            # POSIX allows either EAGAIN or EACCES for a byte that is locked.
            return False
        self._mine.add(place)
        return True

    def release(self) -> None:
        """Release the locks of all boxes."""
        fd, self._fd = self._fd, None
        self._mine.clear()
        if fd is not None:
            os.close(fd)


def connect(path: Path) -> sqlite3.Connection:
    """Open and check the history at `path`; create it if it does not exist.

    The file of an earlier development version is renamed to ``NAME.version-N``, and a new history
    begins.

    Raises:
        HistoryRefused: it belongs to a newer rgt, or is not a history of rgt. It is not changed.
        HistoryUnavailable: it cannot be opened now.
        HistoryDamaged: it is not a valid database.
    """
    try:
        with locked_history(path):
            # SQLite copies the permissions of this file to -wal and -shm.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            con = _open_connection(path)
            try:
                version = _read_version(con, path)
                if 0 < version < DATABASE.version:
                    con.close()
                    _move_database(path, path.with_name(f"{path.name}.version-{version}"))
                    con, version = _open_connection(path), 0
                if not version:
                    _create_tables(con)
                _apply_settings(con, path)
                check_integrity(con, path)
            except BaseException:
                con.close()
                raise
            return con
    except (sqlite3.Error, OSError) as error:
        raise convert_error(error, path) from error


def _open_connection(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=DATABASE.busy_s,
        # Transactions are ours: the module's own would begin late and fail on a lock in the middle.
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _read_version(con: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file; 0 = it is empty."""
    if read_pragma(con, "page_count") == 0:
        if path.stat().st_size:
            raise HistoryDamaged(f"{path} is cut off: too short for a database")
        return 0
    # Another program's database must not get our tables, even if RGT_HISTORY names it.
    if read_pragma(con, "application_id") != DATABASE.application_id:
        raise HistoryRefused(f"{path} is not a history of rgt; name another file by RGT_HISTORY")
    version = read_pragma(con, "user_version")
    if version > DATABASE.version:
        raise HistoryRefused(
            f"{path} was written by a newer rgt (version {version}, this one knows "
            f"{DATABASE.version}); it is left as it is. Update rgt, or name another file by "
            "RGT_HISTORY"
        )
    return version


def _apply_settings(con: sqlite3.Connection, path: Path) -> None:
    con.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network(path) else 'WAL'}")
    con.execute("PRAGMA synchronous = NORMAL")
    con.execute(f"PRAGMA journal_size_limit = {DATABASE.wal_bytes}")
    con.execute("PRAGMA temp_store = MEMORY")
    con.execute("PRAGMA cache_size = -4096")


def _create_tables(con: sqlite3.Connection) -> None:
    # Only possible before the first table exists.
    con.execute("PRAGMA auto_vacuum = INCREMENTAL")
    con.execute(f"PRAGMA application_id = {DATABASE.application_id}")
    with transaction(con):
        for table in TABLES:
            con.execute(table)
        # In the same transaction: a crash leaves an empty file, not tables without a version.
        con.execute(f"PRAGMA user_version = {DATABASE.version}")


@contextlib.contextmanager
def transaction(con: sqlite3.Connection) -> Iterator[None]:
    """Write in one transaction.

    It waits for another writer at the start, so that no later statement can fail on a lock.
    """
    con.execute("BEGIN IMMEDIATE")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            con.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def savepoint(con: sqlite3.Connection) -> Iterator[None]:
    """Write a part of a transaction that can be rolled back separately."""
    con.execute("SAVEPOINT part")
    try:
        yield
    except Exception:
        # A full disk has already ended the entire transaction.
        with contextlib.suppress(sqlite3.Error):
            con.execute("ROLLBACK TO part")
            con.execute("RELEASE part")
        raise
    con.execute("RELEASE part")


def check_integrity(con: sqlite3.Connection, path: Path) -> None:
    """Have SQLite check the structure of the entire file.

    Raises:
        HistoryDamaged: it is invalid.
        sqlite3.Error: it cannot be read.
    """
    found = [str(row[0]) for row in con.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise HistoryDamaged(f"{path}: {'; '.join(found)[:200]}")


def read_pragma(con: sqlite3.Connection, name: str) -> int:
    """Return the value of an SQLite pragma."""
    return int(con.execute(f"PRAGMA {name}").fetchone()[0])


def on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether `path` is on a network file system; False if that is unknown."""
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
            # The longest mount point wins, and of equal ones the last, which covers the others.
            if target.startswith(point + "/") and len(point) >= best:
                best, kind = len(point), words[2]
    return kind in NETWORK


def inode_of(path: Path) -> int | None:
    """Return the inode at `path`, or None."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


# Backup and restoring.


def back_up(con: sqlite3.Connection, path: Path, now: float) -> bool:
    """Write the daily backup next to the history if it is due; return whether it was.

    Raises:
        HistoryDamaged: the history is invalid; the previous backup is kept.
        sqlite3.Error, OSError: it cannot be written.
    """
    backup = backup_of(path)
    if _is_fresh(backup, now):
        return False
    with locked_history(path):
        if _is_fresh(backup, now):
            return False
        check_integrity(con, path)
        new = backup.with_name(backup.name + ".new")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            # A copy of the file would miss the write-ahead log; this one is consistent while others
            # write.
            con.execute("VACUUM INTO ?", (str(new),))
            _sync_with_mtime(new, now)
            new.rename(backup)
        finally:
            new.unlink(missing_ok=True)
    return True


def backup_of(path: Path) -> Path:
    """Return the path of a history's backup. Its modification time is the time of the backup."""
    return path.with_name(path.name + ".backup")


def _is_fresh(backup: Path, now: float) -> bool:
    try:
        return 0 <= now - backup.stat().st_mtime < DATABASE.backup_s
    except OSError:
        return False


class RestoreResult(NamedTuple):
    """The result of restoring a damaged history."""

    aside: Path
    """New path of the damaged file."""
    backup_at: float | None
    """When the backup used was made; None = no backup, so a new history begins."""


def restore_backup(path: Path, inode: int | None, now: float) -> RestoreResult | None:
    """Move a damaged history away and replace it by its backup.

    None = another process has already done so.

    Args:
        path: The history.
        inode: Of the file found damaged; None = the present file.
        now: Epoch seconds.

    Raises:
        HistoryError: it cannot be done now.
    """
    try:
        with locked_history(path):
            # Another rgt has replaced the file meanwhile; the new one is not damaged.
            if inode is not None and inode_of(path) != inode:
                return None
            stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(now))
            aside = path.with_name(f"{path.name}.damaged-{stamp}")
            number = 1
            while aside.exists():
                number += 1
                aside = path.with_name(f"{path.name}.damaged-{stamp}.{number}")
            backup, new = backup_of(path), path.with_name(path.name + ".new")
            at, successor = None, None
            if _is_sound(backup):
                at, successor = backup.stat().st_mtime, new
                shutil.copyfile(backup, new)
                new.chmod(0o600)
                _sync_with_mtime(new, at)
            _move_database(path, aside, successor)
        con = connect(path)
        try:
            # Without a backup, the lost period has an unknown start.
            con.execute("INSERT INTO losses VALUES (?, ?)", (at or 0.0, now))
        finally:
            con.close()
        _drop_old_damaged(path)
        return RestoreResult(aside, at)
    except (OSError, sqlite3.Error) as error:
        raise convert_error(error, path) from error


def _is_sound(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        con = _open_connection(path)
        try:
            check_integrity(con, path)
            return _read_version(con, path) > 0
        finally:
            con.close()
    except (sqlite3.Error, HistoryError):
        return False


def _sync_with_mtime(path: Path, at: float) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.utime(fd, (at, at))
        os.fsync(fd)
    finally:
        os.close(fd)


def _move_database(path: Path, target: Path, successor: Path | None = None) -> None:
    """Move a database away and put its successor in its place.

    With a successor the file first gets a second name: a crash at any point leaves the damaged file
    or the successor at `path`, and not a gap in which a new, empty history would begin.
    """
    linked = False
    if successor is not None:
        with contextlib.suppress(OSError):  # some file systems have no hard links
            os.link(path, target)
            linked = True
    # Move the file first: SQLite deletes a -wal file that it finds next to a new, empty file.
    if not linked:
        path.rename(target)
    for tail in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{tail}").rename(f"{target}{tail}")
    if successor is not None:
        successor.rename(path)


def _drop_old_damaged(path: Path) -> None:
    aside = sorted(path.parent.glob(f"{path.name}.damaged-*"))
    mains = [each for each in aside if not each.name.endswith(("-wal", "-shm"))]
    for main in mains[: -DATABASE.kept_damaged]:
        for tail in ("", "-wal", "-shm"):
            Path(f"{main}{tail}").unlink(missing_ok=True)


# The number of each box in the history file: how a box is identified, and its name in each fleet.


def box_identity(spec: BoxSpec) -> str:
    """Return the identity of a box, chosen so that it never inherits another machine's history.

    A provider never reuses an instance id: such a box keeps its history when it is renamed, and a
    new rental under the old name begins without one. An address is weaker, because rentals reuse
    addresses, so without a provider the name and the entire address must match.
    """
    ref = spec.provider
    if ref is not None:
        known: list[object] = [ref.kind, ref.instance]
        if ref.base_url is not None:
            known.append(ref.base_url)
    else:
        known = ["ssh", spec.name, spec.user, spec.host, spec.port]
    return msgspec.json.encode(known).decode()


def number_box(con: sqlite3.Connection, fleet: str, spec: BoxSpec) -> int:
    """Return the number of a box, adding or renaming it if needed.

    Args:
        con: In a transaction.
        fleet: Identifies the fleet, such as the path of its file.
        spec: The box.
    """
    box = box_number(con, spec)
    if box is None:
        con.execute(
            "INSERT INTO boxes (place, name) VALUES (?, ?)", (box_identity(spec), spec.name)
        )
        box = int(con.execute("SELECT last_insert_rowid()").fetchone()[0])
    con.execute("UPDATE boxes SET name = ? WHERE id = ? AND name <> ?", (spec.name, box, spec.name))
    con.execute("INSERT OR IGNORE INTO fleets VALUES (?, ?, ?)", (fleet, spec.name, box))
    return box


def fleet_number(con: sqlite3.Connection, fleet: str) -> int | None:
    """Return the number for a fleet's rows without a box, or None."""
    row = con.execute("SELECT id FROM boxes WHERE place = ?", (_place_of_fleet(fleet),)).fetchone()
    if row is None:
        return None
    return int(row[0])


def number_fleet(con: sqlite3.Connection, fleet: str) -> int:
    """Return the same number, creating it if needed.

    It is not in `fleets`, because it is not a box.
    """
    con.execute(
        "INSERT OR IGNORE INTO boxes (place, name) VALUES (?, '')", (_place_of_fleet(fleet),)
    )
    found = fleet_number(con, fleet)
    assert found is not None
    return found


def _place_of_fleet(fleet: str) -> str:
    return msgspec.json.encode(["fleet", fleet]).decode()


def box_number(con: sqlite3.Connection, spec: BoxSpec) -> int | None:
    """Return the number of a box; None = nothing was ever written about it."""
    row = con.execute("SELECT id FROM boxes WHERE place = ?", (box_identity(spec),)).fetchone()
    if row is None:
        return None
    return int(row[0])


def box_numbers_named(con: sqlite3.Connection, fleet: str, name: str) -> list[int]:
    """Return the numbers of all boxes ever called `name` in a fleet.

    Yesterday it may have been another machine.
    """
    return [
        int(row[0])
        for row in con.execute("SELECT box FROM fleets WHERE fleet = ? AND name = ?", (fleet, name))
    ]


def boxes_of_fleet(con: sqlite3.Connection, fleet: str) -> dict[int, str]:
    """Return all boxes that a fleet ever had: number → name."""
    return {
        int(row[0]): str(row[1])
        for row in con.execute("SELECT box, name FROM fleets WHERE fleet = ?", (fleet,))
    }
