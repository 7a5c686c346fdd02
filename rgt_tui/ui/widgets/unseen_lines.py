"""What the fleet's accounts are billed for that no box names, as lines: never hidden, and never said to be nothing."""

from __future__ import annotations

from rgt_tui.model.fleet import FleetState
from rgt_tui.model.money import Amount
from rgt_tui.model.renting import MACHINE, AccountBill
from rgt_tui.profiles.prices import thing_price, thing_words, written
from rgt_tui.ui.notation import clean, compact_time, plain
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, line, wrapped

INDENT = "  "


def unseen_section(state: FleetState, width: int, now: float) -> Section | None:
    """Return what bills unseen, account by account; None where all is known and nothing does."""
    body: list[Line] = []
    for bill in state.accounts:
        body += _account(bill, width, now)
    if not body:
        return None
    total = written(_total(state), none="price unknown")
    priced = any(bill.things for bill in state.accounts)
    return Section(line("bills unseen ", Span(plain(f"{total}/h") if priced else "", Tone.WARN)), body)


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
            stands = "not known" if at is None else f"as listed {compact_time(now - at)} ago"
            # Some platforms have no call for what is not a machine: that is so for ever, and asks for nobody's eyes.
            warns = at is None and what == "machines"
            told += _rows(f"{what}: {stands} ({error})", width, Tone.WARN if warns else Tone.DIM)
    if not told:
        return []
    if any(thing.what == MACHINE for thing in bill.things):
        told += _rows(f"rgt import --from {bill.kind} takes machines in", width, Tone.ACCENT)
    return [line(Span(clean(bill.kind), Tone.STRONG), dim(f"  {clean(bill.account)}")), *told]


def _rows(text: str, width: int, tone: Tone) -> list[Line]:
    return [line(INDENT, *made) for made in wrapped(clean(text), max(8, width - len(INDENT)), tone)]


def _total(state: FleetState) -> list[Amount]:
    sums: dict[str, Amount] = {}
    for amount in (one for bill in state.accounts for one in bill.per_hour):
        known = sums.get(amount.currency, Amount(0.0, amount.currency))
        sums[amount.currency] = Amount(
            known.value + amount.value, amount.currency, known.at_least or amount.at_least
        )
    return list(sums.values())


def unseen_parts(state: FleetState) -> Parts:
    """Return the same for the header: how many things bill, and for how much."""
    count = sum(thing.bills for bill in state.accounts for thing in bill.things)
    if not count:
        return []
    return [(1, line(Span(f"{count} unseen {plain(written(_total(state), none='?'))}/h", Tone.WARN)))]
