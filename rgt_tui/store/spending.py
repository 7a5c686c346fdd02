"""The daily costs of boxes: watched seconds times price, plus amounts from the provider's bills.

Unwatched time counts only if the provider's totals before and after it show its costs. If a total
is itself price × time, it is stored separately, as an estimate. Watched time is measured by a clock
that cannot be set. Only one process writes a box at a time, so nothing is counted twice.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec

from rgt_tui.health import training_processes, unseen_reason
from rgt_tui.model import (
    BoxState,
    FleetSpend,
    FrozenStruct,
    LinkState,
    MeterKind,
    MoneyAmount,
    steady_time,
)
from rgt_tui.profiles import stale_after


class SpendLimits(FrozenStruct):
    """How readings of prices and totals are combined, in seconds."""

    valid_s: float = 600.0
    """How long a provider's price is used after it was read."""
    awake_s: float = 60.0
    """A longer gap between two counts means that the computer slept."""
    gap_s: float = 90.0
    """A shorter unwatched time between two readings of the provider's total is ignored."""
    same_s: float = 1.0
    """Two readings belong to the same total if their start times differ by at most this much."""


SPEND_LIMITS = SpendLimits()

CONTESTED = "contested"
"""Kind of the alert that a box answers although its provider reports it as stopped."""
DAY = 86400.0


class ObservedCost(FrozenStruct):
    """An observed part of one box's costs, to be added to a day."""

    day: str
    """Local date."""
    currency: str
    billed: float = 0.0
    idle: float = 0.0
    """The part of `billed` while no run was alive."""
    seconds: float = 0.0
    """Time watched with a known price."""
    at_least: bool = False
    """`billed` is a lower bound: part of the price was unknown, or (no `currency`) all of it."""


class ProviderSum(FrozenStruct):
    """A reading of a box's total costs from the provider."""

    currency: str
    since: float
    at: float
    spent: float
    estimated: bool = False
    """It is price × the time since `since`, not from books."""


# From states to costs.


def hourly_price(box: BoxState, now: float) -> MoneyAmount | None:
    """Return the hourly price of `box` at `now`; None = unknown."""
    meter, spec = box.meter, box.spec
    if meter.at is None and spec.provider is None and spec.per_hour is not None:
        # A price from the fleet file counts while the box answers, because then it certainly
        # exists.
        known = box.link is LinkState.LIVE and _is_sane_amount(spec.per_hour)
        if known:
            return MoneyAmount(spec.per_hour, spec.currency)
        return None
    if meter.at is None or meter.per_hour is None or meter.kind is MeterKind.UNKNOWN:
        return None
    # A reading may be a little ahead, because clocks are corrected.
    if not -SPEND_LIMITS.awake_s <= now - meter.at <= SPEND_LIMITS.valid_s or not _is_sane_amount(
        meter.per_hour
    ):
        return None
    # A machine that answers although it is reported as stopped may cost as much as a running one.
    at_least = meter.at_least or any(alert.kind == CONTESTED for alert in box.alerts)
    return MoneyAmount(meter.per_hour, meter.currency, at_least)


def is_unpriced(box: BoxState, now: float) -> bool:
    """Return whether `box` may be billed at an unknown price: the day's sum is a lower bound.

    A provider that has not been read yet, or temporarily cannot be, does not count: its total will
    cover that time later.
    """
    meter, spec = box.meter, box.spec
    if (
        hourly_price(box, now) is not None
        or box.link is not LinkState.LIVE
        or meter.kind is MeterKind.NONE
    ):
        return False
    if spec.provider is None:
        return spec.per_hour is None
    return meter.at is not None and meter.error is None and meter.per_hour is None


def _is_sane_amount(amount: float) -> bool:
    return math.isfinite(amount) and amount >= 0


