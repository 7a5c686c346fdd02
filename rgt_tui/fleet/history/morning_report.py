"""The morning report: what a night cost, what went wrong, and which of the errors are over. Pure.

What nobody knows is said to be unknown, never shown as nothing; a sum that lacks hours or prices is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rgt_tui.fleet.history.spoken_times import day_and_clock
from rgt_tui.health import ClockReading
from rgt_tui.model import Amount, BoxState, Happening, Night, Tally
from rgt_tui.profiles import age, how_many, prices

LOSSES = ("gone",)
"""Kinds of alert that say that something is lost for good."""
LATE_SECONDS = 600.0
"""Money that is counted from this much before or after the beginning of the night says so."""
CENT = 0.005
NIGHT_SECONDS = 14 * 3600.0
"""A longer time is not called a night."""


class NextClock(NamedTuple):
    """The danger clock that runs out first."""

    box: str
    reading: ClockReading


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A night in figures."""

    since: float
    until: float
    errors: int
    ended: int
    """Of `errors`: those that were over again by the end."""
    spent: tuple[Amount, ...] = ()
    """Empty = nobody knows."""
    idle: tuple[Amount, ...] = ()
    """Of it, while no run was alive; empty = nobody knows."""
    money_since: float | None = None
    """From when on money is counted, where that is another time than `since`."""
    saved: tuple[Amount, ...] = ()
    """What boxes that stopped themselves would have cost: an estimate, price × time."""
    stopped: tuple[str, ...] = ()
    """Boxes that stopped themselves."""
    lost: tuple[str, ...] = ()
    unwatched: float = 0.0
    """Seconds."""
    clock: str = ""
    """The next danger clock, in words; empty = none is known to count."""


def morning_report(night: Night, boxes: Sequence[BoxState], clocks: Iterable[NextClock]) -> Report:
    """Return the report of a night.

    Args:
        night: What the history knows of it.
        boxes: As they are now; what they tell of having stopped themselves counts.
        clocks: The soonest danger clock of each box that has one.
    """
    errors, ended = _errors(night.happened)
    unwatched = sum(rest.stop - rest.start for rest in night.rests)
    counted_from = night.counted_from
    late = counted_from is not None and counted_from > night.since + LATE_SECONDS
    at_least = night.at_least or unwatched > 0 or late
    spent, idle = _spent(night.before, night.after, at_least)
    if counted_from is None:
        spent = idle = ()
    moved = counted_from is not None and abs(counted_from - night.since) > LATE_SECONDS
    stopped = [
        box
        for box in boxes
        if box.self_stop is not None
        and box.self_stop.off_at is not None
        and night.since <= box.self_stop.off_at <= night.until
    ]
    lost = [
        f"{row.box}: {row.text}"
        for row in night.happened
        if row.level == "error" and row.about.partition(":")[0] in LOSSES
    ]
    soonest = min(
        (each for each in clocks if each.reading.seconds_left is not None),
        key=lambda each: each.reading.seconds_left or 0.0,
        default=None,
    )
    return Report(
        since=night.since,
        until=night.until,
        errors=errors,
        ended=ended,
        spent=spent,
        idle=idle,
        money_since=counted_from if moved and spent else None,
        saved=_saved(stopped, night.until),
        stopped=tuple(box.spec.name for box in stopped),
        lost=tuple(lost),
        unwatched=unwatched,
        clock="" if soonest is None else f"{soonest.box} {age(soonest.reading.seconds_left)}",
    )


def _errors(rows: Iterable[Happening]) -> tuple[int, int]:
    """Return how many errors began, and how many of them were over by the end.

    A later event about the same says how it went on: a milder one that does not warn is its end.
    """
    errors = ended = 0
    holds: set[tuple[str, str]] = set()
    for row in rows:
        key = (row.box, row.about)
        if row.level == "error":
            if not row.about or key not in holds:
                errors += 1
            if row.about:
                holds.add(key)
        elif row.level == "info" and key in holds:
            holds.discard(key)
            ended += 1
    return errors, ended


def _spent(
    before: Iterable[Tally], after: Iterable[Tally], at_least: bool
) -> tuple[tuple[Amount, ...], tuple[Amount, ...]]:
    old = {each.currency: each for each in before}
    spent: list[Amount] = []
    idle: list[Amount] = []
    for now in after:
        then = old.get(now.currency, Tally(now.currency, 0.0, 0.0))
        estimated = now.estimated - then.estimated >= CENT
        for into, value, is_estimate in (
            (spent, now.billed - then.billed, estimated),
            (idle, now.idle - then.idle, False),
        ):
            # "At least nothing" says nothing: then it is not known.
            if value >= CENT or not at_least:
                into.append(Amount(max(0.0, value), now.currency, at_least, is_estimate))
    return tuple(spent), tuple(idle)


def _saved(stopped: Iterable[BoxState], until: float) -> tuple[Amount, ...]:
    found: list[Amount | None] = []
    for box in stopped:
        stop = box.self_stop
        if stop is None or stop.off_at is None:
            continue
        price = next((one for one in stop.armed if one.per_hour is not None), None)
        value = stop.saved
        if value is None and price is not None and price.per_hour is not None:
            value = max(0.0, until - stop.off_at) / 3600.0 * price.per_hour
        found.append(
            None
            if value is None or price is None
            else Amount(value, price.currency, estimated=True)
        )
    return prices.total(found)


class Word(NamedTuple):
    """One entry of the report as it is shown."""

    label: str
    text: str
    level: str = "info"
    """As of an event: what is wrong stands out."""


def _how_many_over(report: Report) -> str:
    """Return how many of the errors are over. The events do not say whether a person or the box ended them."""
    if not report.errors:
        return ""
    if not report.ended:
        if report.errors == 1:
            return ", not over yet"
        return ", none over yet"
    if report.ended == report.errors:
        if report.errors == 1:
            return ", over since"
        return ", all over since"
    return f", {report.ended} over since"


def report_words(report: Report, now: float) -> tuple[Word, ...]:
    """Return the report in words, what matters most first."""
    span_s = report.until - report.since
    span = f"{day_and_clock(report.since, now)} to {day_and_clock(report.until, now)}"
    found = [
        Word("night" if span_s <= NIGHT_SECONDS else "", span),
        Word(
            "",
            f"{how_many(report.errors, 'error')}{_how_many_over(report)}",
            "error" if report.errors > report.ended else "warn" if report.errors else "info",
        ),
        Word("spent", _sum(report.spent)),
        Word(
            "wasted",
            _sum(report.idle),
            "warn" if any(each.value > CENT for each in report.idle) else "info",
        ),
    ]
    if report.money_since is not None:
        found.append(Word("money counted since", day_and_clock(report.money_since, now)))
    if report.stopped:
        found.append(Word("saved by autostop", _sum(report.saved)))
    if report.lost:
        found.append(Word("lost", "; ".join(report.lost), "error"))
    else:
        found.append(Word("", "nothing known to be lost"))
    if report.unwatched > 0:
        found.append(Word("not watched for", age(report.unwatched), "warn"))
    found.append(Word("next clock", report.clock or "none known"))
    return tuple(found)


def _sum(amounts: tuple[Amount, ...]) -> str:
    if amounts:
        return prices.written(amounts)
    return "unknown"
