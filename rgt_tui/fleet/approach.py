"""Connect a session to its box: within the limit, asking who has to be asked, and where the provider moved it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import asyncssh

from rgt_tui.fleet.backoff import Failure
from rgt_tui.fleet.turns import ConnectLimit, Slot
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.money import Meter
from rgt_tui.model.profile import Profile
from rgt_tui.model.question import Ask
from rgt_tui.ssh import (
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
)


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
        self._user = profile.user
        self._limit = limit
        self._policy = policy
        self._asking = asking
        self._person = Person(spec.name, ask, answers, self._idle)
        self._slot: Slot | None = None
        self._elsewhere: Elsewhere | None = None
        self._moved = self._failed = False

    def moved(self, host: str, port: int, source: str = "the provider") -> bool:
        """Take note of where the box is said to be; return whether that is news.

        It counts once the described address fails: an alias may lead to the box by a way that no provider knows.
        """
        told = Elsewhere(host, port, source)
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