def has_live_run(box: BoxState, now: float) -> bool | None:
    """Return whether a run is alive on `box`; None = unknown."""
    if box.link is not LinkState.LIVE or box.sample is None or box.sample_at is None:
        return None
    if now - box.sample_at > stale_after(box):
        return None
    trains = bool(training_processes(box.sample))
    if unseen_reason(box.sample) is not None:
        # Processes that cannot all be seen prove a training, but never its absence.
        if trains:
            return True
        return None
    cells = (cell for queue in box.queues if queue.runner_alive for cell in queue.cells)
    return (
        trains
        or any(cell.state == "running" for cell in cells)
        or any(run.alive for run in box.found)
    )


class CostMetering:
    """Converts passed time into costs.

    Args:
        ticks: Seconds of a clock that cannot be set, and that also runs while the computer sleeps.
    """

    def __init__(self, ticks: Callable[[], float] = steady_time) -> None:
        self._ticks = ticks
        self._looked: float | None = None
        self._costs: dict[str, list[ObservedCost]] = {}
        self._sums: dict[str, list[ProviderSum]] = {}
        self._read: dict[str, float] = {}

    def meter_boxes(
        self, boxes: tuple[BoxState, ...], now: float
    ) -> tuple[tuple[str, Exception], ...]:
        """Count the time since the last call, using the present state of the boxes.

        Returns:
            Boxes that could not be counted, and their errors; the others were counted.
        """
        tick = self._ticks()
        last, self._looked = self._looked, tick
        # The computer slept: that time is unwatched, and the provider's total covers it.
        if last is None or not 0 < tick - last <= SPEND_LIMITS.awake_s:
            seconds = 0.0
        else:
            seconds = tick - last
        failed = []
        for box in boxes:
            try:
                if seconds:
                    self._count_watched(box, seconds, now)
                self._collect_sum(box)
            except Exception as error:
                # One box with impossible values must not stop the counting of the others.
                failed.append((box.spec.name, error))
        return tuple(failed)

    def _count_watched(self, box: BoxState, seconds: float, now: float) -> None:
        found = hourly_price(box, now)
        # The day in which the time began, by the provider's clock, as on its bill.
        day = day_of(now - seconds - (box.meter.clock_skew or 0.0))
        if found is not None:
            billed = float(found.value) * seconds / 3600.0
            idle = 0.0
            if has_live_run(box, now) is False:
                idle = billed
            cost = ObservedCost(day, found.currency, billed, idle, seconds, found.at_least)
            self._costs.setdefault(box.spec.name, []).append(cost)
        elif is_unpriced(box, now):
            unknown = ObservedCost(day, "", at_least=True)
            self._costs.setdefault(box.spec.name, []).append(unknown)

    def _collect_sum(self, box: BoxState) -> None:
        meter, name = box.meter, box.spec.name
        if (
            meter.at is None
            or meter.spent is None
            or meter.spent_since is None
            or not _is_sane_amount(meter.spent)
        ):
            return
        # A state is published many times between two readings of the meter.
        if self._read.get(name) != meter.at:
            self._read[name] = meter.at
            self._sums.setdefault(name, []).append(
                ProviderSum(
                    meter.currency,
                    float(meter.spent_since),
                    float(meter.at) - (meter.clock_skew or 0.0),
                    float(meter.spent),
                    meter.spent_estimated,
                )
            )

    def take_new_costs(
        self,
    ) -> tuple[dict[str, tuple[ObservedCost, ...]], dict[str, tuple[ProviderSum, ...]]]:
        """Return the new costs and the provider's new totals by box, each once."""
        costs = {box: merge_costs(each) for box, each in self._costs.items()}
        sums = {box: tuple(each) for box, each in self._sums.items()}
        self._costs, self._sums = {}, {}
        return costs, sums


def merge_costs(costs: Iterable[ObservedCost]) -> tuple[ObservedCost, ...]:
    """Add up costs, one result per day and currency."""
    found: dict[tuple[str, str], ObservedCost] = {}
    for each in costs:
        key = (each.day, each.currency)
        before = found.get(key, ObservedCost(*key))
        found[key] = ObservedCost(
            *key,
            before.billed + each.billed,
            before.idle + each.idle,
            before.seconds + each.seconds,
            before.at_least or each.at_least,
        )
    return tuple(found.values())


# In the file.

