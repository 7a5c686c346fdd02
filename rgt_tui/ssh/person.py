"""Questions to the person while connecting: asking, waiting for the answer, and remembering it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

import asyncssh

from rgt_tui.model import Ask, Question, QuestionKind, clean


class Deadline:
    """An `asyncio.timeout` whose end can be moved from other tasks, and that does not run while a person is asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._open = 0
        self._entered: Token[tuple[Deadline, ...]] | None = None

    async def __aenter__(self) -> Deadline:
        self._timeout = asyncio.timeout(self.seconds)
        await self._timeout.__aenter__()
        self._entered = _deadlines.set((*_deadlines.get(), self))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._timeout is not None
        if self._entered is not None:
            _deadlines.reset(self._entered)
        timeout, self._timeout = self._timeout, None
        await timeout.__aexit__(kind, error, trace)

    @property
    def runs(self) -> bool:
        """It will end by itself."""
        return self._timeout is not None and self._timeout.when() is not None

    def stop(self) -> None:
        """Never end: the part that had a limit is done."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)

    def extend(self, seconds: float) -> None:
        """Let it end so many seconds from now."""
        if self._timeout is not None and not self._timeout.expired() and not self._open:
            self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)

    @contextlib.contextmanager
    def open_end(self, seconds: float) -> Iterator[None]:
        """Have no end inside; behind it, end so many seconds later."""
        self._open += 1
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._open -= 1
            self.extend(seconds)


_deadlines: ContextVar[tuple[Deadline, ...]] = ContextVar("deadlines", default=())
"""The time limits that the present task runs under, of a command and of its login."""
_default_ask: ContextVar[Ask | None] = ContextVar("default_ask", default=None)


@contextlib.contextmanager
def answered_by(ask: Ask) -> Iterator[None]:
    """Let `ask` answer the questions of every connection opened inside whose caller names nobody.

    A command on a terminal sets it once, instead of passing it through each function that connects.
    """
    token = _default_ask.set(ask)
    try:
        yield
    finally:
        _default_ask.reset(token)


def default_ask() -> Ask | None:
    """Return what `answered_by` has set here; None = nobody answers."""
    return _default_ask.get()


T = TypeVar("T")


class Patience:
    """The waiting of one login.

    Args:
        deadline: How long the login may take; it stands still meanwhile.
        seconds: What is left of it when the answer is there.

    Attributes:
        asked: A person was waited for: the server may have lost patience.
    """

    __slots__ = ("_deadline", "_question", "_seconds", "asked")

    def __init__(self, deadline: Deadline, seconds: float) -> None:
        self.asked = False
        self._deadline = deadline
        self._seconds = seconds
        self._question: asyncio.Task[Any] | None = None

    @contextlib.contextmanager
    def thinking(self) -> Iterator[None]:
        """Entered while a person thinks."""
        self.asked = True
        with self._deadline.open_end(self._seconds):
            yield

    async def wait(self, asking: Coroutine[Any, Any, T]) -> T:
        """Wait for what asks a person and keeps the answer.

        A server that hangs up meanwhile cancels whoever waits here. The question stays where the person sees it; see
        `outlived`.
        """
        question = asyncio.ensure_future(asking)
        self._question = question
        with self.thinking():
            return await asyncio.shield(question)

    async def outlived(self) -> bool:
        """Wait until the question is answered that was open when the connection was lost; return whether one was."""
        if self._question is None or self._question.done():
            return False
        await asyncio.wait([self._question])
        return True

    def drop(self) -> None:
        """Withdraw a question that nobody waits for any more."""
        if self._question is not None:
            self._question.cancel()
            self._question = None


Subject = tuple[str, str]
"""What an answer is about: a kind, and a name within it."""


class Answers:
    """Passwords, unlocked keys and accepted host keys. One object may serve a whole fleet.

    It holds what is asked for once: a reconnect needs no person, and a hundred boxes behind one jump host ask
    for its password once, since whoever asks holds the subject's lock.
    """

    def __init__(self) -> None:
        self._passwords: dict[str, str] = {}
        self._keys: dict[str, asyncssh.SSHKey] = {}
        self._accepted: dict[str, set[tuple[str, str]]] = {}
        self._locks: dict[Subject, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return "Answers(…)"

    def lock(self, kind: str, name: str) -> asyncio.Lock:
        """Return the lock to hold while asking about a subject."""
        return self._locks.setdefault((kind, name), asyncio.Lock())

    def password(self, where: str) -> str | None:
        """Return the password of ``user@host:port``, if someone gave it."""
        return self._passwords.get(where)

    def keep_password(self, where: str, password: str) -> None:
        """Keep a password for the next connection."""
        self._passwords[where] = password

    def drop_password(self, where: str, password: str | None = None) -> None:
        """Forget a password that was refused, unless it has been replaced."""
        if password is None or self._passwords.get(where) == password:
            self._passwords.pop(where, None)

    def key(self, path: str) -> asyncssh.SSHKey | None:
        """Return an encrypted key that has been unlocked."""
        return self._keys.get(path)

    def keep_key(self, path: str, key: asyncssh.SSHKey) -> None:
        """Keep an unlocked key."""
        self._keys[path] = key

    def accepted(self, name: str) -> frozenset[tuple[str, str]]:
        """Return the host keys (type, base64) that a person accepted for a server that has no file for them."""
        return frozenset(self._accepted.get(name, ()))

    def accept(self, name: str, kind: str, key: str) -> None:
        """Keep an accepted host key."""
        self._accepted.setdefault(name, set()).add((kind, key))


LONGEST_LINE = 300
MOST_LINES = 30

Idle = Callable[[str], AbstractAsyncContextManager[None]]
"""Entered while a person is waited for, with what is asked: whoever connects gives its turn to other boxes."""


@contextlib.asynccontextmanager
async def _at_once(_title: str) -> AsyncIterator[None]:
    yield


class Person:
    """Asks questions about one box.

    Args:
        box: The box's name.
        ask: None = there is nobody.
        answers: What has been answered before.
        idle: See `Idle`.
    """

    def __init__(
        self,
        box: str,
        ask: Ask | None = None,
        answers: Answers | None = None,
        idle: Idle | None = None,
    ) -> None:
        self.box = box
        self.answers = Answers() if answers is None else answers
        self.idle: Idle = _at_once if idle is None or ask is None else idle
        self._ask = ask

    @property
    def there(self) -> bool:
        """Whether anybody can answer."""
        return self._ask is not None

    async def ask(self, kind: QuestionKind, title: str, lines: tuple[str, ...] = ()) -> str | None:
        """Ask and wait; None = refused, or nobody can answer."""
        if self._ask is None:
            return None
        said = tuple(clean(line)[:LONGEST_LINE] for line in lines[:MOST_LINES])
        question = Question(0, self.box, kind, clean(title)[:LONGEST_LINE], said)
        with contextlib.ExitStack() as waiting:
            for deadline in _deadlines.get():
                waiting.enter_context(deadline.open_end(deadline.seconds))
            return await self._ask(question)
