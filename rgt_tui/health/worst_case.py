"""The maximum that a box can cost until its next deadline ends it or changes its rate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rgt_tui.health.danger_clocks import ClockReading
from rgt_tui.health.facts import LIMITS, contested, provider_word
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    ClockMode,
    FrozenStruct,
    Lifecycle,
    MeterKind,
    MoneyAmount,
    format_duration,
    format_money,
)
from rgt_tui.profiles import find_hourly_cost, project_cost, sum_amounts


class WorstCase(FrozenStruct, kw_only=True):
    """What one box can still cost."""

    amount: float | None
    """The maximum; with `at_least`, only the known part. None = unknown, or without an end."""
    at_least: bool
    """It can cost more: the rate is not fully known, or nothing ends it."""
    currency: str
    per_hour: float | None
    seconds: float | None
    """Seconds until the clock ends; None = nothing ends it automatically."""
    until: str | None
    """Name of the clock."""
    text: str
    """The whole case in one line."""


def worst_case_of(box: BoxState, readings: Sequence[ClockReading], now: float) -> WorstCase:
    """Return what `box` can cost until the next of its clocks (`clock_readings`) ends.

    If the state of a machine has not been read for long, it may be running, and its last known
    price may be too low.
    """
    meter = box.meter
    # A zero needs a reading: without one, an unknown price would look like none.
    if meter.kind is MeterKind.NONE and meter.at is not None:
        if provider_word(box, now) in _OFF:
            return _build_worst_case(
                MoneyAmount(0.0, meter.currency), None, translate("nothing bills it any more")
            )
        if not box.spec.provider:
            return _build_worst_case(
                MoneyAmount(0.0, meter.currency), None, translate("nothing bills it")
            )
    known = find_hourly_cost(meter)
    # "At least 0" says nothing.
    if known is None or (known.at_least and known.value <= 0.0):
        return _build_worst_case(None, None, translate("price unknown"), meter.currency)
    doubt = _rate_doubt(box, now)
    # A lower bound then: an amount that may be too low must not be shown as a maximum.
    if doubt is not None:
        known = msgspec.structs.replace(known, at_least=True)
    # The end of a run leaves the machine billed.
    until = _first_certain_end([one for one in readings if not one.of_run])
    if until is None or until.most_left is None:
        return _build_worst_case(
            known,
            None,
            translate("no limit: {known}/h until you stop it", known=_format_amount(known)),
        )
    amount = project_cost(known, until.most_left)
    sign = "" if amount.at_least else translate("at most ")
    about = "about " if until.approx else ""
    text = translate(
        "{sign}{about}{amount} until {what} in {about}{most_left}",
        sign=sign,
        about=about,
        amount=_format_amount(amount),
        what=until.what,
        most_left=format_duration(until.most_left),
    )
    return _build_worst_case(known, until, f"{text} ({doubt})" if doubt is not None else text)


_OFF = (Lifecycle.STOPPED, Lifecycle.GONE)


def _build_worst_case(
    per_hour: MoneyAmount | None, until: ClockReading | None, text: str, currency: str = ""
) -> WorstCase:
    # What costs nothing needs no end.
    ends = until is not None or (
        per_hour is not None and per_hour.value == 0.0 and not per_hour.at_least
    )
    if until is not None:
        seconds = until.most_left
    elif ends:
        seconds = 0.0
    else:
        seconds = None
    if per_hour is None or seconds is None:
        amount = None
    else:
        amount = project_cost(per_hour, seconds)
    return WorstCase(
        amount=None if amount is None else amount.value,
        at_least=amount is None or amount.at_least,
        currency=currency if per_hour is None else per_hour.currency,
        per_hour=None if per_hour is None else per_hour.value,
        seconds=None if until is None else until.most_left,
        until=None if until is None else until.what,
        text=text,
    )


def _format_amount(amount: MoneyAmount) -> str:
    return format_money(amount.value, amount.currency, amount.at_least)


def _first_certain_end(readings: Sequence[ClockReading]) -> ClockReading | None:
    """Return the clock that certainly ends first: only one with a latest end limits the cost.

    A clock that is over without having ended the charge limits nothing.
    """
    ending = [
        one for one in readings if one.mode is ClockMode.COUNTDOWN and one.sure and one.most_left
    ]
    return min(ending, key=lambda one: one.most_left or 0.0, default=None)


def _rate_doubt(box: BoxState, now: float) -> str | None:
    """Return why the rate may be higher than known; None if it is fully known."""
    meter = box.meter
    if contested(box, now):
        return translate(
            "{source} reports {value}, but it answers",
            source=meter.source,
            value=meter.lifecycle.value,
        )
    if meter.at_least:
        if meter.unpriced:
            return translate(
                "the price of {unpriced} is unknown", unpriced=" and ".join(meter.unpriced)
            )
        return translate("some prices are unknown")
    if meter.kind is MeterKind.UNKNOWN:
        return translate("unknown whether it is billed now")
    if meter.at is None or now - meter.at > LIMITS.meter_lost_s:
        ago = "never"
        if meter.at is not None:
            ago = translate("{now} ago", now=format_duration(now - meter.at))
        return translate("the meter was last read ") + ago
    return None


class FleetWorstCase(FrozenStruct, kw_only=True):
    """The worst cases of a fleet."""

    amounts: tuple[MoneyAmount, ...]
    """The sum of the known amounts, one per currency; lower bounds if a box is not or only partly
    in it.
    """
    open: int
    """Boxes that can cost more: without an end, or at a rate that is not fully known."""


def worst_of(cases: Iterable[WorstCase]) -> FleetWorstCase:
    """Return the sum per currency, and how many boxes are not or only partly in it."""
    given = list(cases)
    sums = sum_amounts(
        None if case.amount is None else MoneyAmount(case.amount, case.currency, case.at_least)
        for case in given
    )
    # Counted apart: a sum alone would hide that it is not the whole.
    return FleetWorstCase(amounts=sums, open=sum(case.at_least for case in given))
