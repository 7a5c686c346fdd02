"""Full disks: the log says *no space*, the live reading says of what."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding, Fix
from rgt_tui.model.protocol import Disk
from rgt_tui.profiles.readings import byte_pct, disk_of, inode_pct, pct, size
from rgt_tui.triage.context import Case
from rgt_tui.triage.fixes import byte_fixes, inode_fixes
from rgt_tui.triage.handbook import HANDBOOK
from rgt_tui.triage.scan import Hit

STORAGE_IDS = ("U6", "U7")
INODES_PCT = 95.0
BYTES_PCT = 98.0
CLEAR_MARGIN_PCT = 5.0
"""A cause that was there counts as gone only this far below its limit."""

_PATH = re.compile(r"(?:: |directory |writing )['‘\"](/[^'’\"\n]+)['’\"]|(?:left on|exceeded on) (/[^\s;(]*)")
_STEP_IN_PATH = re.compile(r"(?:step|tmp)[-_]?0*(\d+)")
_TITLES = {
    "inodes": "No inodes left: there is room, but no file can be made",
    "bytes": "The disk is full",
    "quota": "The quota is used up",
    "space": "No space left on a disk",
}


class Cause(msgspec.Struct, frozen=True):
    """What a mount is short of, by the live reading."""

    what: str
    """inodes, bytes, quota, or space where nothing tells."""
    disk: Disk | None
    short: bool | None
    """None = no reading."""


def short_of(disk: Disk, margin: float = 0.0, need: int | None = None) -> str | None:
    """Return what `disk` is short of, ``inodes`` or ``bytes``, or None. Inodes win: bytes then look fine.

    Args:
        disk: A reading.
        margin: Percentage points by which the limits are lowered.
        need: Bytes of one more checkpoint, where known and wanted: less room than that is short, too.
    """
    if disk.read_only:
        return None
    inodes, used = inode_pct(disk), byte_pct(disk)
    if inodes is not None and inodes >= INODES_PCT - margin:
        return "inodes"
    if used is not None and used >= BYTES_PCT - margin:
        return "bytes"
    if need is not None and disk.bytes_free is not None and disk.bytes_free < need:
        return "bytes"
    return None


def reading(disk: Disk, what: str) -> str:
    """Return the live reading beside the evidence, e.g. ``4,096 of 4,096 inodes used (bytes 3 %)``."""
    if what == "inodes":
        used, total = disk.inodes_used or 0, disk.inodes_total or 0
        return f"{used:,} of {total:,} inodes used (bytes {pct(byte_pct(disk))})"
    free = f"{size(disk.bytes_used)} of {size(disk.bytes_total)} used, {size(disk.bytes_free)} free"
    return f"{free} (inodes {pct(inode_pct(disk))})"


def from_logs(cases: list[Case], previous: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield a finding for each run whose log shows a full disk and that has not recovered from it."""
    for case in cases:
        hits = [hit for hit in case.scan.hits if hit.id in STORAGE_IDS and not _explained(hit, case)]
        if not hits:
            continue
        # The OSError line names the file; the trainer's own sentence is the next best.
        hit = max(hits, key=lambda hit: ("Errno" in hit.line, hit.index))
        index = max(hit.index for hit in hits)
        mine = next((f for f in previous if f.run == case.name and f.gotcha in STORAGE_IDS), None)
        cause = _cause(case, hit, mine)
        if not cause.short and _recovered(case, index):
            continue
        yield _finding(case, hit, cause, any(hit.id == "U6" for hit in hits))


def _explained(hit: Hit, case: Case) -> bool:
    """A more exact entry right after the line (a copy that then claimed success) explains it."""
    return any(
        hit.id in HANDBOOK[other.id].beats
        and other.id not in STORAGE_IDS
        and 0 <= other.index - hit.index <= 3
        for other in case.scan.hits
    )


