"""What comes of what can go wrong with a platform, everywhere and where one is its own; a `Row` says the rest.

A thing that cannot go wrong with a platform says why (`Row.lacks`): what is neither expected nor lacking is a fault of
the row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rgt_tui.model import RentalRequest

VERBS = (
    *("list", "read", "leftovers", "balance", "spend", "offers", "find"),
    *("start", "park", "destroy", "create"),
)
MISSING = object()
"""Instead of a value: the key is not there."""
Edit = Callable[[Any], object]
"""Returns another answer of an answer, which is left as it is."""


@dataclass(frozen=True)
class Row:
    """What the suite must know of a platform."""

    kind: str
    make: Callable[..., Any]
    """Returns the fake, not started, with two machines: `machine` runs, `resting` is parked."""
    machine: str
    on: Mapping[str, str]
    """Verb → start of ``METHOD /path`` of the call that tells it, or of the command's words; empty = nothing is sent.

    A verb that is not here the platform has not.
    """
    truth: Callable[[Any, str], str]
    """Fake and id → ``on``, ``resting`` or ``gone``: what is really so."""
    machines_in: Callable[[Any], Sequence[dict[str, Any]]] = lambda _: ()
    """The machines in an answer to list or read."""
    state: str = ""
    """Key of the state in one of them."""
    price: tuple[str, ...] = ()
    """Keys of the price of compute, the parts of a path joined by dots; all are edited at once."""
    subobjects: tuple[str, ...] = ()
    """Keys of what may be null."""
    null: object = None
    """What stands there then."""
    within: Callable[[Edit], Edit] = lambda edit: edit
    """Makes an edit of what `machines_in` takes an edit of the very answer, e.g. of JSON in a text."""
    wish: RentalRequest | None = None
    offer_price: tuple[str, ...] = ()
    """As `price`, in an offer."""
    offers_in: Callable[[Any], Sequence[dict[str, Any]]] = lambda _: ()
    resting: str | None = None
    """A parked machine; None = the platform parks nothing."""
    yes: bytes = b"{}"
    """What it answers to a call that it takes."""
    error: bytes = b'{"error": "busy"}'
    """What it says at status 200 when something is wrong, where it does so; else anything that is no success."""
    two_pages: Callable[[Any], None] | None = None
    """Adds machines until a list has two pages; None = the platform has no pages."""
    price_on: str | None = None
    """Start of ``METHOD /path`` of the call that tells the price; None = those of list and read."""
    shown_on: str | None = None
    """The same of the call whose answer shows the machines; None = those of list and read."""
    before: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    """Verb → what must be so with the machine before it can be asked for."""
    breaks: Mapping[str | tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """What goes wrong, also for one verb alone → the fault that does it here, where it is not the usual one."""
    lacks: Mapping[str | tuple[str, str], str] = field(default_factory=dict)
    """A verb, what goes wrong, or both → why there is no such thing here."""
    differs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(verb, what goes wrong) → what comes of it here, where that is not what comes of it elsewhere."""

    def why_not(self, verb: str, fault: str) -> str | None:
        """Return why a thing cannot go wrong with a verb here; None = it can."""
        keys: tuple[str | tuple[str, str], ...] = (verb, fault, (verb, fault))
        return next((self.lacks[key] for key in keys if key in self.lacks), None)


def edited(rows: Callable[[Any], Sequence[dict[str, Any]]], **values: object) -> Edit:
    """Return what sets keys in all of some rows of an answer; dots in a key are written ``__``."""

    def change(data: object) -> object:
        changed = copy.deepcopy(data)
        for row in rows(changed):
            for path, value in values.items():
                *way, last = path.split("__")
                inner = row
                for step in way:
                    inner = inner[step]
                if last not in inner:
                    continue
                if value is MISSING:
                    del inner[last]
                else:
                    inner[last] = value(inner[last]) if callable(value) else value
        return changed

    return change


FAILED_READS = (
    *(
        "an error at 200",
        "401",
        "429",
        "429 that says when",
        "500",
        "no answer",
        "cut short",
        "a redirect",
    ),
)
FAILED_CALLS = {
    "not reachable": "nothing done",
    "401": "nothing done",
    "429": "nothing done",
    "429 that says when": "nothing done",
    "an error at 200": "nobody knows",
    "2xx, nothing done": "nobody knows",
    "500": "nobody knows",
    "no answer": "nobody knows",
    "500, done all the same": "done, by reading",
    "no answer, done all the same": "done, by reading",
    "2xx of no known shape, done": "done, by reading",
    "twice": "done, by reading",
}
SHAPES = {
    "": "told",
    "a state of no known name": "not known",
    "no price": "not free",
    "the price as text": "told",
    "null sub-objects": "not free",
}

