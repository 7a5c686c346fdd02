"""Waiting for a person in the midst of a login: no clock runs meanwhile, and the question outlives the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from rgt_tui.ssh.deadline import Deadline

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
        """Take back a question that nobody waits for any more."""
        if self._question is not None:
            self._question.cancel()
            self._question = None
