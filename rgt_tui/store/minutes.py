"""Minutes of cost in the file, and the days that they add up to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from rgt_tui.store import marks
from rgt_tui.store.seal import checked
from rgt_tui.store.spend import DAY, MINUTE, SAME_SECONDS, Minute, gap_share, looking_back, merged, with_gap
from rgt_tui.store.tables import DAYS, MINUTES

KEPT_DAYS = 2
"""Minutes are kept this long; then only what the whole day cost is."""
ROLLED = "minutes rolled up before"

Totals = dict[str, tuple[float, float]]
"""Currency → what was spent, and the part of it while no run was alive."""


def write(con: sqlite3.Connection, box: int, minute: Minute) -> None:
    """Add what is known of a minute to what the file knows of it.

    Args:
        con: In a transaction.
        box: The box's number.
        minute: What this process saw.
    """
    if minute.minute < _rolled(con):
        return  # its day is closed: counting it now could count it twice
    key = (box, minute.minute, minute.currency)
    new = merged(_one(con, key), minute)
    _put(con, box, _gapped(con, box, new))
    if minute.covered or minute.spent is not None:
        _again(con, box, new)


def _one(con: sqlite3.Connection, key: tuple[int, int, str]) -> Minute | None:
    condition = " WHERE box = ? AND minute = ? AND currency = ?"
    row = con.execute(MINUTES.select + condition, key).fetchone()
    return None if row is None else _minute(row)


def _gapped(con: sqlite3.Connection, box: int, new: Minute) -> Minute:
    if new.spent is None or new.since is None:
        return new
    last = _reading_before(con, box, new)
    same = last
    if last is not None and abs((last.since or 0.0) - new.since) > SAME_SECONDS:
        near = " AND since BETWEEN ? AND ?"
        same = _reading_before(con, box, new, near, new.since - SAME_SECONDS, new.since + SAME_SECONDS)
    back = looking_back(new, last, same)
    if same is not None and same is last and new.minute - same.minute < 2:
        return with_gap(new, back, (same, new))
    start = new.minute if back is None else int(back.base // MINUTE)
    return with_gap(new, back, [*_range(con, box, new.currency, start, new.minute), new])


def _reading_before(
    con: sqlite3.Connection, box: int, new: Minute, condition: str = "", *values: float
) -> Minute | None:
    where = " WHERE box = ? AND minute < ? AND currency = ? AND spent IS NOT NULL AND since IS NOT NULL"
    order = " ORDER BY minute DESC LIMIT 1"
    found = (box, new.minute, new.currency, *values)
    row = con.execute(MINUTES.select + where + condition + order, found).fetchone()
    return None if row is None else _minute(row)


def _again(con: sqlite3.Connection, box: int, new: Minute) -> None:
    """Work out anew a gap that turns out to have been watched: its watcher was late to say so."""
    condition = " WHERE box = ? AND minute > ? AND currency = ? AND gap > 0 AND gap_from < ?"
    values = (box, new.minute, new.currency, (new.minute + 1) * MINUTE)
    for row in con.execute(MINUTES.select + condition, values).fetchall():
        _put(con, box, _gapped(con, box, _minute(row)))


def _range(con: sqlite3.Connection, box: int, currency: str, start: int, stop: int) -> Iterator[Minute]:
    condition = " WHERE box = ? AND minute >= ? AND minute < ? AND currency = ?"
    for row in con.execute(MINUTES.select + condition, (box, start, stop, currency)):
        yield _minute(row)


def _minute(row: Sequence[Any]) -> Minute:
    _, number, currency, rate, covered, idle, busy, _, _, spent, since, at, gap, gap_from, _ = checked(
        "minutes", row
    )
    return Minute(number, currency, rate, covered, idle, busy, spent, since, at, gap, gap_from)


def _put(con: sqlite3.Connection, box: int, m: Minute) -> None:
    values = (
        box, m.minute, m.currency, m.rate, m.covered, m.idle, m.busy, m.billed, m.idle_billed,
        m.spent, m.since, m.at, m.gap, m.gap_from,
    )  # fmt: skip
    con.execute(MINUTES.insert(), MINUTES.sealed(values))


def between(con: sqlite3.Connection, boxes: Iterable[int], start: float, stop: float) -> Totals:
    """Return what boxes cost between two times (whole minutes), as far as it is known."""
    found: Totals = {}
    first, last = int(start // MINUTE), int(-(-stop // MINUTE))
    for box in boxes:
        for currency, billed, idle in con.execute(
            """SELECT currency, sum(billed), sum(idle_billed) FROM minutes
               WHERE box = ? AND minute >= ? AND minute < ? GROUP BY currency""",
            (box, first, last),
        ):
            _add(found, currency, billed, idle)
        for currency, gap, gap_from, at in con.execute(
            "SELECT currency, gap, gap_from, at FROM minutes WHERE box = ? AND minute >= ? AND gap > 0",
            (box, first),
        ):
            _add(found, currency, gap_share(gap, gap_from, at, start, stop), 0.0)
    return found


def _add(totals: Totals, currency: str, billed: float, idle: float) -> None:
    before = totals.get(currency, (0.0, 0.0))
    totals[currency] = (before[0] + billed, before[1] + idle)


def roll_up(con: sqlite3.Connection, now: float) -> int:
    """Sum up days whose minutes are old; return how many days were written.

    Of every box the last reading of the provider's sum stays, so that a later one can be told from it.
    """
    start_of_kept = midnight(now - KEPT_DAYS * DAY)
    limit = int(start_of_kept // MINUTE)
    if limit <= _rolled(con):
        return 0
    days: dict[tuple[int, str], Totals] = {}
    for box, first in con.execute(
        "SELECT box, min(minute) FROM minutes WHERE minute < ? GROUP BY box", (limit,)
    ).fetchall():
        start = midnight(max(first, _rolled(con)) * MINUTE)
        while start < start_of_kept:
            stop = midnight(start + 1.5 * DAY)
            totals = between(con, (box,), max(start, _rolled(con) * MINUTE), stop)
            days[box, datetime.fromtimestamp(start).astimezone().date().isoformat()] = totals
            start = stop
    for (box, day), totals in days.items():
        for currency, (billed, idle) in totals.items():
            con.execute(DAYS.insert(), DAYS.sealed((box, day, currency, billed, idle)))
    con.execute(
        """DELETE FROM minutes WHERE minute < ? AND (box, minute, currency) NOT IN
           (SELECT box, max(minute), currency FROM minutes WHERE spent IS NOT NULL GROUP BY box, currency)""",
        (limit,),
    )
    marks.put(con, ROLLED, limit)
    return len(days)


def _rolled(con: sqlite3.Connection) -> int:
    return marks.get(con, ROLLED)


def prove(con: sqlite3.Connection, boxes: Iterable[int], start: float) -> None:
    """Prove the seals of the minutes from `start` on: a sum does not look at them.

    Raises:
        Damaged: one is broken.
    """
    for box in boxes:
        for row in con.execute(
            MINUTES.select + " WHERE box = ? AND minute >= ?", (box, int(start // MINUTE))
        ):
            checked("minutes", row)


def midnight(at: float) -> float:
    """Return the local midnight before a time."""
    day = datetime.fromtimestamp(at).astimezone().date()
    return datetime(day.year, day.month, day.day).astimezone().timestamp()
