"""Minutes of cost in the file, and the days that they add up to.

A second that is in ``days`` is in no row of ``minutes`` any more, and the other way round, so that both may be added up
at any time. Only what an unwatched stretch cost is in both: there the part before the mark `ROLLED` is in ``days``.
"""

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
LONGEST_DAYS = 1000
"""An unwatched stretch that is said to be longer is counted from this many days before its end."""

Totals = dict[str, tuple[float, float]]
"""Currency → what was spent, and the part of it while no run was alive."""


def closed(con: sqlite3.Connection, now: float) -> int:
    """Return the minute before which all is in ``days``. A clock that was ahead for a while has closed nothing."""
    return min(marks.get(con, ROLLED), _limit(now))


def close_again(con: sqlite3.Connection) -> None:
    """Set the mark, where it was lost, by the newest day that was summed up: or unwatched time would count twice.

    Args:
        con: In a transaction.
    """
    (day,) = con.execute("SELECT max(day) FROM days").fetchone()
    if day is not None and marks.get(con, ROLLED) == 0:
        noon = datetime.fromisoformat(str(day)).astimezone().timestamp() + DAY / 2
        marks.put(con, ROLLED, int(midnight(noon + DAY) // MINUTE))


def _limit(now: float) -> int:
    return int(midnight(now - KEPT_DAYS * DAY) // MINUTE)


def write(con: sqlite3.Connection, box: int, minute: Minute, before: int) -> None:
    """Add what is known of a minute to what the file knows of it.

    Args:
        con: In a transaction.
        box: The box's number.
        minute: What this process saw.
        before: What is `closed`.
    """
    if minute.minute < before:
        return  # its day is closed: counting it now could count it twice
    old = _one(con, (box, minute.minute, minute.currency))
    new = merged(old, minute)
    _keep(con, box, old, _gapped(con, box, new), before)
    if minute.covered or minute.spent is not None:
        _again(con, box, new, before)


def _keep(con: sqlite3.Connection, box: int, old: Minute | None, new: Minute, before: int) -> None:
    """Write a minute. What the unwatched time before it cost is known only now: closed days get their share late."""
    _put(con, box, new)
    for sign, row in ((-1.0, old), (1.0, new)):
        if row is not None and row.gap > 0 and row.at is not None and old != new:
            for day, start, stop in _days(row.gap_from, min(row.at, before * MINUTE)):
                share = gap_share(row.gap, row.gap_from, row.at, start, stop)
                _add_to_day(con, (box, day, row.currency), sign * share, 0.0)


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


def _again(con: sqlite3.Connection, box: int, new: Minute, before: int) -> None:
    """Work out anew a gap that turns out to have been watched: its watcher was late to say so."""
    condition = " WHERE box = ? AND minute > ? AND currency = ? AND gap > 0 AND gap_from < ?"
    values = (box, new.minute, new.currency, (new.minute + 1) * MINUTE)
    for row in con.execute(MINUTES.select + condition, values).fetchall():
        old = _minute(row)
        _keep(con, box, old, _gapped(con, box, old), before)


def _range(con: sqlite3.Connection, box: int, currency: str, start: int, stop: int) -> Iterator[Minute]:
    condition = " WHERE box = ? AND minute >= ? AND minute < ? AND currency = ?"
    for row in con.execute(MINUTES.select + condition, (box, start, stop, currency)):
        yield _minute(row)


def _minute(row: Sequence[Any]) -> Minute:
    _, number, currency, rate, covered, idle, busy, _, _, spent, since, at, gap, gap_from, _ = checked(
        "minutes", row
    )
    return Minute(number, currency, rate, covered, idle, busy, spent, since, at, gap, gap_from)


def _put(con: sqlite3.Connection, box: int, m: Minute, *, counted: bool = False) -> None:
    """Write a row; with `counted` for its reading alone, because what it cost is in ``days``."""
    billed = (0.0, 0.0) if counted else (m.billed, m.idle_billed)
    gap = (0.0, 0.0) if counted else (m.gap, m.gap_from)
    values = (
        box, m.minute, m.currency, m.rate, m.covered, m.idle, m.busy, *billed, m.spent, m.since, m.at, *gap,
    )  # fmt: skip
    con.execute(MINUTES.insert(), MINUTES.sealed(values))


def between(
    con: sqlite3.Connection, boxes: Iterable[int], start: float, stop: float, before: int = 0
) -> Totals:
    """Return what boxes cost between two times (whole minutes), as far as the minutes know it.

    Args:
        con: The file.
        boxes: Their numbers.
        start: Epoch seconds.
        stop: Epoch seconds.
        before: What is `closed`: of unwatched time that part is in ``days``.
    """
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
            _add(found, currency, gap_share(gap, gap_from, at, max(start, before * MINUTE), stop), 0.0)
    return found


def by_day(con: sqlite3.Connection, boxes: Iterable[int], start: float, stop: float) -> Totals:
    """Return what boxes cost on the closed days from one local midnight up to another.

    Raises:
        Damaged: a row is not what was written.
    """
    found: Totals = {}
    days = _day(start), _day(stop)
    for box in boxes:
        for row in con.execute(DAYS.select + " WHERE box = ? AND day >= ? AND day < ?", (box, *days)):
            _, _, currency, billed, idle, _ = checked("days", row)
            _add(found, currency, billed, idle)
    return found


def added(*totals: Totals) -> Totals:
    """Return sums added up, each currency for itself."""
    found: Totals = {}
    for each in totals:
        for currency, (billed, idle) in each.items():
            _add(found, currency, billed, idle)
    return found


def _add(totals: Totals, currency: str, billed: float, idle: float) -> None:
    before = totals.get(currency, (0.0, 0.0))
    totals[currency] = (before[0] + billed, before[1] + idle)


def roll_up(con: sqlite3.Connection, now: float) -> int:
    """Sum up days whose minutes are old; return how many days were written.

    Of every box the last reading of the provider's sum stays, so that a later one can be told from it.
    """
    limit, before = _limit(now), closed(con, now)
    if marks.get(con, ROLLED) == limit:
        return 0
    count = 0
    for box, first in con.execute(
        """SELECT box, min(CASE WHEN gap > 0 THEN min(minute, gap_from / 60) ELSE minute END) FROM minutes
           WHERE minute < ? OR (gap > 0 AND gap_from < ?) GROUP BY box""",
        (limit, limit * MINUTE),
    ).fetchall():
        for day, start, stop in _days(first * MINUTE, limit * MINUTE):
            for currency, amounts in between(con, (box,), start, stop, before).items():
                _add_to_day(con, (box, day, currency), *amounts)
                count += 1
    con.execute(
        """DELETE FROM minutes WHERE minute < ? AND (box, minute, currency) NOT IN
           (SELECT box, max(minute), currency FROM minutes
            WHERE spent IS NOT NULL AND minute < ? GROUP BY box, currency)""",
        (limit, limit),
    )
    for row in con.execute(MINUTES.select + " WHERE minute < ?", (limit,)).fetchall():
        _put(con, row[0], _minute(row), counted=True)
    marks.put(con, ROLLED, limit)
    return count


def _add_to_day(con: sqlite3.Connection, key: tuple[int, str, str], billed: float, idle: float) -> None:
    if not billed and not idle:
        return
    row = con.execute(DAYS.select + " WHERE box = ? AND day = ? AND currency = ?", key).fetchone()
    before = (0.0, 0.0) if row is None else checked("days", row)[3:5]
    amounts = (max(0.0, before[0] + billed), max(0.0, before[1] + idle))
    con.execute(DAYS.insert(), DAYS.sealed((*key, *amounts)))


def _days(start: float, stop: float) -> Iterator[tuple[str, float, float]]:
    """Yield the local days between two times: date, and from when to when."""
    at = max(start, stop - LONGEST_DAYS * DAY)
    while at < stop:
        end = min(stop, midnight(midnight(at) + 1.5 * DAY))
        yield _day(at), at, end
        at = end


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().date().isoformat()


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


def first_of_month(at: float) -> float:
    """Return the local midnight with which the month of a time began."""
    day = datetime.fromtimestamp(at).astimezone().date()
    return datetime(day.year, day.month, 1).astimezone().timestamp()
