"""Connect and stay connected: connect limit, prompts, moved addresses, backoff, keepalive."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import time
import weakref
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    Ask,
    BoxSpec,
    BoxState,
    FrozenStruct,
    LinkState,
    Meter,
    Profile,
    format_duration,
)
from rgt_tui.ssh import (
    NO_FILES,
    NO_SFTP,
    AuthFailed,
    BoxError,
    BoxTransport,
    HostKeyPolicy,
    HostKeyRefused,
    LoginAnswers,
    MovedAddress,
    NoCommands,
    Person,
    ProbeFailed,
    Unreachable,
    connect_box,
    has_sftp,
)


class ConnectPaces(FrozenStruct):
    """How long a connection waits for what."""

    at_once: int = 10
    """Simultaneous connects. More stall the loop, and trip sshd's MaxStartups where boxes share a
    jump host (measured)."""
    hold_s: float = 4.0
    """A box not logged in after this many seconds hangs or waits, so another one may begin as well.
    """
    woken_s: float = 10.0
    """A connection that is silent for this many seconds after the computer slept is dead."""
    hung_s: float = 30.0
    """An agent that does not answer for this many seconds hangs: it was stopped, or waits for a
    disk that is gone. A box that swaps may take a while to answer."""
    round_s: float = 0.5
    """Seconds between two passes over connections without an earlier deadline."""
    lived_s: float = 10.0
    """A connection that lived this many seconds resets the count of failures."""
    jump_s: float = 5.0
    """Smaller differences between two clocks come from a busy loop, or a clock that is being
    adjusted."""


CONNECT_PACES = ConnectPaces()


class ConnectSlot:
    """A permit to connect. It ends when given back, or automatically after a while."""

    __slots__ = ("_free", "_timer")

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free: asyncio.Semaphore | None = free
        # A slow login must not keep the others waiting: hundreds of boxes start at the same time.
        self._timer = asyncio.get_running_loop().call_later(seconds, self.release)

    def release(self) -> None:
        """Release the permit; a second call does nothing."""
        free, self._free = self._free, None
        self._timer.cancel()
        # The timer or the holder may have released it before; twice would add a slot.
        if free is not None:
            free.release()


class ConnectLimit:
    """Grants slots in the order of the requests.

    Args:
        at_once: Number of slots.
        hold: Seconds after which a slot ends automatically.
    """

    def __init__(
        self, at_once: int = CONNECT_PACES.at_once, hold: float = CONNECT_PACES.hold_s
    ) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._hold = hold

    async def acquire_slot(self) -> ConnectSlot:
        """Wait for a slot."""
        await self._free.acquire()
        return ConnectSlot(self._free, self._hold)


class ConnectFailure(enum.StrEnum):
    """Why an attempt, or a connection, ended."""

    UNREACHABLE = "unreachable"
    """There was no connection, or it was lost."""
    REFUSED_KEY = "host key refused"
    REFUSED_LOGIN = "login refused"
    AGENT_ENDED = "agent ended"
    """The connection is open, but the agent has ended."""
    NO_WAY_TO_READ = "no way to read it"
    """Neither the agent nor a plain shell can be used there."""
    OUR_FAULT = "fault of rgt"
    """The box's data or state caused an error in rgt."""


class RetryWait(NamedTuple):
    """Seconds before the next attempt."""

    first: float
    longest: float
    """Each wait is twice the previous one, up to this."""


WAITS: dict[ConnectFailure, RetryWait] = {
    ConnectFailure.UNREACHABLE: RetryWait(1.0, 120.0),
    # More attempts are useless until a person acts, and trigger bans by the box; `retry` does not
    # wait.
    ConnectFailure.REFUSED_KEY: RetryWait(900.0, 900.0),
    ConnectFailure.REFUSED_LOGIN: RetryWait(900.0, 900.0),
    # Each attempt starts a program on the box.
    ConnectFailure.AGENT_ENDED: RetryWait(2.0, 120.0),
    ConnectFailure.NO_WAY_TO_READ: RetryWait(30.0, 120.0),
    ConnectFailure.OUR_FAULT: RetryWait(5.0, 120.0),
}

LINKS: dict[ConnectFailure, LinkState] = {
    ConnectFailure.REFUSED_KEY: LinkState.REFUSED_KEY,
    ConnectFailure.REFUSED_LOGIN: LinkState.REFUSED_LOGIN,
}
"""Links after a failure; any other failure means unreachable."""


_RNG = random.Random()


