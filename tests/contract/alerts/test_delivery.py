"""Delivery: once, again until it works, one message for many, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rgt_tui.health import SentAlert, SinkDelivery, SinkError, alert_message
from rgt_tui.health import delivery as module
from rgt_tui.model import Alert, AlertEvent, SinkSettings

NOW = 1_790_000_000.0
OURS = ("a@h ",)


class World:
    """A sink that can fail or hang, and what delivery did to it."""

    def __init__(self, **over: Any) -> None:
        self.settings = SinkSettings("bell", **{"name": "bell", **over})
        self.now = NOW
        self.told: dict[str, SentAlert] = {}
        self.sent: list[AlertEvent] = []
        self.troubles: list[str | None] = []
        self.fail: list[Exception] = []
        self.hang = False
        self.changed = asyncio.Condition()
        self.delivery = SinkDelivery(
            self,
            self.settings,
            read=self.read,
            note=self.note,
            trouble=self.troubles.append,
            clock=lambda: self.now,
            gather_s=(0.0, 0.0),
        )

    async def send(self, event: AlertEvent) -> None:
        async with self.changed:
            self.changed.notify_all()
        if self.hang:
            await asyncio.Event().wait()
        if self.fail:
            raise self.fail.pop(0)
        self.sent.append(event)

    async def close(self) -> None:
        """Nothing is held."""

    async def read(self) -> Mapping[str, SentAlert]:
        return dict(self.told)

    async def note(self, news: Mapping[str, SentAlert | None]) -> None:
        for key, what in news.items():
            if what is None:
                self.told.pop(key, None)
            else:
                self.told[key] = what
        async with self.changed:
            self.changed.notify_all()

    def want(self, *ids: str, level: str = "warn") -> None:
        alerts = [Alert(id_, level, "t", word="w") for id_ in ids]
        self.delivery.set_active(
            {f"a@h {a.id}": alert_message("a", a, self.now) for a in alerts}, OURS
        )

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not true():
                async with self.changed:
                    with_timeout: Awaitable[bool] = self.changed.wait()
                    try:
                        await asyncio.wait_for(with_timeout, 0.02)
                    except TimeoutError:
                        continue


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(module, "MARGIN_S", 0.0)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.delivery.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_alert_is_told_once() -> None:
    async with running(World()) as world:
        world.want("x:1", "x:2")
        await world.until(lambda: len(world.told) == 2)
        world.want("x:1", "x:2")
        world.want("x:1", "x:2", "x:3")
        await world.until(lambda: len(world.told) == 3)
        assert [event.id for event in world.sent] == ["x:1", "x:2", "x:3"]


async def test_many_are_one_message() -> None:
    async with running(World(digest_over=3)) as world:
        world.want(*(f"x:{i}" for i in range(40)))
        await world.until(lambda: len(world.told) == 40)
        assert [(event.what, len(event.items)) for event in world.sent] == [("digest", 40)]


async def test_a_failure_is_tried_again_until_it_works_and_said() -> None:
    world = World()
    world.fail = [
        SinkError("host answered 500"),
        ValueError("https://secret/"),
        SinkError("host answered 500"),
    ]
    async with running(world):
        world.want("x:1")
        await world.until(lambda: bool(world.told))
        await world.until(lambda: None in world.troubles)
    assert [event.id for event in world.sent] == ["x:1"]
    assert world.troubles == ["host answered 500", "ValueError", "host answered 500", None]


async def test_a_sink_that_hangs_is_given_up_and_tried_again() -> None:
    world = World(timeout_s=0.05)
    world.hang = True
    async with running(world):
        world.want("x:1")
        await world.until(lambda: bool(world.troubles))
        assert world.troubles[0] == "it does not answer in time"
        world.hang = False
        await world.until(lambda: bool(world.told))


async def test_what_is_over_before_it_could_be_told_is_not_told() -> None:
    world = World()
    world.fail = [SinkError("down")] * 1000  # it is tried again all the time
    async with running(world):
        world.want("x:1")
        await world.until(lambda: bool(world.troubles))
        world.want()
        await world.until(lambda: None in world.troubles)
    assert world.sent == []


async def test_over_is_told_to_who_wants_it() -> None:
    async with running(World(resolved=True)) as world:
        world.want("x:1")
        await world.until(lambda: len(world.sent) == 1)
        world.want()
        await world.until(lambda: len(world.sent) == 2)
        assert [event.what for event in world.sent] == ["raised", "resolved"]


async def test_what_another_rgt_has_told_is_not_told_again() -> None:
    async with running(World()) as world:
        world.told["a@h x:1"] = SentAlert("warn", NOW)
        world.want("x:1", "x:2")
        await world.until(lambda: len(world.told) == 2)
        assert [event.id for event in world.sent] == ["x:2"]


async def test_wanting_never_waits() -> None:
    world = World()
    world.hang = True
    async with running(world):
        for i in range(1000):
            world.want(f"x:{i}")
        await world.until(lambda: True)
    assert world.sent == []
