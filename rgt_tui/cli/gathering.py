"""Creates a fleet for a command, and watches it just long enough to know the state of every box."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rgt_tui.cli.printing import wait_indicator
from rgt_tui.cli.watch_arguments import (
    MetricsArguments,
    NightArguments,
    PatrolArguments,
    StatusArguments,
)
from rgt_tui.fleet import (
    FOR_ONE_QUESTION,
    Fleet,
    FleetAlerting,
    FleetObserver,
    HistoryRecorder,
    MemoryBudget,
    Tap,
    endpoint_from,
    is_priced,
)
from rgt_tui.fleet.config import FleetConfig
from rgt_tui.fleet.config.following import FleetFileFollower
from rgt_tui.gate import audit
from rgt_tui.health import mutes
from rgt_tui.language import translate
from rgt_tui.model import (
    AlertSettings,
    BoxSpec,
    BoxState,
    FleetState,
    FrozenStruct,
    LinkState,
    MeterKind,
    RunState,
    how_many,
)
from rgt_tui.ssh import HostKeyPolicy
from rgt_tui.store import FleetHistory, history_path

# Their warnings name hosts and addresses in the middle of a table or of JSON lines.
NOISY = ("asyncssh", "httpx", "httpcore")
"""Loggers whose output would mix with the command's own."""


def make_fleet(
    specs: Sequence[BoxSpec],
    *,
    accept_new_host_keys: bool = False,
    clock: Callable[[], float] = time.time,
    observers: Sequence[FleetObserver] = (),
    tap: Tap | None = None,
    alerts: AlertSettings | None = None,
    readonly: bool = False,
    whole: bool = False,
    asks: bool = False,
    following: FleetFileFollower | None = None,
    budget: MemoryBudget | None = None,
) -> Fleet:
    """Return a fleet for a command that only reads: no prompts, no history, no alerts sent.

    Stored mutes apply nevertheless, and so do the begin times of alerts that an earlier rgt
    recorded.

    Args:
        specs: The boxes.
        accept_new_host_keys: Write the keys of unknown hosts to known_hosts.
        clock: Epoch seconds.
        observers: Receive every state and event.
        tap: Receives every raw line of every box.
        alerts: Alert settings of the fleet file; its sinks are ignored here.
        readonly: Refuse every billing action.
        whole: These are all boxes of the fleet file, so unlisted bills of their accounts are
            searched, too.
        asks: A person can answer questions.
        following: The fleet file whose changes are applied.
        budget: How much of each box is kept in memory; None = the default.

    Raises:
        ProfileError: A box names a profile that does not exist.
    """
    _silence_loggers()
    # The kinds change what counts as trouble; sinks would send on every `rgt status`.
    if alerts is not None:
        kinds = AlertSettings(kinds=alerts.kinds)
    else:
        kinds = AlertSettings()
    return Fleet(
        specs,
        audit=audit.default_path(os.environ),
        clock=clock,
        observers=observers,
        tap=tap,
        policy=_host_key_policy(accept_new_host_keys),
        readonly=readonly,
        whole=whole,
        asks=asks,
        following=following,
        budget=budget,
        # No `greets`: a one-shot command must not use up the first warning about a platform's
        # dangers.
        alerting=FleetAlerting(kinds, path=_alerts_file(specs), clock=clock),
    )


