"""The findings of a box from all sources: one per cause, worst first, each with its start."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from rgt_tui.handbook import (
    KERNEL,
    SPECIFIC,
    SYMPTOM,
    JudgedPage,
    LineHit,
    choose_fixes,
    drop_outlived,
    find_last_exception,
    find_stated_ends,
    killed_by,
    shipped_pages,
    went_on,
)
from rgt_tui.health import fulldisk
from rgt_tui.health.condition import EntryProof, HandbookEntry, Sign, SignCache
from rgt_tui.health.facts import BoxFacts, facts_of
from rgt_tui.health.fulldisk import fill_command_path
from rgt_tui.health.handbook import HANDBOOK, STORAGE_IDS, log_judge
from rgt_tui.health.lognotes import LogCase, WindowHit, iterate_cases, scan_log, searched_window
from rgt_tui.model import BoxState, Finding, FixStep, Severity
from rgt_tui.profiles import memory_pct

MOST_JUDGED = 256
"""How many logs with trouble keep their judgement in the cache, the most recently judged ones."""


@functools.lru_cache(MOST_JUDGED)
def _recall_findings(hits: tuple[LineHit, ...], newest: int) -> tuple[JudgedPage, ...]:
    return tuple(log_judge().judge_hits(hits, newest))


def _hits_that_apply(case: LogCase, full: Finding | None) -> tuple[WindowHit, ...]:
    """Return the hits of a log that still apply.

    Hits before the newest resume belong to an earlier attempt. While the run is active, three later
    finite steps prove that it got past the line. Once it has ended nothing does, because a
    traceback (unbuffered) often precedes losses that were printed earlier (buffered). For a full
    disk, the readings decide.
    """
    return tuple(
        hit
        for hit in case.scan.hits
        if (full is not None if hit.id in STORAGE_IDS else hit.row > _first_valid_row(case, hit))
    )


@functools.lru_cache(MOST_JUDGED)
def _hits_of_ended(
    hits: tuple[WindowHit, ...], window: tuple[str, ...], whole: bool
) -> tuple[LineHit, ...]:
    """Return the hits that explain the end of a run; if `whole`, also by the words at the end."""
    text = "\n".join(window)
    last = text.count("\n")
    kept = drop_outlived(hits, shipped_pages(), text, last)
    told = [hit for hit in hits if hit in kept or hit.id in STORAGE_IDS]
    if whole:
        return (*told, *find_stated_ends(text, last, shipped_pages(), told))
    return tuple(told)


def _first_valid_row(case: LogCase, hit: WindowHit) -> int:
    seen = case.scan
    if not case.goes_on:
        return seen.resume
    return max(seen.resume, seen.saved if HANDBOOK[hit.id].cleared_by == "saved" else seen.passed)


def _from_log(case: LogCase, full: Finding | None) -> list[Finding]:
    """Return the findings from a log, the best first; `full` replaces those about a full disk."""
    window = searched_window(case.view.lines)
    hits: tuple[LineHit, ...] = _hits_that_apply(case, full)
    # Whether the end of this attempt alone is in the window, and no full disk has ended it.
    whole = not case.goes_on and full is None and case.scan.resume < 0
    if not case.goes_on:
        # No `passed` for an ended run: see `_hits_that_apply` about buffered losses.
        hits = _hits_of_ended(hits, window, whole)
    told = _recall_findings(hits, case.scan.went_on)
    # Nothing of the handbook: then the last exception.
    if not told and whole:
        text = "\n".join(window)
        last = text.count("\n")
        ends = tuple(find_last_exception(text, last, went_on(text, last)))
        told = _recall_findings(tuple(drop_outlived(ends, shipped_pages(), text, last)), -1)
    found = [
        _finding_of_report(case, one) if full is None or one.page.id not in STORAGE_IDS else full
        for one in told
    ]
    if full is None or full in found:
        return found
    return [full, *found]


def _finding_of_report(case: LogCase, one: JudgedPage) -> Finding:
    if case.box.sample is not None:
        mem = case.box.sample.mem
    else:
        mem = None
    # "Killed" in a log does not say by whom; the box's own figures decide which page it is.
    kills, used = (mem.oom_kills, memory_pct(mem)) if mem is not None else (None, None)
    page = killed_by(one.page.id, one.hit.line, kills, None if used is None else used / 100)
    entry = HANDBOOK[page]
    if page == one.page.id:
        sure = one.confidence
    else:
        sure = entry.confidence
    proof = EntryProof(
        one.hit.line,
        case.log_path,
        resource=_name_resource(entry, one),
        run=case.name,
        step=case.run.step if case.run is not None else None,
        durable=case.cell.durable_path if case.cell is not None else None,
        # A kill counted by the kernel is as certain as a reading.
        confidence=SPECIFIC if page == KERNEL and kills else sure,
        line_no=case.line_no(one.hit),
    )
    return replace(_build_finding(case.box, entry, proof), guess=one.is_guess)


def _name_resource(entry: HandbookEntry, one: JudgedPage) -> str:
    if not one.is_guess:
        name = one.hit.name
    else:
        name = None
    return entry.resource.replace("{name}", f"'{name}'" if name else "?")


def _build_finding(box: BoxState, entry: HandbookEntry, proof: EntryProof) -> Finding:
    return Finding(
        gotcha=entry.id,
        title=entry.title,
        severity=entry.severity,
        resource=proof.resource or entry.resource,
        evidence=proof.evidence,
        where=proof.where,
        fixes=proof.fixes
        or fill_durable_path(choose_fixes(entry.fixes, proof.evidence), proof.durable),
        never=entry.never,
        reading=entry.reading(box) if entry.reading is not None else None,
        run=proof.run,
        step=proof.step,
        action=entry.action,
        confidence=SPECIFIC if proof.confidence is None else proof.confidence,
        line_no=proof.line_no,
    )


def fill_durable_path(fixes: tuple[FixStep, ...], durable: str | None) -> tuple[FixStep, ...]:
    """Insert the durable path into commands that need it.

    Without a path, those commands are dropped.
    """
    return tuple(
        FixStep(fix.text, fill_command_path(fix.command, durable))
        if fix.command is not None and "{}" in fix.command
        else fix
        for fix in fixes
    )


def log_finding(lines: tuple[str, ...]) -> Finding | None:
    """Return what the handbook finds in a log's last lines alone, oldest first; None = no match."""
    seen = scan_log(searched_window(lines))
    told = log_judge().judge_hits(seen.hits, seen.went_on)
    if not told:
        return None
    entry = HANDBOOK[told[0].page.id]
    return Finding(
        entry.id,
        entry.title,
        entry.severity,
        _name_resource(entry, told[0]),
        told[0].hit.line,
        "",
        fixes=fill_durable_path(choose_fixes(entry.fixes, told[0].hit.line), None),
        never=entry.never,
        action=entry.action,
        confidence=told[0].confidence,
    )


