"""The morning report: a night's costs, its errors, and which of them are over. Pure functions.

Unknown values are reported as unknown, never as zero; a sum that lacks hours or prices is a lower
bound.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rgt_tui.fleet.history.spoken_times import day_and_clock
from rgt_tui.gate import Receipt, ReceiptBook
from rgt_tui.health import ClockReading
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    CostTally,
    FrozenStruct,
    Happening,
    MoneyAmount,
    NightFacts,
    format_duration,
    format_sums,
    how_many,
)
from rgt_tui.profiles import prices
from rgt_tui.store import HistoryError

if TYPE_CHECKING:
    from rgt_tui.fleet.fleet_source import Chronicle

LOSSES = ("gone",)
"""Kinds of alert that report a permanent loss."""
ENDED = "teardown"
"""What an event is about that reports the outcome of a billing action; it has a receipt."""
CENT = 0.005
NIGHT_SECONDS = 14 * 3600.0
"""A longer time span is not called a night."""


class NextClock(NamedTuple):
    """The danger clock that runs out first."""

    box: str
    reading: ClockReading


class NightReport(FrozenStruct, kw_only=True):
    """A night in figures."""

    since: float
    until: float
    errors: int
    ended: int
    """How many of the `errors` were over by the end."""
    spent: tuple[MoneyAmount, ...] = ()
    """Empty = unknown."""
    idle: tuple[MoneyAmount, ...] = ()
    """The part spent while no run was alive; empty = unknown."""
    money_since: float | None = None
    """When counting of money began, if that differs from `since`."""
    saved: tuple[MoneyAmount, ...] = ()
    """Costs saved by boxes that stopped themselves: an estimate, price × time."""
    stopped: tuple[str, ...] = ()
    """Boxes that stopped themselves."""
    lost: tuple[str, ...] = ()
    unwatched: float = 0.0
    """Seconds."""
    clock: str = ""
    """The next danger clock as text; empty = no running clock is known."""
    receipts: tuple[str, ...] = ()
    """Boxes that a person or autostop stopped or destroyed: each has a receipt."""


def morning_report(
    night: NightFacts, boxes: Sequence[BoxState], clocks: Iterable[NextClock]
) -> NightReport:
    """Return the report of a night.

    Args:
        night: The facts in the history.
        boxes: As they are now; self-stops that they report count.
        clocks: The soonest danger clock of each box that has one.
    """
    errors, ended = _count_errors(night.happened)
    unwatched = sum(rest.stop - rest.start for rest in night.rests)
    counted_from = night.counted_from
    # Money counted from a time this far from the start of the night is labelled with that time.
    late_seconds = 600.0
    late = counted_from is not None and counted_from > night.since + late_seconds
    # Hours without an rgt are not in the sum, though the machines were billed.
    at_least = night.at_least or unwatched > 0 or late
    spent, idle = _sum_spent(night.before, night.after, at_least)
    if counted_from is None:
        spent = idle = ()
    moved = counted_from is not None and abs(counted_from - night.since) > late_seconds
    stopped = [
        box
        for box in boxes
        if box.self_stop is not None
        and box.self_stop.off_at is not None
        and night.since <= box.self_stop.off_at <= night.until
    ]
    # Only outcomes that are no failure have a receipt to show.
    ended_by_person = [
        row.box for row in night.happened if row.about == ENDED and row.level == "info"
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
    clock = ""
    if soonest is not None:
        clock = f"{soonest.box} {format_duration(soonest.reading.seconds_left)}"
    return NightReport(
        since=night.since,
        until=night.until,
        errors=errors,
        ended=ended,
        spent=spent,
        idle=idle,
        money_since=counted_from if moved and spent else None,
        saved=_sum_saved(stopped, night.until),
        stopped=tuple(box.spec.name for box in stopped),
        lost=tuple(lost),
        unwatched=unwatched,
        receipts=tuple(dict.fromkeys((*ended_by_person, *(box.spec.name for box in stopped)))),
        clock=clock,
    )


def _count_errors(rows: Iterable[Happening]) -> tuple[int, int]:
    """Return how many errors began, and how many of them were over by the end.

    An error is over with a later event of level info about the same subject.
    """
    errors = ended = 0
    holds: set[tuple[str, str]] = set()
    for row in rows:
        key = (row.box, row.about)
        if row.level == "error":
            # An error that is reported again while it lasts is one error.
            if not row.about or key not in holds:
                errors += 1
            if row.about:
                holds.add(key)
        elif row.level == "info" and key in holds:
            holds.discard(key)
            ended += 1
    return errors, ended


async def add_costs(
    book: ReceiptBook, receipt: Receipt | None, chronicle: Chronicle | None
) -> Receipt | None:
    """Add to a box's receipt, once, the costs that the history has of it, and their idle part."""
    # Once: later the history may have dropped the hours in question.
    if receipt is None or chronicle is None or receipt.watched or not receipt.is_settled:
        return receipt
    until = receipt.ended_at or receipt.begun_at
    try:
        night = await chronicle.read_night(receipt.started_at or 0.0, until, receipt.box)
    except HistoryError:
        return receipt
    if night.counted_from is None:
        return receipt
    watched, idle = _sum_spent(night.before, night.after, night.at_least)
    receipt = msgspec.structs.replace(receipt, watched=watched, idle=idle)
    with contextlib.suppress(OSError):
        await asyncio.to_thread(book.save_receipt, receipt)
    return receipt


