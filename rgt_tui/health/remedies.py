"""The fix for a box as a checklist whose steps are ticked by its samples alone. Pure: from one state to the next.

A step is ticked when the very condition that proposed it is known to be over. A line that has only scrolled out of a
log, and a box that tells nothing, prove nothing: then the step stays as it is.
"""

from __future__ import annotations

import msgspec

from rgt_tui.health.alert_state import instant
from rgt_tui.health.conditions import BY_ID, covered
from rgt_tui.health.facts import Facts, facts_of
from rgt_tui.model import Alert, BoxState, Finding, Fix

KEPT_S = 1800.0
"""So long what is over is still shown, ticked."""
MOST = 40
"""Remedies that are remembered of a box."""
READ = frozenset(("sample", "scalars"))
"""Where a finding's evidence stands if it is a reading rather than a line of a log."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that one condition proposes."""

    key: str
    """Which condition, of which resource."""
    title: str
    steps: tuple[Fix, ...]
    finding: Finding | None = None
    """What proposed it; None = an alert."""
    over_at: float | None = None
    """Client clock at which the readings showed that the condition no longer holds; None = it holds, or who knows."""
    doubt: str = ""
    """Why nobody can say whether it still holds; empty = that is known."""

    @property
    def done(self) -> bool:
        """Whether its steps are ticked."""
        return self.over_at is not None


def standing_remedies(before: tuple[Remedy, ...], box: BoxState, now: float) -> tuple[Remedy, ...]:
    """Return what is proposed now, and after it what was proposed before and is over or no longer seen.

    Args:
        before: What the last call returned for this box; empty at first.
        box: Its state.
        now: Client clock.
    """
    alerts = box.alerts if box.alerts_kept else instant(box, now)[1]
    told = {f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}" for finding in box.findings}
    known = {one.key: one for one in before}
    found = [_of_finding(finding, known, now) for finding in box.findings if finding.fixes]
    found += [_of_alert(alert) for alert in alerts if not alert.muted and alert.id not in told]
    # What is muted, told by a finding, or found anew under another name is not over.
    here = {one.key for one in found} | {alert.id for alert in alerts} | covered(box.findings)
    broken = {finding.resource for finding in box.findings}
    seen = facts_of(box, now)
    gone = [
        _gone(one, seen)
        for one in before
        if one.key not in here and (one.finding is None or one.finding.resource not in broken)
    ]
    return (*found, *(one for one in gone if one.over_at is None or now - one.over_at <= KEPT_S))[:MOST]


def _of_finding(finding: Finding, known: dict[str, Remedy], now: float) -> Remedy:
    key = f"finding:{finding.gotcha}:{finding.resource}:{finding.run or ''}"
    old = known.get(key)
    since = old.over_at if old is not None and old.over_at is not None else now
    return Remedy(
        key=key,
        title=finding.resource,
        steps=finding.fixes,
        finding=finding,
        over_at=since if finding.cleared else None,
    )


def _of_alert(alert: Alert) -> Remedy:
    kind = BY_ID.get(alert.kind)
    advice = kind.advice if kind is not None else ""
    return Remedy(key=alert.id, title=alert.text, steps=(Fix(advice),) if advice else ())


def _gone(one: Remedy, seen: Facts) -> Remedy:
    """Return what is proposed no more: over, if the readings say so."""
    if one.done:
        return one
    if not seen.live or seen.blind:
        return msgspec.structs.replace(one, doubt="not known: the box does not report it now")
    if one.finding is None or one.finding.where in READ or _went_on(one.finding, seen):
        return msgspec.structs.replace(one, over_at=seen.now, doubt="")
    return msgspec.structs.replace(one, doubt="no longer seen in the log; nothing shows that it is over")


def _went_on(finding: Finding, seen: Facts) -> bool:
    """Say whether the run got past what the log told: it has logged a later step, or its cell has ended well."""
    cell = next((cell for cell in seen.cells if cell.name == finding.run), None)
    if cell is not None and cell.state == "done" and cell.exit_code == 0:
        return True
    run = next((run for run in seen.box.runs if run.name == finding.run), None)
    return run is not None and run.step is not None and finding.step is not None and run.step > finding.step
