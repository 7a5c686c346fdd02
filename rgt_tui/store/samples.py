"""Means of samples in the file: by the minute for a day, then by ten minutes for a month."""

from __future__ import annotations

import math
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rgt_tui.model.box import Past
from rgt_tui.store.errors import Damaged
from rgt_tui.store.means import WIDTH, Mean
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import NAMES, SAMPLES

COARSE = 600
FINE_SECONDS = 86400.0
"""After this, minutes are summed up to `COARSE` seconds."""
KEPT_SECONDS = 30 * 86400.0
PAST_SECONDS = 86400.0
PAST_WIDTH = 480
"""Seconds of a stretch of what is recalled: a day fits a screen's width."""
GROUPS_AT_ONCE = 500
"""Coarse rows made in one go, so that no other writer waits long."""

Values = dict[str, float]


class Names:
    """Lists of names that samples share, by number.

    Args:
        con: The file.
    """

    def __init__(self, con: sqlite3.Connection) -> None:
        self._con = con
        self._numbers: dict[str, int] = {}
        self._lists: dict[int, tuple[str, ...]] = {}

    def number(self, names: Sequence[str]) -> int:
        """Return the number of a list, in a transaction that may be the first to use it."""
        text = msgspec.json.encode(names).decode()
        if text not in self._numbers:
            row = self._con.execute("SELECT id FROM names WHERE list = ?", (text,)).fetchone()
            if row is None:
                row = self._con.execute("SELECT coalesce(max(id), 0) + 1 FROM names").fetchone()
                self._con.execute(NAMES.insert(), NAMES.sealed((int(row[0]), text)))
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
        """Forget numbers that a transaction which failed may have given out."""
        self._numbers.clear()


def write(con: sqlite3.Connection, names: Names, box: int, mean: Mean) -> None:
    """Write a stretch. Where one stands, the one of more samples stays: two processes saw the same box."""
    key = (box, mean.width, mean.slot)
    old = con.execute("SELECT count FROM samples WHERE box = ? AND width = ? AND slot = ?", key).fetchone()
    if old is None or old[0] < mean.count:
        _put(con, names, key, mean.count, mean.values)


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


def coarsen(con: sqlite3.Connection, names: Names, now: float) -> int:
    """Sum up some minutes that are old, drop what is too old; return how many coarse rows were made."""
    before = int((now - FINE_SECONDS) // COARSE) * (COARSE // WIDTH)
    con.execute(
        "DELETE FROM samples WHERE width = ? AND slot < ?", (COARSE, int((now - KEPT_SECONDS) // COARSE))
    )
    per = COARSE // WIDTH
    groups = con.execute(
        "SELECT DISTINCT box, slot / ? FROM samples WHERE width = ? AND slot < ? LIMIT ?",
        (per, WIDTH, before, GROUPS_AT_ONCE),
    ).fetchall()
    for box, slot in groups:
        fine = (box, WIDTH, slot * per, (slot + 1) * per)
        condition = " WHERE box = ? AND width = ? AND slot >= ? AND slot < ?"
        rows = [checked("samples", row) for row in con.execute(SAMPLES.select + condition, fine)]
        rows += [
            checked("samples", row)
            for row in con.execute(
                SAMPLES.select + " WHERE box = ? AND width = ? AND slot = ?", (box, COARSE, slot)
            )
        ]
        count, values = _mean((row[4], _values(names, row)) for row in rows)
        con.execute("DELETE FROM samples" + condition, fine)
        _put(con, names, (box, COARSE, slot), count, values)
    return len(groups)


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
    """Return a box's last day in stretches of `PAST_WIDTH`.

    Raises:
        Damaged: what stands there is not what was written.
    """
    slots: dict[int, list[tuple[int, Values]]] = {}
    condition = " WHERE box = ? AND width = ? AND slot >= ? AND slot <= ?"
    reach = (int((now - PAST_SECONDS) // WIDTH), int(now // WIDTH))
    for row in con.execute(SAMPLES.select + condition, (box, WIDTH, *reach)):
        slot = checked("samples", row)[2] * WIDTH // PAST_WIDTH
        slots.setdefault(slot, []).append((row[4], _values(names, row)))
    return as_past({slot: _mean(parts)[1] for slot, parts in slots.items()})


def as_past(slots: Mapping[int, Values]) -> Past:
    """Return stretches of `PAST_WIDTH` seconds, by their number, as a `Past`."""
    listed = sorted({name for values in slots.values() for name in values}, key=_order)
    return Past(
        names=tuple(listed),
        at=tuple(float((slot + 1) * PAST_WIDTH) for slot in sorted(slots)),
        values=tuple(tuple(_tenths(slots[slot].get(name)) for name in listed) for slot in sorted(slots)),
        width=float(PAST_WIDTH),
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