def make_recording_fleet(
    specs: Sequence[BoxSpec],
    alerts: AlertSettings,
    *,
    fleet_file: Path | None = None,
    history: bool = True,
    asks: bool = False,
    readonly: bool = False,
    accept_new_host_keys: bool = False,
    observers: Sequence[FleetObserver] = (),
    whole: bool = True,
    following: FleetFileFollower | None = None,
) -> Fleet:
    """Return a fleet for a long-running command: with history on disk, and alerts sent to sinks.

    Args:
        specs: The boxes.
        alerts: Alert settings of the fleet file.
        fleet_file: Its path; the total cost includes the boxes that it has or had.
        history: Keep the history on disk, unless ``RGT_HISTORY`` says otherwise.
        asks: A person can answer questions.
        readonly: Refuse every billing action.
        accept_new_host_keys: Write the keys of unknown hosts to known_hosts.
        observers: Receive every state and event.
        whole: These are all boxes of the fleet file, so unlisted bills of their accounts are
            searched, too.
        following: The fleet file whose changes are applied.

    Raises:
        ProfileError: A box names a profile that does not exist.
    """
    _silence_loggers()
    log = audit.default_path(os.environ)
    # Boxes of an untrusted file could take the names of one's own, and mix with their history.
    if history and _is_trusted(specs):
        path = history_path(os.environ)
    else:
        path = None
    if fleet_file is None:
        known_by = ""
    else:
        # Two fleet files may name the same box differently; the history keeps them apart by this
        # path.
        known_by = str(fleet_file.absolute())
    if path is None:
        memory = None
    else:
        memory = HistoryRecorder(FleetHistory(path, fleet=known_by))
    return Fleet(
        specs,
        audit=log,
        remember=None if memory is None else memory.recall_states,
        observers=(*observers, *(() if memory is None else (memory,))),
        asks=asks,
        readonly=readonly,
        whole=whole,
        following=following,
        fleet_file=fleet_file,
        policy=_host_key_policy(accept_new_host_keys),
        alerting=FleetAlerting(alerts, path=_alerts_file(specs), greets=True),
    )


def _is_trusted(specs: Sequence[BoxSpec]) -> bool:
    """Return whether to store data: an untrusted file could pass its boxes off as one's own."""
    return not any(spec.untrusted for spec in specs)


def _alerts_file(specs: Sequence[BoxSpec]) -> Path | None:
    if _is_trusted(specs):
        return mutes.alerts_path(os.environ)
    return None


def _host_key_policy(accept_new_host_keys: bool) -> HostKeyPolicy:
    if accept_new_host_keys:
        return HostKeyPolicy.ACCEPT_NEW
    return HostKeyPolicy.ASK


def _silence_loggers() -> None:
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class SettlePaces(FrozenStruct):
    """When the first data of a box is complete, in seconds."""

    quiet_s: float = 1.0
    """The initial data of a box (queue, logs, curves) is complete when nothing arrived for this
    long."""
    first_look_s: float = 15.0
    """Longest wait for an agent to report that it has read everything once. An old agent, or one
    with a hung disk, never does."""
    longest_s: float = 3.0
    """A training box keeps sending: after this long its data counts as news, not as initial data.
    """
    poll_s: float = 0.1
    """Seconds between two checks."""


SETTLE_PACES = SettlePaces()

FAILED = (LinkState.UNREACHABLE, LinkState.REFUSED_KEY, LinkState.REFUSED_LOGIN)
"""A first attempt that ends in one of these is final: a one-shot command does not wait for a
retry."""
ELSEWHERE = (LinkState.UNREACHABLE, LinkState.REFUSED_KEY)
"""After these a session tries the address that the provider reports."""