def link_after_failure(failure: ConnectFailure) -> LinkState:
    """Return the link's state after a failure."""
    return LINKS.get(failure, LinkState.UNREACHABLE)


class Backoff:
    """Counts consecutive failures.

    Each wait is drawn randomly from its upper half, so that boxes do not reconnect in step.
    """

    __slots__ = ("_failures", "_rng")

    def __init__(self, rng: random.Random = _RNG) -> None:
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """Reset the count after a connection that lasted."""
        self._failures = 0

    def next_wait_s(self, failure: ConnectFailure = ConnectFailure.UNREACHABLE) -> float:
        """Return the next waiting time in seconds."""
        first, longest = WAITS[failure]
        # The exponent is limited: a box that is away for a month would overflow the float.
        seconds = min(longest, first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return seconds * self._rng.uniform(0.5, 1.0)


def endpoint_from(meter: Meter) -> tuple[str, int] | None:
    """Return the SSH address reported by the provider, if it is usable."""
    if meter.ssh_host is None or meter.ssh_port is None:
        return None
    told = MovedAddress(meter.ssh_host, meter.ssh_port)
    if told.is_usable:
        return (told.host, told.port)
    return None


def classify_failure(error: Exception) -> ConnectFailure:
    """Return the kind of failure of a connection error."""
    return next(
        (failure for kind, failure in _FAILURES if isinstance(error, kind)),
        ConnectFailure.UNREACHABLE,
    )


_FAILURES: tuple[tuple[type[BoxError], ConnectFailure], ...] = (
    (HostKeyRefused, ConnectFailure.REFUSED_KEY),
    (AuthFailed, ConnectFailure.REFUSED_LOGIN),
    (NoCommands, ConnectFailure.NO_WAY_TO_READ),
    (ProbeFailed, ConnectFailure.NO_WAY_TO_READ),
)


class Connector:
    """Opens connections to one box.

    Args:
        spec: The box.
        profile: Its platform.
        limit: How many boxes connect at once; a box that waits for a person releases its slot.
        ask: Prompts a person; None = no prompts.
        answers: Earlier answers; an entire fleet may share them.
        policy: Whether to accept unknown host keys.
        asking: Called with the question while a person must answer, and with None afterwards.
    """

    def __init__(
        self,
        spec: BoxSpec,
        profile: Profile,
        limit: ConnectLimit,
        ask: Ask | None,
        answers: LoginAnswers | None,
        policy: HostKeyPolicy,
        asking: Callable[[str | None], None],
    ) -> None:
        self._spec = spec
        self._user = profile.launch.user
        self._limit = limit
        self._policy = policy
        self._asking = asking
        self._person = Person(spec.name, ask, answers, self._while_prompting)
        self._slot: ConnectSlot | None = None
        self._elsewhere: MovedAddress | None = None
        self._moved = self._failed = False

    def set_moved_address(self, host: str, port: int) -> bool:
        """Store the address reported by the provider; return whether it is new.

        It is used once the described address fails: an alias may lead to the box by a route that
        the provider does not know.
        """
        told = MovedAddress(host, port)
        news = told != self._elsewhere
        self._elsewhere = told
        # The described address has failed and the provider names another one: no need to fail again
        # first.
        self._moved = self._moved or (news and self._failed)
        return news

    @contextlib.asynccontextmanager
    async def hold_slot(self) -> AsyncIterator[None]:
        """Hold a slot of the connect limit."""
        await self._acquire_slot()
        try:
            yield
        finally:
            self._release_slot()

    async def connect(self) -> BoxTransport:
        """Connect, within `hold_slot`.

        Raises:
            BoxError: see `rgt_tui.ssh.connection.connect`. The next attempt uses the other address,
                if there is one.
        """
        described = not self._moved
        try:
            connection = await connect_box(
                self._spec,
                person=self._person,
                policy=self._policy,
                default_user=self._user,
                elsewhere=None if described else self._elsewhere,
            )
        except (Unreachable, HostKeyRefused):
            # Only the described address counts: after a failure of the other one, the described is
            # next.
            self._failed = described
            # The two addresses take turns, because either may be the one that is out of date.
            self._moved = described and self._elsewhere is not None
            raise
        self._failed = False
        return connection

    @property
    def has_another_address(self) -> bool:
        """Whether the next attempt uses another address than the one that failed."""
        return self._moved

    async def _acquire_slot(self) -> None:
        self._slot = await self._limit.acquire_slot()

    def _release_slot(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()

    @contextlib.asynccontextmanager
    async def _while_prompting(self, title: str) -> AsyncIterator[None]:
        self._release_slot()
        self._asking(title)
        yield
        # Not in a finally block: when cancelled or failed, no slot is needed.
        self._asking(None)
        await self._acquire_slot()


# Whether the SSH server of a box allows file transfers (SFTP), checked once per connection.


class FileAccess:
    """Whether one box allows file transfers.

    A positive answer is final; otherwise it is checked once per connection.

    Args:
        on_lack: Called when the box turns out not to allow them.
    """

    def __init__(self, on_lack: Callable[[], None]) -> None:
        self._has: bool | None = None
        self._on_lack = on_lack
        self._task: asyncio.Task[None] | None = None

    def start_check(self, connection: BoxTransport) -> None:
        """Start the check, unless it is running or the answer is known."""
        if not self._has and self._task is None:
            self._task = asyncio.create_task(self._check_sftp(connection), name="sftp")

    async def _check_sftp(self, connection: BoxTransport) -> None:
        with contextlib.suppress(Unreachable):
            self._has = await has_sftp(connection)
            if self._has:
                self._task = None
            elif self._has is False:
                self._on_lack()

    def add_limitation(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return the limitations of the box, including a known lack of file transfer."""
        said = self._has is not False or NO_FILES in others or NO_SFTP in others
        if said:
            return others
        return (*others, NO_SFTP)

    def cancel_check(self) -> None:
        """Cancel the check: the connection is gone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()


# Detects a silent connection, and a computer that slept or whose clock was set.


class _CheckRounds:
    """One timer for all active connections.

    Hundreds of timers of their own, reset every few seconds, would cost too much.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak, as it is kept by the loop's key in `_rounds`, and would keep that loop alive.
        self._loop = weakref.ref(loop)
        self._due: dict[Keepalive, float] = {}
        self._goes = False

    def add_connection(self, one: Keepalive, seconds: float) -> None:
        """Check a connection within this many seconds."""
        self._due[one] = time.monotonic() + seconds
        self._schedule_round()

    def remove_connection(self, one: Keepalive) -> None:
        """Stop checking a connection."""
        self._due.pop(one, None)

    def _schedule_round(self) -> None:
        loop = self._loop()
        if self._due and not self._goes and loop is not None:
            self._goes = True
            loop.call_later(CONNECT_PACES.round_s, self._run_round)

    def _run_round(self) -> None:
        self._goes = False
        soon = time.monotonic() + CONNECT_PACES.round_s
        # A copy, because a check adds the connection again.
        for one in [one for one, due in self._due.items() if due <= soon]:
            del self._due[one]
            one.check_silence()
        self._schedule_round()


_rounds: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _CheckRounds] = (
    weakref.WeakKeyDictionary()
)


class Keepalive:
    """Monitors one connection at a time. Every byte counts, because a long line arrives slowly.

    Args:
        patience: Seconds of silence after which the agent is queried.
        ask: Sends it a request that every agent answers.
        cut: Closes the connection; called with the reason.
    """

    def __init__(
        self, patience: Callable[[], float], ask: Callable[[], None], cut: Callable[[str], None]
    ) -> None:
        self._began = self._last = 0.0
        self._patience = patience
        self._ask = ask
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None
        self._rounds: _CheckRounds | None = None

    @property
    def lived_seconds(self) -> float:
        """Seconds from the start to the last byte; silence at the end does not count."""
        # The last byte, not the end: a connection that hung for an hour has not lived that long.
        return self._last - self._began

    def reset(self) -> None:
        """Reset: nothing has been received yet."""
        self._began = self._last = 0.0

    def start_monitoring(self) -> None:
        """Start monitoring a stream."""
        self._began = self._last = time.monotonic()
        self._schedule_check(self._patience())

    def record_data(self) -> None:
        """Record that data was received."""
        self._last = time.monotonic()

    def stop_monitoring(self) -> None:
        """Stop monitoring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._rounds is not None:
            self._rounds.remove_connection(self)

    def query_after_sleep(self) -> None:
        """Query the agent at once, because the computer slept."""
        self._query_agent(CONNECT_PACES.woken_s)

    def check_silence(self) -> None:
        """Check how long the connection has been silent."""
        silent, patience = time.monotonic() - self._last, self._patience()
        if silent < patience:
            self._schedule_check(patience - silent)
        else:
            self._query_agent(CONNECT_PACES.hung_s)

    def _query_agent(self, seconds: float) -> None:
        # Any byte is an answer: a busy agent may send samples before it reaches the ping.
        before = self._last
        self._ask()
        self._call_after(seconds, self._judge_answer, before)

    def _judge_answer(self, last: float) -> None:
        if self._last == last:
            silent = time.monotonic() - last
            self._cut(
                translate(
                    "the agent has sent nothing for {duration}, and does not answer: it hangs",
                    duration=format_duration(silent),
                )
            )
        else:
            self._schedule_check(self._patience())

    def _schedule_check(self, seconds: float) -> None:
        # A round would be too coarse for such a short time.
        if seconds <= 2 * CONNECT_PACES.round_s:
            self._call_after(seconds, self.check_silence)
            return
        self.stop_monitoring()
        loop = asyncio.get_running_loop()
        self._rounds = _rounds.get(loop) or _rounds.setdefault(loop, _CheckRounds(loop))
        self._rounds.add_connection(self, seconds)

    def _call_after(self, seconds: float, call: Callable[..., None], *arguments: float) -> None:
        self.stop_monitoring()
        self._timer = asyncio.get_running_loop().call_later(seconds, call, *arguments)


replace = msgspec.structs.replace


class ClockTimes(NamedTuple):
    """Several clocks read at one moment, in seconds."""

    wall: float
    """Epoch; may be set."""
    awake: float
    """Cannot be set; stops while the computer sleeps."""
    elapsed: float
    """Cannot be set; continues while the computer sleeps. Without such a clock, the same as
    `awake`."""


class ClockJump(NamedTuple):
    """Sleep and clock change between two moments."""

    slept: float = 0.0
    moved: float = 0.0
    """How far the clock was set, positive = forward."""

    @property
    def event_text(self) -> str:
        """Text for the event line."""
        if self.slept:
            return translate(
                "this computer slept for {duration}: connecting again",
                duration=format_duration(round(self.slept)),
            )
        duration = format_duration(round(abs(self.moved)))
        if self.moved > 0:
            return translate("this computer's clock went forward {duration}", duration=duration)
        return translate("this computer's clock went back {duration}", duration=duration)


def read_clocks(wall: float) -> ClockTimes:
    """Read the clocks; `wall` is the fleet's own."""
    return ClockTimes(wall, time.monotonic(), elapsed_seconds())


def elapsed_seconds() -> float:
    """Return a clock that also runs while the computer sleeps, if the system has one."""
    # Linux; macOS, whose `monotonic` stops during sleep.
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        number = getattr(time, name, None)
        if number is not None:
            return time.clock_gettime(number)
    return time.monotonic()


def clock_jump(before: ClockTimes, after: ClockTimes) -> ClockJump | None:
    """Return the sleep or clock change in between; None = neither."""
    # The difference of two clocks that cannot be set, so neither a busy loop nor a set clock
    # looks like sleep.
    slept = (after.elapsed - before.elapsed) - (after.awake - before.awake)
    moved = (after.wall - before.wall) - (after.elapsed - before.elapsed)
    if slept < CONNECT_PACES.jump_s and abs(moved) < CONNECT_PACES.jump_s:
        return None
    return ClockJump(
        max(0.0, slept) if slept >= CONNECT_PACES.jump_s else 0.0,
        moved if abs(moved) >= CONNECT_PACES.jump_s else 0.0,
    )


def shift_state(state: BoxState, seconds: float) -> BoxState:
    """Return the state adjusted to a client clock that was set, so that ages stay the same.

    Args:
        state: A box.
        seconds: How far the clock was set, positive = forward.
    """
    if not seconds:
        return state
    return replace(
        state,
        since=state.since + seconds,
        sample_at=_add_seconds(state.sample_at, seconds),
        clock_skew=_add_seconds(state.clock_skew, -seconds),
        retry_at=_add_seconds(state.retry_at, seconds),
        remembered_at=_add_seconds(state.remembered_at, seconds),
        runs=tuple(
            replace(run, progressed_at=_add_seconds(run.progressed_at, seconds))
            for run in state.runs
        ),
        logs=tuple(
            replace(
                view, at=_add_seconds(view.at, seconds), written=_add_seconds(view.written, seconds)
            )
            for view in state.logs
        ),
    )


def _add_seconds(value: float | None, seconds: float) -> float | None:
    if value is None:
        return None
    return value + seconds


def describe_fault(error: Exception) -> str:
    """Return a fault of rgt itself in words, for the box that it concerns."""
    return translate(
        "rgt: {error}; this is a fault of rgt, training continues", error=describe_error(error)
    )


def describe_error(error: Exception) -> str:
    """Return the class and the message of an exception."""
    return f"{type(error).__name__}: {error}"
