"""Prompts to the person while connecting: asking, waiting for the answer, and remembering it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

import asyncssh

from rgt_tui.model import Ask, BoxQuestion, QuestionKind, clean_text


class PausableDeadline:
    """An `asyncio.timeout` that other tasks can move, paused while a person is prompted."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._open = 0
        self._entered: Token[tuple[PausableDeadline, ...]] | None = None

    async def __aenter__(self) -> PausableDeadline:
        self._timeout = asyncio.timeout(self.seconds)
        await self._timeout.__aenter__()
        # Added to the outer ones: while a person thinks, all of them must wait.
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
        # Cleared first, so that a late `extend_by` does not touch a limit that has been left.
        timeout, self._timeout = self._timeout, None
        await timeout.__aexit__(kind, error, trace)

    @property
    def will_expire(self) -> bool:
        """Whether it will expire."""
        return self._timeout is not None and self._timeout.when() is not None

    def remove_limit(self) -> None:
        """Remove the limit: the part that had one is done."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)

    def extend_by(self, seconds: float) -> None:
        """Let it expire this many seconds from now."""
        # With several prompts open, the last one that ends lets the time run again.
        if self._timeout is not None and not self._timeout.expired() and not self._open:
            self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)

    @contextlib.contextmanager
    def open_end(self, seconds: float) -> Iterator[None]:
        """Suspend the limit inside the block; afterwards, expire after `seconds`."""
        self._open += 1
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._open -= 1
            self.extend_by(seconds)


_deadlines: ContextVar[tuple[PausableDeadline, ...]] = ContextVar("deadlines", default=())
"""The time limits of the current task: of a command and of its login."""
_default_ask: ContextVar[Ask | None] = ContextVar("default_ask", default=None)


@contextlib.contextmanager
def answered_by(ask: Ask) -> Iterator[None]:
    """Let `ask` answer prompts of all connections opened inside without an explicit person.

    A command on a terminal sets it once, instead of passing it through each function that connects.
    """
    token = _default_ask.set(ask)
    try:
        yield
    finally:
        _default_ask.reset(token)


def default_prompt() -> Ask | None:
    """Return what `answered_by` has set; None = nobody answers."""
    return _default_ask.get()


T = TypeVar("T")


class PromptWaiter:
    """Waits for a person during one login.

    Args:
        deadline: Limit of the login; suspended meanwhile.
        seconds: Limit after the answer.

    Attributes:
        asked: A person was waited for, so the server may have timed out.
    """

    __slots__ = ("_deadline", "_question", "_seconds", "asked")

    def __init__(self, deadline: PausableDeadline, seconds: float) -> None:
        self.asked = False
        self._deadline = deadline
        self._seconds = seconds
        self._question: asyncio.Task[Any] | None = None

    @contextlib.contextmanager
    def while_thinking(self) -> Iterator[None]:
        """A context entered while a person thinks."""
        self.asked = True
        with self._deadline.open_end(self._seconds):
            yield

    async def wait_for_prompt(self, asking: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine that prompts a person and stores the answer.

        A server that disconnects meanwhile cancels the caller. The prompt remains open; see
        `wait_for_answer`.
        """
        question = asyncio.ensure_future(asking)
        self._question = question
        # Shielded: a server may disconnect meanwhile (LoginGraceTime), and the answer is still of
        # use.
        with self.while_thinking():
            return await asyncio.shield(question)

    async def wait_for_answer(self) -> bool:
        """Wait for the answer of a prompt that outlived its connection.

        Return whether there was one.
        """
        if self._question is None or self._question.done():
            return False
        await asyncio.wait([self._question])
        return True

    def cancel_prompt(self) -> None:
        """Cancel a prompt that is no longer needed."""
        if self._question is not None:
            self._question.cancel()
            self._question = None


Subject = tuple[str, str]
"""What an answer is about: a kind, and a name within it."""


class LoginAnswers:
    """Passwords, unlocked keys and accepted host keys. One object may serve a whole fleet.

    Answers are kept in memory: a reconnect needs no person, and a hundred boxes behind one jump
    host prompt for its password once, because prompting requires the subject's lock.
    """

    def __init__(self) -> None:
        self._passwords: dict[str, str] = {}
        self._keys: dict[str, asyncssh.SSHKey] = {}
        self._accepted: dict[str, set[tuple[str, str]]] = {}
        self._locks: dict[Subject, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return "Answers(…)"

    def prompt_lock(self, kind: str, name: str) -> asyncio.Lock:
        """Return the lock to hold while prompting about a subject."""
        # No await between look-up and use, so that two tasks get the same lock.
        return self._locks.setdefault((kind, name), asyncio.Lock())

    def find_password(self, where: str) -> str | None:
        """Return the password of ``user@host:port``, if one was entered."""
        return self._passwords.get(where)

    def keep_password(self, where: str, password: str) -> None:
        """Keep a password for the next connection."""
        self._passwords[where] = password

    def drop_password(self, where: str, password: str | None = None) -> None:
        """Forget a refused password, unless it has been replaced."""
        # Another box may have had it corrected while this login still tried the old one.
        if password is None or self._passwords.get(where) == password:
            self._passwords.pop(where, None)

    def find_unlocked_key(self, path: str) -> asyncssh.SSHKey | None:
        """Return an encrypted key that has been unlocked."""
        return self._keys.get(path)

    def keep_key(self, path: str, key: asyncssh.SSHKey) -> None:
        """Keep an unlocked key."""
        self._keys[path] = key

    def accepted_keys(self, name: str) -> frozenset[tuple[str, str]]:
        """Return the accepted host keys (type, base64) of a server that has no file for them."""
        return frozenset(self._accepted.get(name, ()))

    def keep_accepted_key(self, name: str, kind: str, key: str) -> None:
        """Keep an accepted host key."""
        self._accepted.setdefault(name, set()).add((kind, key))


Idle = Callable[[str], AbstractAsyncContextManager[None]]
"""A context entered while a person is prompted, with the title: the connection slot goes to other
boxes.
"""


@contextlib.asynccontextmanager
async def _at_once(_title: str) -> AsyncIterator[None]:
    yield


class Person:
    """Prompts a person about one box.

    Args:
        box: The box's name.
        ask: None = there is nobody.
        answers: Earlier answers.
        idle: See `Idle`.
    """

    def __init__(
        self,
        box: str,
        ask: Ask | None = None,
        answers: LoginAnswers | None = None,
        idle: Idle | None = None,
    ) -> None:
        self.box = box
        if answers is None:
            self.answers = LoginAnswers()
        else:
            self.answers = answers
        self.idle: Idle = _at_once if idle is None or ask is None else idle
        self._ask = ask

    @property
    def is_present(self) -> bool:
        """Whether there is a person to answer."""
        return self._ask is not None

    async def prompt_person(
        self, kind: QuestionKind, title: str, lines: tuple[str, ...] = ()
    ) -> str | None:
        """Prompt and wait; None = refused, or there is nobody."""
        if self._ask is None:
            return None
        longest_line = 300
        most_lines = 30
        said = tuple(clean_text(line)[:longest_line] for line in lines[:most_lines])
        question = BoxQuestion(0, self.box, kind, clean_text(title)[:longest_line], said)
        with contextlib.ExitStack() as waiting:
            # Each continues with its own seconds: the time in which a person thinks does not count.
            for deadline in _deadlines.get():
                waiting.enter_context(deadline.open_end(deadline.seconds))
            return await self._ask(question)
