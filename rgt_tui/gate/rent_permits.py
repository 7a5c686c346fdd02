"""The gate before renting a machine or changing a bid: offer, price and consent. Pure.

A `RentPermit` is built only here; a test checks that with grep.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from rgt_tui.gate.decision import PERMIT_S, add_time_to_digest, find_digest_problem
from rgt_tui.gate.quiet import AHEAD_S
from rgt_tui.language import translate
from rgt_tui.model import (
    Bid,
    BidReview,
    FrozenStruct,
    Offer,
    Refusal,
    RentalRequest,
    RentPermit,
    RentReview,
    format_money,
)

FRESH_S = 30.0
"""Seconds for which an offer that was read again is valid: prices and stock change by the minute.
"""
DAY_H = 24.0


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
        reasons.append(translate("the typed text is not exactly {phrase!r}", phrase=consent.phrase))
    if (
        digest is not None
        and (why := find_digest_problem(digest, consent.facts, ticks)) is not None
    ):
        reasons.append(why)
    if not token:
        reasons.append(translate("there is no token by which a lost answer could be looked for"))
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
        found.append(translate("rgt was started with --readonly: it rents nothing"))
    if case.open:
        found.append(translate("{open}: settle that first", open=case.open))
    if case.taken:
        found.append(case.taken)
    if offer.spot is not wish.spot:
        found.append(
            translate(
                "requested {spot}, this offer is {spot_2}",
                spot=_spot_label(wish.spot),
                spot_2=_spot_label(offer.spot),
            )
        )
    if offer.gpu_count != wish.gpu_count:
        found.append(
            translate(
                "requested {gpu_count} GPUs, this offer has {gpu_count_2}",
                gpu_count=wish.gpu_count,
                gpu_count_2=offer.gpu_count,
            )
        )
    if offer.disk_gb is not None and offer.disk_gb < wish.disk_gb:
        found.append(
            translate(
                "requested {disk_gb} GB of disk, this offer has {disk_gb_2}",
                disk_gb=wish.disk_gb,
                disk_gb_2=offer.disk_gb,
            )
        )
    if wish.max_per_hour is not None:
        if offer.currency != wish.currency:
            found.append(
                translate(
                    "the maximum price per hour is in {currency}, this offer is in {currency_2}",
                    currency=wish.currency,
                    currency_2=offer.currency,
                )
            )
        elif offer.per_hour is None:
            found.append(
                translate("a maximum price per hour was given, but this offer's price is unknown")
            )
        elif not offer.per_hour <= wish.max_per_hour:
            most = format_money(wish.max_per_hour, wish.currency)
            found.append(
                translate(
                    "it costs {price}/h, more than the maximum of {most}",
                    price=format_money(offer.per_hour, offer.currency),
                    most=most,
                )
            )
    # `not <=` instead of `>`: NaN must refuse, too.
    if case.at is None:
        found.append(translate("the offer could not be read again"))
    elif not -AHEAD_S <= ticks - case.at <= FRESH_S:
        found.append(
            translate(
                "the offer was read {age:.0f} s ago, at most {limit:.0f} s are allowed",
                age=ticks - case.at,
                limit=FRESH_S,
            )
        )
    if fresh is None:
        found.append(translate("it is no longer offered"))
    else:
        found += _list_offer_changes(offer, fresh)
    return found


def _list_offer_changes(shown: Offer, fresh: Offer) -> list[str]:
    """Return what has changed in an offer since the person saw it. A lower price is accepted."""
    found = []
    if fresh.currency != shown.currency:
        found.append(
            translate(
                "its price is in {currency} now, and was in {currency_2}",
                currency=fresh.currency,
                currency_2=shown.currency,
            )
        )
    elif shown.per_hour is not None and not (
        fresh.per_hour is not None and fresh.per_hour <= shown.per_hour
    ):
        now, then = (
            format_money(fresh.per_hour, fresh.currency),
            format_money(shown.per_hour, shown.currency),
        )
        found.append(
            translate(
                "its price has changed: {now}/h now, {then}/h when it was shown", now=now, then=then
            )
        )
    for what, then_, now_ in (
        (translate("GPU"), (shown.gpu, shown.gpu_count), (fresh.gpu, fresh.gpu_count)),
        (translate("kind"), _spot_label(shown.spot), _spot_label(fresh.spot)),
        (translate("place"), shown.region, fresh.region),
        (translate("disk"), shown.disk_gb, fresh.disk_gb),
        (
            translate("price of traffic"),
            (shown.in_per_gb, shown.out_per_gb),
            (fresh.in_per_gb, fresh.out_per_gb),
        ),
    ):
        if then_ != now_:
            found.append(translate("its {what} differs from the review", what=what))
    return found


def _spot_label(spot: bool) -> str:
    if spot:
        return translate("spot")
    return translate("on-demand")


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
        return translate("unknown until the machine exists (not free)")

    def format_traffic(amount: float | None) -> str:
        if amount is None:
            return translate("price unknown")
        if amount:
            return translate("{price} a TB", price=format_money(amount * 1000.0, offer.currency))
        return translate("free")

    total = offer.per_hour
    if total is None:
        day = ""
    else:
        day = translate(", {price} a day", price=format_money(total * DAY_H, offer.currency))
    if offer.disk_gb is not None:
        size = f"{offer.disk_gb} GB"
    else:
        size = translate("of the platform's own size")
    return (
        translate(
            "compute: {hourly} for {gpu_count} × {gpu}, {spot}",
            hourly=format_hourly(offer.compute_per_hour),
            gpu_count=offer.gpu_count,
            gpu=offer.gpu,
            spot=_spot_label(offer.spot),
        ),
        translate(
            "disk: {hourly} for {size}", hourly=format_hourly(offer.storage_per_hour), size=size
        ),
        translate("together: {price}{day}", price=format_hourly(total), day=day),
        translate(
            "traffic in: {traffic}; out: {traffic_2}",
            traffic=format_traffic(offer.in_per_gb),
            traffic_2=format_traffic(offer.out_per_gb),
        ),
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
        found.append(translate("rgt was started with --readonly: it changes no bid"))
    if case.bid.is_bid is False:
        found.append(translate("it was rented on demand: it has no bid and cannot be preempted"))
    if case.bid.is_bid is None:
        found.append(translate("the platform does not say whether it was rented by a bid"))
    # `not <=`: NaN must refuse, too.
    if not least <= case.price <= most:
        limits = (
            f"{format_money(least, case.bid.currency)} to {format_money(most, case.bid.currency)}"
        )
        found.append(translate("the platform accepts bids of {limits} an hour", limits=limits))
    if case.bid.per_hour == case.price:
        found.append(
            translate(
                "its bid is {price}/h already", price=format_money(case.price, case.bid.currency)
            )
        )
    if not -AHEAD_S <= ticks - case.at <= FRESH_S:
        found.append(
            translate(
                "the bid was read {age:.0f} s ago, at most {limit:.0f} s are allowed",
                age=ticks - case.at,
                limit=FRESH_S,
            )
        )
    return found


def _bid_lines(case: BidCase) -> list[str]:
    bid, currency = case.bid, case.bid.currency

    def describe_amount(value: float | None) -> str:
        if value is None:
            return translate("unknown (not free)")
        return format_money(value, currency)

    if bid.outbid:
        state = translate("OUTBID: it is stopped, and its disk is charged")
    else:
        state = bid.status
    offer = bid_offer(case)
    total = offer.per_hour
    lines = [
        translate(
            "now: {per_hour}/h; {state}; lowest bid now: {least}/h",
            per_hour=describe_amount(bid.per_hour),
            state=state,
            least=describe_amount(bid.least),
        ),
        translate(
            "new: {price}/h for {gpu_count} × {gpu}, disk {storage_per_hour}/h",
            price=describe_amount(case.price),
            gpu_count=offer.gpu_count,
            gpu=offer.gpu,
            storage_per_hour=describe_amount(bid.storage_per_hour),
        ),
        translate(
            "at most {price} a day, traffic apart",
            price=describe_amount(None if total is None else total * DAY_H),
        ),
    ]
    if is_below_least(case):
        lines.append(
            translate(
                "below the lowest bid: you lose the machine at once; it stops, and its disk is "
                "charged"
            )
        )
    elif bid.outbid:
        lines.append(
            translate("it may start again and be billed; your programs do not start again")
        )
    if case.agreed_per_hour is not None and total is not None and total > case.agreed_per_hour:
        limit = format_money(case.agreed_per_hour, currency)
        lines.append(
            translate(
                "more than the {limit}/h of the fleet file (asked): the alert `agreed` will report "
                "it",
                limit=limit,
            )
        )
    return lines


def _hash_bid_terms(case: BidCase) -> str:
    """Return the SHA-256 of the terms; it changes with the bid, its price or its machine."""
    bid = msgspec.structs.replace(case.bid, status="")
    facts = (case.box, case.account, case.price, bid)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
