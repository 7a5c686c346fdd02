"""The findings of a box: every source, one finding per cause, worst first, each with its beginning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

import msgspec

from rgt_tui.health import fulldisk
from rgt_tui.health.facts import MEMORY_WARN_PCT, PREEMPTED
from rgt_tui.health.fulldisk import STORAGE_IDS, command, from_readings
from rgt_tui.health.handbook import HANDBOOK
from rgt_tui.health.lognotes import Case, Hit, cases
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding, Fix, Severity
from rgt_tui.model.protocol import Cell, QueueState
from rgt_tui.profiles.readings import memory_pct, pct, size

SYMPTOMS = ("MN3",)
"""Entries that only follow from another one: they give way to any other hit on the box."""
_KERNEL_SAYS = re.compile(r"(?i)oom|out of memory|memory limit")
_GPU_LOST = re.compile(r"(?i)fallen off the bus|GPU is lost|uncorrectable")


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
            yield _finding(case, _told_apart(case.box, hit), hit)


def _told_apart(box: BoxState, hit: Hit) -> str:
    """A bare kill is the kernel's only if the kernel counted it: with a counter at zero it was not."""
    if hit.id != "U9" or box.sample is None or _KERNEL_SAYS.search(hit.line):
        return hit.id
    share = memory_pct(box.sample.mem)
    innocent = box.sample.mem.oom_kills == 0 and (share is None or share < MEMORY_WARN_PCT)
    return "U3" if innocent else "U9"


def _finding(case: Case, id: str, hit: Hit) -> Finding:  # noqa: A002
    entry = HANDBOOK[id]
    name = f"'{hit.name}'" if hit.name else "?"
    return Finding(
        gotcha=id,
        title=entry.title,
        severity=entry.severity,
        resource=entry.resource.replace("{name}", name),
        evidence=hit.line,
        where=case.log,
        fixes=filled(entry.fixes, case.cell.durable_path if case.cell is not None else None),
        never=entry.never,
        reading=live_reading(case.box, id),
        run=case.name,
        step=case.run.step if case.run is not None else None,
    )


def filled(fixes: tuple[Fix, ...], durable: str | None) -> tuple[Fix, ...]:
    """Put the durable path into the commands that want one; without a path to go by they show no command."""
    return tuple(
        Fix(fix.text, command(fix.command, durable))
        if fix.command is not None and "{}" in fix.command
        else fix
        for fix in fixes
    )


def live_reading(box: BoxState, id: str) -> str | None:  # noqa: A002
    """Return the live figures that belong beside an entry's line, or None."""
    if box.sample is None:
        return None
    if id in ("U9", "U3"):
        mem = box.sample.mem
        kills = "?" if mem.oom_kills is None else str(mem.oom_kills)
        return f"oom kills {kills}, memory now {pct(memory_pct(mem))} of {size(mem.limit)}"
    if id in ("U10", "U11", "LO3", "M8") and box.sample.gpus:
        fullest = max(box.sample.gpus, key=lambda gpu: gpu.vram_used or 0)
        mark = "SIM " if fullest.sim else ""
        return f"{mark}GPU {fullest.index} now holds {size(fullest.vram_used)} of {size(fullest.vram_total)}"
    return None


def nan_losses(box: BoxState, named: set[str | None]) -> Iterator[Finding]:
    """Yield a finding for each running cell whose newest loss is not finite, but for the `named` ones."""
    entry = HANDBOOK["P8"]
    states = {cell.name: cell.state for queue in box.queues for cell in queue.cells}
    for run in box.runs:
        if states.get(run.name, "running") != "running" or run.name in named:
            continue
        if run.loss is not None and not math.isfinite(run.loss):
            yield Finding(
                gotcha=entry.id,
                title=entry.title,
                severity=entry.severity,
                resource=entry.resource,
                evidence=f"loss {run.loss} at step {run.step if run.step is not None else '?'}",
                where="scalars",
                fixes=entry.fixes,
                never=entry.never,
                run=run.name,
                step=run.step,
            )


def lost_gpus(box: BoxState) -> Iterator[Finding]:
    """Yield a finding for a card whose driver says that it is lost."""
    entry = HANDBOOK["U22"]
    for gpu in box.sample.gpus if box.sample is not None else ():
        if gpu.error is not None and _GPU_LOST.search(gpu.error):
            yield Finding(
                gotcha=entry.id,
                title=entry.title,
                severity=entry.severity,
                resource=f"GPU {gpu.index}",
                evidence=gpu.error,
                where="sample",
                fixes=entry.fixes,
                never=entry.never,
            )


KILLED = (137, -9)


def from_cells(box: BoxState, named: set[str | None]) -> Iterator[Finding]:
    """Yield a finding for each cell whose end explains itself; `named` runs have one already."""
    for queue in box.queues:
        for cell in queue.cells:
            if cell.durable == "failed":
                yield _of_cell(box, queue, cell, "U33", f"{cell.name}: durable copy failed{_why(cell)}")
            if cell.name in named or (id_ := _cause(box, queue, cell)) is None:
                continue
            ended = cell.signal or f"exit {cell.exit_code}"
            yield _of_cell(box, queue, cell, id_, f"{cell.name} {cell.state}, {ended}{_why(cell)}")


def _cause(box: BoxState, queue: QueueState, cell: Cell) -> str | None:
    if cell.state == "interrupted" and cell.exit_code == PREEMPTED:
        return None if queue.runner_alive else "SP1"
    if cell.state not in ("failed", "interrupted"):
        return None
    if cell.exit_code in KILLED or cell.signal == "SIGKILL":
        kills = box.sample.mem.oom_kills if box.sample is not None else None
        return "U9" if kills else "U3"
    return None


def _why(cell: Cell) -> str:
    return f": {cell.reason}" if cell.reason else ""


def _of_cell(box: BoxState, queue: QueueState, cell: Cell, id: str, evidence: str) -> Finding:  # noqa: A002
    entry = HANDBOOK[id]
    return Finding(
        gotcha=id,
        title=entry.title,
        severity=entry.severity,
        resource=entry.resource,
        evidence=evidence,
        where=queue.path,
        fixes=filled(entry.fixes, cell.durable_path),
        never=entry.never,
        reading=live_reading(box, id),
        run=cell.name,
    )


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
    full = list(fulldisk.from_logs(seen, previous))
    full += fulldisk.kept(seen, {finding.run for finding in full}, previous)
    full = _one_per_resource(full)
    resources = {finding.resource for finding in full if not finding.cleared}
    full += from_readings(box, resources, previous)
    other = list(from_logs(seen))
    explained = {finding.run for finding in (*full, *other)}
    other += nan_losses(box, {finding.run for finding in other})
    other += lost_gpus(box)
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
    causes = [finding for finding in everything if finding.gotcha not in SYMPTOMS]
    return [finding for finding in other if finding in causes] if causes else other


def _unique(findings: Iterable[Finding]) -> list[Finding]:
    return list({(f.gotcha, f.resource, f.run): f for f in findings}.values())


def _dated(finding: Finding, now: float, previous: tuple[Finding, ...]) -> Finding:
    same = [old for old in previous if old.gotcha == finding.gotcha and old.resource == finding.resource]
    mine = [old for old in same if old.run == finding.run] or [
        old for old in same if None in (old.run, finding.run)
    ]
    return msgspec.structs.replace(finding, since=mine[0].since if mine else now)
