"""Connecting to a box: the limit on concurrent connects, prompts, moved addresses, and the backoff after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import asyncssh

from rgt_tui.model import Ask, BoxSpec, Link, Meter, Profile
from rgt_tui.ssh import (
    NO_FILES,
    NO_SFTP,
    Answers,
    AuthFailed,
    BoxError,
    Elsewhere,
    HostKeyRefused,
    NoCommands,
    Person,
    Policy,
    ProbeFailed,
    Unreachable,
    connect,
    has_sftp,
)

AT_ONCE = 10
"""More at once stall the loop, and trip sshd's MaxStartups where boxes share a jump host (measured)."""
HOLD_SECONDS = 4.0
"""A box that has not let us in by then hangs, or waits: the next one begins beside it."""


class Slot:
    """One box's place among those that connect. It ends when it is given back, and by itself after a while."""

    __slots__ = ("_free", "_timer")

    def __init__(self, free: asyncio.Semaphore, seconds: float) -> None:
        self._free: asyncio.Semaphore | None = free
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give)

    def give(self) -> None:
        """Let the next one begin; a second time it does nothing."""
        free, self._free = self._free, None
        self._timer.cancel()
        if free is not None:
            free.release()


class ConnectLimit:
    """Hands slots out in the order in which they are asked for.

    Args:
        at_once: How many there are.
        hold: Seconds after which one ends by itself.
    """

    def __init__(self, at_once: int = AT_ONCE, hold: float = HOLD_SECONDS) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._hold = hold

    async def take(self) -> Slot:
        """Wait for a slot."""
        await self._free.acquire()
        return Slot(self._free, self._hold)


class Failure(enum.StrEnum):
    """What ended a try, or a connection."""

    UNREACHABLE = "unreachable"
    """No connection, or it was lost."""
    REFUSED_KEY = "host key refused"
    REFUSED_LOGIN = "login refused"
    AGENT_ENDED = "agent ended"
    """The connection stands, the agent does not."""
    NO_WAY_TO_READ = "no way to read it"
    """Neither the agent nor a plain shell can be used there."""
    OUR_FAULT = "fault of rgt"
    """What the box sent, or its state, was more than this program could handle."""


class Wait(NamedTuple):
    """Seconds before the next try."""

    first: float
    longest: float
    """Each wait is twice the one before, up to this."""


WAITS: dict[Failure, Wait] = {
    Failure.UNREACHABLE: Wait(1.0, 120.0),
    # More tries change nothing before a person does something, and trip the box's bans; `retry` does not wait.
    Failure.REFUSED_KEY: Wait(900.0, 900.0),
    Failure.REFUSED_LOGIN: Wait(900.0, 900.0),
    # Each try starts a program on the box.
    Failure.AGENT_ENDED: Wait(2.0, 120.0),
    Failure.NO_WAY_TO_READ: Wait(30.0, 120.0),
    Failure.OUR_FAULT: Wait(5.0, 120.0),
}

LINKS: dict[Failure, Link] = {
    Failure.REFUSED_KEY: Link.REFUSED_KEY,
    Failure.REFUSED_LOGIN: Link.REFUSED_LOGIN,
}
"""What a failure makes of the link; any other says no more than that the box cannot be reached."""

LIVED_SECONDS = 10.0
"""A connection that lived this long begins the count anew."""

_RNG = random.Random()


def link_of(failure: Failure) -> Link:
    """Return the word for the link after a failure."""
    return LINKS.get(failure, Link.UNREACHABLE)


class Backoff:
    """Counts the failures in a row. Each wait is drawn from its upper half, so that boxes do not come back in step."""

    __slots__ = ("_failures", "_rng")

    def __init__(self, rng: random.Random = _RNG) -> None:
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """Start over after a connection that lasted."""
        self._failures = 0

    def wait(self, failure: Failure = Failure.UNREACHABLE) -> float:
        """Return the next waiting time in seconds."""
        first, longest = WAITS[failure]
        seconds = min(longest, first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return seconds * self._rng.uniform(0.5, 1.0)


def endpoint_from(meter: Meter) -> tuple[str, int] | None:
    """Return where the provider says that SSH answers, if it says so and that is an address."""
    if meter.ssh_host is None or meter.ssh_port is None:
        return None
    told = Elsewhere(meter.ssh_host, meter.ssh_port)
    return (told.host, told.port) if told.usable else None


def failure_of(error: Exception) -> Failure:
    """Return what kind of failure an error on the way to a box is."""
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), Failure.UNREACHABLE)