BOUNDS = """CREATE TABLE bounds (box INTEGER NOT NULL, day TEXT NOT NULL,
    PRIMARY KEY (box, day)) WITHOUT ROWID"""
"""Days on which part of a box's costs had no price: their sums are lower bounds."""
ESTIMATES = """CREATE TABLE estimates (box INTEGER NOT NULL, day TEXT NOT NULL, currency TEXT NOT NULL,
    amount REAL NOT NULL, PRIMARY KEY (box, day, currency)) WITHOUT ROWID"""
"""Price × unwatched time that no books cover. Never added to the amounts known to be billed."""


def add_cost(con: sqlite3.Connection, box: int, cost: ObservedCost) -> None:
    """Add a cost to its day."""
    if cost.at_least:
        con.execute("INSERT OR IGNORE INTO bounds VALUES (?, ?)", (box, cost.day))
    # An unknown price has no amount to add; the day is already marked as a lower bound.
    if not cost.currency:
        return
    con.execute(
        """INSERT INTO days VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (box, day, currency) DO UPDATE SET
           billed = billed + excluded.billed, idle = idle + excluded.idle, seconds = seconds + excluded.seconds""",
        (box, cost.day, cost.currency, cost.billed, cost.idle, cost.seconds),
    )


def spread_cost(
    con: sqlite3.Connection, box: int, currency: str, amount: float, start: float, stop: float
) -> None:
    """Distribute the costs of unwatched time over its days, at a constant rate."""
    for day, begin, end in _iterate_days(start, stop):
        add_cost(con, box, ObservedCost(day, currency, amount * (end - begin) / (stop - start)))


def _spread_estimate(
    con: sqlite3.Connection, box: int, currency: str, amount: float, start: float, stop: float
) -> None:
    for day, begin, end in _iterate_days(start, stop):
        con.execute(
            """INSERT INTO estimates VALUES (?, ?, ?, ?)
               ON CONFLICT (box, day, currency) DO UPDATE SET amount = amount + excluded.amount""",
            (box, day, currency, amount * (end - begin) / (stop - start)),
        )


class _KnownTotal(FrozenStruct):
    """The last reading of a total, and the box's sums of days at that time."""

    since: float
    at: float
    spent: float
    billed: float
    seconds: float


def apply_provider_sum(con: sqlite3.Connection, box: int, new: ProviderSum) -> None:
    """Process a reading of the provider's total: add its part for unwatched time to those days.

    A provider may have two totals, such as its books, and an estimate while the books are
    unavailable; an amount counted from one is not counted again from the other. A stored reading
    that is later than this one was written while the clock was ahead: it is replaced, and the costs
    that it added to future days are removed.
    """
    if new.at < new.since - SPEND_LIMITS.gap_s:
        return None  # the clock is wrong: the machine did not exist by then
    known = [
        _KnownTotal(*row)
        for row in con.execute(
            "SELECT since, at, spent, billed, seconds FROM sums WHERE box = ? AND currency = ?",
            (box, new.currency),
        )
    ]
    last = max(known, key=lambda each: each.at, default=None)
    # Providers round the start of a total to seconds.
    near = [each for each in known if abs(each.since - new.since) <= SPEND_LIMITS.same_s]
    same = max(near, key=lambda each: each.at, default=None)
    # Another rgt has already stored this very reading.
    if same is not None and same.at == new.at:
        return None
    ahead = [each for each in known if each.at > new.at + SPEND_LIMITS.same_s]
    if ahead:
        _bring_back(con, box, new)
    if new.estimated:
        if not ahead:
            _store_estimate(con, box, new, last)
        return remember_sum(con, box, new)
    billed, seconds = _counted_totals(con, box, new.currency)
    nothing = _KnownTotal(new.since, new.since, 0.0, 0.0, 0.0)
    base = same
    if same is None and (last is None or last.at <= new.since):  # for a newly created machine
        if last is None:
            base = nothing
        else:
            base = msgspec.structs.replace(last, at=new.since, spent=0.0)
    if base is not None:
        if same is None:
            newest = base
        else:
            newest = last or base
        # The part of the provider's total that is not counted here yet, watched or estimated.
        amount = new.spent - base.spent - (billed - base.billed)
        unwatched = new.at - newest.at - (seconds - newest.seconds)
        # The span is unknown, because its start was written by the wrong clock.
        if amount > 0 and ahead:
            spread_cost(con, box, new.currency, amount, new.at - SPEND_LIMITS.gap_s, new.at)
        elif unwatched >= SPEND_LIMITS.gap_s and amount > 0:
            spread_cost(con, box, new.currency, amount, newest.at, new.at)
    return remember_sum(con, box, new)


