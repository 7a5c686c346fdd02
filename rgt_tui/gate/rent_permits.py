"""The gate before renting a machine: the offer read again, its full price, and the person's consent. Pure.

Only here is a `RentPermit` built; a test greps that it stays so.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from rgt_tui.gate.decision import PERMIT_S, dated, outdated
from rgt_tui.gate.quiet import AHEAD_S
from rgt_tui.model import Offer, Refusal, RentPermit, RentReview, Wish
from rgt_tui.profiles import money

FRESH_S = 30.0
"""Seconds for which an offer that was read again is good: prices and stock change by the minute."""
DAY_H = 24.0
UNKNOWN = "not known before the machine is there: unknown, not free"


class RentCase(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the gate looks at for one rental."""

    box: str
    """The name that the fleet file will give the machine."""
    account: str
    """`rgt_tui.model.box.ProviderRef.account`."""
    wish: Wish
    shown: Offer
    """What the person has seen."""
    fresh: Offer | None
    """The same offer, read again; None = it is no longer offered."""
    at: float | None
    """When `fresh` was read, on the clock of `rgt_tui.model.evidence.steady`; None = it could not be."""
    open: str = ""
    """A creation of which nobody knows how it ended, in words: nothing is rented before that is known."""
    taken: str = ""
    """Why the fleet file cannot take the box; empty = it can."""
    readonly: bool = False


def rent_permit(
    case: RentCase, token: str, ticks: float, *, typed: str, digest: str | None = None
) -> RentPermit | Refusal:
    """Return a permit for exactly this offer at the price that the person saw, or every reason against it.

    Args:
        case: What is known.
        token: What the machine's name or label will hold.
        ticks: The steady clock.
        typed: What the person typed.
        digest: `RentReview.digest` of the review that was confirmed by another process; None = `case.shown` was.
    """
    return permit_if_agreed(
        case.shown,
        RentConsent(case.box, case.account, phrase_of(case), facts_of(case)),
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
    """What must be typed."""
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
        token: Random; it names the call, and lets a lost answer be looked for.
        ticks: The steady clock.
        typed: What the person typed.
        digest: Of the review that another process confirmed; None = the person saw `offer`.
    """
    if typed != consent.phrase or not consent.box:
        reasons.append(f"what was typed is not exactly {consent.phrase!r}")
    if digest is not None and (why := outdated(digest, consent.facts, ticks)) is not None:
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
        found.append(f"{case.open}: that has to be settled first")
    if case.taken:
        found.append(case.taken)
    if offer.spot is not wish.spot:
        found.append(f"asked for {_spot(wish.spot)}, this offer is {_spot(offer.spot)}")
    if offer.gpu_count != wish.gpu_count:
        found.append(f"asked for {wish.gpu_count} GPUs, this offer has {offer.gpu_count}")
    if offer.disk_gb is not None and offer.disk_gb < wish.disk_gb:
        found.append(f"asked for {wish.disk_gb} GB of disk, this offer has {offer.disk_gb}")
    if wish.max_per_hour is not None:
        if offer.currency != wish.currency:
            found.append(
                f"the maximum price per hour is in {wish.currency}, this offer is in {offer.currency}"
            )
        elif offer.per_hour is None:
            found.append("a maximum price per hour was given, and what this offer costs is not known")
        elif not offer.per_hour <= wish.max_per_hour:
            most = money(wish.max_per_hour, wish.currency)
            found.append(
                f"it costs {money(offer.per_hour, offer.currency)}/h, at most {most} were to be paid"
            )
    # `not <=` rather than `>`: an age that is not a number must refuse, too.
    if case.at is None:
        found.append("the offer could not be read again")
    elif not -AHEAD_S <= ticks - case.at <= FRESH_S:
        found.append(f"the offer was read {ticks - case.at:.0f} s ago, at most {FRESH_S:.0f} s are allowed")
    if fresh is None:
        found.append("it is no longer offered")
    else:
        found += _moved(offer, fresh)
    return found


def _moved(shown: Offer, fresh: Offer) -> list[str]:
    """Say what of an offer is no longer as the person saw it. Cheaper is fine; the rest of what is agreed is not."""
    found = []
    if fresh.currency != shown.currency:
        found.append(f"its price is in {fresh.currency} now, and was in {shown.currency}")
    elif shown.per_hour is not None and not (fresh.per_hour is not None and fresh.per_hour <= shown.per_hour):
        now, then = money(fresh.per_hour, fresh.currency), money(shown.per_hour, shown.currency)
        found.append(f"its price has changed: {now}/h now, {then}/h when it was shown")
    for what, then_, now_ in (
        ("GPU", (shown.gpu, shown.gpu_count), (fresh.gpu, fresh.gpu_count)),
        ("kind", _spot(shown.spot), _spot(fresh.spot)),
        ("place", shown.region, fresh.region),
        ("disk", shown.disk_gb, fresh.disk_gb),
        ("price of traffic", (shown.in_per_gb, shown.out_per_gb), (fresh.in_per_gb, fresh.out_per_gb)),
    ):
        if then_ != now_:
            found.append(f"its {what} is not what was shown")
    return found


def _spot(spot: bool) -> str:
    return "spot" if spot else "on-demand"


def phrase_of(case: RentCase) -> str:
    """Return what must be typed: the box's name, or more where its price is unknown."""
    return case.box if case.shown.per_hour is not None else f"{case.box} at any price"


def facts_of(case: RentCase) -> str:
    """Return the SHA-256 of what is agreed: the same as long as neither the offer nor the wish has changed."""
    shown = case.shown
    stable = msgspec.structs.replace(shown, stock=None, reliability=None, notes=(), ends_at=None)
    facts = (case.box, case.account, case.wish, stable)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def costs_of(offer: Offer) -> tuple[str, ...]:
    """Return the full price, a line each."""

    def hour(amount: float | None) -> str:
        return f"{money(amount, offer.currency)}/h" if amount is not None else UNKNOWN

    def traffic(amount: float | None) -> str:
        if amount is None:
            return "at a price that is not known"
        return f"{money(amount * 1000.0, offer.currency)} a TB" if amount else "free"

    total = offer.per_hour
    day = "" if total is None else f", {money(total * DAY_H, offer.currency)} a day"
    size = f"{offer.disk_gb} GB" if offer.disk_gb is not None else "of the platform's own size"
    return (
        f"compute: {hour(offer.compute_per_hour)} for {offer.gpu_count} × {offer.gpu}, {_spot(offer.spot)}",
        f"disk: {hour(offer.storage_per_hour)} for {size}",
        f"together: {hour(total)}{day}",
        f"traffic in: {traffic(offer.in_per_gb)}; out: {traffic(offer.out_per_gb)}",
    )


def rent_review(case: RentCase, ticks: float, *, will_send: str) -> RentReview:
    """Return what a person must see.

    Args:
        case: What is known.
        ticks: The steady clock.
        will_send: The exact call, from the market's ``describe_creation``.
    """
    return RentReview(
        box=case.box,
        offer=case.shown,
        account=case.account,
        costs=costs_of(case.shown),
        refusals=tuple(_objections(case, ticks)),
        will_send=will_send,
        phrase=phrase_of(case),
        digest=dated(facts_of(case), ticks),
    )
