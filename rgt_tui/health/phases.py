"""The six phases of renting a box to train, as checks that are proved from its live state."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rgt_tui.health.condition import Check
from rgt_tui.health.conditions import CHECKS
from rgt_tui.health.facts import Facts, facts_of
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import CheckResult, CheckStatus
from rgt_tui.model.profile import Profile
from rgt_tui.profiles.readings import age


def evaluate(box: BoxState, profile: Profile, now: float) -> tuple[CheckResult, ...]:
    """Return the result of every check, in order of their ids. Pure.

    Passed means proved *now*: where the evidence of a live check is of a box that no longer reports, the check waits
    again and says how old the proof is.

    Args:
        box: The state.
        profile: Platform of the box.
        now: Client clock.
    """
    seen = facts_of(box, now, profile=profile)
    return tuple(_result(check, seen) for check in CHECKS)


def _result(check: Check, seen: Facts) -> CheckResult:
    verdict = check.evaluator(seen)
    status, evidence = verdict.status, verdict.evidence
    if check.live and status is CheckStatus.PASSED and not seen.live:
        sample_at = seen.box.sample_at
        last = "no sample" if sample_at is None else f"last sample {age(seen.now - sample_at)} ago"
        status, evidence = CheckStatus.WAITING, f"{evidence} ({last})"
    return CheckResult(check.id, check.phase, check.title, status, evidence, verdict.at)


PHASES = ("consult", "launch", "smoke", "queue", "babysit", "collect")


class PhaseSummary(msgspec.Struct, frozen=True):
    """How one phase stands."""

    phase: int
    name: str
    passed: int = 0
    failed: int = 0
    warn: int = 0
    waiting: int = 0
    person: int = 0

    @property
    def total(self) -> int:
        """Number of checks of the phase."""
        return self.passed + self.failed + self.warn + self.waiting + self.person

    @property
    def status(self) -> CheckStatus:
        """The phase in one word, worst first; passed only when every check is proved."""
        for count, status in (
            (self.failed, CheckStatus.FAILED),
            (self.warn, CheckStatus.WARN),
            (self.person, CheckStatus.PERSON),
            (self.waiting, CheckStatus.WAITING),
        ):
            if count:
                return status
        return CheckStatus.PASSED if self.passed else CheckStatus.WAITING


def summary(results: Iterable[CheckResult]) -> tuple[PhaseSummary, ...]:
    """Count `results` by phase; every phase is there, also one without a check."""
    counts: list[dict[str, int]] = [{} for _ in PHASES]
    for result in results:
        phase = counts[result.phase]
        phase[result.status.value] = phase.get(result.status.value, 0) + 1
    return tuple(PhaseSummary(i, PHASES[i], **count) for i, count in enumerate(counts))
