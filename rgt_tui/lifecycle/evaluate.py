"""Evaluates every check of a box now."""

from __future__ import annotations

from rgt_tui.health.facts import Facts, facts
from rgt_tui.lifecycle.check import Check
from rgt_tui.lifecycle.table import CHECKS
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
    seen = facts(box, now, profile=profile)
    return tuple(_result(check, seen) for check in CHECKS)


def _result(check: Check, seen: Facts) -> CheckResult:
    verdict = check.evaluator(seen)
    status, evidence = verdict.status, verdict.evidence
    if check.live and status is CheckStatus.PASSED and not seen.live:
        sample_at = seen.box.sample_at
        last = "no sample" if sample_at is None else f"last sample {age(seen.now - sample_at)} ago"
        status, evidence = CheckStatus.WAITING, f"{evidence} ({last})"
    return CheckResult(check.id, check.phase, check.title, status, evidence, verdict.at)
