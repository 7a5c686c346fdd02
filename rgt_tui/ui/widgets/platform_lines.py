"""Platform risks as lines: the worst case in money, deadlines, dangers and unlisted costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rgt_tui import health
from rgt_tui.language import translate
from rgt_tui.model import (
    MACHINE,
    AccountBill,
    BoxState,
    FleetState,
    MoneyAmount,
    Profile,
    format_sums,
    how_many,
)
from rgt_tui.profiles import describe_unlisted_item, list_caveats, thing_price
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.notation import compact_time, make_displayable
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.panes import PaneSection
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, make_line, wrap_text

if TYPE_CHECKING:
    from rgt_tui.health import FleetWorstCase

TELLS_BILL = re.compile(r"\b(bill(s|ing)?|price)\b")
"""Matches a worst-danger text that already names what is billed after a stop, so the clock line is
left out."""


def platform_section(profile: Profile, box: BoxState, width: int, now: float) -> PaneSection:
    """Return what this box can still cost, and its deadlines."""
    readings = health.clock_readings(profile, box, now)
    worst = health.worst_case_of(box, readings, now)
    tone = Tone.TEXT
    if worst.at_least:
        tone = Tone.WARN
    body = _labelled_lines(translate("worst "), worst.text, width, tone)
    for caveat in list_caveats(box.meter):
        tone = Tone.DIM
        if box.meter.at_least:
            tone = Tone.WARN
        body += _labelled_lines(translate("price "), caveat, width, tone)
    for reading in readings:
        body += _labelled_lines(translate("clock "), reading.text, width, level_tone(reading.level))
    # A clock that runs matters more than those that a stop would start.
    for pending in () if readings else health.pending_readings(profile):
        if pending.seconds_left is not None or not TELLS_BILL.search(
            next(iter(health.first_contact_notices(profile)), "")
        ):
            body += _labelled_lines(
                translate("clock "),
                translate("no active deadline; {words}", words=pending.text),
                width,
                Tone.DIM,
            )
    return PaneSection(make_line(translate("platform "), dim_span(profile.name)), body)


def dangers_section(profile: Profile, width: int) -> PaneSection:
    """Return the platform's worst danger, and its notes on what rgt cannot watch."""
    first, *rest = health.first_contact_notices(profile)
    body = _labelled_lines(translate("worst "), first, width, Tone.DIM)
    for text in rest:
        body += _labelled_lines(translate("note "), text, width, Tone.DIM)
    return PaneSection(make_line(translate("dangers "), dim_span(profile.name)), body)


LABEL = 7


def _labelled_lines(label: str, text: str, width: int, tone: Tone) -> list[Line]:
    # Minimum cells of wrapped text.
    least = 8
    first, *rest = wrap_text(text, max(least, width - LABEL), tone)
    return [
        make_line(dim_span(label.ljust(LABEL)), *first),
        *(make_line(" " * LABEL, *more) for more in rest),
    ]


def worst_parts(worst: FleetWorstCase | None) -> Parts:
    """Return the fleet's worst case for the header.

    Boxes without a limit are counted next to the sum.

    Its rank is low, so that the money wasted now is shown first: this could be lost over days.
    """
    if worst is None or not (worst.amounts or worst.open):
        return []
    if not worst.amounts:
        return [(6, make_line(dim_span(translate("no spending limit"))))]
    text = make_displayable(format_sums(worst.amounts))
    if not worst.open:
        return [
            (
                6,
                make_line(
                    dim_span(translate("at most ")), Span(text), dim_span(translate(" more"))
                ),
            )
        ]
    return [
        (
            6,
            make_line(
                dim_span(translate("could cost ")),
                Span(text),
                dim_span(
                    translate(", {open} without a limit", open=how_many(worst.open, "box", "boxes"))
                ),
            ),
        )
    ]


# Billed things in the accounts that no box names. Always shown, and never reported as zero.

INDENT = "  "