class SettleTracker:
    """Follows the states of a fleet, and knows which boxes have sent all their initial data.

    Args:
        now: A monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[str, tuple[object, ...]] = {}
        self._live: dict[str, float] = {}
        """Box → time of its first sample."""
        self._looked: dict[str, float] = {}
        """Box → time at which its agent had read everything once."""
        self._news: dict[str, float] = {}
        """Box → time at which it last sent anything but a sample."""
        self._behind: dict[str, float] = {}
        """Box → time at which a curve last grew by old points."""
        self._tries: dict[str, set[float | None]] = {}
        """Box → time of the next retry, after each failed attempt."""
        self._told: dict[str, int] = {}
        """Box → number of failed attempts when the provider reported another address."""

    def apply_state(self, state: FleetState) -> None:
        """Apply a new state."""
        now = self._now()
        for box in state.boxes:
            name = box.spec.name
            told = (
                box.hello,
                box.queues,
                box.checkpoints,
                box.logs,
                # Not the meter itself: the time it has spent changes with each reading.
                box.meter.at,
                box.meter.error,
                # Identity is enough and cheap: a struct that changed is another object.
                *box.runs,
            )
            before = self._seen.get(name, ())
            self._seen[name] = told
            if len(before) != len(told) or any(
                a is not b for a, b in zip(before, told, strict=True)
            ):
                self._news[name] = now
                # A curve that catches up from its file counts as initial data however long that
                # takes.
                if any(_is_behind(run, box, state.at) for run in box.runs if run not in before):
                    self._behind[name] = now
            if box.link is LinkState.LIVE and box.sample is not None:
                self._live.setdefault(name, now)
            if box.looked:
                self._looked.setdefault(name, now)
            if box.link in FAILED:
                # A set: the same failure is published many times, and each attempt has its own time
                # of retry.
                self._tries.setdefault(name, set()).add(box.retry_at)
            # Attempts before that were to the old address and prove nothing about the new one.
            if _is_elsewhere(box):
                self._told.setdefault(name, len(self._tries.get(name, ())))

    def is_settled(self, box: BoxState) -> bool:
        """Return whether there is nothing more to wait for."""
        name, now = box.spec.name, self._now()
        # Nothing will come until the person resumes it.
        if box.link is LinkState.PAUSED:
            return True
        if box.spec.provider is not None and box.meter.at is None and box.meter.error is None:
            # A price in the file without a provider does not wait here.
            return False  # the provider knows why a connection fails: stopped, gone, moved
        if box.link in FAILED:
            return (
                box.link not in ELSEWHERE
                or not _is_elsewhere(box)
                or self._has_tried_new_address(name)
            )
        if (
            box.link is not LinkState.LIVE
            or name not in self._live
            or box.remembered_at is not None
        ):
            return False
        live_s = now - self._live[name]
        if (not box.looked or _is_uncounted(box)) and live_s < SETTLE_PACES.first_look_s:
            return False
        # Without any news so far, `now` makes this 0 s of silence, not silence since ever.
        if now - self._news.get(name, now) >= SETTLE_PACES.quiet_s:
            return True
        # A box that trains is never quiet, so the wait also ends a while after the newest of these.
        since = max(self._live[name], self._looked.get(name, 0.0), self._behind.get(name, 0.0))
        return now - since >= SETTLE_PACES.longest_s

    def _has_tried_new_address(self, name: str) -> bool:
        """Return whether an attempt failed after the provider reported another address."""
        # At least two attempts: the first one was begun before the provider had answered.
        return len(self._tries.get(name, ())) > max(1, self._told.get(name, 0))


def _is_elsewhere(box: BoxState) -> bool:
    """Return whether the provider reports an address other than the described one."""
    told = endpoint_from(box.meter)
    # Vendors give a pod a new port at each start, while the fleet file keeps the old one.
    return told is not None and told != (box.spec.host, box.spec.port)


def _is_uncounted(box: BoxState) -> bool:
    """Return whether a live box has a price in the fleet file that is not applied yet."""
    return is_priced(box.spec) and box.meter.kind is MeterKind.UNKNOWN


def _is_behind(run: RunState, box: BoxState, now: float) -> bool:
    """Return whether the newest point of a run was written long ago."""
    # A growing curve whose newest point is older than this is still being read from its file.
    behind_seconds = 30.0
    return run.last_at is not None and now + (box.clock_skew or 0.0) - run.last_at > behind_seconds


async def wait_until_settled(
    fleet: Fleet, seconds: float, each: Callable[[BoxState, float], None] | None = None
) -> FleetState:
    """Wait until every box of a started fleet has sent its initial data; return the newest state.

    Args:
        fleet: The fleet.
        seconds: Maximum time to wait.
        each: Called once per box, with the time, as soon as its initial data is complete; for boxes
            that are not reached, at the end, when their own stop and open actions are known.
    """
    settling = SettleTracker()
    waiting = {box.spec.name for box in fleet.state.boxes}

    def report_settled(*, all_of_them: bool = False) -> None:
        if each is not None:
            for box in fleet.state.boxes:
                # An unreached box waits for the end, see `each`.
                is_due = settling.is_settled(box) and box.link is LinkState.LIVE
                if box.spec.name in waiting and (all_of_them or is_due):
                    waiting.discard(box.spec.name)
                    each(box, fleet.now())

    # Subscribers get changes only, so the state of before is applied by hand.
    settling.apply_state(fleet.state)
    unsubscribe = fleet.subscribe(settling.apply_state)
    try:
        async with asyncio.timeout(seconds):
            # Only the clock can detect silence: there is nothing to await for it.
            while not all(settling.is_settled(box) for box in fleet.state.boxes):
                report_settled()
                await asyncio.sleep(SETTLE_PACES.poll_s)
            report_settled()
            # These three belong to the answer but not to a box's stream, so settling does not see
            # them.
            await fleet.self_stops_seen()
            await fleet.wait_for_open_actions()
            await fleet.wait_for_accounts()
    # Not an error: boxes that did not answer in time are reported as unknown.
    except TimeoutError:
        pass
    finally:
        unsubscribe()
    # States are published at a pace; the newest one may still be waiting for its turn.
    fleet.publish_now()
    report_settled(all_of_them=True)
    return fleet.state


async def gather_state(
    specs: Sequence[BoxSpec],
    seconds: float,
    *,
    accept_new_host_keys: bool = False,
    alerts: AlertSettings | None = None,
    whole: bool = False,
    each: Callable[[BoxState, float], None] | None = None,
) -> FleetState:
    """Connect to boxes once and return what they sent within `seconds`, including unreached boxes.

    `whole` as in `make_fleet`, `each` as in `wait_until_settled`.
    """
    fleet = make_fleet(specs, accept_new_host_keys=accept_new_host_keys, alerts=alerts, whole=whole)
    async with running_fleet(fleet):
        with wait_indicator(
            translate("connecting to {specs} …", specs=how_many(len(specs), "box", "boxes"))
        ):
            return await wait_until_settled(fleet, seconds, each)


async def gather_named(
    specs: Sequence[BoxSpec],
    config: FleetConfig,
    arguments: StatusArguments | NightArguments | PatrolArguments | MetricsArguments,
    each: Callable[[BoxState, float], None] | None = None,
) -> FleetState:
    """Gather the state of the boxes that a command names, with its timeout and host-key policy.

    `each` as in `wait_until_settled`.
    """
    return await gather_state(
        specs,
        arguments.timeout,
        accept_new_host_keys=arguments.accept_new_host_key,
        alerts=config.alerts,
        # With some boxes only, the others' machines would look as if they belonged to no box.
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
        # A command that has its answer must not end with a traceback because a box hangs.
        with contextlib.suppress(TimeoutError):
            # Writing the history takes up to five seconds.
            stop_seconds = 8.0
            await asyncio.wait_for(fleet.stop(), stop_seconds)


@contextlib.asynccontextmanager
async def settled_fleet(
    spec: BoxSpec, doing: str, seconds: float, *, accept_new_host_keys: bool, readonly: bool
) -> AsyncIterator[Fleet]:
    """Connect to one box and wait for its initial data; the fleet then serves one request.

    Args:
        spec: The box.
        doing: Shown while waiting.
        seconds: Maximum time to wait.
        accept_new_host_keys: Write the key of an unknown host to known_hosts.
        readonly: Refuse every billing action.
    """
    fleet = make_fleet(
        [spec],
        accept_new_host_keys=accept_new_host_keys,
        readonly=readonly,
        # Little memory: nothing is drawn. Queues stay complete, because the gate refuses without
        # them.
        budget=FOR_ONE_QUESTION,
    )
    async with running_fleet(fleet):
        with wait_indicator(doing):
            await wait_until_settled(fleet, seconds)
        yield fleet
