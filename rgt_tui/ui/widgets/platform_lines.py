"""Platform risks as lines: the worst case in money, deadlines, dangers and unlisted costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rgt_tui import health
from rgt_tui.model import MACHINE, AccountBill, Amount, BoxState, FleetState, Profile
from rgt_tui.profiles import caveats, how_many, thing_price, thing_words, written
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.notation import compact_time, plain
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, line, wrapped

if TYPE_CHECKING:
    from rgt_tui.health import Worst

TELLS_BILL = re.compile(r"\b(bill(s|ing)?|price)\b")
"""Matches a worst-danger text that already names what is billed after a stop, so the clock line is
left out."""
LEAST = 8
"""Minimum cells of wrapped text."""


def platform_section(profile: Profile, box: BoxState, width: int, now: float) -> Section:
    """Return what this box can still cost, and its deadlines."""
    readings = health.clock_readings(profile, box, now)
    worst = health.worst_case_of(box, readings, now)
    body = _told("worst ", worst.text, width, Tone.WARN if worst.at_least else Tone.TEXT)
    for caveat in caveats(box.meter):
        body += _told("price ", caveat, width, Tone.WARN if box.meter.at_least else Tone.DIM)
    for reading in readings:
        body += _told("clock ", reading.text, width, level_tone(reading.level))
    for pending in () if readings else health.pending_readings(profile):
        if pending.seconds_left is not None or not TELLS_BILL.search(
            next(iter(health.notices(profile)), "")
        ):
            body += _told("clock ", f"no active deadline; {pending.text}", width, Tone.DIM)
    return Section(line("platform ", dim(profile.name)), body)


def dangers_section(profile: Profile, width: int) -> Section:
    """Return the platform's worst danger, and its notes on what rgt cannot watch."""
    first, *rest = health.notices(profile)
    body = _told("worst ", first, width, Tone.DIM)
    for text in rest:
        body += _told("note ", text, width, Tone.DIM)
    return Section(line("dangers ", dim(profile.name)), body)


LABEL = 7


def _told(label: str, text: str, width: int, tone: Tone) -> list[Line]:
    first, *rest = wrapped(text, max(LEAST, width - LABEL), tone)
    return [line(dim(label.ljust(LABEL)), *first), *(line(" " * LABEL, *more) for more in rest)]


def worst_parts(worst: Worst | None) -> Parts:
    """Return the fleet's worst case for the header.

    Boxes without a limit are counted next to the sum.

    Its rank is low, so that the money wasted now is shown first: this could be lost over days.
    """
    if worst is None or not (worst.amounts or worst.open):
        return []
    if not worst.amounts:
        return [(6, line(dim("no spending limit")))]
    text = plain(written(worst.amounts))
    if not worst.open:
        return [(6, line(dim("at most "), Span(text), dim(" more")))]
    return [
        (
            6,
            line(
                dim("could cost "),
                Span(text),
                dim(f", {how_many(worst.open, 'box', 'boxes')} without a limit"),
            ),
        )
    ]


# Billed things in the accounts that no box names. Always shown, and never reported as zero.

INDENT = "  "


def unseen_section(state: FleetState, width: int, now: float) -> Section | None:
    """Return what is billed but not in the fleet, by account.

    None if it is known that nothing is.
    """
    body: list[Line] = []
    for bill in state.accounts:
        body += _account(bill, width, now)
    if not body:
        return None
    total = written(_total(state), none="price unknown")
    priced = any(bill.things for bill in state.accounts)
    return Section(
        line("billed, not in your fleet ", Span(plain(f"{total}/h") if priced else "", Tone.WARN)),
        body,
    )


def _account(bill: AccountBill, width: int, now: float) -> list[Line]:
    told: list[Line] = []
    for thing in bill.things:
        tone = Tone.WARN if thing.bills else Tone.TEXT
        price = thing_price(thing) if thing.bills else "not billed now"
        told += _rows(f"{thing_words(thing)}: {plain(price)}", width, tone)
        if thing.how:
            told += _rows(thing.how, width, Tone.DIM)
    for what, at, error in (
        ("machines", bill.machines_at, bill.machines_error),
        ("volumes, addresses and snapshots", bill.leftovers_at, bill.leftovers_error),
    ):
        if error is not None:
            stands = "unknown" if at is None else f"as listed {compact_time(now - at)} ago"
            # Some platforms have no API for anything but machines. That never changes, so it is no
            # warning.
            warns = at is None and what == "machines"
            told += _rows(f"{what}: {stands} ({error})", width, Tone.WARN if warns else Tone.DIM)
    if not told:
        return []
    if bill.gaps:
        told += _rows(f"maybe also billed, but not listed: {', '.join(bill.gaps)}", width, Tone.DIM)
    if any(thing.what == MACHINE for thing in bill.things):
        told += _rows(
            f"rgt import --from {bill.kind} adds machines to the fleet", width, Tone.ACCENT
        )
    return [line(Span(bill.kind, Tone.STRONG), dim(f"  {bill.account}")), *told]


def _rows(text: str, width: int, tone: Tone) -> list[Line]:
    return [line(INDENT, *made) for made in wrapped(text, max(8, width - len(INDENT)), tone)]


def _total(state: FleetState) -> list[Amount]:
    sums: dict[str, Amount] = {}
    for amount in (one for bill in state.accounts for one in bill.per_hour):
        known = sums.get(amount.currency, Amount(0.0, amount.currency))
        sums[amount.currency] = Amount(
            known.value + amount.value, amount.currency, known.at_least or amount.at_least
        )
    return list(sums.values())


def unseen_parts(state: FleetState) -> Parts:
    """Return the summary for the header: the number of billed things, and their price."""
    count = sum(thing.bills for bill in state.accounts for thing in bill.things)
    if not count:
        return []
    return [
        (
            1,
            line(
                Span(
                    f"{count} not in your fleet {plain(written(_total(state), none='?'))}/h",
                    Tone.WARN,
                )
            ),
        )
    ]
