"""The findings of a box: every source, one finding per cause, worst first, each with its beginning."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from rgt_tui.handbook import SPECIFIC
from rgt_tui.health import fulldisk
from rgt_tui.health.condition import Entry, Proof
from rgt_tui.health.facts import MEMORY_WARN_PCT, Facts, facts_of
from rgt_tui.health.fulldisk import STORAGE_IDS, command
from rgt_tui.health.handbook import HANDBOOK
from rgt_tui.health.lognotes import Case, Hit, cases, scan, window
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding, Fix, Severity
from rgt_tui.profiles.readings import memory_pct

_KERNEL_SAYS = re.compile(r"(?i)oom|out of memory|memory limit")


def live_hits(case: Case) -> list[Hit]:
    """Return the hits of a log that still hold, without those that a more exact one explains away.

    What stands before the newest resume belongs to an earlier attempt. While the run goes on, a later finite
    step proves that it got past the line; once it has ended nothing does, because a traceback (unbuffered)
    often stands before losses that were printed earlier (buffered).
    """
    hits = [hit for hit in case.scan.hits if hit.index > _floor(case, hit)]
    beaten = {loser for hit in hits for loser in HANDBOOK[hit.id].beats}
    return [hit for hit in hits if hit.id not in beaten and hit.id not in STORAGE_IDS]


def _floor(case: Case, hit: Hit) -> int:
    seen = case.scan
    if not case.goes_on:
        return seen.resume
    return max(seen.resume, seen.saved if HANDBOOK[hit.id].cleared_by == "saved" else seen.step)


def from_logs(cases: list[Case]) -> Iterator[Finding]:
    """Yield a finding for each hit that holds."""
    for case in cases:
        for hit in live_hits(case):
            yield _of_hit(case, HANDBOOK[_told_apart(case.box, hit)], hit)


def _sure(box: BoxState, entry: Entry) -> float:
    """Return how sure a line is; a kill that the kernel has counted is as good as read."""
    counted = entry.id == "U9" and box.sample is not None and bool(box.sample.mem.oom_kills)
    return SPECIFIC if counted else entry.confidence


def _told_apart(box: BoxState, hit: Hit) -> str:
    """A bare kill is the kernel's only if the kernel counted it: with a counter at zero it was not."""
    if hit.id != "U9" or box.sample is None or _KERNEL_SAYS.search(hit.line):
        return hit.id
    share = memory_pct(box.sample.mem)
    innocent = box.sample.mem.oom_kills == 0 and (share is None or share < MEMORY_WARN_PCT)
    return "U3" if innocent else "U9"


def _of_hit(case: Case, entry: Entry, hit: Hit) -> Finding:
    name = f"'{hit.name}'" if hit.name else "?"
    proof = Proof(
        hit.line,
        case.log,
        resource=entry.resource.replace("{name}", name),
        run=case.name,
        step=case.run.step if case.run is not None else None,
        durable=case.cell.durable_path if case.cell is not None else None,
        confidence=_sure(case.box, entry),
        line_no=case.line_no(hit),
    )
    return _finding(case.box, entry, proof)


def _finding(box: BoxState, entry: Entry, proof: Proof) -> Finding:
    return Finding(
        gotcha=entry.id,
        title=entry.title,
        severity=entry.severity,
        resource=proof.resource or entry.resource,
        evidence=proof.evidence,
        where=proof.where,
        fixes=proof.fixes or filled(entry.fixes, proof.durable),
        never=entry.never,
        reading=entry.reading(box) if entry.reading is not None else None,
        run=proof.run,
        step=proof.step,
        action=entry.action,
        confidence=SPECIFIC if proof.confidence is None else proof.confidence,
        line_no=proof.line_no,
    )


def filled(fixes: tuple[Fix, ...], durable: str | None) -> tuple[Fix, ...]:
    """Put the durable path into the commands that want one; without a path to go by they show no command."""
    return tuple(
        Fix(fix.text, command(fix.command, durable))
        if fix.command is not None and "{}" in fix.command
        else fix
        for fix in fixes
    )


def log_finding(lines: tuple[str, ...], log: str = "") -> Finding | None:
    """Return what the handbook makes of the last lines of a log alone, without a box's readings; None = it knows none.

    Args:
        lines: Oldest first.
        log: Its path.
    """
    hits = scan(window(lines)).hits
    beaten = {loser for hit in hits for loser in HANDBOOK[hit.id].beats}
    entries = [(HANDBOOK[hit.id], hit) for hit in hits if hit.id not in beaten]
    causes = [pair for pair in entries if not pair[0].symptom] or entries
    if not causes:
        return None
    entry, hit = min(causes, key=lambda pair: (_ORDER[pair[0].severity], -pair[1].index))
    resource = entry.resource.replace("{name}", f"'{hit.name}'" if hit.name else "?")
    fixes = filled(entry.fixes, None)
    return Finding(
        entry.id,
        entry.title,
        entry.severity,
        resource,
        hit.line,
        log,
        fixes=fixes,
        never=entry.never,
        action=entry.action,
        confidence=entry.confidence,
    )


@functools.cache
def _proved() -> tuple[tuple[Entry, Callable[[Facts], Iterable[Proof]]], ...]:
    """Return the entries that readings alone can prove."""
    return tuple((entry, entry.prove) for entry in HANDBOOK.values() if entry.prove is not None)


def from_readings(seen: Facts, explained: Mapping[str, set[str | None]]) -> Iterator[Finding]:
    """Yield a finding for all that the live readings prove, but for the `explained` runs, by what they explain."""
    for entry, prove in _proved():
        for proof in prove(seen):
            if proof.run not in explained.get(entry.gives_way, ()):
                yield _finding(seen.box, entry, proof)


_ORDER = {severity: place for place, severity in enumerate(Severity)}


def diagnose(
    box: BoxState, now: float, previous: tuple[Finding, ...], seen: Facts | None = None
) -> tuple[Finding, ...]:
    """Return the findings that hold now, worst first. Pure; unchanged logs are not searched again.

    Args:
        box: The state to explain; its own `findings` are not trusted, `previous` is.
        now: Client clock.
        previous: What the last call returned: a finding keeps its `since` while it holds; a full disk that
            has room again stays, marked `cleared`, until its run has saved.
        seen: What `facts_of` has made of the same box at the same moment; None = it is worked out.
    """
    logs = list(cases(box))
    full = list(fulldisk.from_logs(logs, previous))
    full += fulldisk.kept(logs, {finding.run for finding in full}, previous)
    full = _one_per_resource(full)
    resources = {finding.resource for finding in full if not finding.cleared}
    full += fulldisk.from_readings(box, resources, previous)
    other = list(from_logs(logs))
    logged = {finding.run for finding in other}
    seen = facts_of(box, now) if seen is None else seen
    other += from_readings(seen, {"log": logged, "any": logged | {finding.run for finding in full}})
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
    causes = [finding for finding in everything if not HANDBOOK[finding.gotcha].symptom]
    return [finding for finding in other if finding in causes] if causes else other


def _unique(findings: Iterable[Finding]) -> list[Finding]:
    return list({(f.gotcha, f.resource, f.run): f for f in findings}.values())


def _dated(finding: Finding, now: float, previous: tuple[Finding, ...]) -> Finding:
    same = [old for old in previous if old.gotcha == finding.gotcha and old.resource == finding.resource]
    mine = [old for old in same if old.run == finding.run] or [
        old for old in same if None in (old.run, finding.run)
    ]
    return msgspec.structs.replace(finding, since=mine[0].since if mine else now)
