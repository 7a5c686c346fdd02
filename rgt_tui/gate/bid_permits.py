"""The gate before the bid of a spot machine is changed: the bid as just read, its cost, the person's consent. Pure.

A bid is money like any other: the permit is the one of a rental (`rgt_tui.model.evidence.RentPermit`), for the machine
at the new price.
"""

from __future__ import annotations

import hashlib

import msgspec

from rgt_tui.gate.decision import dated
from rgt_tui.gate.quiet import AHEAD_S
from rgt_tui.gate.rent_permits import DAY_H, FRESH_S, RentConsent, permit_if_agreed
from rgt_tui.model import Bid, BidReview, Offer, Refusal, RentPermit
from rgt_tui.profiles import money


class BidCase(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the gate looks at for one change of a bid."""

    box: str
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    bid: Bid
    """As just read."""
    at: float
    """When it was read, on the clock of `rgt_tui.model.evidence.steady`."""
    price: float
    """The new bid, an hour."""
    limits: tuple[float, float]
    """The least and the most that the platform accepts."""
    agreed_per_hour: float | None = None
    """The limit of the fleet file (`asked`); None = none."""
    readonly: bool = False


def bid_permit(
    case: BidCase, token: str, ticks: float, *, typed: str, digest: str | None = None
) -> RentPermit | Refusal:
    """Return a permit for exactly this bid, or every reason against it.

    Args:
        case: What is known.
        token: Random, so that the permit is used once.
        ticks: The steady clock.
        typed: What the person typed.
        digest: `BidReview.digest` of the dry run that is confirmed; None = the person saw `case`.
    """
    return permit_if_agreed(
        bid_offer(case),
        RentConsent(case.box, case.account, bid_phrase(case), _facts_of(case)),
        _objections(case, ticks),
        token,
        ticks,
        typed=typed,
        digest=digest,
    )


def bid_offer(case: BidCase) -> Offer:
    """Return the machine at the new price, as an offer that a permit names."""
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
    """Return what must be typed: the box's name, or more where the machine would be lost to others."""
    return f"{case.box} may be taken away" if is_below_least(case) else case.box


def bid_review(case: BidCase, ticks: float, *, will_send: str) -> BidReview:
    """Return what a person must see before a bid is changed."""
    return BidReview(
        box=case.box,
        bid=case.bid,
        price=case.price,
        lines=tuple(_lines(case)),
        refusals=tuple(_objections(case, ticks)),
        will_send=will_send,
        phrase=bid_phrase(case),
        digest=dated(_facts_of(case), ticks),
    )


def _objections(case: BidCase, ticks: float) -> list[str]:
    found = []
    least, most = case.limits
    if case.readonly:
        found.append("rgt was started with --readonly: it changes no bid")
    if case.bid.is_bid is False:
        found.append("it was rented on demand: it has no bid, and nobody can take it away")
    if case.bid.is_bid is None:
        found.append("the platform does not say whether it was rented by a bid")
    # `not <=`: a price that is not a number must refuse, too.
    if not least <= case.price <= most:
        limits = f"{money(least, case.bid.currency)} to {money(most, case.bid.currency)}"
        found.append(f"the platform accepts bids of {limits} an hour")
    if case.bid.per_hour == case.price:
        found.append(f"its bid is {money(case.price, case.bid.currency)}/h already")
    if not -AHEAD_S <= ticks - case.at <= FRESH_S:
        found.append(f"the bid was read {ticks - case.at:.0f} s ago, at most {FRESH_S:.0f} s are allowed")
    return found


def _lines(case: BidCase) -> list[str]:
    bid, currency = case.bid, case.bid.currency

    def amount(value: float | None) -> str:
        return "unknown, not free" if value is None else money(value, currency)

    state = "OUTBID: it rests, and its disk is charged" if bid.outbid else bid.status
    offer = bid_offer(case)
    total = offer.per_hour
    lines = [
        f"now: {amount(bid.per_hour)}/h; {state}; least bid now: {amount(bid.least)}/h",
        f"new: {amount(case.price)}/h for {offer.gpu_count} × {offer.gpu}, disk {amount(bid.storage_per_hour)}/h",
        f"at most {amount(None if total is None else total * DAY_H)} a day, traffic apart",
    ]
    if is_below_least(case):
        lines.append(
            "below the least bid: the machine is taken from you at once; it rests, its disk is charged"
        )
    elif bid.outbid:
        lines.append("it may start again by itself, and bill; what ran there does not start by itself")
    if case.agreed_per_hour is not None and total is not None and total > case.agreed_per_hour:
        limit = money(case.agreed_per_hour, currency)
        lines.append(f"more than the {limit}/h of the fleet file (asked): the alert `agreed` will say so")
    return lines


def _facts_of(case: BidCase) -> str:
    """Return the SHA-256 of what is agreed; the same as long as the bid, its price and its machine are."""
    bid = msgspec.structs.replace(case.bid, status="")
    facts = (case.box, case.account, case.price, bid)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
