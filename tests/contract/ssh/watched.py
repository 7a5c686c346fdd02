"""One box in a real fleet engine, and a way to wait for its states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from rgt_tui.fleet import Fleet
from rgt_tui.model import BoxSpec, BoxState, FleetState


class Watched:
    """A fleet of few boxes; `asks` says whether its questions are answered by the test."""

    def __init__(
        self, boxes: BoxSpec | Sequence[BoxSpec], folder: Path, *, asks: bool = False
    ) -> None:
        specs = (boxes,) if isinstance(boxes, BoxSpec) else tuple(boxes)
        self._first = specs[0].name
        self._news = asyncio.Event()
        self.fleet = Fleet(specs, audit=folder / "audit.jsonl", env={}, asks=asks)
        self.fleet.subscribe(lambda _: self._news.set())

    async def start(self) -> None:
        await self.fleet.start()

    async def close(self) -> None:
        await self.fleet.stop()

    def box(self, name: str | None = None) -> BoxState:
        wanted = self._first if name is None else name
        return next(box for box in self.fleet.state.boxes if box.spec.name == wanted)

    async def until(
        self, condition: Callable[[BoxState], bool], name: str | None = None
    ) -> BoxState:
        await self.fleet_until(lambda _: condition(self.box(name)))
        return self.box(name)

    async def fleet_until(self, condition: Callable[[FleetState], bool]) -> FleetState:
        try:
            async with asyncio.timeout(60):
                while not condition(self.fleet.state):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            said = [f"{box.spec.name}: {box.link}: {box.reason}" for box in self.fleet.state.boxes]
            raise AssertionError(f"it did not come about: {said}") from None
        return self.fleet.state
