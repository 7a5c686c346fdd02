"""Watch a fleet just long enough to know how every box stands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from rgt_tui.cli.composing import make_fleet
from rgt_tui.fleet.engine import Fleet
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.fleet import FleetState

QUIET_SECONDS = 1.0
"""What a box tells at first (queue, logs, curves) is over when nothing of it has come for so long."""
LOOK_SECONDS = 0.1
STOP_SECONDS = 8.0
"""The history takes up to five to be written."""
ENDED = (Link.UNREACHABLE, Link.REFUSED_KEY, Link.REFUSED_LOGIN, Link.PAUSED)
"""A first try that ended so is an answer: a command that is run once does not wait for the next one."""


class Settling:
    """Follows the states of a fleet and knows which boxes have told all that they tell at first.

    Args:
        now: A monotonic clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[str, tuple[object, ...]] = {}
        self._since: dict[str, float] = {}

    def look(self, state: FleetState) -> None:
        """Take in a new state."""
        for box in state.boxes:
            name = box.spec.name
            told = (box.hello, box.queues, box.runs, box.checkpoints, box.logs, box.meter.at, box.meter.error)
            if name not in self._seen or any(
                new is not old for new, old in zip(told, self._seen[name], strict=True)
            ):
                self._seen[name] = told
                self._since[name] = self._now()

    def settled(self, box: BoxState) -> bool:
        """Tell whether there is nothing more to wait for."""
        if box.link in ENDED:
            return True
        if box.link is not Link.LIVE or box.sample is None or box.remembered_at is not None:
            return False
        if box.spec.provider is not None and box.meter.at is None and box.meter.error is None:
            return False
        return self._now() - self._since.get(box.spec.name, self._now()) >= QUIET_SECONDS


async def settle(fleet: Fleet, seconds: float) -> FleetState:
    """Wait until every box of a started fleet has told all, or the time is up; return the newest state."""
    settling = Settling()
    settling.look(fleet.state)
    unsubscribe = fleet.subscribe(settling.look)
    try:
        async with asyncio.timeout(seconds):
            # Quiet is told by the clock alone: there is nothing that could be awaited for it.
            while not all(settling.settled(box) for box in fleet.state.boxes):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        pass
    finally:
        unsubscribe()
    return fleet.state


async def gather(
    specs: Sequence[BoxSpec],
    seconds: float,
    *,
    accept_new_host_keys: bool = False,
    alerts: AlertSettings | None = None,
) -> FleetState:
    """Connect to boxes once and return what they told within `seconds`; every box is in it, reached or not."""
    fleet = make_fleet(specs, accept_new_host_keys=accept_new_host_keys, alerts=alerts)
    await fleet.start()
    try:
        return await settle(fleet, seconds)
    finally:
        await stop(fleet)


async def stop(fleet: Fleet) -> None:
    """Disconnect, and do not wait for a box that does not let go."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(fleet.stop(), STOP_SECONDS)
