"""Compares a request with what a platform offers: GPU names, prices, and the order of the matches."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rgt_tui.model.renting import Offer, Wish
from rgt_tui.providers.control_plane import ProviderError, printable

VARIANTS = frozenset(("ti", "super", "d", "laptop", "mobile", "max", "pro", "mig", "sff", "ada", "blackwell"))
"""Words that make another GPU of it: an RTX 3080 is not an RTX 3080 Ti, which costs more and has other memory."""

MAKES = frozenset(("nvidia", "geforce", "quadro", "tesla", "rtx", "gtx", "amd", "instinct"))
"""Who made it and in which line: people say it or leave it out, and so do platforms."""

_WORDS = re.compile(r"[a-z]+[0-9]+[a-z]*|[0-9]+[a-z]*|[a-z]+")
_JOINED = re.compile(r"\b(rtx|gtx)(?=[a-z]?[0-9])")
_MEMORY = re.compile(r"([0-9]+)gi?b?")


def same_gpu(wished: str, native: str, memory_gb: float | None = None) -> bool:
    """Tell whether a platform's own name of a GPU is the model that a person asked for.

    ``A100`` is any A100, ``A100 80GB`` only those, ``RTX 3080`` no RTX 3080 Ti, ``L40`` no L40S.

    Args:
        wished: e.g. ``RTX 4090``; case, spaces, hyphens and underscores do not matter.
        native: e.g. ``NVIDIA GeForce RTX 4090``, ``nvidia_h100``, ``A100-SXM4-80GB``.
        memory_gb: Of one GPU, where the platform says it beside the name.
    """
    asked, has = _words(wished), _words(native)
    sizes = {word for word in asked if _MEMORY.fullmatch(word)}
    model = asked - sizes - MAKES
    if not model or not model <= has or (has - asked) & VARIANTS:
        return False
    return all(_has_size(size, has, memory_gb) for size in sizes)


def _words(name: str) -> set[str]:
    return set(_WORDS.findall(_JOINED.sub(r"\1 ", name.lower().replace("_", " "))))


def _has_size(size: str, words: set[str], memory_gb: float | None) -> bool:
    """Tell whether a memory size such as ``80gb`` is that of the GPU; platforms round it in different ways."""
    wanted = float(_digits(size))
    named = {_digits(word) for word in words if _MEMORY.fullmatch(word)}
    if named:
        return _digits(size) in named
    return memory_gb is not None and abs(memory_gb - wanted) <= 0.1 * wanted


def _digits(size: str) -> str:
    found = _MEMORY.fullmatch(size)
    return found[1] if found else ""


def unknown_gpu(platform: str, wish: Wish, known: Iterable[str], console: str) -> ProviderError:
    """Return the message for a GPU that a platform never offers."""
    names = ", ".join(sorted({printable(name, 60) for name in known})[:40])
    return ProviderError(
        f"{platform} has no GPU called {printable(wish.gpu, 60)!r}; it has: {names or 'none that it names'}",
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
