"""One box: connect, deploy, stream, reconnect; frames become states."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import asyncssh

from rgt_tui.fleet.approach import REFUSED_SECONDS, Approach, endpoint_from, link_of
from rgt_tui.fleet.backoff import Backoff
from rgt_tui.fleet.observe import Tap
from rgt_tui.fleet.reduce import apply, replace
from rgt_tui.model.box import BoxSpec, BoxState, Link, Past
from rgt_tui.model.money import Meter
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import (
    DEFAULT_PATTERN,
    Control,
    Cursor,
    Frame,
    LogLines,
    SampleCursor,
    WatchConfig,
)
from rgt_tui.model.question import Ask
from rgt_tui.ssh.bundle import AgentBundle
from rgt_tui.ssh.channel import Channel
from rgt_tui.ssh.errors import BoxError
from rgt_tui.ssh.hostkeys.policy import Policy
from rgt_tui.ssh.limited.probe import Probe
from rgt_tui.ssh.login.answers import Answers
from rgt_tui.ssh.watching import watch

LIVED_SECONDS = 10.0
"""A connection that lived this long resets the backoff."""


class BoxSession:
    """Keeps one box's state true for as long as `run` runs. Nothing that happens on a box ends it."""

    def __init__(
        self,
        spec: BoxSpec,
        profile: Profile,
        bundle: AgentBundle,
        gate: asyncio.Semaphore,
        clock: Callable[[], float],
        on_change: Callable[[], None],
        *,
        ask: Ask | None = None,
        tap: Tap | None = None,
        answers: Answers | None = None,
        policy: Policy = Policy.ASK,
    ) -> None:
        self.state = BoxState(spec=spec, since=clock())
        self._approach = Approach(spec, profile, gate, ask, answers, policy, self._asking)
        self._tap = tap
        self._going = asyncio.Event()
        self._going.set()
        self._once_task: asyncio.Task[tuple[Link, str]] | None = None
        self._profile = profile
        self._bundle = bundle
        self._clock = clock
        self._on_change = on_change
        self._channel: Channel | Probe | None = None
        self._interval = spec.interval
        self._extra_logs: tuple[str, ...] = ()
        self._logs: dict[str, Cursor] = {}
        self._kick = asyncio.Event()

    def recall(self, state: BoxState) -> None:
        """Begin with what an earlier rgt knew; before `run`."""
        self.state = state

    def set_past(self, past: Past) -> None:
        """Store what was seen over hours."""
        self._set(replace(self.state, past=past))

    def set_meter(self, meter: Meter) -> None:
        """Store what the provider says, where the box answers included."""
        where = endpoint_from(meter)
        if where is not None:
            self.moved(*where)
        self._set(replace(self.state, meter=meter))

    def moved(self, host: str, port: int) -> None:
        """Take note of where the provider says that the box is; it counts once the described address fails."""
        if self._approach.moved(host, port) and self.state.link is Link.UNREACHABLE:
            self._kick.set()

    def _set(self, state: BoxState) -> None:
        if state is not self.state:
            self.state = state
            self._on_change()

    def follow(self, path: str) -> None:
        """Follow one more log, now and after every reconnect."""
        if path not in self._extra_logs:
            self._extra_logs += (path,)
            self._send(Control(op="follow", path=path))

    def set_interval(self, seconds: float) -> None:
        """Ask for a sample every `seconds`."""
        if seconds != self._interval:
            self._interval = seconds
            self._send(Control(op="interval", seconds=seconds))
            if self.state.hello is not None:
                # What counts as old follows from the interval in effect.
                self._set(replace(self.state, hello=replace(self.state.hello, interval=seconds)))

    def pause(self, paused: bool) -> None:
        """Disconnect and stay so, or go on."""
        if paused:
            self._going.clear()
            if self._once_task is not None:
                self._once_task.cancel()
        else:
            self._going.set()
        self._kick.set()

    def retry_now(self) -> None:
        """Do not wait for the backoff to end."""
        self._kick.set()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        backoff = Backoff()
        while True:
            if not self._going.is_set():
                self._lost(Link.PAUSED, "paused by you", None)
                await self._going.wait()
            started = self._clock()
            self._once_task = asyncio.create_task(self._once())
            try:
                link, reason = await self._once_task
            except asyncio.CancelledError:
                if self._going.is_set():
                    self._once_task.cancel()
                    await asyncio.gather(self._once_task, return_exceptions=True)
                    raise
                continue
            if self._clock() - started > LIVED_SECONDS:
                backoff.reset()
            refused = link in (Link.REFUSED_KEY, Link.REFUSED_LOGIN) and not self._approach.has_another_way
            wait = REFUSED_SECONDS if refused else backoff.wait()
            self._lost(link, reason, self._clock() + wait)
            self._kick.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), wait)

    async def _once(self) -> tuple[Link, str]:
        connection: asyncssh.SSHClientConnection | None = None
        try:
            async with self._approach.turn():
                connection = await self._approach.connect()
                pythons = (self.state.spec.python,) if self.state.spec.python else self._profile.python
                watching = await watch(
                    connection,
                    self._bundle,
                    pythons,
                    self._config(),
                    self._frame,
                    self._bad,
                    self._line if self._tap is not None else None,
                )
            self._channel = watching.channel
            self._set(replace(self.state, limited=watching.limited))
            return Link.UNREACHABLE, await self._channel.wait()
        except BoxError as error:
            return link_of(error), str(error)
        except (asyncssh.Error, OSError, TimeoutError) as error:
            return Link.UNREACHABLE, f"ssh: {error or type(error).__name__}"
        finally:
            self._channel = None
            if connection is not None:
                connection.abort()

    def _config(self) -> WatchConfig:
        spec, counters = self.state.spec, self.state.counters
        mounts = spec.mounts or tuple(mount for tier in self._profile.tiers for mount in tier.mounts)
        return WatchConfig(
            interval=self._interval,
            mounts=tuple(dict.fromkeys(mounts)),
            jobs=spec.jobs,
            logs=spec.logs + self._extra_logs,
            runs=spec.runs,
            pattern=spec.pattern or DEFAULT_PATTERN,
            find=True,
            gpu_trace=spec.gpu_trace,
            samples_after=SampleCursor(counters.boot, counters.seq) if counters.boot else None,
            log_cursors=dict(self._logs),
            scalar_cursors={
                source: cursor for run in self.state.runs for source, cursor in run.cursors.items()
            },
            delta=True,
        )

    def _line(self, line: bytes) -> None:
        if self._tap is not None:
            self._tap(self.state.spec.name, self._clock(), line)

    def _frame(self, frame: Frame) -> None:
        if isinstance(frame, LogLines):
            self._logs[frame.path] = Cursor(frame.inode, frame.end)
        self._set(apply(self.state, frame, self._clock()))

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

    def _send(self, control: Control) -> None:
        if self._channel is not None:
            self._channel.send(control)