@functools.cache
def _entries_by_readings() -> tuple[
    tuple[HandbookEntry, Sign | None, Callable[[BoxFacts], Iterable[EntryProof]]], ...
]:
    """Return the entries that readings alone can prove, with the sign that each needs."""
    return tuple(
        (entry, entry.needs, entry.prove) for entry in HANDBOOK.values() if entry.prove is not None
    )


def from_readings(seen: BoxFacts, explained: Mapping[str, set[str | None]]) -> Iterator[Finding]:
    """Yield a finding for each proof in the live samples, unless a log explains the run already."""
    there = SignCache(seen)
    for entry, needs, prove in _entries_by_readings():
        for proof in () if there.lacks_sign(needs) else prove(seen):
            if proof.run not in explained.get(entry.gives_way, ()):
                yield _build_finding(seen.box, entry, proof)


_ORDER = {severity: place for place, severity in enumerate(Severity)}


def diagnose_box(
    box: BoxState, now: float, previous: tuple[Finding, ...], seen: BoxFacts | None = None
) -> tuple[Finding, ...]:
    """Return the current findings, worst first. Pure; unchanged logs are not searched again.

    Args:
        box: The state to explain; `previous` is used instead of its own `findings`.
        now: Client clock.
        previous: The result of the last call: a finding keeps its `since` while it lasts; a full
            disk that has room again stays, marked `cleared`, until its run has saved.
        seen: The result of `facts_of` for the same box and time; None = it is computed.
    """
    logs = list(iterate_cases(box))
    # Full disks first: one cause that makes many different lines in many logs.
    full = list(fulldisk.from_logs(logs, previous))
    full += fulldisk.iterate_kept_findings(logs, {finding.run for finding in full}, previous)
    groups = [
        _from_log(case, next((one for one in full if one.where == case.log_path), None))
        for case in logs
    ]
    logged = {one.run for group in groups for one in group if one.gotcha not in STORAGE_IDS}
    # After `logged`: that needs every run, this only every disk.
    full = _one_per_resource(full)
    groups = [
        [one for one in group if one.gotcha not in STORAGE_IDS or one in full] for group in groups
    ]
    # A cleared one does not count, so that the disk's own reading is reported if it fills again.
    resources = {finding.resource for finding in full if not finding.cleared}
    if seen is None:
        seen = facts_of(box, now)
    hit = {"log": logged, "any": logged | {finding.run for finding in full}}
    groups += [
        [one]
        for one in (*fulldisk.from_readings(box, resources, previous), *from_readings(seen, hit))
    ]
    if not any(groups):
        return ()
    found = [_unexplained(group, groups) for group in groups if group]
    dated = [
        [_set_start_time(one, now, previous) for one in group]
        for group in _drop_duplicates(found)
        if group
    ]
    # Groups stay together: guesses of a log come right after the finding they belong to.
    dated.sort(key=_group_sort_key)
    return tuple(sorted(itertools.chain.from_iterable(dated), key=lambda finding: finding.cleared))