def _store_estimate(
    con: sqlite3.Connection, box: int, new: ProviderSum, last: _KnownTotal | None
) -> None:
    """Store the estimated costs of unwatched time since the last reading: mean price × time."""
    if last is None:
        begin = new.since
    else:
        begin = max(last.at, new.since)
    _, seconds = _counted_totals(con, box, new.currency)
    unwatched = new.at - begin - (seconds - (0.0 if last is None else last.seconds))
    if unwatched >= SPEND_LIMITS.gap_s and new.spent > 0:
        # The mean price, because it is unknown when it changed.
        amount = new.spent * unwatched / (new.at - new.since)
        _spread_estimate(con, box, new.currency, amount, begin, new.at)


def _bring_back(con: sqlite3.Connection, box: int, new: ProviderSum) -> None:
    """Correct data written while the clock was ahead: delete later readings and future estimates.

    Billed amounts are facts: they are moved to the day of this reading.
    """
    today = day_of(new.at)
    given = {
        "box": box,
        "currency": new.currency,
        "today": today,
        "at": new.at + SPEND_LIMITS.same_s,
    }
    where = "box = :box AND currency = :currency AND day > :today"
    for row in con.execute(
        f"SELECT billed, idle, seconds FROM days WHERE {where}", given
    ).fetchall():
        add_cost(con, box, ObservedCost(today, new.currency, *row))
    con.execute(f"DELETE FROM days WHERE {where}", given)
    con.execute(f"DELETE FROM estimates WHERE {where}", given)
    begin = max(new.since, local_midnight(new.at))
    of_today = "box = :box AND currency = :currency AND day = :today"
    row = con.execute(f"SELECT total(seconds) FROM days WHERE {of_today}", given).fetchone()
    unwatched = max(0.0, new.at - begin - float(row[0]))
    most = new.spent * unwatched / max(1.0, new.at - new.since)
    con.execute(
        f"UPDATE estimates SET amount = min(amount, :most) WHERE {of_today}",
        {**given, "most": most},
    )
    con.execute("DELETE FROM sums WHERE box = :box AND currency = :currency AND at > :at", given)


def remember_sum(con: sqlite3.Connection, box: int, new: ProviderSum) -> None:
    """Store a reading together with the present sums of the days."""
    con.execute(
        "DELETE FROM sums WHERE box = ? AND currency = ? AND since BETWEEN ? AND ?",
        (box, new.currency, new.since - SPEND_LIMITS.same_s, new.since + SPEND_LIMITS.same_s),
    )
    counted = _counted_totals(con, box, new.currency)
    con.execute(
        "INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?, ?)",
        (box, new.currency, new.since, new.at, new.spent, *counted),
    )


def _counted_totals(con: sqlite3.Connection, box: int, currency: str) -> tuple[float, float]:
    """Return a box's total costs so far, including estimates, and the watched seconds."""
    row = con.execute(
        "SELECT total(billed), total(seconds) FROM days WHERE box = ? AND currency = ?",
        (box, currency),
    ).fetchone()
    estimated = con.execute(
        "SELECT total(amount) FROM estimates WHERE box = ? AND currency = ?", (box, currency)
    ).fetchone()
    return float(row[0]) + float(estimated[0]), float(row[1])


