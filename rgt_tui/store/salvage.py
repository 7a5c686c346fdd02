"""What can still be read of a damaged history is taken over into the new one, the small and dear tables first.

What boxes are called, what they cost and what was done to them is taken over whole: nobody tells it again. Curves and
readings come after it, the newest first, and only for some seconds: the boxes tell their curves anew.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rgt_tui.store import minutes, runs
from rgt_tui.store.connect import connect, transaction
from rgt_tui.store.damage import read_only
from rgt_tui.store.errors import judged
from rgt_tui.store.samples import COARSE
from rgt_tui.store.seal import seal
from rgt_tui.store.tables import (
    AUDIT,
    BOXES,
    CURVES,
    DAYS,
    EVENTS,
    FLEETS,
    MARKS,
    MINUTES,
    NAMES,
    RUNS,
    SAMPLES,
    STATES,
    Table,
)

SECONDS = 5.0
"""For curves and readings; nobody should wait longer for the new history."""
SLICE = 1000
"""Readings that are written in one go, so that no other writer waits long."""
BOX_OF = {
    table.name: table.columns.index("box")
    for table in (FLEETS, STATES, SAMPLES, RUNS, CURVES, MINUTES, DAYS, EVENTS)
}
"""Table → which column holds the number of a box. In the index of the audit log a box is a name."""
NAMES_OF = {SAMPLES.name: SAMPLES.columns.index("names")}

_UNREADABLE = (sqlite3.Error, OverflowError, TypeError, ValueError)

Row = tuple[Any, ...]


class Salvaged(NamedTuple):
    """What came of it."""

    rows: int
    whole: bool
    """False when curves or readings were left behind because it would have taken too long."""


def salvage(damaged: Path, path: Path) -> Salvaged:
    """Take over every row that still proves its seal.

    A run of which a piece of a curve is missing is left out: the box tells it anew.

    Args:
        damaged: The file that was set aside.
        path: The new history. Another process may have begun to write it.

    Raises:
        HistoryError: the new one cannot be written.
    """
    new = connect(path)
    try:
        old = read_only(damaged)
    except sqlite3.Error:
        new.close()
        return Salvaged(0, whole=True)
    try:
        return _Salvage(old, new).run()
    except sqlite3.Error as error:
        raise judged(error, path) from error
    finally:
        old.close()
        new.close()


class _Salvage:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection) -> None:
        self._old = old
        self._new = new
        self._boxes: dict[int, int] = {}
        """Number of a box in the old file → in the new one, where another process may have given it to another."""
        self._names: dict[int, int] = {}
        self._count = 0

    def run(self) -> Salvaged:
        with transaction(self._new):
            self._boxes = {0: 0} | self._numbered(BOXES, "place")  # 0: an event of no box
            self._names = self._numbered(NAMES, "list")
            for table in (FLEETS, MARKS, DAYS, MINUTES, STATES, AUDIT, EVENTS):
                for row in _rows(self._old, table):
                    self._put(table, row)
            minutes.close_again(self._new)
        until = time.monotonic() + SECONDS
        runs_in_time = self._in_time(until, self._runs(), self._run)
        all_in_time = self._in_time(until, self._slices(), self._readings) and runs_in_time
        return Salvaged(self._count, all_in_time)

    def _in_time(self, until: float, items: Iterator[Any], take: Callable[[Any], None]) -> bool:
        for item in items:
            if time.monotonic() >= until:
                return False
            with transaction(self._new):
                take(item)
        return True

    def _numbered(self, table: Table, known_by: str) -> dict[int, int]:
        """Take over rows that others refer to by their number; return old number → new number."""
        place = table.columns.index(known_by)
        found: dict[int, int] = {}
        for row in _rows(self._old, table):
            same = self._new.execute(f"SELECT id FROM {table.name} WHERE {known_by} = ?", (row[place],))
            there = same.fetchone()
            number = int(there[0]) if there is not None else self._free(table, row[0])
            found[row[0]] = number
            if there is None:
                self._new.execute(table.insert(), table.sealed((number, *row[1:])))
                self._count += 1
        return found

    def _free(self, table: Table, number: int) -> int:
        if self._new.execute(f"SELECT 1 FROM {table.name} WHERE id = ?", (number,)).fetchone() is None:
            return number
        return int(self._new.execute(f"SELECT max(id) + 1 FROM {table.name}").fetchone()[0])

    def _put(self, table: Table, row: Row) -> None:
        """Write a row by the new file's numbers; not where it lost its box or its names, or one stands there."""
        values = list(row)
        for places, numbers in ((BOX_OF, self._boxes), (NAMES_OF, self._names)):
            place = places.get(table.name)
            if place is not None:
                if row[place] not in numbers:
                    return
                values[place] = numbers[row[place]]
        self._count += self._new.execute(table.insert("IGNORE"), table.sealed(values)).rowcount

    def _runs(self) -> Iterator[Row]:
        """Yield the runs that are whole, the newest first."""
        found = {(row[0], row[1]): row for row in _rows(self._old, RUNS) if row[0] in self._boxes}
        return iter(sorted(found.values(), key=lambda row: row[3], reverse=True))

    def _run(self, row: Row) -> None:
        box, name = row[0], row[1]
        key = (self._boxes[box], name)
        if self._new.execute("SELECT 1 FROM runs WHERE box = ? AND run = ?", key).fetchone() is not None:
            return
        try:
            if not runs.whole(self._old, box, name):
                return
            pieces = self._old.execute(CURVES.select + " WHERE box = ? AND run = ?", (box, name)).fetchall()
        except _UNREADABLE:
            return
        self._put(RUNS, row)
        for piece in pieces:
            self._put(CURVES, piece[:-1])

    def _slices(self) -> Iterator[list[Row]]:
        """Yield the readings: of all boxes first the month by coarse stretches, then the last day by the minute."""
        for fine in (False, True):
            for box in self._boxes:
                sign = "<>" if fine else "="
                rows = _rows(self._old, SAMPLES, f" WHERE box = {int(box)} AND width {sign} {COARSE}", "DESC")
                while part := list(islice(rows, SLICE)):
                    yield part

    def _readings(self, rows: list[Row]) -> None:
        for row in rows:
            self._put(SAMPLES, row)


def _rows(old: sqlite3.Connection, table: Table, condition: str = "", first: str = "ASC") -> Iterator[Row]:
    """Yield rows that prove their seal, without it; read from both ends, so that a bad page costs what is behind it.

    A row may come twice.
    """
    for direction in (first, "DESC" if first == "ASC" else "ASC"):
        order = ", ".join(f"{column} {direction}" for column in table.columns[: table.key])
        try:
            for row in old.execute(f"{table.select}{condition} ORDER BY {order}"):
                if seal(row[:-1]) == row[-1]:
                    yield row[:-1]
            return
        except _UNREADABLE:
            continue
