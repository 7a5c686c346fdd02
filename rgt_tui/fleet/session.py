"""One box: connect, deploy, stream, reconnect; frames become states."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

import asyncssh

from rgt_tui.fleet.approach import Connector, endpoint_from, failure_of
from rgt_tui.fleet.backoff import LIVED_SECONDS, Backoff, Failure, link_of
from rgt_tui.fleet.file_access import FileAccess
from rgt_tui.fleet.intake import Intake
from rgt_tui.fleet.observe import Tap
from rgt_tui.fleet.reduce import replace
from rgt_tui.fleet.silence import Keepalive
from rgt_tui.fleet.turns import ConnectLimit
from rgt_tui.fleet.waking import shifted
from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.money import Meter
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import Control, Frame, Sample
from rgt_tui.model.question import Ask
from rgt_tui.profiles.readings import stale_after
from rgt_tui.ssh import AgentBundle, Answers, BoxError, Channel, Policy, Probe, Watching, watch

DEPLOY_SECONDS = 600.0
"""The agent stands and streams by then, also over a very slow line; each step on the way has a shorter limit."""

log = logging.getLogger("rgt.fleet")


class BoxSession:
    """Keeps one box's state true for as long as `run` runs. Nothing that happens on a box ends it.

    Args:
        spec: The box.
        profile: Its platform.
        bundle: The agent.
        limit: How many connect at once.
        clock: Epoch seconds.
        on_change: Called with the box's name when its state is another one.
        ask: Who answers questions; None = nobody.
        tap: Given every raw line.
        answers: What has been answered; the fleet shares it.
        policy: What becomes of unknown host keys.
        boxes: How many the fleet has.
    """

    __slots__ = (
        "_bundle",
        "_called_back",
        "_came",
        "_channel",
        "_clock",
        "_connection",
        "_connector",
        "_fault",
        "_files",
        "_hung",
        "_interval",
        "_keepalive",
        "_on_change",
        "_paused",
        "_pythons",
        "_tap",
        "_task",
        "_trying",
        "_woken",
        "intake",
        "state",
    )

    def __init__(
        self,
        spec: BoxSpec,
        profile: Profile,
        bundle: AgentBundle,
        limit: ConnectLimit,
        clock: Callable[[], float],
        on_change: Callable[[str], None],
        *,
        ask: Ask | None = None,
        tap: Tap | None = None,
        answers: Answers | None = None,
        policy: Policy = Policy.ASK,
        boxes: int = 1,
    ) -> None:
        self.state = BoxState(spec=spec, since=clock())
        self.intake = Intake(spec, profile, boxes)
        self._connector = Connector(spec, profile, limit, ask, answers, policy, self._asking)
        self._pythons = (spec.python,) if spec.python else profile.python
        self._bundle = bundle
        self._tap = tap
        self._clock = clock
        self._on_change = on_change
        self._interval = spec.interval
        self._woken = asyncio.Event()
        """Somebody wants no wait, or what it was for is over."""
        self._paused = False
        self._task: asyncio.Task[None] | None = None
        self._trying = self._called_back = False
        self._connection: asyncssh.SSHClientConnection | None = None
        self._channel: Channel | Probe | None = None
        self._came: float | None = None
        """Client clock when the first came of what is not taken in yet."""
        self._fault: str | None = None
        self._hung: str | None = None
        self._files = FileAccess(self._limit)
        self._keepalive = Keepalive(lambda: stale_after(self.state), self._ping, self._cut)

    def recall(self, state: BoxState) -> None:
        """Begin with what an earlier rgt knew; before `run`."""
        self.state = replace(state, interval=self._shown())

    def set_meter(self, meter: Meter) -> None:
        """Store what the provider says, where the box answers included."""
        where = endpoint_from(meter)
        if where is not None:
            self.moved(*where)
        self._set(replace(self.state, meter=meter))

    def moved(self, host: str, port: int) -> None:
        """Take note of where the provider says that the box is; it counts once the described address fails."""
        waits = self.state.link in (Link.UNREACHABLE, Link.REFUSED_KEY)
        if self._connector.moved(host, port) and waits:
            self._woken.set()

    def follow(self, path: str) -> None:
        """Follow one more log, now and after every reconnect."""
        if self.intake.follow(path):
            self._send(Control(op="follow", path=path))

    def set_interval(self, seconds: float) -> None:
        """Ask for a sample every `seconds`."""
        if seconds == self._interval:
            return
        self._interval = seconds
        self._send(Control(op="interval", seconds=seconds))
        if self._channel is None or seconds > (self.state.interval or self.state.spec.interval):
            self._set(replace(self.state, interval=self._shown()))
        # Else by the next sample: what came at the slower pace is not old before that.

    def _shown(self) -> float | None:
        return None if self._interval == self.state.spec.interval else self._interval

    def pause(self, paused: bool) -> None:
        """Disconnect and stay so, or go on."""
        if paused == self._paused:
            return
        self._paused = paused
        if paused and self._trying and self._task is not None and not self._called_back:
            self._called_back = True
            self._task.cancel()
        else:
            self._woken.set()

    def retry_now(self) -> None:
        """Do not wait for the backoff to end."""
        if not self._paused:
            self._woken.set()

    def woke(self, moved: float = 0.0) -> None:
        """The computer slept, or its clock was set: connect at once, and see whether a connection still lives.

        Args:
            moved: By how many seconds the clock was set.
        """
        self._set(shifted(self.state, moved))
        self.retry_now()
        if self._channel is not None:
            self._keepalive.woke()

    def _ping(self) -> None:
        with contextlib.suppress(OSError):  # it is just being closed
            self._send(Control(op="ping", id=1))

    def _cut(self, reason: str) -> None:
        self._hung = f"ssh: {reason}"
        if self._connection is not None:
            self._connection.abort()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        self._task = asyncio.current_task()
        backoff = Backoff()
        while True:
            try:
                await self._round(backoff)
            except asyncio.CancelledError:
                called_back, self._called_back = self._called_back, False
                # Called back by `pause`, and by nobody else?
                if not called_back or self._task is None or self._task.uncancel() > 0:
                    raise

    async def _round(self, backoff: Backoff) -> None:
        if self._paused:
            self._lost(Link.PAUSED, "paused by you", None)
            await self._wait()
            return
        if self.state.link is Link.PAUSED:
            self._lost(Link.CONNECTING, "ssh: connecting", None)
        self._woken.clear()
        self._keepalive.reset()
        self._trying = True
        try:
            failure, reason = await self._once()
        finally:
            self._trying = False
        if self._keepalive.lived > LIVED_SECONDS:
            backoff.reset()
        wait = backoff.wait(failure)
        self._lost(link_of(failure), reason, self._clock() + wait)
        await self._wait(wait)

    async def _wait(self, seconds: float | None = None) -> None:
        """Wait for so many seconds, or for ever, unless woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _once(self) -> tuple[Failure, str]:
        self._fault = self._hung = None
        try:
            async with self._connector.slot():
                self._connection = await self._connector.connect()
            asked = self._interval, self.intake.followed
            watching = await self._watch(self._connection)
            self._channel = watching.channel
            self._keepalive.begin()
            self._something_came()
            self._set(replace(self.state, limited=self._files.limits(watching.limited)))
            self._catch_up(*asked)
            reason = await watching.channel.wait()
        except BoxError as error:
            failure = failure_of(error)
            refused = failure in (Failure.REFUSED_KEY, Failure.REFUSED_LOGIN)
            if refused and self._connector.has_another_way:
                failure = Failure.UNREACHABLE  # the next try goes there, and soon
            return failure, str(error)
        except (asyncssh.Error, OSError, TimeoutError) as error:
            return Failure.UNREACHABLE, f"ssh: {str(error) or type(error).__name__}"
        except Exception as error:
            log.exception("%s: a session failed", self.state.spec.name)
            return Failure.OUR_FAULT, f"rgt: {_named(error)}; this is a fault of rgt, training goes on"
        finally:
            self._keepalive.end()
            self._files.end()
            self.take_in()
            self._channel = None
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.abort()
        if self._fault is not None:
            return Failure.OUR_FAULT, self._fault
        if self._hung is not None:
            return Failure.UNREACHABLE, self._hung
        ended = isinstance(watching.channel, Channel) and watching.channel.status is not None
        return Failure.AGENT_ENDED if ended else Failure.UNREACHABLE, reason

    async def _watch(self, connection: asyncssh.SSHClientConnection) -> Watching:
        try:
            async with asyncio.timeout(DEPLOY_SECONDS):
                return await watch(
                    connection,
                    self._bundle,
                    self._pythons,
                    self.intake.config(self.state, self._interval, self._clock()),
                    self._frame,
                    self._bad,
                    self._line if self._tap is not None else None,
                    self._something_came,
                )
        except TimeoutError as error:
            raise TimeoutError(f"the agent did not stand within {DEPLOY_SECONDS:g} s") from error

    def _catch_up(self, interval: float, followed: tuple[str, ...]) -> None:
        """Send what was asked for while the agent was on its way."""
        if self._interval != interval:
            self._send(Control(op="interval", seconds=self._interval))
        for path in self.intake.followed[len(followed) :]:
            self._send(Control(op="follow", path=path))
        if self._fault is not None and self._connection is not None:
            self._connection.abort()

    def _something_came(self) -> None:
        self._keepalive.heard()
        self._came = self._clock()
        self._on_change(self.state.spec.name)

    def take_in(self, until: float = math.inf) -> bool:
        """Take in what has come: not as it comes, but for all boxes together, a few times a second.

        Args:
            until: When to stop (monotonic clock): no box may keep the others waiting.

        Returns:
            True when something still waits.
        """
        waits = False
        try:
            if isinstance(self._channel, Channel):
                waits = self._channel.take_in(until)
        except Exception as error:
            log.exception("%s: what came could not be taken in", self.state.spec.name)
            self._fault = f"rgt: {_named(error)}; this is a fault of rgt, training goes on"
            if self._connection is not None:
                self._connection.abort()
        finally:
            if not waits:
                self._came = None
        return waits

    def _now(self) -> float:
        return self._clock() if self._came is None else self._came

    def _line(self, line: bytes) -> None:
        if self._tap is not None:
            self._tap(self.state.spec.name, self._now(), line)

    def _frame(self, frame: Frame) -> None:
        if self._fault is not None:
            return
        self._keepalive.heard()
        try:
            state = self.intake.take(self.state, frame, self._now())
            if isinstance(frame, Sample) and state.interval != self._shown():
                state = replace(state, interval=self._shown())
        except Exception as error:
            log.exception("%s: a frame could not be taken in", self.state.spec.name)
            kind = type(frame).__name__
            self._fault = f"rgt could not take in a {kind} frame: {_named(error)}; it is left out and counted"
            with contextlib.suppress(Exception):
                self._set(self.intake.give_up(self.state, frame))
            if self._connection is not None:
                self._connection.abort()
            return
        self._set(state)
        if isinstance(frame, Sample) and self._connection is not None:
            self._files.ask(self._connection)

    def _limit(self) -> None:
        self._set(replace(self.state, limited=self._files.limits(self.state.limited)))

    def _bad(self, count: int) -> None:
        counters = self.state.counters
        self._set(replace(self.state, counters=replace(counters, bad_frames=counters.bad_frames + count)))

    def _asking(self, title: str | None) -> None:
        if title is not None:
            self._lost(Link.ASKING, f"waiting for you: {title}", None)
        elif self.state.link is Link.ASKING:
            self._lost(Link.CONNECTING, "ssh: connecting", None)

    def _lost(self, link: Link, reason: str, retry_at: float | None) -> None:
        since = self.state.since if self.state.link is link else self._clock()
        self._set(replace(self.state, link=link, reason=reason, since=since, retry_at=retry_at))

    def _set(self, state: BoxState) -> None:
        if state is not self.state:
            self.state = state
            self._on_change(state.spec.name)

    def _send(self, control: Control) -> None:
        if self._channel is not None:
            self._channel.send(control)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