def read_spend(con: sqlite3.Connection, boxes: Iterable[int], now: float) -> FleetSpend:
    """Return the costs of boxes today, yesterday, and in this month so far."""
    boxes = tuple(boxes)
    today = local_midnight(now)
    # Half a day more or less: with daylight saving time a day has 23 or 25 hours.
    yesterday, tomorrow = local_midnight(today - DAY / 2), local_midnight(today + 1.5 * DAY)
    month = datetime.fromtimestamp(today).replace(day=1).astimezone().timestamp()
    days = [day_of(each) for each in (month, yesterday, today, tomorrow)]
    found: dict[str, dict[str, list[float]]] = {"today": {}, "yesterday": {}, "month": {}}
    estimated: set[str] = set()
    # A smaller estimate does not make a total an estimate.
    cent = 0.005
    for box in boxes:
        for day, currency, billed, idle, is_estimate in con.execute(
            """SELECT day, currency, billed, idle, 0 FROM days WHERE box = :box AND day >= :first AND day < :end
               UNION ALL SELECT day, currency, amount, 0.0, 1 FROM estimates
               WHERE box = :box AND day >= :first AND day < :end""",
            {"box": box, "first": min(days), "end": days[3]},
        ):
            for name, first, end in (
                ("today", days[2], days[3]),
                ("yesterday", days[1], days[2]),
                ("month", days[0], days[3]),
            ):
                if first <= day < end:
                    amounts = found[name].setdefault(currency, [0.0, 0.0])
                    amounts[0] += billed
                    amounts[1] += idle
                    if is_estimate and billed >= cent:
                        estimated.add(name)
    bounded = _days_without_price(con, boxes, min(days), days[3])
    lost = con.execute(
        "SELECT start, stop FROM losses WHERE stop >= ?", (min(month, yesterday),)
    ).fetchall()
    spans = {
        "today": (today, tomorrow),
        "yesterday": (yesterday, today),
        "month": (month, tomorrow),
    }
    return FleetSpend(
        today=_list_amounts(found["today"], 0),
        idle_today=_list_amounts(found["today"], 1),
        yesterday=_list_amounts(found["yesterday"], 0),
        month=_list_amounts(found["month"], 0),
        at_least=tuple(
            name
            for name, (first, end) in spans.items()
            if any(a < end and b > first for a, b in lost)
            or any(day_of(first) <= day < day_of(end) for day in bounded)
        ),
        estimated=tuple(name for name in spans if name in estimated),
    )


def is_bounded(con: sqlite3.Connection, boxes: Iterable[int], since: float, until: float) -> bool:
    """Return whether the costs of boxes between two times are a lower bound.

    They are if a price was unknown or hours of the history are lost.
    """
    if (
        con.execute("SELECT 1 FROM losses WHERE start < ? AND stop > ?", (until, since)).fetchone()
        is not None
    ):
        return True
    return bool(_days_without_price(con, boxes, day_of(since), day_of(until + DAY)))


def _days_without_price(
    con: sqlite3.Connection, boxes: Iterable[int], first: str, end: str
) -> set[str]:
    """Return the days from `first` to before `end` on which part of a box's costs had no price."""
    return {
        str(row[0])
        for box in boxes
        for row in con.execute(
            "SELECT day FROM bounds WHERE box = ? AND day >= ? AND day < ?", (box, first, end)
        )
    }


def _list_amounts(totals: dict[str, list[float]], which: int) -> tuple[tuple[str, float], ...]:
    return tuple((currency, amounts[which]) for currency, amounts in sorted(totals.items()))


def _iterate_days(start: float, stop: float) -> Iterator[tuple[str, float, float]]:
    """Yield the local days between two times: date, start, end."""
    # A longer unwatched span is only counted for this many days before its end.
    longest_days = 1000
    at = max(start, stop - longest_days * DAY)
    while at < stop:
        end = min(stop, local_midnight(local_midnight(at) + 1.5 * DAY))
        yield day_of(at), at, end
        at = end


def day_of(at: float) -> str:
    """Return the local date of a time."""
    return datetime.fromtimestamp(at).astimezone().date().isoformat()


def local_midnight(at: float) -> float:
    """Return the local midnight before a time."""
    day = datetime.fromtimestamp(at).astimezone().date()
    return datetime(day.year, day.month, day.day).astimezone().timestamp()
