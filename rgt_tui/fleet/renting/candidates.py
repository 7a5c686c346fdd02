"""The offers that match a request: several accounts merged in one order, each with its full price."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence

import msgspec

from rgt_tui.model import Offer, ProviderRef, Wish
from rgt_tui.providers import KINDS, AuthError, Market, ProviderError, Providers

TOKEN_NAME = 18
"""Letters of a box's name in its token; with the rest, the token has no more than 40."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One offer, and the account that would pay."""

    ref: ProviderRef
    """Any machine of the account."""
    offer: Offer


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An account of which no offers could be had."""

    kind: str
    text: str
    no_key: bool = False
    """There is none: whoever did not name this provider does not miss it."""
    refused: bool = False
    """The platform was not asked, since it cannot fulfil such a wish."""
    no_market: bool = False
    """It rents nothing by its API."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    candidates: tuple[Candidate, ...] = ()
    """The cheapest first, compute and disk together; in another currency than the wish's after those in it, and at a
    price that nobody tells last."""
    troubles: tuple[Trouble, ...] = ()
    answered: tuple[str, ...] = ()
    """Kinds of the providers that were asked and said what they offer, each once; perhaps nothing that fits."""

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Kinds of those that were asked, and of whose offers nothing is known."""
        silent = [one.kind for one in self.troubles if not (one.refused or one.no_key)]
        return tuple(dict.fromkeys(silent))


def market_of(providers: Providers, ref: ProviderRef) -> Market:
    """Return what rents machines of an account.

    Raises:
        ProviderError: nothing does: a person does that on the platform's console.
        UnknownProvider: there is no adapter.
    """
    market = providers.account(ref).market()
    if market is None:
        raise ProviderError(
            f"{ref.kind} rents no machines by its API; use its console, then rgt add", sent=False
        )
    return market


async def search(providers: Providers, refs: Sequence[ProviderRef], wish: Wish) -> Search:
    """Ask accounts side by side for what fits a wish."""

    async def one(ref: ProviderRef) -> tuple[list[Candidate], list[Trouble]]:
        try:
            market = market_of(providers, ref)
        except ProviderError as error:
            return [], [Trouble(kind=ref.kind, text=str(error), refused=True, no_market=True)]
        try:
            offers = await market.offers(wish)
        except ProviderError as error:
            no_key = isinstance(error, AuthError) and not error.sent
            refused = not error.sent and not no_key and error.status is None
            return [], [Trouble(kind=ref.kind, text=str(error), no_key=no_key, refused=refused)]
        return [Candidate(ref=ref, offer=offer) for offer in offers], []

    parts = await asyncio.gather(*(one(ref) for ref in refs))
    found = [candidate for some, _ in parts for candidate in some]
    answered = [ref.kind for ref, (_, troubles) in zip(refs, parts, strict=True) if not troubles]
    return Search(
        candidates=tuple(sorted(found, key=lambda one: _rank(one.offer, wish))),
        troubles=tuple(trouble for _, some in parts for trouble in some),
        answered=tuple(dict.fromkeys(answered)),
    )


def _rank(offer: Offer, wish: Wish) -> tuple[bool, bool, float]:
    price = offer.per_hour
    return price is None, offer.currency != wish.currency, price or 0.0


def renting_accounts(
    providers: Providers, kinds: Sequence[str], refs: Sequence[ProviderRef]
) -> list[ProviderRef]:
    """Return a machine of each account to be asked: of these kinds, else those of the fleet that rent, else all.

    Args:
        providers: Knows which of them rent.
        kinds: What the person named; empty = nothing.
        refs: The machines of the fleet file.
    """
    rent = [ref for ref in refs if providers.account(ref).market() is not None]
    found: dict[tuple[str, str], ProviderRef] = {}
    for kind in kinds or dict.fromkeys(ref.kind for ref in rent) or KINDS:
        own = [ref for ref in refs if ref.kind == kind] or [ProviderRef(kind=kind, instance="")]
        for ref in own:
            found.setdefault((ref.kind, ref.account), ref)
    return list(found.values())


def new_token(box: str) -> str:
    """Return a random token for a box's creation: up to 40 characters of ``a-z0-9-``, the box's name among them."""
    name = re.sub(r"[^a-z0-9]+", "-", box.lower()).strip("-")[:TOKEN_NAME].strip("-") or "box"
    return f"rgt-{name}-{secrets.token_hex(8)}"
