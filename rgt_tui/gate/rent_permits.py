"""The gate before renting a machine or changing a bid: offer, price and consent. Pure.

A `RentPermit` is built only here; a test checks that with grep.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from rgt_tui.gate.decision import PERMIT_S, add_time_to_digest, find_digest_problem
from rgt_tui.gate.quiet import AHEAD_S
from rgt_tui.model import (
    Bid,
    BidReview,
    FrozenStruct,
    Offer,
    Refusal,
    RentalRequest,
    RentPermit,
    RentReview,
)
from rgt_tui.profiles import format_money

FRESH_S = 30.0
"""Seconds for which an offer that was read again is valid: prices and stock change by the minute.
"""
DAY_H = 24.0
UNKNOWN = "unknown until the machine exists (not free)"


class RentCase(FrozenStruct, kw_only=True):
    """Everything the gate considers for one rental."""

    box: str
    """The name that the machine will have in the fleet file."""
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    wish: RentalRequest
    shown: Offer
    """The offer that the person has seen."""
    fresh: Offer | None
    """The same offer, read again; None = it is no longer offered."""
    at: float | None
    """When `fresh` was read, on the clock of `rgt_tui.model.evidence.steady`; None = it could not
    be read.
    """
    open: str = ""
    """Description of a creation with an unknown outcome: nothing is rented until that is settled.
    """
    taken: str = ""
    """Why the box cannot be added to the fleet file; empty = it can."""
    readonly: bool = False


def rent_permit(
    case: RentCase, token: str, ticks: float, *, typed: str, digest: str | None = None
) -> RentPermit | Refusal:
    """Return a permit for exactly this offer at the price shown, or every reason against it.

    Args:
        case: The known facts.
        token: Becomes part of the machine's name or label.
        ticks: The steady clock.
        typed: The text that the person typed.
        digest: `RentReview.digest` of the review that another process confirmed; None = the person
            saw `case.shown`.
    """
    return permit_if_agreed(
        case.shown,
        RentConsent(case.box, case.account, rent_phrase(case), hash_rent_terms(case)),
        _objections(case, ticks),
        token,
        ticks,
        typed=typed,
        digest=digest,
    )


class RentConsent(NamedTuple):
    """The terms that a person must agree to before money is spent."""

    box: str
    account: str
    phrase: str
    """The text that must be typed."""
    facts: str
    """SHA-256 of these terms."""


def permit_if_agreed(
    offer: Offer,
    consent: RentConsent,
    reasons: list[str],
    token: str,
    ticks: float,
    *,
    typed: str,
    digest: str | None,
) -> RentPermit | Refusal:
    """Return the permit for a machine at its price, or every reason against it.

    Args:
        offer: The machine, at the price that the person saw.
        consent: The terms that the person must agree to.
        reasons: Objections found so far.
        token: Random; it identifies the call, so that the machine can be found after a lost answer.
        ticks: The steady clock.
        typed: The text that the person typed.
        digest: Digest of the review that another process confirmed; None = the person saw `offer`.
    """
    if typed != consent.phrase or not consent.box:
        reasons.append(f"the typed text is not exactly {consent.phrase!r}")
    if (
        digest is not None
        and (why := find_digest_problem(digest, consent.facts, ticks)) is not None
    ):
        reasons.append(why)
    if not token:
        reasons.append("there is no token by which a lost answer could be looked for")
    if reasons:
        return Refusal(reasons=tuple(dict.fromkeys(reasons)))
    return RentPermit(
        box=consent.box,
        kind=offer.kind,
        account=consent.account,
        offer=offer.id,
        per_hour=offer.per_hour,
        currency=offer.currency,
        spot=offer.spot,
        token=token,
        expires=ticks + PERMIT_S,
    )


def _objections(case: RentCase, ticks: float) -> list[str]:
    found = []
    offer, wish, fresh = case.shown, case.wish, case.fresh
    if case.readonly:
        found.append("rgt was started with --readonly: it rents nothing")
    if case.open:
        found.append(f"{case.open}: settle that first")
    if case.taken:
        found.append(case.taken)
    if offer.spot is not wish.spot:
        found.append(f"requested {_spot_label(wish.spot)}, this offer is {_spot_label(offer.spot)}")
    if offer.gpu_count != wish.gpu_count:
        found.append(f"requested {wish.gpu_count} GPUs, this offer has {offer.gpu_count}")
    if offer.disk_gb is not None and offer.disk_gb < wish.disk_gb:
        found.append(f"requested {wish.disk_gb} GB of disk, this offer has {offer.disk_gb}")
    if wish.max_per_hour is not None:
        if offer.currency != wish.currency:
            found.append(
                f"the maximum price per hour is in {wish.currency}, this offer is in {offer.currency}"
            )
        elif offer.per_hour is None:
            found.append("a maximum price per hour was given, but this offer's price is unknown")
        elif not offer.per_hour <= wish.max_per_hour:
            most = format_money(wish.max_per_hour, wish.currency)
            found.append(
                f"it costs {format_money(offer.per_hour, offer.currency)}/h, more than the maximum of {most}"
            )
    # `not <=` instead of `>`: NaN must refuse, too.
    if case.at is None:
        found.append("the offer could not be read again")
    elif not -AHEAD_S <= ticks - case.at <= FRESH_S:
        found.append(
            f"the offer was read {ticks - case.at:.0f} s ago, at most {FRESH_S:.0f} s are allowed"
        )
    if fresh is None:
        found.append("it is no longer offered")
    else:
        found += _list_offer_changes(offer, fresh)
    return found


def _list_offer_changes(shown: Offer, fresh: Offer) -> list[str]:
    """Return what has changed in an offer since the person saw it. A lower price is accepted."""
    found = []
    if fresh.currency != shown.currency:
        found.append(f"its price is in {fresh.currency} now, and was in {shown.currency}")
    elif shown.per_hour is not None and not (
        fresh.per_hour is not None and fresh.per_hour <= shown.per_hour
    ):
        now, then = (
            format_money(fresh.per_hour, fresh.currency),
            format_money(shown.per_hour, shown.currency),
        )
        found.append(f"its price has changed: {now}/h now, {then}/h when it was shown")
    for what, then_, now_ in (
        ("GPU", (shown.gpu, shown.gpu_count), (fresh.gpu, fresh.gpu_count)),
        ("kind", _spot_label(shown.spot), _spot_label(fresh.spot)),
        ("place", shown.region, fresh.region),
        ("disk", shown.disk_gb, fresh.disk_gb),
        (
            "price of traffic",
            (shown.in_per_gb, shown.out_per_gb),
            (fresh.in_per_gb, fresh.out_per_gb),
        ),
    ):
        if then_ != now_:
            found.append(f"its {what} differs from the review")
    return found


def _spot_label(spot: bool) -> str:
    if spot:
        return "spot"
    return "on-demand"


def rent_phrase(case: RentCase) -> str:
    """Return the text that must be typed: the box's name, longer if its price is unknown."""
    if case.shown.per_hour is not None:
        return case.box
    return f"{case.box} at any price"


