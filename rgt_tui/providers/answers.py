"""Parses a provider's answers field by field, and decides what they prove.

``ANSWERS`` of a provider's module has a row per verb, with only what the vendor documents. Anything
without a row counts as sent with an unknown outcome: a 2xx with an unreadable body, a redirect, a
timeout, a server error, a cut connection.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, FrozenStruct, Leftover
from rgt_tui.providers.control_plane import AuthError, PermitRefused, ProviderError, make_printable
from rgt_tui.providers.registry import module_of

if TYPE_CHECKING:
    from rgt_tui.providers.http import HttpAnswer

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
"""Keys that announce a next page, in lower case without underscores."""
ENVELOPES = frozenset(("pagination", "page", "pages", "paging", "meta", "metadata", "links"))
"""Keys of objects in which platforms put such a key."""


class AnswerProof(enum.StrEnum):
    """What an answer other than the documented success proves."""

    NOTHING = "nothing"
    """The machine is unchanged."""
    ASK = "ask"
    """The machine's state did not allow it, or it does not exist: reading it and the list decides.
    """
    MAYBE = "maybe"
    """It may have been done."""


Answers = Mapping[BillingVerb, Mapping[int | str, AnswerProof]]
"""Verb → HTTP status, or the error's own code in the body → what it proves."""
ANYWHERE: dict[int | str, AnswerProof] = {404: AnswerProof.ASK, 409: AnswerProof.ASK}
"""Defaults for rows without these: not found, and a state that does not allow the action."""
_RUNPOD_CREATION: dict[int | str, AnswerProof] = dict.fromkeys(
    (400, 401, 402, 403, 404, 422, 429), AnswerProof.NOTHING
)
"""400: an invalid request or no capacity, 402: the balance; a 5xx may arrive after the pod was
made, and billed. https://docs.runpod.io/api-reference-v2/pods/create-a-pod (verified 2026-08),
https://github.com/transformerlab/transformerlab-app/issues/2305 (verified 2026-06)
"""
CREATIONS: dict[str, dict[int | str, AnswerProof]] = {
    # 422: no such size now, or the droplet limit: https://docs.digitalocean.com/reference/api/
    # (verified 2026-08).
    "digitalocean": dict.fromkeys((401, 403, 422, 429), AnswerProof.NOTHING),
    # https://docs.lambda.ai/api/cloud (verified 2026-08); errors of Lambda's own provider
    # (``provider/…``) prove nothing.
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
        AnswerProof.NOTHING,
    ),
    # The answer for lack of capacity is undocumented: it can be a 200 with a machine that stays
    # off.
    "paperspace-core": dict.fromkeys(
        ("BAD_REQUEST", "UNAUTHORIZED", "FORBIDDEN", "TOO_MANY_REQUESTS", 401, 403, 429),
        AnswerProof.NOTHING,
    ),
    "runpod": _RUNPOD_CREATION,
    # https://docs.vast.ai/api-reference/instances/create-instance (verified 2026-08); an error that
    # names a new contract has made one, and is no error (`rgt_tui.providers.rented_market`).
    "vastai": {
        "auth_error": AnswerProof.NOTHING,
        "invalid_args": AnswerProof.NOTHING,
        "invalid_price": AnswerProof.NOTHING,
        "no_ssh_key_for_vm": AnswerProof.NOTHING,
        "no_such_ask": AnswerProof.NOTHING,
        401: AnswerProof.NOTHING,
        403: AnswerProof.NOTHING,
        429: AnswerProof.NOTHING,
    },
}
"""``kind`` of the provider → status or code of the answer to a creation → what it proves.
`AnswerProof.ASK`: search for the machine.
"""


def answers_of(kind: str) -> Answers:
    """Return what a provider's answers prove: the ``ANSWERS`` of its module.

    Empty for an unknown kind.
    """
    found: Answers = getattr(module_of(kind), "ANSWERS", {})
    return found


def action_proof(kind: str, verb: BillingVerb, error: ProviderError | PermitRefused) -> AnswerProof:
    """Return what an error of a call proves."""
    return _choose_proof({**ANYWHERE, **answers_of(kind).get(verb, {})}, error)


def creation_proof(kind: str, error: ProviderError | PermitRefused) -> AnswerProof:
    """Return what an error of a creation proves. Without a row, the machine may exist, and bill."""
    return _choose_proof(CREATIONS.get(kind, {}), error)


def _choose_proof(
    row: dict[int | str, AnswerProof], error: ProviderError | PermitRefused
) -> AnswerProof:
    if isinstance(error, PermitRefused) or not error.sent:
        return AnswerProof.NOTHING
    # The code in the body is more specific than the status, which some platforms leave at 200.
    return row.get(error.code) or row.get(error.status or 0, AnswerProof.MAYBE)


Parts = tuple[tuple[str, float | None], ...]
"""Billed parts: name, and price per hour; None = unknown price."""


def sum_known_parts(parts: Parts) -> tuple[float | None, tuple[str, ...]]:
    """Return the known sum of the parts (None if nothing is known), and the unpriced parts."""
    rates = [rate for _, rate in parts if rate is not None]
    unpriced = tuple(name for name, rate in parts if rate is None)
    return (None if unpriced and not sum(rates) else sum(rates)), unpriced