def _sum_spent(
    before: Iterable[CostTally], after: Iterable[CostTally], at_least: bool
) -> tuple[tuple[MoneyAmount, ...], tuple[MoneyAmount, ...]]:
    old = {each.currency: each for each in before}
    spent: list[MoneyAmount] = []
    idle: list[MoneyAmount] = []
    for now in after:
        # A currency that began within the night.
        then = old.get(now.currency, CostTally(now.currency, 0.0, 0.0))
        estimated = now.estimated - then.estimated >= CENT
        for into, value, is_estimate in (
            (spent, now.billed - then.billed, estimated),
            (idle, now.idle - then.idle, False),
        ):
            # "At least 0" carries no information, so the amount is unknown.
            if value >= CENT or not at_least:
                into.append(MoneyAmount(max(0.0, value), now.currency, at_least, is_estimate))
    return tuple(spent), tuple(idle)


def _sum_saved(stopped: Iterable[BoxState], until: float) -> tuple[MoneyAmount, ...]:
    found: list[MoneyAmount | None] = []
    for box in stopped:
        stop = box.self_stop
        if stop is None or stop.off_at is None:
            continue
        price = next((one for one in stop.armed if one.per_hour is not None), None)
        # The box's own figure first: it knows when it went off.
        value = stop.saved
        if value is None and price is not None and price.per_hour is not None:
            value = max(0.0, until - stop.off_at) / 3600.0 * price.per_hour
        amount = None
        if value is not None and price is not None:
            amount = MoneyAmount(value, price.currency, estimated=True)
        found.append(amount)
    return prices.sum_amounts(found)


class ReportEntry(NamedTuple):
    """One entry of the report as displayed."""

    label: str
    text: str
    level: str = "info"
    """Level as of an event: warnings and errors are highlighted."""


def _how_many_over(report: NightReport) -> str:
    """Return how many of the errors are over, as text.

    The events do not record whether a person or the box ended them.
    """
    if not report.errors:
        return ""
    if not report.ended:
        if report.errors == 1:
            return translate(", not over yet")
        return translate(", none over yet")
    if report.ended == report.errors:
        if report.errors == 1:
            return translate(", over since")
        return translate(", all over since")
    return translate(", {ended} over since", ended=report.ended)


def report_words(report: NightReport, now: float) -> tuple[ReportEntry, ...]:
    """Return the report as entries, the most important first."""
    span_s = report.until - report.since
    span = translate(
        "{first} to {last}",
        first=day_and_clock(report.since, now),
        last=day_and_clock(report.until, now),
    )
    level = "info"
    if report.errors:
        level = "warn"
    if report.errors > report.ended:
        level = "error"
    found = [
        ReportEntry(translate("night") if span_s <= NIGHT_SECONDS else "", span),
        ReportEntry("", f"{how_many(report.errors, 'error')}{_how_many_over(report)}", level),
        ReportEntry(translate("spent"), _format_amounts(report.spent)),
        ReportEntry(
            translate("wasted"),
            _format_amounts(report.idle),
            "warn" if any(each.value > CENT for each in report.idle) else "info",
        ),
    ]
    if report.money_since is not None:
        found.append(
            ReportEntry(translate("money counted since"), day_and_clock(report.money_since, now))
        )
    if report.stopped:
        found.append(ReportEntry(translate("saved by autostop"), _format_amounts(report.saved)))
    if report.lost:
        found.append(ReportEntry(translate("lost"), "; ".join(report.lost), "error"))
    else:
        found.append(ReportEntry("", translate("nothing known to be lost")))
    if report.receipts:
        commands = ", ".join(f"rgt receipt {name}" for name in report.receipts)
        found.append(ReportEntry(translate("receipts"), commands))
    if report.unwatched > 0:
        found.append(
            ReportEntry(translate("not watched for"), format_duration(report.unwatched), "warn")
        )
    found.append(ReportEntry(translate("next clock"), report.clock or translate("none known")))
    return tuple(found)


def _format_amounts(amounts: tuple[MoneyAmount, ...]) -> str:
    if amounts:
        return format_sums(amounts)
    return translate("unknown")
