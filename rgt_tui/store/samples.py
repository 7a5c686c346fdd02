"""Means of samples in the file: by the minute for a day, by eight minutes for a month."""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rgt_tui.model.box import Past
from rgt_tui.store import marks
from rgt_tui.store.errors import Damaged
from rgt_tui.store.means import WIDTH, Mean
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import NAMES, SAMPLES

COARSE = 480
"""Seconds of a coarse stretch: a day of them fits a screen's width."""
FINE_SECONDS = 86400.0
"""Minutes are kept for so long."""
KEPT_SECONDS = 30 * 86400.0
PAST_SECONDS = 86400.0
GIVEN = "largest number of a list of names"
Values = dict[str, float]


class Names:
    """Lists of names that samples share, by number. Those that no sample has any more go; no number is given twice.

    Args:
        con: The file.
    """

    def __init__(self, con: sqlite3.Connection) -> None:
        self._con = con
        self._numbers: dict[str, int] = {}
        self._lists: dict[int, tuple[str, ...]] = {}

    def number(self, names: Sequence[str]) -> int:
        """Return the number of a list, in a transaction that may be the first to use it.

        Call `forget` when a transaction begins: another process may have dropped a list that no sample had.
        """
        text = msgspec.json.encode(names).decode()
        if text not in self._numbers:
            row = self._con.execute("SELECT id FROM names WHERE list = ?", (text,)).fetchone()
            if row is None:
                (last,) = self._con.execute("SELECT coalesce(max(id), 0) FROM names").fetchone()
                row = (max(int(last), marks.get(self._con, GIVEN)) + 1,)
                self._con.execute(NAMES.insert(), NAMES.sealed((row[0], text)))
                marks.put(self._con, GIVEN, row[0])
            self._numbers[text] = int(row[0])
        return self._numbers[text]

    def names(self, number: int) -> tuple[str, ...]:
        """Return the list of a number.

        Raises:
            Damaged: there is none.
        """
        if number not in self._lists:
            row = self._con.execute(NAMES.select + " WHERE id = ?", (number,)).fetchone()
            if row is None:
                raise Damaged(f"samples are without their names ({number})")
            self._lists[number] = tuple(msgspec.json.decode(checked("names", row)[1]))
        return self._lists[number]

    def forget(self) -> None:
        """Forget which numbers there are: outside a transaction they may change."""
        self._numbers.clear()
        self._lists.clear()


def write(con: sqlite3.Connection, names: Names, box: int, mean: Mean) -> None:
    """Write a minute, and with it the coarse stretch that it belongs to.

    Where one stands, the one of more samples stays: two processes saw the same box.
    """
    key = (box, mean.width, mean.slot)
    old = con.execute("SELECT count FROM samples WHERE box = ? AND width = ? AND slot = ?", key).fetchone()
    if old is not None and old[0] >= mean.count:
        return
    _put(con, names, key, mean.count, mean.values)
    slot = mean.slot * WIDTH // COARSE
    per = COARSE // WIDTH
    fine = con.execute(SAMPLES.select + _RANGE, (box, WIDTH, slot * per, (slot + 1) * per - 1)).fetchall()
    count, values = _mean((row[4], _values(names, checked("samples", row))) for row in fine)
    _put(con, names, (box, COARSE, slot), count, values)


_RANGE = " WHERE box = ? AND width = ? AND slot >= ? AND slot <= ?"


def _put(
    con: sqlite3.Connection, names: Names, key: tuple[int, int, int], count: int, values: Values
) -> None:
    listed = sorted(values)
    packed = struct.pack(f"<{len(listed)}f", *(values[name] for name in listed))
    con.execute(SAMPLES.insert(), SAMPLES.sealed((*key, names.number(listed), count, packed)))


def _values(names: Names, row: Sequence[object]) -> Values:
    number, packed = row[3], row[5]
    assert isinstance(number, int) and isinstance(packed, bytes)
    listed = names.names(number)
    if len(packed) != 4 * len(listed):
        raise Damaged("a sample has not as many values as names")
    return dict(zip(listed, struct.unpack(f"<{len(listed)}f", packed), strict=True))


def drop_old(con: sqlite3.Connection, now: float) -> None:
    """Drop what is too old: minutes after a day, coarse stretches after a month."""
    for (box,) in con.execute("SELECT id FROM boxes").fetchall():
        for width, seconds in ((WIDTH, FINE_SECONDS), (COARSE, KEPT_SECONDS)):
            con.execute(
                "DELETE FROM samples WHERE box = ? AND width = ? AND slot < ?",
                (box, width, int((now - seconds) // width)),
            )


def count_names(con: sqlite3.Connection) -> int:
    """Return how many lists of names there are."""
    return int(con.execute("SELECT count(*) FROM names").fetchone()[0])


def drop_names(con: sqlite3.Connection) -> int:
    """Drop the lists of names that no sample has, such as those of mounts that came and went; return how many.

    It looks at every sample: not to be done all the time.
    """
    return con.execute("DELETE FROM names WHERE id NOT IN (SELECT names FROM samples)").rowcount


def _mean(parts: Iterable[tuple[int, Values]]) -> tuple[int, Values]:
    total = 0
    sums: Values = {}
    counts: dict[str, int] = {}
    for count, values in parts:
        total += count
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + count * value
            counts[name] = counts.get(name, 0) + count
    return total, {name: value / max(1, counts[name]) for name, value in sums.items()}


def past(con: sqlite3.Connection, names: Names, box: int, now: float) -> Past:
    """Return a box's last day by coarse stretches.

    Raises:
        Damaged: what stands there is not what was written.
    """
    reach = (int((now - PAST_SECONDS) // COARSE), int(now // COARSE))
    rows = con.execute(SAMPLES.select + _RANGE, (box, COARSE, *reach))
    return as_past({row[2]: _values(names, checked("samples", row)) for row in rows})


def as_past(slots: Mapping[int, Values]) -> Past:
    """Return stretches of `COARSE` seconds, by their number, as a `Past`."""
    listed = sorted({name for values in slots.values() for name in values}, key=_order)
    return Past(
        names=tuple(listed),
        at=tuple(float((slot + 1) * COARSE) for slot in sorted(slots)),
        values=tuple(tuple(_tenths(slots[slot].get(name)) for name in listed) for slot in sorted(slots)),
        width=float(COARSE),
    )


def _tenths(value: float | None) -> float | None:
    """Return a percentage to one decimal: one object for all that are the same, for there are many."""
    if value is None or not math.isfinite(value):
        return None
    return _TENTHS[round(value * 10)] if 0 <= value <= 100 else value


_TENTHS = tuple(round(number / 10, 1) for number in range(1001))


def _order(name: str) -> tuple[int, str]:
    known = ("util", "vram", "cgroup")
    return (known.index(name) if name in known else len(known), name)
