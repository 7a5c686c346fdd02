"""When nothing comes: who is asked, when it is given up, and what counts as a sign of life."""

from __future__ import annotations

import asyncio

import pytest

from rgt_tui.fleet import keepalive
from rgt_tui.fleet.keepalive import Keepalive


class World:
    """A stream whose patience is a few milliseconds."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.asked = 0
        self.reasons: list[str] = []
        self.news = asyncio.Event()
        self.silence = Keepalive(lambda: 0.01, self._ask, self._cut)

    def _ask(self) -> None:
        self.asked += 1
        self.news.set()
        if self.answers:
            self.silence.heard()

    def _cut(self, reason: str) -> None:
        self.reasons.append(reason)
        self.news.set()

    async def until_news(self) -> None:
        async with asyncio.timeout(90):
            await self.news.wait()
        self.news.clear()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "HUNG_SECONDS", 0.01)
    monkeypatch.setattr(keepalive, "WOKEN_SECONDS", 0.01)


async def test_one_that_says_nothing_is_asked_and_then_given_up() -> None:
    world = World(answers=False)
    world.silence.begin()
    await world.until_news()
    assert (world.asked, world.reasons) == (1, [])
    await world.until_news()
    (reason,) = world.reasons
    assert reason.endswith("does not answer: it hangs")
    world.silence.end()
    assert world.silence.lived == 0.0, "a wait for what says nothing is no life"


async def test_one_that_answers_is_asked_again_and_kept() -> None:
    world = World(answers=True)
    world.silence.begin()
    for _ in range(3):
        await world.until_news()
    world.silence.end()
    assert (world.asked, world.reasons) == (3, [])
    assert world.silence.lived > 0.0


async def test_after_a_sleep_it_is_asked_at_once() -> None:
    world = World(answers=False)
    world.silence.begin()
    world.silence.woke()
    assert world.asked == 1
    world.news.clear()
    await world.until_news()
    assert len(world.reasons) == 1
    world.silence.end()


async def test_an_end_ends_the_waiting() -> None:
    world = World(answers=False)
    world.silence.begin()
    world.silence.end()
    await asyncio.sleep(0.03)
    assert (world.asked, world.reasons) == (0, [])
