"""One line about one account: what it is billed for that no box of the fleet file names. Pure."""

from __future__ import annotations

import msgspec

from rgt_tui.cli.status_line import NAME_WIDTH, STATE_WIDTH
from rgt_tui.model.money import Amount
from rgt_tui.model.plain import clean
from rgt_tui.model.renting import MACHINE, AccountBill, Unlisted
from rgt_tui.profiles.prices import money, thing_price, thing_words

MOST = 4
"""So many things stand in the line of text; the rest is counted."""


class AccountLine(msgspec.Struct, frozen=True, kw_only=True):
    """What scripts read of an account. It has no key ``box``: that is how it differs from the line of a box."""

    account: str
    """Kind of the provider, as in the fleet file."""
    key: str
    """Which key and server: `rgt_tui.model.box.ProviderRef.account`."""
    per_hour: tuple[Amount, ...]
    """What all of `unlisted` costs an hour, a sum a currency; empty = no price of it is known."""
    unlisted: tuple[Unlisted, ...]
    machines_age_s: float | None
    """Seconds since the machines were listed whole; None = they never were, and nobody knows."""
    machines_error: str | None
    leftovers_age_s: float | None
    """The same for volumes, addresses, snapshots and the like."""
    leftovers_error: str | None


def account_line(bill: AccountBill, now: float) -> AccountLine:
    """Return what scripts read; `now` is the client clock."""
    return AccountLine(
        account=bill.kind,
        key=bill.account,
        per_hour=bill.per_hour,
        unlisted=bill.things,
        machines_age_s=_age(bill.machines_at, now),
        machines_error=bill.machines_error,
        leftovers_age_s=_age(bill.leftovers_at, now),
        leftovers_error=bill.leftovers_error,
    )


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


def account_text(bill: AccountBill) -> str:
    """Return the line, below those of the boxes; empty where nothing bills unseen and everything is known."""
    parts = [f"{thing_words(thing)}: {thing_price(thing)}" for thing in bill.things[:MOST]]
    more = len(bill.things) - MOST
    parts += [f"{more} more (--json has them)"] if more > 0 else []
    rest = ("volumes, addresses and snapshots", bill.leftovers_at, bill.leftovers_error)
    lists = [("machines", bill.machines_at, bill.machines_error), rest]
    if bill.machines_at is None and bill.leftovers_at is None:
        # One reason for both, such as a key that is missing or a platform without an API.
        lists = [("machines, volumes and the like", None, bill.machines_error or bill.leftovers_error)]
    for what, at, error in lists:
        if error is not None or at is None:
            stands = "not known" if at is None else "not known to be all"
            parts.append(f"{what}: {stands}{f' ({error})' if error else ''}")
    if not parts:
        return ""
    if any(thing.what == MACHINE for thing in bill.things):
        parts.append(f"rgt import --from {bill.kind} takes machines in")
    sums = bill.per_hour
    price = " + ".join(money(one.value, one.currency, one.at_least) for one in sums)
    said = f"{price}/h" if sums else "?" if bill.things else "-"
    state = "unseen" if bill.things else "unknown"
    return clean(f"{bill.kind:<{NAME_WIDTH}} {state:<{STATE_WIDTH}} {said:<10} {' · '.join(parts)}")
