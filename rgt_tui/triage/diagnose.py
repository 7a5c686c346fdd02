"""The whole diagnosis of a box: every source, one finding per cause, worst first, each with its beginning."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding, Severity
from rgt_tui.triage import crashes, storage
from rgt_tui.triage.cells import from_cells
from rgt_tui.triage.context import cases
from rgt_tui.triage.space import from_readings

_ORDER = {severity: place for place, severity in enumerate(Severity)}


def diagnose(box: BoxState, now: float, previous: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings that hold now, worst first. Pure; unchanged logs are not searched again.

    Args:
        box: The state to explain; its own `findings` are not trusted, `previous` is.
        now: Client clock.
        previous: What the last call returned: a finding keeps its `since` while it holds; a full disk that
            has room again stays, marked `cleared`, until its run has saved.
    """
    seen = list(cases(box))
    full = list(storage.from_logs(seen, previous))
    full += storage.kept(seen, {finding.run for finding in full}, previous)
    full = _one_per_resource(full)
    resources = {finding.resource for finding in full if not finding.cleared}
    full += from_readings(box, resources, previous)
    other = list(crashes.from_logs(seen))
    explained = {finding.run for finding in (*full, *other)}
    other += crashes.nan_losses(box, {finding.run for finding in other})
    other += crashes.lost_gpus(box)
    other += from_cells(box, explained)
    found = [*full, *_causes_only([*full, *other], other)]
    dated = [_dated(finding, now, previous) for finding in _unique(found)]
    return tuple(sorted(dated, key=lambda f: (f.cleared, _ORDER[f.severity], -f.since, f.gotcha)))


def _one_per_resource(findings: list[Finding]) -> list[Finding]:
    """Of several runs that hit the same full mount, keep the one not cleared, else the last queued."""
    best: dict[str, Finding] = {}
    for finding in findings:
        held = best.get(finding.resource)
        if held is None or held.cleared or not finding.cleared:
            best[finding.resource] = finding
    return list(best.values())


def _causes_only(everything: list[Finding], other: list[Finding]) -> Iterable[Finding]:
    """Leave out symptoms (a collective that timed out) where something else explains them."""
    causes = [finding for finding in everything if finding.gotcha not in crashes.SYMPTOMS]
    return [finding for finding in other if finding in causes] if causes else other


def _unique(findings: Iterable[Finding]) -> list[Finding]:
    return list({(f.gotcha, f.resource, f.run): f for f in findings}.values())


def _dated(finding: Finding, now: float, previous: tuple[Finding, ...]) -> Finding:
    same = [old for old in previous if old.gotcha == finding.gotcha and old.resource == finding.resource]
    mine = [old for old in same if old.run == finding.run] or [
        old for old in same if None in (old.run, finding.run)
    ]
    return msgspec.structs.replace(finding, since=mine[0].since if mine else now)