_FAILURES: tuple[tuple[type[BoxError], Failure], ...] = (
    (HostKeyRefused, Failure.REFUSED_KEY),
    (AuthFailed, Failure.REFUSED_LOGIN),
    (NoCommands, Failure.NO_WAY_TO_READ),
    (ProbeFailed, Failure.NO_WAY_TO_READ),
)


class Connector:
    """The way to one box.

    Args:
        spec: The box.
        profile: Its platform.
        limit: How many boxes connect at once; a box that waits for a person leaves its slot to others.
        ask: Who is asked; None = nobody.
        answers: What has been answered; a whole fleet may share it.
        policy: What becomes of unknown host keys.
        asking: Called with the question while a person is waited for, and with None when that is over.
    """

    def __init__(
        self,
        spec: BoxSpec,
        profile: Profile,
        limit: ConnectLimit,
        ask: Ask | None,
        answers: Answers | None,
        policy: Policy,
        asking: Callable[[str | None], None],
    ) -> None:
        self._spec = spec
        self._user = profile.launch.user
        self._limit = limit
        self._policy = policy
        self._asking = asking
        self._person = Person(spec.name, ask, answers, self._idle)
        self._slot: Slot | None = None
        self._elsewhere: Elsewhere | None = None
        self._moved = self._failed = False

    def moved(self, host: str, port: int) -> bool:
        """Note where the box is said to be; return whether that is news.

        It counts once the described address fails: an alias may lead to the box by a way that no provider knows.
        """
        told = Elsewhere(host, port)
        news = told != self._elsewhere
        self._elsewhere = told
        self._moved = self._moved or (news and self._failed)
        return news

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Have a slot among those that connect."""
        await self._take()
        try:
            yield
        finally:
            self._give()

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Connect, within `slot`.

        Raises:
            BoxError: see `rgt_tui.ssh.connection.connect`. The next try goes to the other address, where there is one.
        """
        described = not self._moved
        try:
            connection = await connect(
                self._spec,
                person=self._person,
                policy=self._policy,
                default_user=self._user,
                elsewhere=None if described else self._elsewhere,
            )
        except (Unreachable, HostKeyRefused):
            self._failed = described
            self._moved = described and self._elsewhere is not None
            raise
        self._failed = False
        return connection

    @property
    def has_another_way(self) -> bool:
        """The address that failed last is not the only one."""
        return self._moved

    async def _take(self) -> None:
        self._slot = await self._limit.take()

    def _give(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.give()

    @contextlib.asynccontextmanager
    async def _idle(self, title: str) -> AsyncIterator[None]:
        self._give()
        self._asking(title)
        yield
        # Not when cancelled or failed: then there is nothing to go on with.
        self._asking(None)
        await self._take()


# Whether the SSH server of a box lets files be copied (SFTP), asked once per connection.


class FileAccess:
    """What is known of one box. One that takes files is asked once, any other once per connection.

    Args:
        on_lack: Called when it is found out that the box takes none.
    """

    def __init__(self, on_lack: Callable[[], None]) -> None:
        self._has: bool | None = None
        self._on_lack = on_lack
        self._task: asyncio.Task[None] | None = None

    def ask(self, connection: asyncssh.SSHClientConnection) -> None:
        """Begin to ask, unless that is under way or the answer is known."""
        if not self._has and self._task is None:
            self._task = asyncio.create_task(self._ask(connection), name="sftp")

    async def _ask(self, connection: asyncssh.SSHClientConnection) -> None:
        with contextlib.suppress(Unreachable):
            self._has = await has_sftp(connection)
            if self._has:
                self._task = None
            elif self._has is False:
                self._on_lack()

    def limits(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return what does not work on the box, files included where they are known not to."""
        said = self._has is not False or NO_FILES in others or NO_SFTP in others
        return others if said else (*others, NO_SFTP)

    def end(self) -> None:
        """The connection is gone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
