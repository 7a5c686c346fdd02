"""Reads a provider's answers field by field, and decides what they prove.

``ANSWERS`` of a provider's module has a row per verb, which holds what the vendor documents and nothing else. Whatever
no row names was sent, and its outcome is unknown: a 2xx whose body cannot be read, a redirect, a time-out, a
server error, a connection that was cut.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

import msgspec

from rgt_tui.model import Leftover, Verb
from rgt_tui.providers.control_plane import AuthError, PermitRefused, ProviderError, printable
from rgt_tui.providers.registry import module_of

if TYPE_CHECKING:
    from rgt_tui.providers.http import Answer

MOST_PAGES = 100
"""A list with more pages than this is a mistake of the server, or of ours."""
NEXT_NAMES = frozenset(
    (
        "next",
        "nexttoken",
        "nextcursor",
        "nextpage",
        "nextpagetoken",
        "pagetoken",
        "hasmore",
        "hasnextpage",
    )
)
"""Keys by which a page says that there is another one, in small letters and without underscores."""
ENVELOPES = frozenset(("pagination", "page", "pages", "paging", "meta", "metadata", "links"))
"""Keys of objects in which platforms put such a key."""


class Proof(enum.StrEnum):
    """What follows from an answer that is not the documented success."""

    NOTHING = "nothing"
    """The machine is as it was."""
    ASK = "ask"
    """The machine's state did not allow it, or it is not there: reading it and the list settle what is so."""
    MAYBE = "maybe"
    """It may have been done."""


Answers = Mapping[Verb, Mapping[int | str, Proof]]
"""Verb → HTTP status, or the error's own code in the body → what it proves."""
ANYWHERE: dict[int | str, Proof] = {404: Proof.ASK, 409: Proof.ASK}
"""Where a row says nothing of these: not there, and a state that does not allow it."""
_RUNPOD_CREATION: dict[int | str, Proof] = dict.fromkeys(
    (400, 401, 402, 403, 404, 422, 429), Proof.NOTHING
)
"""400: a rule broken or no capacity, 402: the balance; a 5xx may come after the pod was made, and billed.

https://docs.runpod.io/api-reference-v2/pods/create-a-pod (verified 2026-08),
https://github.com/transformerlab/transformerlab-app/issues/2305 (verified 2026-06)
"""
CREATIONS: dict[str, dict[int | str, Proof]] = {
    # 422: no such size now, or the limit of droplets: https://docs.digitalocean.com/reference/api/ (verified 2026-08).
    "digitalocean": dict.fromkeys((401, 403, 422, 429), Proof.NOTHING),
    # https://docs.lambda.ai/api/cloud (verified 2026-08); what the provider behind Lambda says (``provider/…``) proves
    # nothing.
    "lambda": dict.fromkeys(
        (
            "instance-operations/launch/insufficient-capacity",
            "instance-operations/launch/file-system-in-wrong-region",
            "global/quota-exceeded",
            "global/invalid-parameters",
            "global/invalid-api-key",
            "global/account-inactive",
            "global/invalid-address",
            "global/object-does-not-exist",
            401,
            403,
            429,
        ),
        Proof.NOTHING,
    ),
    # What a lack of capacity is answered with is not documented: it can be a 200 and a machine that stays off.
    "paperspace-core": dict.fromkeys(
        ("BAD_REQUEST", "UNAUTHORIZED", "FORBIDDEN", "TOO_MANY_REQUESTS", 401, 403, 429),
        Proof.NOTHING,
    ),
    "runpod": _RUNPOD_CREATION,
    # https://docs.vast.ai/api-reference/instances/create-instance (verified 2026-08); an error that names a new
    # contract has made one, and is no error (`rgt_tui.providers.rented_market`).
    "vastai": {
        "auth_error": Proof.NOTHING,
        "invalid_args": Proof.NOTHING,
        "invalid_price": Proof.NOTHING,
        "no_ssh_key_for_vm": Proof.NOTHING,
        "no_such_ask": Proof.NOTHING,
        401: Proof.NOTHING,
        403: Proof.NOTHING,
        429: Proof.NOTHING,
    },
}
"""``kind`` of the provider → status or code of the answer to a creation → what it proves. `Proof.ASK`: look for it."""


def answers_of(kind: str) -> Answers:
    """Return what a provider's answers prove: the ``ANSWERS`` of its module; nothing for an unknown kind."""
    found: Answers = getattr(module_of(kind), "ANSWERS", {})
    return found


def proof(kind: str, verb: Verb, error: ProviderError | PermitRefused) -> Proof:
    """Return what follows from the trouble with a call."""
    return _proof({**ANYWHERE, **answers_of(kind).get(verb, {})}, error)


def creation_proof(kind: str, error: ProviderError | PermitRefused) -> Proof:
    """Return what an error of a creation proves; without a row the machine may exist, and bill."""
    return _proof(CREATIONS.get(kind, {}), error)


def _proof(row: dict[int | str, Proof], error: ProviderError | PermitRefused) -> Proof:
    if isinstance(error, PermitRefused) or not error.sent:
        return Proof.NOTHING
    # The code in the body says more than the status, which some platforms leave at 200.
    return row.get(error.code) or row.get(error.status or 0, Proof.MAYBE)


Parts = tuple[tuple[str, float | None], ...]
"""What is billed: its name, and its price an hour; None = at a price that nobody said."""


def known_sum(parts: Parts) -> tuple[float | None, tuple[str, ...]]:
    """Return what the parts cost as far as known, and which have no known price; None: not one is known."""
    rates = [rate for _, rate in parts if rate is not None]
    unpriced = tuple(name for name, rate in parts if rate is None)
    return (None if unpriced and not sum(rates) else sum(rates)), unpriced