def _cause(case: Case, hit: Hit, before: Finding | None) -> Cause:
    disks = case.box.sample.disks if case.box.sample is not None else ()
    match = _PATH.search(hit.line)
    path = (match.group(1) or match.group(2)) if match else (case.cell.out if case.cell is not None else None)
    margin = CLEAR_MARGIN_PCT if before is not None and not before.cleared else 0.0
    need = case.checkpoints[-1].bytes if case.checkpoints else None
    disk = disk_of(disks, path) if path else None
    if disk is None or (match is None and short_of(disk) is None):
        disk = next((one for one in disks if short_of(one) is not None), disk)
    if "quota" in hit.line:
        return Cause("quota", disk, None)
    said = "inodes" if "no inodes left" in hit.line else "bytes" if "no bytes left" in hit.line else None
    if disk is None:
        return Cause(said or "space", None, None)
    short = short_of(disk, margin, need)
    if said is None and before is not None:
        said = before.resource.split(" of ")[0]
    return Cause(short or said or "space", disk, short is not None)


def _recovered(case: Case, index: int) -> bool:
    """Say whether the run has shown that it saves again after the line at `index`."""
    seen = case.scan
    if seen.saved > index:
        return True
    if not case.goes_on:
        return False
    step = case.run.step if case.run is not None else None
    if seen.resume > index:
        # A new attempt: it is measured from where it took up.
        start = case.run.resumes[-1].step if case.run is not None and case.run.resumes else None
        if start is None:
            return seen.step > seen.resume
        return past_save(case, start, step)
    return seen.failed_step is not None and past_save(case, seen.failed_step, step)


def past_save(case: Case, start: int, step: int | None) -> bool:
    """Say whether a checkpoint after `start` stands, or the run has come past the next one that was due."""
    saved = case.checkpoints and case.checkpoints[-1].step > start
    return bool(saved) or (step is not None and step >= start + case.save_interval)


def _finding(case: Case, hit: Hit, cause: Cause, saving: bool) -> Finding:
    bytes_id = "U6" if saving else "U7"
    entry = HANDBOOK["U7" if cause.what in ("inodes", "quota") else bytes_id]
    where = f" of {cause.disk.mount}" if cause.disk is not None else ""
    in_path = _STEP_IN_PATH.search(hit.line)
    step = case.scan.failed_step
    if step is None:
        step = int(in_path.group(1)) if in_path else (case.run.step if case.run is not None else None)
    return Finding(
        gotcha=entry.id,
        title=_TITLES[cause.what] if entry.id == "U7" else entry.title,
        severity=entry.severity,
        resource=f"{cause.what}{where}",
        evidence=hit.line,
        where=case.log,
        fixes=_fixes(case.box, cause.what, cause.disk, case.last_good),
        never=entry.never,
        reading=reading(cause.disk, cause.what) if cause.disk is not None else None,
        run=case.name,
        step=step,
        cleared=cause.short is False,
    )


def _fixes(box: BoxState, what: str, disk: Disk | None, last_good: int | None) -> tuple[Fix, ...]:
    if disk is None:
        return (Fix("Check both, bytes and inodes", "df -h; df -i"),)
    return inode_fixes(box, disk, last_good) if what == "inodes" else byte_fixes(disk, last_good)


def from_readings(box: BoxState, named: set[str], previous: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield a finding for each mount that is full by its reading alone, but for the `named` resources."""
    standing = {finding.resource for finding in previous if not finding.cleared}
    for disk in box.sample.disks if box.sample is not None else ():
        what = short_of(disk)
        if what is None:
            lower = short_of(disk, CLEAR_MARGIN_PCT)
            what = lower if f"{lower} of {disk.mount}" in standing else None
        if what is None or f"{what} of {disk.mount}" in named:
            continue
        entry = HANDBOOK["U7" if what == "inodes" else "U6"]
        proof = reading(disk, what)
        yield Finding(
            gotcha=entry.id,
            title=_TITLES[what],
            severity=entry.severity,
            resource=f"{what} of {disk.mount}",
            evidence=f"{disk.mount}: {proof}",
            where="sample",
            fixes=_fixes(box, what, disk, None),
            never=entry.never,
            reading=proof,
        )
