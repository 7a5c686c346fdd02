"""What ``rgt up`` prints: offers with their full price, what is about to be rented, and the JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from rgt_tui.cli.printing import columns, complain, print_json, print_lines
from rgt_tui.fleet.renting import Search
from rgt_tui.model import Offer, RentReview, Wish, clean
from rgt_tui.profiles import ProfileError, before_renting, load_profile, money
from rgt_tui.providers import Instance

MOST = 10
"""So many candidates are listed; ``--json`` has all."""
SUBJECT = 13


def progress(*, as_json: bool) -> Callable[[str], None]:
    """Return what prints progress: to standard output, or to standard error where that is for a script."""

    def say(text: str) -> None:
        print_lines(text)
        sys.stdout.flush()

    return complain if as_json else say


def write_lines(lines: Iterable[str]) -> None:
    """Print lines that are complete."""
    for line in lines:
        sys.stdout.write(line)
    sys.stdout.flush()


def candidate_lines(found: Search, wish: Wish | None) -> Iterator[str]:
    """Yield a line for each candidate, the cheapest first."""
    for number, candidate in enumerate(found.candidates[:MOST], 1):
        yield columns([(str(number), 3, "dim"), *_cells(candidate.offer)], _rest(candidate.offer))
    more = len(found.candidates) - MOST
    if more > 0:
        yield f"{more} more\n"
    yield "\n"


def _cells(offer: Offer) -> list[tuple[str, int, str]]:
    price = "price ?" if offer.per_hour is None else f"{money(offer.per_hour, offer.currency)}/h"
    kind = "spot" if offer.spot else "on-demand"
    return [
        (price, 10, "bold"),
        (offer.kind, 10, ""),
        (kind, 9, ""),
        (f"{offer.gpu_count} × {offer.gpu}", 28, ""),
    ]


def _rest(offer: Offer) -> str:
    parts = (
        f"{offer.disk_gb} GB" if offer.disk_gb is not None else "",
        offer.region or "anywhere",
        offer.stock or "",
        f"reliability {offer.reliability:.3f}" if offer.reliability is not None else "",
    )
    return ", ".join(part for part in parts if part)


def review_lines(review: RentReview) -> Iterator[str]:
    """Yield what a person must see before a machine is rented."""
    offer = review.offer
    yield clean(f"rent {review.box} at {offer.kind} ({review.account}): offer {offer.id}") + "\n\n"
    parts = (
        ("costs", review.costs),
        ("platform", _platform(offer.kind)),
        ("note", offer.notes),
        ("will send", (review.will_send,)),
    )
    for title, texts in parts:
        shown = title
        for text in texts:
            yield columns([(shown, SUBJECT, "dim")], text)
            shown = ""
    yield "\n"


def _platform(kind: str) -> tuple[str, ...]:
    """Return what the platform's profile says before money runs there, such as what binds a volume to its region."""
    try:
        return before_renting(load_profile(kind))
    except ProfileError:
        return ("unknown: it has no profile",)


def answer_json(
    box: str,
    review: RentReview | None,
    found: Search | None,
    reasons: tuple[str, ...],
    code: int,
    *,
    token: str = "",
    machine: Instance | None = None,
) -> None:
    """Print what scripts read: one object."""
    body: dict[str, object] = {
        "ok": code == 0,
        "exit": code,
        "box": box,
        "reasons": reasons,
        "digest": review.digest if review is not None else "",
        "phrase": review.phrase if review is not None else "",
        "request": review.will_send if review is not None else "",
        "account": review.account if review is not None else "",
        "offer": review.offer if review is not None else None,
        "costs": review.costs if review is not None else (),
        "token": token,
        "machine": machine,
    }
    if found is not None:
        body["candidates"] = [candidate.offer for candidate in found.candidates]
        body["troubles"] = found.troubles
    print_json(body)