MOST = 1e18
"""No price or size is beyond it; sums of such numbers stay finite."""


def number(value: object) -> float | None:
    """Return a price or size that comes as number or string; None for what is below 0, or beyond `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    if 0 <= result <= MOST:
        return result
    return None


def signed(value: object) -> float | None:
    """Return a sum of money, which may be below zero; None for what is no number, or beyond `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) <= MOST:
        return float(value)
    return None


def whole(value: object) -> int | None:
    """Return a count of one or more; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
        return value
    return None


def port(value: object) -> int | None:
    """Return a port that comes as number or string; None for anything else."""
    found = number(value)
    if found is not None and found.is_integer() and 0 < found < 65536:
        return int(found)
    return None


def said(value: object) -> bool | None:
    """Return true or false; None for anything else."""
    if isinstance(value, bool):
        return value
    return None


def text(value: object, limit: int = 120) -> str | None:
    """Return printable words; None for what is no text, and for an empty one."""
    if isinstance(value, str):
        return printable(value, limit) or None
    return None


def when(value: object, zone: tzinfo | None = None) -> float | None:
    """Return the epoch seconds of an ISO 8601 time; None for anything else.

    Args:
        value: Of the answer.
        zone: Of a time that names none. None = such a time is unknown: hours too late, it would take the results of
            these hours for files of the image.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None and zone is None:
            return None
        result = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None
    return moment_of(result)


def moment_of(value: object) -> float | None:
    """Return epoch seconds that can be a machine's time; None for anything else.

    Years in which no machine was made are nonsense, and some cannot be turned back into a date.
    """
    found = number(value)
    if found is not None and 0 < found < 2**33:
        return found
    return None


def table(value: object) -> dict[str, object]:
    """Return a JSON object; an empty one for anything else, null included."""
    if isinstance(value, dict):
        return value
    return {}


def array(value: object) -> list[object]:
    """Return a JSON array; an empty one for anything else, null included."""
    if isinstance(value, list):
        return value
    return []


# Reads a platform's list page by page, and never takes a part of it for the complete list.
#
# A machine that a list lacks may be called gone, and a creation whose answer was lost may be called not done:
# both need the complete list. So every doubt is an error: a next page that cannot be requested, a cursor that
# repeats, fewer things than the list says that it has.


class Page(msgspec.Struct, frozen=True):
    """One page of a list."""

    items: object
    """What the answer has where the things of the list belong."""
    following: str | None
    """Cursor of the next page; None = this is the last one; empty = there is one, and it cannot be requested."""
    answer: Answer
    total: float | None = None
    """How many things the list has by its own count; None = not said, or another count than that of this list."""


async def read_pages(
    read: Callable[[str | None], Awaitable[Page]], what: str, odd: Callable[[str], ProviderError]
) -> tuple[object, ...]:
    """Return everything that a list has.

    Args:
        read: Requests the page of a cursor; None = the first page.
        what: Name of the things in the list, for messages.
        odd: Makes the error for an answer that is not what the platform documents.

    Raises:
        ProviderError: it is not certain that this is the complete list.
    """
    found: list[object] = []
    cursor: str | None = None
    requested: set[str] = set()
    for _ in range(MOST_PAGES):
        page = await read(cursor)
        if not isinstance(page.items, list):
            raise odd(f"a list of {what} without the {what}")
        found += page.items
        if page.following is None:
            if names_next_page(page.answer):
                raise odd(f"a part of the list of {what}, whose next page cannot be requested")
            if page.total is not None and page.total > len(found):
                raise odd(f"{len(found)} {what} of {page.total:.0f}")
            return tuple(found)
        cursor = page.following
        if not cursor or cursor in requested:
            raise odd(f"a part of the list of {what}, whose next page cannot be requested")
        requested.add(cursor)
    raise odd(f"a list of {what} of more than {MOST_PAGES} pages")


async def read_optional(
    lists: Mapping[str, Callable[[], Awaitable[Iterable[Leftover]]]],
) -> tuple[tuple[Leftover, ...], tuple[str, ...]]:
    """Return the things of lists that a key may lack the right for, and which of the lists it may not read.

    Args:
        lists: Name of the things → what reads their list.

    Raises:
        ProviderError: a list could not be read for another reason.
    """
    found: list[Leftover] = []
    gaps: list[str] = []
    for name, read in lists.items():
        try:
            found += await read()
        except AuthError as error:
            # 401 is a wrong key; a right one without this right gets a 403.
            if error.status != 403:
                raise
            gaps.append(f"{name} (the key may not list them)")
    return tuple(found), tuple(gaps)


def read_single_page(
    answer: Answer, items: object, what: str, odd: Callable[[str], ProviderError]
) -> list[object]:
    """Return the things of a list that has no pages by the platform's documentation.

    Raises:
        ProviderError: it has no such list, or names a next page.
    """
    if not isinstance(items, list):
        raise odd(f"a list of {what} without the {what}")
    if names_next_page(answer):
        raise odd(f"a part of the list of {what}, whose next page cannot be requested")
    return items


def names_next_page(answer: Answer) -> bool:
    """Return whether an answer says by any usual key, or by a header, that it is not the last page."""
    return answer.more or any(_next_values(answer.data))


def _next_values(data: object) -> Iterator[bool]:
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        name = str(key).replace("_", "").lower()
        if name in NEXT_NAMES:
            yield value not in (None, False, "", 0)
        elif name in ENVELOPES:
            yield from _next_values(value)
