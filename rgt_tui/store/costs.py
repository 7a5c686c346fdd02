"""What boxes have cost: today, yesterday, and in this month so far."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence

from rgt_tui.model.fleet import Spend
from rgt_tui.store import minutes
from rgt_tui.store.minutes import Totals
from rgt_tui.store.spend import DAY

PAST_SECONDS = 300.0
"""What earlier days cost hardly changes; it is added up this often."""


class Costs:
    """Adds up, and remembers what changes slowly.

    Args:
        monotonic: Seconds, for how long something is remembered.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._proved = False
        self._past: tuple[Totals, Totals] = ({}, {})
        self._past_of: object = None
        self._past_until = 0.0

    def forget(self) -> None:
        """The file is another one."""
        self._proved = False
        self._past_of = None

    def look(self, con: sqlite3.Connection, boxes: Sequence[int], now: float) -> Spend:
        """Return what these boxes have cost.

        Args:
            con: The file.
            boxes: Their numbers.
            now: Epoch seconds.

        Raises:
            Damaged: a row that counts is not what was written.
        """
        today = minutes.midnight(now)
        if not self._proved:
            minutes.prove(con, boxes, minutes.midnight(today - DAY / 2))
            self._proved = True
        yesterday, month = self._earlier(con, boxes, today, minutes.closed(con, now))
        since_midnight = _sum(
            con, boxes, today, minutes.midnight(today + 1.5 * DAY), minutes.closed(con, now)
        )
        return Spend(
            today=_amounts(since_midnight, 0),
            idle_today=_amounts(since_midnight, 1),
            yesterday=_amounts(yesterday, 0),
            month=_amounts(minutes.added(month, since_midnight), 0),
        )

    def _earlier(
        self, con: sqlite3.Connection, boxes: Sequence[int], today: float, before: int
    ) -> tuple[Totals, Totals]:
        """Return what yesterday cost, and this month up to midnight."""
        key = (today, before, tuple(boxes))
        if key != self._past_of or self._monotonic() >= self._past_until:
            self._past = (
                _sum(con, boxes, minutes.midnight(today - DAY / 2), today, before),
                _sum(con, boxes, minutes.first_of_month(today), today, before),
            )
            self._past_of, self._past_until = key, self._monotonic() + PAST_SECONDS
        return self._past


def _sum(con: sqlite3.Connection, boxes: Sequence[int], start: float, stop: float, before: int) -> Totals:
    """Return what boxes cost from one local midnight to another, closed days included."""
    return minutes.added(
        minutes.by_day(con, boxes, start, stop), minutes.between(con, boxes, start, stop, before)
    )


def _amounts(totals: Totals, which: int) -> tuple[tuple[str, float], ...]:
    return tuple((currency, amounts[which]) for currency, amounts in sorted(totals.items()))
