"""The real engine over many boxes, with an account of every frame and every word that a box's link was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rgt_tui.fleet import BoxSession, engine
from rgt_tui.model import BoxState, FleetState, LinkState, protocol
from tests.torture.agent.tally import Tally


class Ledger:
    """What was seen of every box."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.links: dict[str, list[tuple[LinkState, str]]] = {}
        self.news = asyncio.Event()

    def tally(self, box: str) -> Tally:
        """Return the account of a box."""
        return self.tallies.setdefault(box, Tally())

    def state(self, box: BoxState) -> None:
        """Note the word that a box's link has now."""
        said = self.links.setdefault(box.spec.name, [])
        if not said or said[-1] != (box.link, box.reason):
            said.append((box.link, box.reason))
        self.news.set()

    def since(self, box: str, mark: int) -> list[tuple[LinkState, str]]:
        """Return what was said of a box after the first `mark` words."""
        return self.links.get(box, [])[mark:]

    async def until(
        self, condition: Callable[[], bool], what: Callable[[], str], seconds: float = 60
    ) -> None:
        """Wait for what frames and states bring about."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise AssertionError(
                f"within {seconds:.0f} s it did not come about: {what()}"
            ) from None


def counted(ledger: Ledger, logs: dict[str, str]) -> type[BoxSession]:
    """Return the real session class, which also accounts for each frame before it is folded."""

    class CountedSession(BoxSession):
        def _accept_frame(self, frame: protocol.Frame) -> None:
            name = self.state.spec.name
            ledger.tally(name).take(frame, logs[name])
            super()._accept_frame(frame)
            ledger.news.set()

    return CountedSession


def account(fleet: engine.Fleet, ledger: Ledger) -> None:
    """Note every published state."""

    def take(state: FleetState) -> None:
        for box in state.boxes:
            ledger.state(box)

    fleet.subscribe(take)
