"""The names of the phases, and how many checks of each are proved."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rgt_tui.model.evidence import CheckResult, CheckStatus

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