OUTCOMES: dict[tuple[str, str], str] = {
    **{
        (verb, fault): "not known"
        for verb in ("list", "read", "leftovers", "balance", "spend", "offers", "find")
        for fault in FAILED_READS
    },
    **{
        (verb, "not reachable"): "not known"
        for verb in ("list", "read", "leftovers", "offers", "find")
    },
    **{(verb, fault): outcome for verb in ("list", "read") for fault, outcome in SHAPES.items()},
    ("list", "no second page"): "not known",
    ("list", "no end"): "not known",
    ("read", "404, and no list"): "not known",
    ("read", "404, but in the list"): "not known",
    ("leftovers", ""): "told",
    ("balance", ""): "told",
    ("spend", ""): "told",
    ("offers", ""): "told",
    ("offers", "no price"): "not free",
    ("offers", "nothing to be had"): "none",
    ("find", ""): "none",
    ("start", ""): "requested",
    **{
        ("start", fault): outcome
        for fault, outcome in FAILED_CALLS.items()
        if outcome == "nothing done"
        or fault in ("500", "no answer", "no answer, done all the same")
    },
    ("start", "no answer, done all the same"): "nobody knows",
    **{
        (verb, fault): outcome
        for verb in ("park", "destroy")
        for fault, outcome in FAILED_CALLS.items()
    },
    ("park", ""): "done, by reading",
    ("destroy", ""): "done, by reading",
    ("destroy", "no end"): "nobody knows",
    ("park", "done by hand"): "probably off, not confirmed",
    ("destroy", "done by hand"): "probably off, not confirmed",
    ("create", ""): "made",
    ("create", "not reachable"): "nothing made",
    ("create", "401"): "nothing made",
    ("create", "429"): "nothing made",
    ("create", "500, done all the same"): "found by its token",
    ("create", "no answer, done all the same"): "found by its token",
    ("create", "2xx of no known shape, done"): "found by its token",
    ("create", "500"): "nobody knows",
    ("create", "no answer"): "nobody knows",
}
"""(verb, what goes wrong) → what comes of it everywhere but where a row says otherwise; empty = nothing goes wrong."""


def expected(row: Row, verb: str) -> dict[str, str]:
    """Return what comes of each thing that can go wrong with a verb of a platform that has it."""
    found = {
        fault: outcome
        for (of, fault), outcome in OUTCOMES.items()
        if of == verb and row.why_not(verb, fault) is None
    }
    return {
        **found,
        **{fault: outcome for (of, fault), outcome in row.differs.items() if of == verb},
    }


def faults_of(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return all that can go wrong anywhere, by verb."""
    known = dict.fromkeys((*OUTCOMES, *(key for row in rows for key in row.differs)))
    return sorted(known, key=lambda key: VERBS.index(key[0]))


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table in docs/profiles.md, and why a thing does not exist where a dash stands."""
    head = f"| verb | what goes wrong | what comes of it | {' | '.join(row.kind for row in rows)} |"
    lines = [head, f"|---|---|---|{'---|' * len(rows)}"]
    alike: dict[tuple[str, ...], list[str]] = {}
    reasons: dict[str, int] = {}
    for verb, fault in faults_of(rows):
        usual = OUTCOMES.get((verb, fault), "")
        cells = []
        for row in rows:
            why = row.why_not(verb, fault)
            here = None if why is not None else expected(row, verb).get(fault)
            if why is not None:
                cells.append(f"– {reasons.setdefault(why, len(reasons) + 1)}")
            else:
                cells.append("–" if here is None else "·" if here == usual else here)
        alike.setdefault((verb, usual, *cells), []).append(fault or "(nothing)")
    lines += [
        f"| {verb} | {'; '.join(what)} | {' | '.join((usual, *cells))} |"
        for (verb, usual, *cells), what in alike.items()
    ]
    return [*lines, "", *(f"{number}. {why}" for why, number in reasons.items())]