def _group_sort_key(group: list[Finding]) -> tuple[int, float, str]:
    """Return the sort key of groups: the worst first, the newest among equals."""
    standing = [one for one in group if not one.cleared] or group
    return (
        min(_ORDER[one.severity] for one in standing),
        -max(one.since for one in standing),
        group[0].gotcha,
    )


def _one_per_resource(findings: list[Finding]) -> list[Finding]:
    """Of several runs that hit the same full mount, keep one not cleared, or the last queued."""
    best: dict[str, Finding] = {}
    for finding in findings:
        held = best.get(finding.resource)
        if held is None or held.cleared or not finding.cleared:
            best[finding.resource] = finding
    return list(best.values())


def _unexplained(group: list[Finding], groups: list[list[Finding]]) -> list[Finding]:
    """Drop a group of symptoms (a collective that timed out) if another finding explains it.

    A finding of another run explains nothing.
    """
    if not all(_is_symptom(one) for one in group):
        return group
    causes = (one for other in groups for one in other if not _is_symptom(one))
    # A finding without a run, e.g. a lost card, explains any run.
    run = {one.run for one in group} | {None}
    if any(run == {None} or one.run in run for one in causes):
        return []
    return group


def _is_symptom(finding: Finding) -> bool:
    if finding.guess or HANDBOOK[finding.gotcha].symptom:
        return True
    # Of a log, only a line that points to a failure elsewhere makes so unsure.
    return finding.line_no is not None and (finding.confidence or 1.0) <= SYMPTOM


def _drop_duplicates(groups: Iterable[list[Finding]]) -> Iterator[list[Finding]]:
    """Yield the groups, keeping each finding only in the first group that has it."""
    seen: set[tuple[str, str, str | None]] = set()
    for group in groups:
        own = {(one.gotcha, one.resource, one.run): one for one in group}
        yield [one for key, one in own.items() if key not in seen]
        seen |= own.keys()


def _set_start_time(finding: Finding, now: float, previous: tuple[Finding, ...]) -> Finding:
    same = [
        old for old in previous if old.gotcha == finding.gotcha and old.resource == finding.resource
    ]
    # A run can get its name later, when its log is assigned: the finding stays the same one.
    mine = [old for old in same if old.run == finding.run] or [
        old for old in same if None in (old.run, finding.run)
    ]
    return replace(finding, since=mine[0].since if mine else now)