def unlisted_section(
    state: FleetState, width: int, now: float, *, found: bool | None = None
) -> PaneSection | None:
    """Return what is billed but not in the fleet, by account.

    None if it is known that nothing is.

    Args:
        state: The fleet.
        width: Available cells.
        now: Client clock.
        found: Only accounts with something found or with an unread list of machines; False = only
            the others, whose platform merely has no such list. None = all.
    """
    body: list[Line] = []
    for bill in state.accounts:
        if found is None or found == (bool(bill.things) or bill.machines_error is not None):
            body += _account_lines(bill, width, now)
    if not body:
        return None
    total = format_sums(_sum_accounts(state), none=translate("price unknown"))
    priced = any(bill.things for bill in state.accounts)
    price = ""
    if priced:
        price = make_displayable(f"{total}/h")
    return PaneSection(
        make_line(translate("billed, not in your fleet "), Span(price, Tone.WARN)), body
    )


def _account_lines(bill: AccountBill, width: int, now: float) -> list[Line]:
    told: list[Line] = []
    for thing in bill.things:
        if thing.bills:
            tone = Tone.WARN
        else:
            tone = Tone.TEXT
        if thing.bills:
            price = thing_price(thing)
        else:
            price = translate("not billed now")
        told += _indented_lines(
            f"{describe_unlisted_item(thing)}: {make_displayable(price)}", width, tone
        )
        if thing.how:
            told += _indented_lines(thing.how, width, Tone.DIM)
    for what, at, error in (
        ("machines", bill.machines_at, bill.machines_error),
        (translate("volumes, addresses and snapshots"), bill.leftovers_at, bill.leftovers_error),
    ):
        if error is not None:
            if at is None:
                stands = translate("unknown")
            else:
                stands = translate("as listed {now} ago", now=compact_time(now - at))
            # Some platforms have no API for anything but machines. That never changes, so it is no
            # warning.
            warns = at is None and what == "machines"
            line_tone = Tone.DIM
            if warns:
                line_tone = Tone.WARN
            told += _indented_lines(f"{what}: {stands} ({error})", width, line_tone)
    if not told:
        return []
    if bill.gaps:
        told += _indented_lines(
            translate("maybe also billed, but not listed: {gaps}", gaps=", ".join(bill.gaps)),
            width,
            Tone.DIM,
        )
    if any(thing.what == MACHINE for thing in bill.things):
        told += _indented_lines(
            f"rgt import --from {bill.kind} adds machines to the fleet", width, Tone.ACCENT
        )
    account = bill.account
    key, _, server = account.partition("@")
    # The providers of the demo run here: an address with a port says nothing to a person.
    if urlsplit(server).hostname in ("127.0.0.1", "::1"):
        account = translate("{key} at a server of this machine", key=key)
    return [make_line(Span(bill.kind, Tone.STRONG), dim_span(f"  {account}")), *told]


def _indented_lines(text: str, width: int, tone: Tone) -> list[Line]:
    return [make_line(INDENT, *made) for made in wrap_text(text, max(8, width - len(INDENT)), tone)]


def _sum_accounts(state: FleetState) -> list[MoneyAmount]:
    sums: dict[str, MoneyAmount] = {}
    for amount in (one for bill in state.accounts for one in bill.per_hour):
        known = sums.get(amount.currency, MoneyAmount(0.0, amount.currency))
        # With one lower bound in it, the sum is one, too.
        sums[amount.currency] = MoneyAmount(
            known.value + amount.value, amount.currency, known.at_least or amount.at_least
        )
    return list(sums.values())


def unlisted_parts(state: FleetState) -> Parts:
    """Return the summary for the header: the number of billed things, and their price."""
    count = sum(thing.bills for bill in state.accounts for thing in bill.things)
    if not count:
        return []
    return [
        (
            1,
            make_line(
                Span(
                    translate(
                        "{count} not in your fleet {state}/h",
                        count=count,
                        state=make_displayable(format_sums(_sum_accounts(state), none="?")),
                    ),
                    Tone.WARN,
                )
            ),
        )
    ]
