"""Questions on the way to the boxes, and their answers. Nothing of an answer is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from rgt_tui.model.question import Question


class Questions:
    """Hands questions to whoever watches the fleet, and each answer to who asked.

    Args:
        clock: Epoch seconds.
        wake: Called when the open questions change.
        attended: Somebody is there; otherwise every question is refused at once.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None], *, attended: bool) -> None:
        self.open: tuple[Question, ...] = ()
        self._clock = clock
        self._wake = wake
        self._attended = attended
        self._number = 0
        self._waiting: dict[int, asyncio.Future[str | None]] = {}

    async def ask(self, question: Question) -> str | None:
        """Ask and wait; `Question.id` and `asked_at` are filled in here."""
        if not self._attended:
            return None
        self._number += 1
        numbered = msgspec.structs.replace(question, id=self._number, asked_at=self._clock())
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[numbered.id] = answer
        self.open = (*self.open, numbered)
        self._wake()
        try:
            return await answer
        finally:
            self._waiting.pop(numbered.id, None)
            self.open = tuple(item for item in self.open if item.id != numbered.id)
            self._wake()

    def answer(self, number: int, text: str | None) -> None:
        """Answer a question that is open; any other number is ignored."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(text)

    def close(self) -> None:
        """Refuse what is still open."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)
