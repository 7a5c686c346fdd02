"""What happened, in words, and which billing actions the audit log tells of."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model.fleet import FleetEvent
from rgt_tui.store.errors import Damaged
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import AUDIT, EVENTS

MOST_EVENTS = 20_000
MOST_AUDIT = 20_000
READ_BYTES = 1 << 20


class AuditRow(msgspec.Struct, frozen=True):
    """A line of an audit log, by its place; the log itself stays the proof."""

    path: str
    start: int
    """Byte offset of the line."""
    at: float
    box: str
    verb: str
    event: str
    instance: str
    who: str
    text: str


def write(con: sqlite3.Connection, box: int, event: FleetEvent) -> None:
    """Write an event; the same one, seen by two processes at the same moment, once."""
    values = (float(event.at), box, event.text, event.level)
    con.execute(EVENTS.insert("IGNORE"), EVENTS.sealed(values))


def newest(con: sqlite3.Connection, names: dict[int, str], count: int) -> tuple[FleetEvent, ...]:
    """Return the last events of boxes, oldest first.

    Args:
        con: The file.
        names: Number of a box → its name.
        count: How many.
    """
    found: list[FleetEvent] = []
    for row in con.execute(EVENTS.select + " ORDER BY at DESC LIMIT ?", (count * 4,)):
        at, box, text, level, _ = checked("events", row)
        if box in names and len(found) < count:
            found.append(FleetEvent(at=at, box=names[box], text=text, level=level))
    return tuple(reversed(found))


def index_audit(con: sqlite3.Connection, path: Path) -> int:
    """Take in the lines that the audit log at `path` has more than the index; return how many.

    Args:
        con: In a transaction.
        path: The log; it need not exist.

    Raises:
        OSError: it cannot be read.
    """
    name = str(path.absolute())
    row = con.execute(AUDIT.select + " WHERE path = ? ORDER BY start DESC LIMIT 1", (name,)).fetchone()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return 0
    with os.fdopen(fd, "rb") as log:
        start = _goes_on(log, checked("audit", row)) if row is not None else 0
        if row is not None and start == 0:
            con.execute("DELETE FROM audit WHERE path = ?", (name,))
        log.seek(start)
        data = log.read(READ_BYTES)
    count = 0
    for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
        values = _audit(name, start, line)
        start += len(line)
        if values is not None:
            con.execute(AUDIT.insert("IGNORE"), AUDIT.sealed(values))
            count += 1
    return count


def _goes_on(log: Any, row: Any) -> int:
    """Return where the log goes on behind the last line of the index; 0 when it is another log."""
    log.seek(row[1])
    line = log.readline(READ_BYTES)
    known = _audit(row[0], row[1], line)
    return row[1] + len(line) if known is not None and tuple(known) == tuple(row[:-1]) else 0


def _audit(path: str, start: int, line: bytes) -> tuple[Any, ...] | None:
    try:
        entry = msgspec.json.decode(line)
        words = [
            str(entry.get(key, ""))[:2000] for key in ("box", "verb", "event", "instance", "who", "text")
        ]
        return (path, start, float(entry["at"]), *words)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None


def audit(con: sqlite3.Connection, count: int) -> tuple[AuditRow, ...]:
    """Return the last lines of all audit logs that are known of, oldest first."""
    rows = con.execute(AUDIT.select + " ORDER BY at DESC LIMIT ?", (count,)).fetchall()
    try:
        return tuple(AuditRow(*checked("audit", row)[:-1]) for row in reversed(rows))
    except TypeError as error:
        raise Damaged(f"a row of audit cannot be read: {error}") from error


def trim(con: sqlite3.Connection) -> None:
    """Drop what is beyond the bounds, the oldest first."""
    for table, most in (("events", MOST_EVENTS), ("audit", MOST_AUDIT)):
        con.execute(
            f"DELETE FROM {table} WHERE at < (SELECT at FROM {table} ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (most,),
        )
