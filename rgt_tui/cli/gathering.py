"""Watch a fleet just long enough to know how every box stands."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from rgt_tui.cli.composing import make_fleet
from rgt_tui.fleet.approach import endpoint_from
from rgt_tui.fleet.engine import Fleet
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.run import RunState

QUIET_SECONDS = 1.0
"""What a box tells at first (queue, logs, curves) is over when nothing of it has come for so long."""
FIRST_LOOK_SECONDS = 15.0
"""An agent that has not said by then that it has read all there is once (an old one, a hung disk) is waited for no
longer."""
LONGEST_SECONDS = 3.0
"""A box that trains goes on telling: after so long its news count as news, and not as what it tells at first."""
BEHIND_SECONDS = 30.0
"""A curve whose newest point is older than this and that still grows is being caught up with."""
LOOK_SECONDS = 0.1
STOP_SECONDS = 8.0
"""The history takes up to five to be written."""
FAILED = (Link.UNREACHABLE, Link.REFUSED_KEY, Link.REFUSED_LOGIN)
"""A first try that ended so is an answer: a command that is run once does not wait for the next one."""
ELSEWHERE = (Link.UNREACHABLE, Link.REFUSED_KEY)
"""After these a session tries the address that the provider tells."""


class Settling:
    """Follows the states of a fleet and knows which boxes have told all that they tell at first.

    Args:
        now: A monotonic clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[str, tuple[object, ...]] = {}
        self._live: dict[str, float] = {}
        """Box → when its first sample came."""
        self._looked: dict[str, float] = {}
        """Box → when its agent had read all there is once."""
        self._news: dict[str, float] = {}
        """Box → when it last told something else than a sample."""
        self._behind: dict[str, float] = {}
        """Box → when a curve last grew by points of long ago."""
        self._tries: dict[str, set[float | None]] = {}
        """Box → when the next try was due, after each that failed."""
        self._told: dict[str, int] = {}
        """Box → how many tries had failed when the provider named another address."""

    def look(self, state: FleetState) -> None:
        """Take in a new state."""
        now = self._now()
        for box in state.boxes:
            name = box.spec.name
            told = (
                box.hello,
                box.queues,
                box.checkpoints,
                box.logs,
                box.meter.at,
                box.meter.error,
                *box.runs,
            )
            before = self._seen.get(name, ())
            self._seen[name] = told
            if len(before) != len(told) or any(a is not b for a, b in zip(before, told, strict=True)):
                self._news[name] = now
                if any(_behind(run, box, state.at) for run in box.runs if run not in before):
                    self._behind[name] = now
            if box.link is Link.LIVE and box.sample is not None:
                self._live.setdefault(name, now)
            if box.looked:
                self._looked.setdefault(name, now)
            if box.link in FAILED:
                self._tries.setdefault(name, set()).add(box.retry_at)
            if _is_elsewhere(box):
                self._told.setdefault(name, len(self._tries.get(name, ())))

    def settled(self, box: BoxState) -> bool:
        """Tell whether there is nothing more to wait for."""
        name, now = box.spec.name, self._now()
        if box.link is Link.PAUSED:
            return True
        if box.spec.provider is not None and box.meter.at is None and box.meter.error is None:
            return False  # the provider knows what no failed connection tells: stopped, gone, moved
        if box.link in FAILED:
            return box.link not in ELSEWHERE or not _is_elsewhere(box) or self._tried_there(name)
        if box.link is not Link.LIVE or name not in self._live or box.remembered_at is not None:
            return False
        if not box.looked and now - self._live[name] < FIRST_LOOK_SECONDS:
            return False
        if now - self._news.get(name, now) >= QUIET_SECONDS:
            return True
        since = max(self._live[name], self._looked.get(name, 0.0), self._behind.get(name, 0.0))
        return now - since >= LONGEST_SECONDS

    def _tried_there(self, name: str) -> bool:
        """Tell whether a try has failed since the provider named another address and the described one failed."""
        return len(self._tries.get(name, ())) > max(1, self._told.get(name, 0))


def _is_elsewhere(box: BoxState) -> bool:
    """Tell whether the provider names an address that is not the described one."""
    told = endpoint_from(box.meter)
    return told is not None and told != (box.spec.host, box.spec.port)


def _behind(run: RunState, box: BoxState, now: float) -> bool:
    """Tell whether the newest point of a run was written long ago."""
    return run.last_at is not None and now + (box.clock_skew or 0.0) - run.last_at > BEHIND_SECONDS


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
