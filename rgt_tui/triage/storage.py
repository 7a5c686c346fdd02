"""Full disks: the log says *no space*, the live reading says of what, and a later save says that it is over."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from rgt_tui.health.facts import DISK_MARGIN_PCT, short_of
from rgt_tui.model.evidence import Finding
from rgt_tui.model.protocol import Disk
from rgt_tui.profiles.readings import disk_of
from rgt_tui.triage.context import Case
from rgt_tui.triage.handbook import HANDBOOK
from rgt_tui.triage.scan import TOGETHER, Hit
from rgt_tui.triage.space import STORAGE_IDS, TITLES, fixes, reading

_PATH = re.compile(r"(?:: |directory |writing )['‘\"](/[^'’\"\n]+)['’\"]|(?:left on|exceeded on) (/[^\s;(]*)")
_STEP_IN_PATH = re.compile(r"(?:step|tmp)[-_]?0*(\d+)")


class Cause(msgspec.Struct, frozen=True):
    """What a mount is short of, by the live reading."""

    what: str
    """inodes, bytes, quota, or space where nothing tells."""
    disk: Disk | None
    short: bool | None
    """None = no reading can tell."""


def from_logs(cases: list[Case], previous: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield a finding for each run whose log shows a full disk and that has not recovered from it."""
    for case in cases:
        hits = [hit for hit in case.scan.hits if hit.id in STORAGE_IDS and not _explained(hit, case)]
        if not hits:
            continue
        # The OSError line names the file; the trainer's own sentence is the next best.
        hit = max(hits, key=lambda hit: ("Errno" in hit.line, hit.index))
        before = before_of(case, previous)
        cause = _cause(case, hit, before)
        if not cause.short and _recovered(case, max(hit.index for hit in hits), before):
            continue
        yield _finding(case, hit, cause, before)


def kept(cases: list[Case], named: set[str | None], previous: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield anew the findings whose line has scrolled away, until their run saves again or is done.

    Args:
        cases: The logs that count.
        named: Runs that have a finding from their log already.
        previous: The last findings.
    """
    for case in cases:
        before = before_of(case, previous)
        if before is None or case.name in named or before.where == "sample":
            continue
        what, _, mount = before.resource.partition(" of ")
        disks = case.box.sample.disks if case.box.sample is not None else ()
        disk = next((one for one in disks if one.mount == mount), None)
        short = short_of(disk, 0.0 if before.cleared else DISK_MARGIN_PCT) if disk is not None else None
        # The line is gone from the window, so whatever the window shows came after it.
        if short is None and (case.scan.saved >= 0 or _past_save(case, _start(case, before, -1))):
            continue
        yield msgspec.structs.replace(
            before,
            cleared=disk is not None and short is None,
            reading=reading(disk, short or what) if disk is not None else before.reading,
            fixes=fixes(case.box, short or what, disk, case.last_good),
        )


def before_of(case: Case, previous: tuple[Finding, ...]) -> Finding | None:
    """Return the full disk that was found for this run last time."""
    return next((f for f in previous if f.run == case.name and f.gotcha in STORAGE_IDS), None)


def _explained(hit: Hit, case: Case) -> bool:
    """Say whether a more exact entry explains the line.

    That is a copy right after it which then claimed success, or, for a run that holds, a save that failed for
    another reason than space.
    """
    if hit.line.startswith(("holding at", "giving up at")):
        return any(other.id == "CKPT1" for other in case.scan.hits)
    return any(
        hit.id in HANDBOOK[other.id].beats
        and other.id not in STORAGE_IDS
        and 0 <= other.index - hit.index <= TOGETHER
        for other in case.scan.hits
    )


def _cause(case: Case, hit: Hit, before: Finding | None) -> Cause:
    disks = case.box.sample.disks if case.box.sample is not None else ()
    match = _PATH.search(hit.line)
    path = (match.group(1) or match.group(2)) if match else (case.cell.out if case.cell is not None else None)
    margin = DISK_MARGIN_PCT if before is not None and not before.cleared else 0.0
    need = case.checkpoints[-1].bytes if case.checkpoints else None
    disk = disk_of(disks, path) if path else None
    if disk is None or (match is None and short_of(disk) is None):
        disk = next((one for one in disks if short_of(one) is not None), disk)
    if "quota" in hit.line:
        return Cause("quota", disk, None)
    said = "inodes" if "no inodes left" in hit.line else "bytes" if "no bytes left" in hit.line else None
    if said is None and before is not None:
        said = before.resource.split(" of ")[0]
    if disk is None:
        return Cause(said or "space", None, None)
    short = short_of(disk, margin, need)
    return Cause(short or said or "space", disk, short is not None)


def _recovered(case: Case, index: int, before: Finding | None) -> bool:
    """Say whether the run has shown that it saves again after the line at `index` of the window."""
    if case.scan.saved > index:
        return True
    if not case.goes_on:
        return False
    start = _start(case, before, index)
    if start is None:  # an old line, first seen now: steps after it are all there is to go by
        return case.scan.step > index
    return _past_save(case, start)


def _start(case: Case, before: Finding | None, index: int) -> int | None:
    """Return the step beyond which a save counts: where a new attempt took up, else where the save failed."""
    if case.scan.resume > index and case.run is not None and case.run.resumes:
        return case.run.resumes[-1].step
    if case.scan.failed_step is not None:
        return case.scan.failed_step
    return before.step if before is not None else None


def _past_save(case: Case, start: int | None) -> bool:
    """Say whether a checkpoint after `start` stands; where none can be seen, whether the run has gone on."""
    if start is None:
        return False
    if case.checkpoints:
        return case.checkpoints[-1].step > start
    return case.run is not None and case.run.step is not None and case.run.step > start


def _finding(case: Case, hit: Hit, cause: Cause, before: Finding | None) -> Finding:
    saving = hit.id == "U6" or case.scan.failed_step is not None
    entry = HANDBOOK["U6" if saving and cause.what in ("bytes", "space") else "U7"]
    where = f" of {cause.disk.mount}" if cause.disk is not None else ""
    return Finding(
        gotcha=entry.id,
        title=TITLES[cause.what] if entry.id == "U7" else entry.title,
        severity=entry.severity,
        resource=f"{cause.what}{where}",
        evidence=hit.line,
        where=case.log,
        fixes=fixes(case.box, cause.what, cause.disk, case.last_good),
        never=entry.never,
        reading=reading(cause.disk, cause.what) if cause.disk is not None else None,
        run=case.name,
        step=_step(case, hit, before),
        cleared=cause.short is False,
    )


def _step(case: Case, hit: Hit, before: Finding | None) -> int | None:
    """Return the step of the failed save: as the log says, else as it was first seen, so that it stands still."""
    if case.scan.failed_step is not None:
        return case.scan.failed_step
    if in_path := _STEP_IN_PATH.search(hit.line):
        return int(in_path.group(1))
    if before is not None and before.step is not None:
        return before.step
    return case.run.step if case.run is not None else None
