"""Reads a platform's list page by page, and never takes a part of it for the complete list.

A machine that a list lacks may be called gone, and a creation whose answer was lost may be called not done: both need
the complete list. So every doubt is an error: a next page that cannot be requested, a cursor that repeats, fewer things
than the list says that it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec

from rgt_tui.model import Leftover
from rgt_tui.providers.control_plane import AuthError, ProviderError
from rgt_tui.providers.http import Answer

MOST_PAGES = 100
"""A list with more pages than this is a mistake of the server, or of ours."""
NEXT_NAMES = frozenset(
    ("next", "nexttoken", "nextcursor", "nextpage", "nextpagetoken", "pagetoken", "hasmore", "hasnextpage")
)
"""Keys by which a page says that there is another one, in small letters and without underscores."""
ENVELOPES = frozenset(("pagination", "page", "pages", "paging", "meta", "metadata", "links"))
"""Keys of objects in which platforms put such a key."""


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
