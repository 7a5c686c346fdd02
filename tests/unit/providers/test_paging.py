"""A list is complete only if nothing in its pages says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rgt_tui.providers import BadAnswer, ProviderError
from rgt_tui.providers.answers import MOST_PAGES, ListPage, read_pages, read_single_page
from rgt_tui.providers.http import HttpAnswer


def page(
    items: object, following: str | None, total: float | None = None, **data: object
) -> ListPage:
    return ListPage(items, following, HttpAnswer(200, data, False), total)


async def read_all(pages: Sequence[ListPage]) -> tuple[tuple[object, ...], list[str | None]]:
    asked: list[str | None] = []

    async def read(cursor: str | None) -> ListPage:
        asked.append(cursor)
        return pages[min(len(asked), len(pages)) - 1]

    return await read_pages(read, "pods", BadAnswer), asked


async def test_every_page_is_read_by_the_cursor_of_the_previous_one() -> None:
    found, asked = await read_all([page([1, 2], "b"), page([], "c"), page([3], None, total=3)])
    assert found == (1, 2, 3), "a short page, and one without anything, is not the last one"
    assert asked == [None, "b", "c"]


@pytest.mark.parametrize(
    "pages",
    [
        [page(None, None)],
        [page([1], None, total=2)],
        [page([1], "")],
        [page([1], "a"), page([2], "b"), page([3], "a")],
        [page([1], "a"), page(None, None)],
        [page([1], None, hasMore=True)],
        [page([1], None, pagination={"nextCursor": "x"})],
        [page([1], None, pagination={"hasNextPage": True, "nextCursor": None})],
        [page([1], None, links={"pages": {"next": "https://api.example/?page=2"}})],
        [page([1], None, metadata={"next_page_token": "x"})],
        [ListPage([1], None, HttpAnswer(200, {}, True))],
    ],
)
async def test_a_part_of_a_list_is_never_taken_for_the_list(pages: list[ListPage]) -> None:
    with pytest.raises(ProviderError, match="pods"):
        await read_all(pages)


@pytest.mark.parametrize(
    "end",
    [
        {"hasMore": False},
        {"next_token": None},
        {"links": {"pages": {}}},
        {"pagination": {"nextCursor": ""}},
    ],
)
async def test_the_last_page_says_that_nothing_follows(end: dict[str, Any]) -> None:
    assert (await read_all([page([1], None, **end)]))[0] == (1,)
    assert read_single_page(HttpAnswer(200, end, False), [1], "keys", BadAnswer) == [1]


async def test_a_list_without_an_end_is_given_up() -> None:
    asked = 0

    async def read(cursor: str | None) -> ListPage:
        nonlocal asked
        asked += 1
        return page([asked], str(asked))

    with pytest.raises(ProviderError, match="more than"):
        await read_pages(read, "pods", BadAnswer)
    assert asked == MOST_PAGES


@pytest.mark.parametrize("data", [{"next_token": "x"}, {"meta": {"nextPage": 2}}])
def test_a_list_without_pages_that_names_one_is_incomplete(data: dict[str, object]) -> None:
    with pytest.raises(ProviderError, match="keys"):
        read_single_page(HttpAnswer(200, data, False), [1], "keys", BadAnswer)