MOST = 1e18
"""Maximum of any price or size; sums of such numbers stay finite."""


def parse_number(value: object) -> float | None:
    """Return a price or size given as number or string; None if it is below 0 or above `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    if 0 <= result <= MOST:
        return result
    return None


def parse_signed(value: object) -> float | None:
    """Return a sum of money, which may be negative.

    None if it is not a number, or beyond `MOST`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) <= MOST:
        return float(value)
    return None


def parse_count(value: object) -> int | None:
    """Return a count of one or more; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
        return value
    return None


def parse_port(value: object) -> int | None:
    """Return a port given as number or string; None for anything else."""
    found = parse_number(value)
    if found is not None and found.is_integer() and 0 < found < 65536:
        return int(found)
    return None


def parse_bool(value: object) -> bool | None:
    """Return a boolean; None for anything else."""
    if isinstance(value, bool):
        return value
    return None


def parse_text(value: object, limit: int = 120) -> str | None:
    """Return printable text; None if it is not text, or empty."""
    if isinstance(value, str):
        return make_printable(value, limit) or None
    return None


def parse_time(value: object, zone: tzinfo | None = None) -> float | None:
    """Return the Unix time of an ISO 8601 time; None for anything else.

    Args:
        value: Value of the answer.
        zone: Time zone of a time without one. None = such a time is unknown: if it were hours too
            late, results of those hours would be mistaken for files of the image.
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
    """Return a Unix time that can be a machine's; None for anything else.

    Times before 1970 or far in the future are invalid, and some cannot be converted to a date.
    """
    found = parse_number(value)
    if found is not None and 0 < found < 2**33:
        return found
    return None


def as_object(value: object) -> dict[str, object]:
    """Return a JSON object; an empty one for anything else, including null."""
    if isinstance(value, dict):
        return value
    return {}


def as_array(value: object) -> list[object]:
    """Return a JSON array; an empty one for anything else, including null."""
    if isinstance(value, list):
        return value
    return []


# Reads a platform's list page by page, and never mistakes a part for the complete list.
#
# A machine missing in a list may be reported gone, and a creation without an answer reported not
# done: both need the complete list. So every doubt is an error: a next page that cannot be
# requested, a repeated cursor, fewer items than the list announces.


class ListPage(FrozenStruct):
    """One page of a list."""

    items: object
    """The answer's value in place of the list's items."""
    following: str | None
    """Cursor of the next page; None = this is the last; empty = there is one that cannot be
    requested.
    """
    answer: HttpAnswer
    total: float | None = None
    """The list's own item count; None = not given, or a count of something else."""


async def read_pages(
    read: Callable[[str | None], Awaitable[ListPage]],
    what: str,
    odd: Callable[[str], ProviderError],
) -> tuple[object, ...]:
    """Return all items of a list.

    Args:
        read: Requests the page of a cursor; None = the first page.
        what: Name of the items, for messages.
        odd: Makes the error for an undocumented answer.

    Raises:
        ProviderError: it is not certain that this is the complete list.
    """
    found: list[object] = []
    cursor: str | None = None
    requested: set[str] = set()
    for _ in range(MOST_PAGES):
        page = await read(cursor)
        if not isinstance(page.items, list):
            raise odd(translate("a list of {what} without the {what}", what=what))
        found += page.items
        if page.following is None:
            if names_next_page(page.answer):
                raise odd(
                    translate(
                        "a part of the list of {what}, whose next page cannot be requested",
                        what=what,
                    )
                )
            if page.total is not None and page.total > len(found):
                raise odd(f"{len(found)} {what} of {page.total:.0f}")
            return tuple(found)
        cursor = page.following
        if not cursor or cursor in requested:
            raise odd(
                translate(
                    "a part of the list of {what}, whose next page cannot be requested", what=what
                )
            )
        requested.add(cursor)
    raise odd(translate("a list of {what} of more than {most} pages", what=what, most=MOST_PAGES))


async def read_optional(
    lists: Mapping[str, Callable[[], Awaitable[Iterable[Leftover]]]],
) -> tuple[tuple[Leftover, ...], tuple[str, ...]]:
    """Return the items of lists that a key may lack the right for, and which lists are unreadable.

    Args:
        lists: Name of the items → function that reads the list.

    Raises:
        ProviderError: a list could not be read for another reason.
    """
    found: list[Leftover] = []
    gaps: list[str] = []
    for name, read in lists.items():
        try:
            found += await read()
        except AuthError as error:
            # A wrong key gets 401; a valid one without this right gets 403.
            if error.status != 403:
                raise
            gaps.append(translate("{name} (the key may not list them)", name=name))
    return tuple(found), tuple(gaps)


def read_single_page(
    answer: HttpAnswer, items: object, what: str, odd: Callable[[str], ProviderError]
) -> list[object]:
    """Return the items of a list that has no pages according to the platform's documentation.

    Raises:
        ProviderError: the list is missing, or names a next page.
    """
    if not isinstance(items, list):
        raise odd(translate("a list of {what} without the {what}", what=what))
    if names_next_page(answer):
        raise odd(
            translate(
                "a part of the list of {what}, whose next page cannot be requested", what=what
            )
        )
    return items


def names_next_page(answer: HttpAnswer) -> bool:
    """Return whether an answer announces a next page, by a usual key or a header."""
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