def hash_rent_terms(case: RentCase) -> str:
    """Return the SHA-256 of the terms; it changes with the offer or the wish."""
    shown = case.shown
    stable = msgspec.structs.replace(shown, stock=None, reliability=None, notes=(), ends_at=None)
    facts = (case.box, case.account, case.wish, stable)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def list_rent_costs(offer: Offer) -> tuple[str, ...]:
    """Return the full price, one line per part."""

    def format_hourly(amount: float | None) -> str:
        if amount is not None:
            return f"{format_money(amount, offer.currency)}/h"
        return UNKNOWN

    def format_traffic(amount: float | None) -> str:
        if amount is None:
            return "price unknown"
        if amount:
            return f"{format_money(amount * 1000.0, offer.currency)} a TB"
        return "free"

    total = offer.per_hour
    if total is None:
        day = ""
    else:
        day = f", {format_money(total * DAY_H, offer.currency)} a day"
    if offer.disk_gb is not None:
        size = f"{offer.disk_gb} GB"
    else:
        size = "of the platform's own size"
    return (
        f"compute: {format_hourly(offer.compute_per_hour)} for {offer.gpu_count} × {offer.gpu}, "
        f"{_spot_label(offer.spot)}",
        f"disk: {format_hourly(offer.storage_per_hour)} for {size}",
        f"together: {format_hourly(total)}{day}",
        f"traffic in: {format_traffic(offer.in_per_gb)}; out: {format_traffic(offer.out_per_gb)}",
    )


def rent_review(case: RentCase, ticks: float, *, will_send: str) -> RentReview:
    """Return what a person must see.

    Args:
        case: The known facts.
        ticks: The steady clock.
        will_send: The exact call, from the market's ``describe_creation``.
    """
    return RentReview(
        box=case.box,
        offer=case.shown,
        account=case.account,
        costs=list_rent_costs(case.shown),
        refusals=tuple(_objections(case, ticks)),
        will_send=will_send,
        phrase=rent_phrase(case),
        digest=add_time_to_digest(hash_rent_terms(case), ticks),
    )


# The gate before the bid of a spot machine is changed: current bid, cost and consent. Pure.
#
# A bid costs money like a rental, so the permit is the same (`rgt_tui.model.evidence.RentPermit`),
# for the machine at the new price.


class BidCase(FrozenStruct, kw_only=True):
    """Everything the gate considers for one change of a bid."""

    box: str
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    bid: Bid
    """The current bid, just read."""
    at: float
    """When it was read, on the clock of `rgt_tui.model.evidence.steady`."""
    price: float
    """The new bid per hour."""
    limits: tuple[float, float]
    """The minimum and maximum that the platform accepts."""
    agreed_per_hour: float | None = None
    """The limit in the fleet file (`asked`); None = none."""
    readonly: bool = False


