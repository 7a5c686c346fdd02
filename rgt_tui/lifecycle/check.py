"""What a check is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rgt_tui.health.facts import Facts
from rgt_tui.model.evidence import CheckStatus


class Verdict(msgspec.Struct, frozen=True):
    """What an evaluator found."""

    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None where it has none, e.g. a fact of the profile."""


class Check(msgspec.Struct, frozen=True):
    """One item of the lifecycle."""

    id: str
    """e.g. ``4.3``; the figure before the point is the phase."""
    title: str
    evaluator: Callable[[Facts], Verdict]
    live: bool = True
    """Proved only while the evidence is of now; False for facts that stay true (a finished cell, a profile)."""

    @property
    def phase(self) -> int:
        """0 to 5."""
        return int(self.id.split(".")[0])


def passed(evidence: str, at: float | None = None) -> Verdict:
    """Proved."""
    return Verdict(CheckStatus.PASSED, evidence, at)


def failed(evidence: str, at: float | None = None) -> Verdict:
    """Disproved."""
    return Verdict(CheckStatus.FAILED, evidence, at)


def warn(evidence: str, at: float | None = None) -> Verdict:
    """Neither proved nor disproved, and worth a look."""
    return Verdict(CheckStatus.WARN, evidence, at)


def waiting(evidence: str, at: float | None = None) -> Verdict:
    """Nothing to evaluate yet."""
    return Verdict(CheckStatus.WAITING, evidence, at)


def absent(seen: Facts, evidence: str, at: float | None = None) -> Verdict:
    """Nothing of it is there yet, or nobody could look, which is not the same."""
    return Verdict(CheckStatus.WAITING, seen.untold or evidence, at)


def person(evidence: str) -> Verdict:
    """Only a person can say."""
    return Verdict(CheckStatus.PERSON, evidence)
