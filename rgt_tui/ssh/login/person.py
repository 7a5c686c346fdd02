"""Whoever can be asked on the way to one box."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from rgt_tui.model.plain import clean
from rgt_tui.model.question import Ask, Question, QuestionKind
from rgt_tui.ssh.login.answers import Answers

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
        """Somebody may answer."""
        return self._ask is not None

    async def ask(self, kind: QuestionKind, title: str, lines: tuple[str, ...] = ()) -> str | None:
        """Ask and wait; None = refused, or nobody is there."""
        if self._ask is None:
            return None
        said = tuple(clean(line)[:LONGEST_LINE] for line in lines[:MOST_LINES])
        return await self._ask(Question(0, self.box, kind, clean(title)[:LONGEST_LINE], said))
