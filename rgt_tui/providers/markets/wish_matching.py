"""Compares a request with what a platform offers: GPU names, prices, and the order of the matches."""

from __future__ import annotations

from collections.abc import Iterable

from rgt_tui.model import Offer, Wish
from rgt_tui.providers.control_plane import ProviderError, printable


def unknown_gpu(platform: str, wish: Wish, known: Iterable[str], console: str) -> ProviderError:
    """Return the message for a wish that no GPU of a platform fits."""
    names = ", ".join(sorted({printable(name, 60) for name in known})[:40])
    return ProviderError(
        f"{platform} has no GPU that is {printable(wish.gpu, 60)!r}; it has: {names or 'none that it names'}",
        console=console,
    )


def check_wish(platform: str, wish: Wish, *, currency: str, spot: str = "") -> None:
    """Refuse what no offer of a platform could fit, before anything is asked.

    Args:
        platform: Its name, for the message.
        wish: What a person asked for.
        currency: In which the platform bills: a limit in another one cannot be compared.
        spot: Why it rents nothing that may be taken away; empty = it does.

    Raises:
        ProviderError: with what to change; nothing was sent.
    """
    if wish.spot and spot:
        raise ProviderError(f"{spot}; ask for it without spot", sent=False)
    if wish.max_per_hour is not None and wish.currency != currency:
        raise ProviderError(
            f"{platform} bills in {currency}: say the most per hour in {currency}, "
            f"not in {printable(wish.currency, 8)}",
            sent=False,
        )
    if wish.gpu_count < 1 or wish.disk_gb < 0:
        raise ProviderError(
            f"{wish.gpu_count} GPUs with {wish.disk_gb} GB of disk cannot be rented", sent=False
        )


def in_order(offers: Iterable[Offer], wish: Wish) -> tuple[Offer, ...]:
    """Return the offers that cost no more than was said, the cheapest first.

    An offer whose price nobody tells stays, as the last: it is for a person to take or to leave.
    """
    fitting = [
        offer
        for offer in offers
        if wish.max_per_hour is None or offer.per_hour is None or offer.per_hour <= wish.max_per_hour
    ]
    return tuple(
        sorted(
            fitting,
            key=lambda one: (one.per_hour is None, one.per_hour or one.compute_per_hour or 0.0, one.id),
        )
    )
