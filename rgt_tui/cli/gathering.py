"""Assembles a fleet for a command, and watches it just long enough to know the state of every box."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rgt_tui.cli.printing import waiting
from rgt_tui.cli.watch_arguments import MetricsArguments, PatrolArguments, StatusArguments
from rgt_tui.fleet import (
    FOR_ONE_QUESTION,
    Alerting,
    Budget,
    Fleet,
    Memory,
    Observer,
    Tap,
    endpoint_from,
    is_priced,
)
from rgt_tui.fleet.config import FleetConfig
from rgt_tui.fleet.config.following import Following
from rgt_tui.gate import audit
from rgt_tui.health import mutes
from rgt_tui.model import AlertSettings, BoxSpec, BoxState, FleetState, Link, MeterKind, RunState
from rgt_tui.profiles import how_many
from rgt_tui.ssh import Policy
from rgt_tui.store import History, history_path

NOISY = ("asyncssh", "httpx", "httpcore")
"""What these write would come between the lines that were asked for."""


def make_fleet(
    specs: Sequence[BoxSpec],
    *,
    accept_new_host_keys: bool = False,
    clock: Callable[[], float] = time.time,
    observers: Sequence[Observer] = (),
    tap: Tap | None = None,
    alerts: AlertSettings | None = None,
    readonly: bool = False,
    whole: bool = False,
    asks: bool = False,
    following: Following | None = None,
    budget: Budget | None = None,
) -> Fleet:
    """Return a fleet for a command that only looks: no prompts, no history, no alerts sent.

    Mutes count all the same, and so does for how long an alert has held as an earlier rgt saw it.

    Args:
        specs: The boxes.
        accept_new_host_keys: Write the keys of unknown hosts to known_hosts.
        clock: Epoch seconds.
        observers: Told of every state and event.
        tap: Given every raw line of every box.
        alerts: What the fleet file says of alerts; its sinks do not count here.
        readonly: Refuse every billing action.
        whole: These are all boxes of the fleet file: what else their accounts are billed for is looked for, too.
        asks: Somebody answers questions after all.
        following: The fleet file, whose changes are taken over.
        budget: How much of each box is kept in memory; None = as built in.

    Raises:
        ProfileError: a box names a profile that does not exist.
    """
    _hush()
    kinds = AlertSettings(kinds=alerts.kinds) if alerts is not None else AlertSettings()
    return Fleet(
        specs,
        audit=audit.default_path(os.environ),
        clock=clock,
        observers=observers,
        tap=tap,
        policy=_policy(accept_new_host_keys),
        readonly=readonly,
        whole=whole,
        asks=asks,
        following=following,
        budget=budget,
        alerting=Alerting(kinds, path=_alerts_file(specs), clock=clock),
    )


def make_kept_fleet(
    specs: Sequence[BoxSpec],
    alerts: AlertSettings,
    *,
    fleet_file: Path | None = None,
    history: bool = True,
    asks: bool = False,
    readonly: bool = False,
    accept_new_host_keys: bool = False,
    observers: Sequence[Observer] = (),
    whole: bool = True,
    following: Following | None = None,
) -> Fleet:
    """Return a fleet for a command that stays: with the history on disk, and alerts sent to their sinks.

    Args:
        specs: The boxes.
        alerts: What the fleet file says of alerts.
        fleet_file: It; what is spent is added up for the boxes that it has, or had.
        history: Keep the history on disk, where ``RGT_HISTORY`` does not say otherwise.
        asks: Somebody answers questions.
        readonly: Refuse every billing action.
        accept_new_host_keys: Write the keys of unknown hosts to known_hosts.
        observers: Told of every state and event.
        whole: These are all boxes of the fleet file: what else their accounts are billed for is looked for, too.
        following: The fleet file, whose changes are taken over.

    Raises:
        ProfileError: a box names a profile that does not exist.
    """
    _hush()
    log = audit.default_path(os.environ)
    path = history_path(os.environ) if history and _is_trusted(specs) else None
    known_by = "" if fleet_file is None else str(fleet_file.absolute())
    memory = None if path is None else Memory(History(path, fleet=known_by))
    return Fleet(
        specs,
        audit=log,
        remember=None if memory is None else memory.remember,
        observers=(*observers, *(() if memory is None else (memory,))),
        asks=asks,
        readonly=readonly,
        whole=whole,
        following=following,
        fleet_file=fleet_file,
        policy=_policy(accept_new_host_keys),
        alerting=Alerting(alerts, path=_alerts_file(specs), greets=True),
    )


def _is_trusted(specs: Sequence[BoxSpec]) -> bool:
    """Tell whether what is seen may be kept: a stranger's names and prices would count as those of one's own boxes."""
    return not any(spec.untrusted for spec in specs)


def _alerts_file(specs: Sequence[BoxSpec]) -> Path | None:
    if _is_trusted(specs):
        return mutes.alerts_path(os.environ)
    return None


def _policy(accept_new_host_keys: bool) -> Policy:
    if accept_new_host_keys:
        return Policy.ACCEPT_NEW
    return Policy.ASK


def _hush() -> None:
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
        """Receive a new state."""
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
            if len(before) != len(told) or any(
                a is not b for a, b in zip(before, told, strict=True)
            ):
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
        if (not box.looked or _is_uncounted(box)) and now - self._live[name] < FIRST_LOOK_SECONDS:
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


def _is_uncounted(box: BoxState) -> bool:
    """Tell whether the fleet file has a price for a box that answers, and nobody has counted by it yet."""
    return is_priced(box.spec) and box.meter.kind is MeterKind.UNKNOWN


def _behind(run: RunState, box: BoxState, now: float) -> bool:
    """Tell whether the newest point of a run was written long ago."""
    return run.last_at is not None and now + (box.clock_skew or 0.0) - run.last_at > BEHIND_SECONDS


async def settle(
    fleet: Fleet, seconds: float, each: Callable[[BoxState, float], None] | None = None
) -> FleetState:
    """Wait until every box of a started fleet has sent all, or the time is up; return the newest state.

    Args:
        fleet: It.
        seconds: How long to wait at most.
        each: Given every box once, with the time, as soon as it has sent all; a box that is not reached at the end,
            when it is known whether it stopped itself, and what of it is open.
    """
    settling = Settling()
    waiting = {box.spec.name for box in fleet.state.boxes}

    def report(*, all_of_them: bool = False) -> None:
        if each is not None:
            for box in fleet.state.boxes:
                is_due = settling.settled(box) and box.link is Link.LIVE
                if box.spec.name in waiting and (all_of_them or is_due):
                    waiting.discard(box.spec.name)
                    each(box, fleet.now())

    settling.look(fleet.state)
    unsubscribe = fleet.subscribe(settling.look)
    try:
        async with asyncio.timeout(seconds):
            # Quiet is told by the clock alone: there is nothing that could be awaited for it.
            while not all(settling.settled(box) for box in fleet.state.boxes):
                report()
                await asyncio.sleep(LOOK_SECONDS)
            report()
            await fleet.self_stops_seen()
            await fleet.open_actions_asked()
            await fleet.accounts_asked()
    except TimeoutError:
        pass
    finally:
        unsubscribe()
    fleet.publish()
    report(all_of_them=True)
    return fleet.state


async def gather(
    specs: Sequence[BoxSpec],
    seconds: float,
    *,
    accept_new_host_keys: bool = False,
    alerts: AlertSettings | None = None,
    whole: bool = False,
    each: Callable[[BoxState, float], None] | None = None,
) -> FleetState:
    """Connect to boxes once and return what they sent within `seconds`; every box is in it, reached or not.

    `whole` as in `make_fleet`, `each` as in `settle`.
    """
    fleet = make_fleet(specs, accept_new_host_keys=accept_new_host_keys, alerts=alerts, whole=whole)
    async with running_fleet(fleet):
        with waiting(f"connecting to {how_many(len(specs), 'box', 'boxes')} …"):
            return await settle(fleet, seconds, each)


async def gather_named(
    specs: Sequence[BoxSpec],
    config: FleetConfig,
    arguments: StatusArguments | PatrolArguments | MetricsArguments,
    each: Callable[[BoxState, float], None] | None = None,
) -> FleetState:
    """Gather what the boxes that a command line names send, by its ``--timeout`` and ``--accept-new-host-key``.

    `each` as in `settle`.
    """
    return await gather(
        specs,
        arguments.timeout,
        accept_new_host_keys=arguments.accept_new_host_key,
        alerts=config.alerts,
        whole=len(specs) == len(config.boxes),
        each=each,
    )


@contextlib.asynccontextmanager
async def running_fleet(fleet: Fleet) -> AsyncIterator[Fleet]:
    """Connect, and disconnect at the end, without waiting for a box that hangs."""
    try:
        await fleet.start()
        yield fleet
    finally:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(fleet.stop(), STOP_SECONDS)


@contextlib.asynccontextmanager
async def settled_fleet(
    spec: BoxSpec, doing: str, seconds: float, *, accept_new_host_keys: bool, readonly: bool
) -> AsyncIterator[Fleet]:
    """Connect to one box and wait until it has sent all; the fleet is then good for one question or one order.

    Args:
        spec: The box.
        doing: What is shown while it is waited for.
        seconds: How long to wait at most.
        accept_new_host_keys: Write the key of an unknown host to known_hosts.
        readonly: Refuse every billing action.
    """
    fleet = make_fleet(
        [spec],
        accept_new_host_keys=accept_new_host_keys,
        readonly=readonly,
        budget=FOR_ONE_QUESTION,
    )
    async with running_fleet(fleet):
        with waiting(doing):
            await settle(fleet, seconds)
        yield fleet