def bid_permit(
    case: BidCase, token: str, ticks: float, *, typed: str, digest: str | None = None
) -> RentPermit | Refusal:
    """Return a permit for exactly this bid, or every reason against it.

    Args:
        case: The known facts.
        token: Random, so that the permit is used once.
        ticks: The steady clock.
        typed: The text that the person typed.
        digest: `BidReview.digest` of the dry run that is confirmed; None = the person saw `case`.
    """
    return permit_if_agreed(
        bid_offer(case),
        RentConsent(case.box, case.account, bid_phrase(case), _hash_bid_terms(case)),
        _bid_objections(case, ticks),
        token,
        ticks,
        typed=typed,
        digest=digest,
    )


def bid_offer(case: BidCase) -> Offer:
    """Return the machine at the new price, as an offer for the permit."""
    bid = case.bid
    return Offer(
        kind=bid.kind,
        id=bid.instance,
        gpu=bid.gpu or "GPU",
        gpu_count=bid.gpu_count or 1,
        compute_per_hour=case.price,
        storage_per_hour=bid.storage_per_hour,
        currency=bid.currency,
        spot=True,
    )


def is_below_least(case: BidCase) -> bool:
    """Return whether the new bid is too low to keep the machine, or to get it back."""
    return case.bid.least is not None and case.price < case.bid.least


def bid_phrase(case: BidCase) -> str:
    """Return the text that must be typed: the box's name, longer if the machine would be lost."""
    if is_below_least(case):
        return f"{case.box} may be preempted"
    return case.box


def bid_review(case: BidCase, ticks: float, *, will_send: str) -> BidReview:
    """Return what a person must see before a bid is changed."""
    return BidReview(
        box=case.box,
        bid=case.bid,
        price=case.price,
        lines=tuple(_bid_lines(case)),
        refusals=tuple(_bid_objections(case, ticks)),
        will_send=will_send,
        phrase=bid_phrase(case),
        digest=add_time_to_digest(_hash_bid_terms(case), ticks),
    )


def _bid_objections(case: BidCase, ticks: float) -> list[str]:
    found = []
    least, most = case.limits
    if case.readonly:
        found.append("rgt was started with --readonly: it changes no bid")
    if case.bid.is_bid is False:
        found.append("it was rented on demand: it has no bid and cannot be preempted")
    if case.bid.is_bid is None:
        found.append("the platform does not say whether it was rented by a bid")
    # `not <=`: NaN must refuse, too.
    if not least <= case.price <= most:
        limits = (
            f"{format_money(least, case.bid.currency)} to {format_money(most, case.bid.currency)}"
        )
        found.append(f"the platform accepts bids of {limits} an hour")
    if case.bid.per_hour == case.price:
        found.append(f"its bid is {format_money(case.price, case.bid.currency)}/h already")
    if not -AHEAD_S <= ticks - case.at <= FRESH_S:
        found.append(
            f"the bid was read {ticks - case.at:.0f} s ago, at most {FRESH_S:.0f} s are allowed"
        )
    return found


def _bid_lines(case: BidCase) -> list[str]:
    bid, currency = case.bid, case.bid.currency

    def describe_amount(value: float | None) -> str:
        if value is None:
            return "unknown (not free)"
        return format_money(value, currency)

    if bid.outbid:
        state = "OUTBID: it is stopped, and its disk is charged"
    else:
        state = bid.status
    offer = bid_offer(case)
    total = offer.per_hour
    lines = [
        f"now: {describe_amount(bid.per_hour)}/h; {state}; lowest bid now: {describe_amount(bid.least)}/h",
        f"new: {describe_amount(case.price)}/h for {offer.gpu_count} × {offer.gpu}, disk "
        f"{describe_amount(bid.storage_per_hour)}/h",
        f"at most {describe_amount(None if total is None else total * DAY_H)} a day, traffic apart",
    ]
    if is_below_least(case):
        lines.append(
            "below the lowest bid: you lose the machine at once; it stops, and its disk is charged"
        )
    elif bid.outbid:
        lines.append("it may start again and be billed; your programs do not start again")
    if case.agreed_per_hour is not None and total is not None and total > case.agreed_per_hour:
        limit = format_money(case.agreed_per_hour, currency)
        lines.append(
            f"more than the {limit}/h of the fleet file (asked): the alert `agreed` will report it"
        )
    return lines


def _hash_bid_terms(case: BidCase) -> str:
    """Return the SHA-256 of the terms; it changes with the bid, its price or its machine."""
    bid = msgspec.structs.replace(case.bid, status="")
    facts = (case.box, case.account, case.price, bid)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
