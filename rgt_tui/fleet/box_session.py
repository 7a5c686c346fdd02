"""One box's session: connect, deploy the agent, stream frames, reconnect, update the state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

import asyncssh

from rgt_tui.fleet.attention import (
    MemoryBudget,
)
from rgt_tui.fleet.connector import (
    CONNECT_PACES,
    Backoff,
    ConnectFailure,
    ConnectLimit,
    Connector,
    FileAccess,
    Keepalive,
    classify_failure,
    describe_error,
    describe_fault,
    endpoint_from,
    link_after_failure,
    shift_state,
)
from rgt_tui.fleet.fleet_source import Tap
from rgt_tui.fleet.frame_intake import FrameIntake
from rgt_tui.fleet.reducers import (
    replace,
)
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    AccountBill,
    Ask,
    BoxSpec,
    BoxState,
    ControlLine,
    Frame,
    LinkState,
    Meter,
    Pong,
    Profile,
    QueueState,
    Sample,
    SelfStopState,
    steady_time,
)
from rgt_tui.profiles import stale_after
from rgt_tui.ssh import (
    AgentBundle,
    BoxError,
    BoxStream,
    BoxTransport,
    DeployedAgent,
    HostKeyPolicy,
    LoginAnswers,
    NoCommands,
    ShellProbe,
    Unreachable,
    WatchChannel,
    peer_address,
    start_up_words,
    start_watch,
    watched_moved_address,
)

DEPLOY_SECONDS = 600.0
"""Time until the agent must be running and streaming, even over a very slow line; each step has a
shorter limit."""

MOST_TOGETHER = 64
"""Samples applied together."""


log = logging.getLogger("rgt.fleet")


class BoxSession:
    """Keeps one box's state up to date as long as `run` runs. Errors on a box never end it.

    Args:
        spec: The box.
        profile: Its platform.
        bundle: The agent.
        limit: How many boxes connect at once.
        clock: Epoch seconds.
        on_change: Called with the box's name when its state changes.
        ask: Prompts a person; None = no prompts.
        tap: Called with every raw line.
        answers: Earlier answers, shared by the fleet.
        policy: Whether to accept unknown host keys.
        boxes: Number of boxes in the fleet.
        budget: Memory limits of the box; None = defaults.
    """

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
        answers: LoginAnswers | None = None,
        policy: HostKeyPolicy = HostKeyPolicy.ASK,
        boxes: int = 1,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.state = BoxState(spec=spec, since=clock())
        self.intake = FrameIntake(spec, profile, boxes, budget)
        self._connector = Connector(spec, profile, limit, ask, answers, policy, self._show_prompt)
        self._pythons = (spec.python,) if spec.python else profile.overrides.python
        self._bundle = bundle
        self._tap = tap
        self._clock = clock
        self._on_change = on_change
        self._interval = spec.interval
        self._slower_samples = 0
        """How many more samples may still have the old interval. Until then the shown interval
        stays, so that samples do not look overdue."""
        self._woken = asyncio.Event()
        """Set to end a wait early."""
        self._paused = False
        self._task: asyncio.Task[None] | None = None
        self._trying = self._called_back = False
        self._told = asyncio.Event()
        """Set when an attempt to connect has failed, or the box is live."""
        self._connection: BoxTransport | None = None
        self._channel: WatchChannel | ShellProbe | None = None
        self._deployed: DeployedAgent | None = None
        self._pings = 0
        self._looks: dict[int, asyncio.Event] = {}
        """Id of a ping → set with the first sample received after its answer."""
        self._answered: set[int] = set()
        self._came: float | None = None
        """Client clock when the oldest unprocessed data was received."""
        self._came_steady = 0.0
        self._samples: list[Sample] = []
        """Consecutive samples, to be applied together."""
        self._gathers = False
        """More frames may follow in this call, so samples are collected."""
        self._fault: str | None = None
        self._hung: str | None = None
        self._files = FileAccess(self._update_limits)
        self._keepalive = Keepalive(self._allowed_silence, self._send_ping, self._abort_hung)

    def restore_state(self, state: BoxState) -> None:
        """Begin with the state saved by an earlier rgt; call before `run`."""
        self.state = replace(state, interval=self._shown_interval())

    def set_meter(self, meter: Meter) -> None:
        """Store a provider's reading, including the box's address."""
        where = endpoint_from(meter)
        if where is not None:
            self.set_moved_address(*where)
        self._set_state(replace(self.state, meter=meter))

    def set_open_action(self, words: str) -> None:
        """Store the text of this box's unfinished billing calls; empty = none."""
        if words != self.state.open_action:
            self._set_state(replace(self.state, open_action=words))

    def set_self_stop(self, known: SelfStopState | None) -> None:
        """Store the known facts about a self-stop that the box was armed for."""
        if known != self.state.self_stop:
            self._set_state(replace(self.state, self_stop=known))

    def set_account(self, bill: AccountBill) -> None:
        """Store the billed items of the box's account that belong to no box."""
        if bill != self.state.account:
            self._set_state(replace(self.state, account=bill))

    def set_moved_address(self, host: str, port: int) -> None:
        """Store the provider's address of the box; it is used once the described address fails."""
        waits = self.state.link in (LinkState.UNREACHABLE, LinkState.REFUSED_KEY)
        if self._connector.set_moved_address(host, port) and waits:
            self._woken.set()

    async def wait_for_sample(self, seconds: float) -> float:
        """Wait at most `seconds` for a sample that the box takes after this call.

        Returns:
            The steady clock at the call: a sample processed before it proves nothing about the time
                after it.
        """
        self.apply_received()
        # After the pending data: a sample that was taken before the call must not count as an
        # answer.
        begun = steady_time()
        self._pings += 1
        # Ids of pings above this one request a sample; see `BoxSession.wait_for_sample`.
        asked_pings = 1_000
        number = asked_pings + self._pings
        event = self._looks[number] = asyncio.Event()
        try:
            self._send_control(ControlLine(op="ping", id=number))
            async with asyncio.timeout(seconds):
                await event.wait()
        except (TimeoutError, OSError):
            pass  # then the newest sample is too old, which the gate reports
        finally:
            self._looks.pop(number, None)
            self._answered.discard(number)
        return begun

    def follow_log(self, path: str) -> None:
        """Follow one more log, now and after every reconnect."""
        if self.intake.follow_log(path):
            self._send_control(ControlLine(op="follow", path=path))

    def set_interval(self, seconds: float) -> None:
        """Request a sample every `seconds`."""
        if seconds == self._interval:
            return
        self._interval = seconds
        self._send_control(ControlLine(op="interval", seconds=seconds))
        # A longer interval is shown at once: then no sample can look overdue.
        if self._channel is None or seconds > (self.state.interval or self.state.spec.interval):
            self._slower_samples = 0
            self._set_state(replace(self.state, interval=self._shown_interval()))
        else:
            # Samples that a box may have sent before it received a shorter interval.
            on_the_way = 1
            self._slower_samples = on_the_way

    @property
    def connection(self) -> BoxTransport:
        """The open connection.

        Raises:
            Unreachable: there is none now.
        """
        if self._connection is None:
            raise self._make_unreachable()
        return self._connection

    def _make_unreachable(self) -> Unreachable:
        name, reason = self.state.spec.name, self.state.reason
        return Unreachable(translate("{name} is not connected: {reason}", name=name, reason=reason))

    @property
    def agent(self) -> tuple[BoxTransport, DeployedAgent]:
        """The open connection and its agent, for requests outside the stream.

        Raises:
            Unreachable: there is no connection now.
            NoCommands: only a plain shell answers there.
        """
        if self._connection is None or self._channel is None:
            raise self._make_unreachable()
        if self._deployed is None:
            name, limited = self.state.spec.name, "; ".join(self.state.limited)
            raise NoCommands(
                translate("the agent does not run on {name}: {limited}", name=name, limited=limited)
            )
        return self._connection, self._deployed

    def _shown_interval(self) -> float | None:
        if self._interval == self.state.spec.interval:
            return None
        return self._interval

    def set_paused(self, paused: bool) -> None:
        """Disconnect and stay disconnected, or resume."""
        if paused == self._paused:
            return
        self._paused = paused
        # An attempt may hang in a login, so it is cancelled; a wait is only woken.
        if paused and self._trying and self._task is not None and not self._called_back:
            self._called_back = True
            self._task.cancel()
        else:
            self._woken.set()

    def retry_now(self) -> None:
        """End the wait for the next attempt."""
        if not self._paused:
            self._woken.set()

    async def try_now(self, seconds: float) -> None:
        """Try to connect at once, and wait for the result for at most `seconds`.

        The result is a live box or a failed attempt.
        """
        if self._paused or self._task is None:
            return
        self._told.clear()
        self.retry_now()
        if self.state.link is not LinkState.LIVE:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._told.wait()

    def recover_from_sleep(self, moved: float = 0.0) -> None:
        """Reconnect and test an open connection: the computer slept or its clock was set.

        Args:
            moved: By how many seconds the clock was set.
        """
        self._set_state(shift_state(self.state, moved))
        if self._came is not None:  # works whether it was read before or after the clock change
            self._came = self._clock() - (steady_time() - self._came_steady)
        self.retry_now()
        if self._channel is not None:
            self._keepalive.query_after_sleep()

    def _allowed_silence(self) -> float:
        seconds = stale_after(self.state)
        if self._connection is not None:
            watched_moved_address(self._connection, seconds + CONNECT_PACES.hung_s)
        return seconds

    def _send_ping(self) -> None:
        with contextlib.suppress(OSError):  # the connection is just closing
            self._send_control(ControlLine(op="ping", id=1))

    def _say_step(self, step: object) -> str:
        return f"{self.state.spec.transport}: {str(step) or type(step).__name__}"

    def _abort_hung(self, reason: str) -> None:
        self._hung = self._say_step(reason)
        if self._connection is not None:
            self._connection.abort()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        self._task = asyncio.current_task()
        backoff = Backoff()
        while True:
            try:
                await self._run_round(backoff)
            except asyncio.CancelledError:
                # `uncancel` as asyncio.timeout does it: a cancellation by someone else still
                # counts.
                called_back, self._called_back = self._called_back, False
                # Cancelled by `set_paused` only?
                if not called_back or self._task is None or self._task.uncancel() > 0:
                    raise

    async def _run_round(self, backoff: Backoff) -> None:
        if self._paused:
            self._set_link(LinkState.PAUSED, translate("paused by you"), None)
            await self._wait_or_woken()
            return
        if self.state.link is LinkState.PAUSED:
            self._set_link(LinkState.CONNECTING, self._say_step("connecting"), None)
        self._woken.clear()
        self._keepalive.reset()
        self._trying = True
        try:
            failure, reason = await self._connect_once()
        finally:
            self._trying = False
        if self._keepalive.lived_seconds > CONNECT_PACES.lived_s:
            # Not at login: a box whose agent dies at once would be tried without a pause.
            backoff.reset()
        wait = backoff.next_wait_s(failure)
        reason = show_recorded(reason)
        self._set_link(link_after_failure(failure), reason, self._clock() + wait)
        self._told.set()
        await self._wait_or_woken(wait)

    async def _wait_or_woken(self, seconds: float | None = None) -> None:
        """Wait this many seconds (None = no limit), unless woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _connect_once(self) -> tuple[ConnectFailure, str]:
        self._fault = self._hung = None
        try:
            async with self._connector.hold_slot():
                self._connection = await self._connector.connect()
            # Read before the start: what changes while the agent starts is sent again by
            # `_catch_up`.
            asked = self._interval, self.intake.followed_logs
            watching = await self._start_watch(self._connection)
            self._channel, self._deployed = watching.channel, watching.deployed
            self._keepalive.start_monitoring()
            self._record_arrival()
            limited = self._files.add_limitation(watching.limited)
            self._set_state(
                replace(self.state, limited=limited, peer=peer_address(self._connection))
            )
            self._catch_up(*asked)
            reason = await watching.channel.wait()
        except BoxError as error:
            failure = classify_failure(error)
            refused = failure in (ConnectFailure.REFUSED_KEY, ConnectFailure.REFUSED_LOGIN)
            if refused and self._connector.has_another_address:
                failure = ConnectFailure.UNREACHABLE  # try the other address soon
            return failure, str(error)
        except (asyncssh.Error, OSError, TimeoutError) as error:
            return ConnectFailure.UNREACHABLE, self._say_step(error)
        except Exception as error:
            log.exception("%s: a session failed", self.state.spec.name)
            return ConnectFailure.OUR_FAULT, describe_fault(error)
        finally:
            self._keepalive.stop_monitoring()
            self._files.cancel_check()
            self.apply_received()
            self._channel = self._deployed = None
            if self.state.peer is not None:
                self._set_state(replace(self.state, peer=None))
            connection, self._connection = self._connection, None
            if connection is not None:
                # abort, not close: a dead connection would take minutes to close in order.
                connection.abort()
        if self._fault is not None:
            return ConnectFailure.OUR_FAULT, self._fault
        if self._hung is not None:
            return ConnectFailure.UNREACHABLE, self._hung
        # Without an exit status the connection broke, even if the agent ended.
        ended = isinstance(watching.channel, WatchChannel) and watching.channel.status is not None
        return ConnectFailure.AGENT_ENDED if ended else ConnectFailure.UNREACHABLE, reason

    async def _start_watch(self, connection: BoxTransport) -> BoxStream:
        warning = asyncio.create_task(self._warn_of_slow_start(connection))
        try:
            async with asyncio.timeout(DEPLOY_SECONDS):
                return await start_watch(
                    connection,
                    self._bundle,
                    self._pythons,
                    self.intake.build_config(self.state, self._interval, self._clock()),
                    self._accept_frame,
                    self._count_bad_frames,
                    self._tap_line if self._tap is not None else None,
                    self._record_arrival,
                )
        except TimeoutError as error:
            raise TimeoutError(
                translate(
                    "the agent was not ready within {limit:g} s{connection}",
                    limit=DEPLOY_SECONDS,
                    connection=start_up_words(connection),
                )
            ) from error
        finally:
            warning.cancel()

    async def _warn_of_slow_start(self, connection: BoxTransport) -> None:
        """Set the reason while the agent starts, for commands that give up meanwhile."""
        slow_s = 5.0
        while self.state.link is not LinkState.LIVE:
            await asyncio.sleep(slow_s)
            words = start_up_words(connection)
            said = translate("the agent is being started{connection}", connection=words)
            reason = self._say_step(said)
            if self.state.link is LinkState.CONNECTING and reason != self.state.reason:
                self._set_link(LinkState.CONNECTING, reason, None)

    def _catch_up(self, interval: float, followed: tuple[str, ...]) -> None:
        """Send requests made while the agent was starting."""
        if self._interval != interval:
            self._send_control(ControlLine(op="interval", seconds=self._interval))
        for path in self.intake.followed_logs[len(followed) :]:
            self._send_control(ControlLine(op="follow", path=path))
        if self._fault is not None and self._connection is not None:
            self._connection.abort()

    def _record_arrival(self) -> None:
        self._keepalive.record_data()
        self._came, self._came_steady = self._clock(), steady_time()
        self._on_change(self.state.spec.name)

    def apply_received(self, until: float = math.inf) -> bool:
        """Process received data; called for all boxes in turn, a few times a second.

        Args:
            until: When to stop (monotonic clock), so that no box delays the others.

        Returns:
            True when some data is left.
        """
        waits = False
        try:
            if isinstance(self._channel, WatchChannel):
                self._gathers = True
                waits = self._channel.apply_received(until)
                self._apply_samples()
        except Exception as error:
            log.exception("%s: what came could not be taken in", self.state.spec.name)
            self._fault = describe_fault(error)
            if self._connection is not None:
                self._connection.abort()
        finally:
            self._gathers = False
            self._samples = []
            if not waits:
                self._came = None
        return waits

    def _receipt_time(self) -> float:
        if self._came is None:
            return self._clock()
        return self._came

    def _tap_line(self, line: bytes) -> None:
        if self._tap is not None:
            self._tap(self.state.spec.name, self._receipt_time(), line)

    def _accept_frame(self, frame: Frame) -> None:
        if self._fault is not None:
            return
        self._keepalive.record_data()
        if self._gathers and isinstance(frame, Sample):
            self._samples.append(frame)
            if len(self._samples) >= MOST_TOGETHER:
                self._apply_samples()
            return
        # In the order of receipt: the collected samples came before this frame.
        self._apply_samples()
        self._apply_frame(frame)

    def _apply_samples(self) -> None:
        """Apply the collected samples.

        Usually that is one, or the history of a box that has just connected.
        """
        samples, self._samples = self._samples, []
        if len(samples) > 1:
            # One of them is invalid: apply them one at a time below.
            with contextlib.suppress(Exception):
                state = self.intake.apply_samples(self.state, samples, self._receipt_time())
                new = state.counters.samples - self.state.counters.samples
                self._set_state(self._record_samples(state, new) if new else state)
                samples = []
                if self._connection is not None:
                    self._files.start_check(self._connection)
        for frame in samples:
            self._apply_frame(frame)

    def _apply_frame(self, frame: Frame) -> None:
        if self._fault is not None:
            return
        try:
            state = self.intake.apply_frame(self.state, frame, self._receipt_time())
            state = self._record_receipt(state, frame)
        except Exception as error:
            log.exception("%s: a frame could not be taken in", self.state.spec.name)
            kind = type(frame).__name__
            self._fault = translate(
                "rgt could not process a {kind} frame: {error}; it is left out and counted",
                kind=kind,
                error=describe_error(error),
            )
            with contextlib.suppress(Exception):
                self._set_state(self.intake.give_up(self.state, frame))
            if self._connection is not None:
                self._connection.abort()
            return
        self._set_state(state)
        if isinstance(frame, Sample) and self._connection is not None:
            self._files.start_check(self._connection)

    def _record_receipt(self, state: BoxState, frame: Frame) -> BoxState:
        """Record when a frame was applied, by the steady clock."""
        if isinstance(frame, Sample):
            # An older or repeated sample, which is no sign that the box is alive now.
            if state.sample is not frame:
                return state
            return self._record_samples(state, 1)
        if isinstance(frame, QueueState):
            kept = {queue.path for queue in state.queues}
            times = {**state.seen.queues, frame.path: steady_time()}
            queues = {path: at for path, at in times.items() if path in kept}
            return replace(state, seen=replace(state.seen, queues=queues))
        if isinstance(frame, Pong) and frame.id in self._looks:
            self._answered.add(frame.id)
        return state

    def _record_samples(self, state: BoxState, count: int) -> BoxState:
        """Record that `count` samples were applied."""
        # Only now, not at the pong: the sample that proves the state comes after it.
        for number in self._answered:
            self._looks[number].set()
        shown = self._shown_interval()
        if self._slower_samples >= count:
            shown = state.interval
        self._slower_samples = max(0, self._slower_samples - count)
        return replace(state, interval=shown, seen=replace(state.seen, sample=steady_time()))

    def _update_limits(self) -> None:
        self._set_state(replace(self.state, limited=self._files.add_limitation(self.state.limited)))

    def _count_bad_frames(self, count: int) -> None:
        bad = self.state.counters.bad_frames + count
        counters = replace(self.state.counters, bad_frames=bad)
        self._set_state(replace(self.state, counters=counters))

    def _show_prompt(self, title: str | None) -> None:
        if title is not None:
            reason = translate("waiting for you: {title}", title=title)
            self._set_link(LinkState.ASKING, reason, None)
        elif self.state.link is LinkState.ASKING:
            self._set_link(LinkState.CONNECTING, self._say_step("connecting"), None)

    def _set_link(self, link: LinkState, reason: str, retry_at: float | None) -> None:
        since = self.state.since
        if self.state.link is not link:
            since = self._clock()
        self._set_state(
            replace(self.state, link=link, reason=reason, since=since, retry_at=retry_at)
        )

    def _set_state(self, state: BoxState) -> None:
        if state is not self.state:
            self.state = state
            if state.link is LinkState.LIVE:
                self._told.set()
            # Otherwise notified on receipt already, and read after processing.
            if self._came is None:
                self._on_change(state.spec.name)

    def _send_control(self, control: ControlLine) -> None:
        if self._channel is not None:
            self._channel.send(control)
