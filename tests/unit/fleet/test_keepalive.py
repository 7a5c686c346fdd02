"""When nothing comes: who is asked, when it is given up, and what counts as a sign of life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rgt_tui.fleet import Keepalive, connector


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
            self.silence.record_data()

    def _cut(self, reason: str) -> None:
        self.reasons.append(reason)
        self.news.set()

    async def until_news(self) -> None:
        async with asyncio.timeout(90):
            await self.news.wait()
        self.news.clear()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, hung_s=0.01))
    monkeypatch.setattr(connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, woken_s=0.01))


async def test_one_that_says_nothing_is_asked_and_then_given_up() -> None:
    world = World(answers=False)
    world.silence.start_monitoring()
    await world.until_news()
    assert (world.asked, world.reasons) == (1, [])
    await world.until_news()
    (reason,) = world.reasons
    assert reason.endswith("does not answer: it hangs")
    world.silence.stop_monitoring()
    assert world.silence.lived_seconds == 0.0, "a wait for what says nothing is no life"


async def test_one_that_answers_is_asked_again_and_kept() -> None:
    world = World(answers=True)
    world.silence.start_monitoring()
    for _ in range(3):
        await world.until_news()
    world.silence.stop_monitoring()
    assert (world.asked, world.reasons) == (3, [])
    assert world.silence.lived_seconds > 0.0


async def test_after_a_sleep_it_is_asked_at_once() -> None:
    world = World(answers=False)
    world.silence.start_monitoring()
    world.silence.query_after_sleep()
    assert world.asked == 1
    world.news.clear()
    await world.until_news()
    assert len(world.reasons) == 1
    world.silence.stop_monitoring()


async def test_an_end_ends_the_waiting() -> None:
    world = World(answers=False)
    world.silence.start_monitoring()
    world.silence.stop_monitoring()
    await asyncio.sleep(0.03)
    assert (world.asked, world.reasons) == (0, [])


async def test_those_that_speak_share_a_timer_and_one_that_falls_silent_is_asked_to_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time is what the test says; the loop's timers are called when it has come."""
    timers: list[tuple[float, Callable[..., None], tuple[object, ...]]] = []
    loop, now = asyncio.get_running_loop(), [100.0]
    monkeypatch.setattr("rgt_tui.fleet.connector.time.monotonic", lambda: now[0])

    def call_later(
        seconds: float, call: Callable[..., None], *given: object
    ) -> asyncio.TimerHandle:
        timers.append((now[0] + seconds, call, given))
        return asyncio.TimerHandle(0.0, call, given, loop)

    monkeypatch.setattr(loop, "call_later", call_later)
    asked: list[float] = []
    boxes = [
        Keepalive(lambda: 3.0, lambda: asked.append(now[0]), lambda reason: None) for _ in range(50)
    ]
    for box in boxes:
        box.start_monitoring()
    made = 0
    while now[0] < 110.0 or len(asked) < 2:
        at, call, given = min(timers, key=lambda timer: timer[0])
        timers.remove((at, call, given))
        now[0], before = at, len(timers)
        call(*given)
        made += max(0, len(timers) - before)
        for box in boxes[2:] if now[0] > 104.2 else boxes[1:]:
            box.record_data()
    assert asked == [pytest.approx(103.0), pytest.approx(100.0 + boxes[1].lived_seconds + 3.0)]
    assert made < 3 * (now[0] - 100.0), "a timer for each"
    for box in boxes:
        box.stop_monitoring()


async def test_one_that_ended_is_not_looked_at_in_the_next_round() -> None:
    world = World(answers=False)
    world.silence = Keepalive(lambda: 3.0, world._ask, world._cut)
    world.silence.start_monitoring()
    rounds = connector._rounds[asyncio.get_running_loop()]
    assert world.silence in rounds._due
    world.silence.stop_monitoring()
    assert world.silence not in rounds._due
