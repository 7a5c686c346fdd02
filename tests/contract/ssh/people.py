"""Somebody who answers questions, and remembers what was asked."""

from __future__ import annotations

from collections.abc import Callable

from rgt_tui.model import BoxQuestion, QuestionKind
from rgt_tui.ssh import LoginAnswers, Person

Reply = str | None | Callable[[BoxQuestion], str | None]


class Somebody:
    """Gives the same kind of question the same reply."""

    def __init__(self, **replies: Reply) -> None:
        self.asked: list[BoxQuestion] = []
        self.replies = replies

    async def ask(self, question: BoxQuestion) -> str | None:
        self.asked.append(question)
        reply = self.replies.get(question.kind.name.lower())
        return reply(question) if callable(reply) else reply

    def person(self, answers: LoginAnswers | None = None) -> Person:
        return Person("box", self.ask, answers)

    def kinds(self) -> list[QuestionKind]:
        return [question.kind for question in self.asked]
