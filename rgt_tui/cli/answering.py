"""Answers the questions of the fleet as ``--accept-new-host-key`` says: yes to a first key, no to all else."""

from __future__ import annotations

from rgt_tui.fleet.source import FleetSource
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.question import QuestionKind


class Answering:
    """A subscriber of a fleet.

    Args:
        fleet: Whose questions are answered.
    """

    def __init__(self, fleet: FleetSource) -> None:
        self._fleet = fleet
        self._answered: set[int] = set()

    def __call__(self, state: FleetState) -> None:
        """Answer what is open and new."""
        for question in state.questions:
            if question.id not in self._answered:
                self._answered.add(question.id)
                self._fleet.answer(question.id, "yes" if question.kind is QuestionKind.HOST_KEY else None)
