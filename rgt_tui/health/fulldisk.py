"""Full disks: found in a log ("no space"), located by the live sample, ended by a later save."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator

import msgspec

from rgt_tui.handbook import SPECIFIC, AdvisedAction
from rgt_tui.health.condition import HandbookEntry
from rgt_tui.health.facts import LIMITS, find_shortage
from rgt_tui.health.handbook import HANDBOOK, STORAGE_IDS
from rgt_tui.health.lognotes import LogCase, WindowHit
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    Checkpoint,
    DiskReading,
    Finding,
    FixStep,
    FrozenStruct,
    InodeHog,
    Severity,
    how_many,
    is_exact_path,
    pct,
    size,
)
from rgt_tui.profiles import (
    byte_pct,
    describe_enlargement,
    disk_of,
    find_held_runs,
    inode_pct,
    load_profile,
    saved_point,
)

REMAKEABLE = frozenset(
    {
        ".cache",
        "cache",
        "caches",
        "__pycache__",
        "viz",
        "vis",
        "visuals",
        "visualizations",
        "tmp",
        ".tmp",
        "temp",
    }
)
"""Directory names whose content can be recreated, by wide convention."""
_REMOVE = "rm -rf -- {}"
_SHOW_INODES = "df -i -- {}"
_SHOW_BYTES = "df -h -- {}"
_LIST_FOLDER = "ls -A -- {} | head"
_LIST_ESCAPED = "ls -lAb -- {}"
_COUNT_INODES = "du --inodes -x -d3 -- {} | sort -n | tail"
_COUNT_BYTES = "du -xh -d3 -- {} | sort -h | tail"
STEP_COMMANDS = (
    _REMOVE,
    _SHOW_INODES,
    _SHOW_BYTES,
    _LIST_FOLDER,
    _LIST_ESCAPED,
    _COUNT_INODES,
    _COUNT_BYTES,
)
"""Every command of the steps below, with ``{}`` for a path: rgt itself runs no other one."""
_PATTERN = frozenset("*?[")


def fill_command_path(words: str, path: str | None) -> str | None:
    """Return a command for a person to run on the box.

    None if it might name another file than intended.

    Args:
        words: The command, with ``{}`` for the path.
        path: As the box has sent it. Always quoted, so that its end is visible.
    """
    if path is None or not path.startswith("/") or not is_exact_path(path):
        return None
    return words.replace("{}", "'" + path.replace("'", "'\"'\"'") + "'")


def describe_continuation(box: BoxState, run: str | None, last_good: int | None) -> str:
    """Return what a run does once there is room again.

    Args:
        box: Its state.
        run: The run that could not save; None = the disk is full by its reading alone.
        last_good: Step of its newest good checkpoint; None = none, or unknown.
    """
    if run is None:
        return translate("saves then succeed again")
    if any(one.name == run for one in find_held_runs(box)):
        return translate("the run then saves from memory and continues, and loses nothing")
    cells = [cell for queue in box.queues for cell in queue.cells if cell.name == run]
    alive = [one.alive for one in box.found if one.name == run]
    if any(cell.state == "running" for cell in cells) or any(alive):
        return translate("the run then saves again")
    if last_good is None:
        return translate(
            "launched again, the run starts from its newest checkpoint, or from the "
            "start if it has none"
        )
    return translate(
        "launched again, the run resumes from its last good checkpoint (step {last_good})",
        last_good=last_good,
    )


def inode_fixes(box: BoxState, disk: DiskReading, goes_on: str) -> tuple[FixStep, ...]:
    """Return the steps against used-up inodes: check, inspect, remove what can be recreated."""
    fixes = [
        FixStep(
            translate("Check: it is the inodes, not the bytes"),
            fill_command_path(_SHOW_INODES, disk.mount),
        )
    ]
    for hog in sorted(disk.hogs, key=lambda hog: -hog.inodes)[:2]:
        if not is_exact_path(hog.path):
            fixes += _unnameable(hog)
            continue
        look = fill_command_path(_LIST_FOLDER, hog.path)
        fixes.append(
            FixStep(
                translate("First inspect {path} ({bytes})", path=hog.path, bytes=size(hog.bytes)),
                look,
            )
        )
        if removable(box, disk.mount, hog):
            text = translate(
                "{inodes} in {path} can be recreated: remove them, {goes_on}",
                inodes=how_many(hog.inodes, "file"),
                path=hog.path,
                goes_on=goes_on,
            )
            fixes.append(FixStep(text, fill_command_path(_REMOVE, hog.path)))
        else:
            fixes.append(
                FixStep(
                    translate(
                        "{inodes} in {path}: check them yourself, they may be irreplaceable",
                        inodes=how_many(hog.inodes, "file"),
                        path=hog.path,
                    )
                )
            )
    if not disk.hogs:
        find = fill_command_path(_COUNT_INODES, disk.mount)
        fixes.append(FixStep(translate("Find the directory with the most files"), find))
        fixes.append(
            FixStep(
                translate("Remove or pack files that can be recreated; {goes_on}", goes_on=goes_on)
            )
        )
    return tuple(fixes)


def byte_fixes(disk: DiskReading, goes_on: str) -> tuple[FixStep, ...]:
    """Return the steps against a disk without free bytes."""
    return (
        FixStep(translate("Check: it is the bytes"), fill_command_path(_SHOW_BYTES, disk.mount)),
        FixStep(
            translate("Find large files; model caches are often larger than all results"),
            fill_command_path(_COUNT_BYTES, disk.mount),
        ),
        FixStep(
            translate(
                "Remove left-over .tmp checkpoints and caches, name by name; keep best and "
                "the newest good one"
            )
        ),
        FixStep(translate("Wait for the next save: {goes_on}", goes_on=goes_on)),
    )


def _unnameable(hog: InodeHog) -> tuple[FixStep, FixStep]:
    """Return the steps for a directory whose name cannot be shown. It is listed escaped.

    Nothing is removed.
    """
    above = posixpath.dirname(hog.path)
    if is_exact_path(above):
        inside = translate(" in {path}", path=above)
    else:
        inside = ""
    return (
        FixStep(
            translate(
                "First inspect: {inodes:,} files are in a directory{inside} whose name has "
                "characters that cannot be shown; this lists names with such characters "
                "escaped",
                inodes=hog.inodes,
                inside=inside,
            ),
            fill_command_path(_LIST_ESCAPED, above),
        ),
        FixStep(
            translate(
                "No command is shown for it: the displayed name may be that of another directory"
            )
        ),
    )


def removable(box: BoxState, mount: str, hog: InodeHog) -> bool:
    """Return whether removal of `hog` may be offered: a cache by its name, with nothing of value.

    Refused are a mount point, a directory that contains another mount, a relative or non-normal
    path, and every directory that contains or is inside a run, a checkpoint, a durable copy, a job,
    a followed log or a directory that the fleet file names for runs or results. A found training
    may write results next to the files that are known: in the folders where it works, only a
    subdirectory with a cache name is offered.
    """
    return hog.path != posixpath.normpath(mount) and not find_removal_objection(box, hog.path)


def find_removal_objection(box: BoxState, path: str) -> str:
    """Return why a path must not be removed by the known facts about its box; empty = no objection."""
    if not path.startswith("/") or posixpath.normpath(path) != path or not is_exact_path(path):
        return translate("it is not an exact path")
    if path.count("/") < 2:
        return translate("it is a top-level directory")
    if not REMAKEABLE & set(path.split("/")):
        return translate("by its name it is no cache: it may be irreplaceable")
    # Removing the directory above a mount would remove the mount's content as well.
    for mount in _list_mounts(box):
        if f"{mount.rstrip('/')}/".startswith(f"{path}/"):
            return translate("{mount} is mounted there", mount=mount)
    for kept in sorted(paths_to_keep(box)):
        if _paths_overlap(path, kept):
            return translate("{kept} is there: a run, checkpoint, job or log", kept=kept)
    for folder in sorted(_list_training_folders(box)):
        if _contains_path(path, folder) or _works_on(path, folder):
            return translate("a training works in {folder}", folder=folder)
    return ""


def _list_mounts(box: BoxState) -> tuple[str, ...]:
    if box.sample is not None:
        return tuple(disk.mount for disk in box.sample.disks)
    return ()


def paths_to_keep(box: BoxState) -> set[str]:
    """Return every known path with something of value: roster, checkpoints, logs, results."""
    cells = [cell for queue in box.queues for cell in queue.cells]
    named = [path for cell in cells for path in (cell.out, cell.durable_path, cell.log)]
    points = [item.path for entry in box.checkpoints for item in entry.items]
    logs = [view.path for view in box.logs]
    queues = [queue.path for queue in box.queues]
    return {path for path in (*named, *points, *logs, *queues, *_fleet_file_folders(box)) if path}


def _list_training_folders(box: BoxState) -> set[str]:
    """Return where the found trainings work, and the folders of their curves and logs."""
    files = [path for run in box.found for path in (*run.sources, *run.logs, run.log)]
    folders = {posixpath.dirname(path) for path in files if path and path.startswith("/")}
    return folders | {run.cwd for run in box.found if run.cwd and run.cwd.startswith("/")}


def _fleet_file_folders(box: BoxState) -> Iterator[str]:
    """Yield the directories that the fleet file names, each up to its first pattern.

    ``~`` is replaced with every likely home directory.
    """
    user = box.spec.user
    if user:
        homes = ["/root", f"/home/{user}"]
    else:
        homes = ["/root"]
    for path in (*box.spec.results, *box.spec.runs, *box.spec.jobs, box.spec.durable or ""):
        plain = "/".join(
            # Up to the first pattern: what it matches on the box is unknown.
            itertools.takewhile(lambda part: not _PATTERN & set(part), path.split("/"))
        )
        yield from (home + plain[1:] for home in homes) if plain.startswith("~/") else (plain,)


def _contains_path(path: str, folder: str) -> bool:
    return f"{folder.rstrip('/')}/".startswith(f"{path.rstrip('/')}/")


def _works_on(path: str, folder: str) -> bool:
    """Return whether `path` is inside `folder` without a cache name in between."""
    above = f"{folder.rstrip('/')}/"
    return path.startswith(above) and not REMAKEABLE & set(path[len(above) :].split("/"))


def _paths_overlap(one: str, other: str) -> bool:
    return _contains_path(one, other) or _contains_path(other, one)


TITLES = {
    "inodes": "No inodes left: there is free space, but no file can be created",
    "bytes": "The disk is full",
    "quota": "The quota is used up",
    "space": "No space left on a disk",
}
NEARLY = {
    "inodes": "Nearly all inodes are used: soon no file can be created",
    "bytes": "The disk is nearly full",
}
"""Titles for a reading alone, while there is still some room."""


def describe_disk_use(disk: DiskReading, what: str) -> str:
    """Return the live reading for the evidence, e.g. ``4,096 of 4,096 inodes used (bytes 3%)``."""
    if what == "inodes":
        used, total = disk.inodes_used or 0, disk.inodes_total or 0
        return translate(
            "{used:,} of {total:,} inodes used (bytes {disk})",
            used=used,
            total=total,
            disk=pct(byte_pct(disk)),
        )
    free = translate(
        "{bytes_used} of {bytes_total} used, {bytes_free} free",
        bytes_used=size(disk.bytes_used),
        bytes_total=size(disk.bytes_total),
        bytes_free=size(disk.bytes_free),
    )
    return translate("{free} (inodes {share})", free=free, share=pct(inode_pct(disk)))


def choose_disk_action(
    box: BoxState, entry: HandbookEntry, what: str, disk: DiskReading | None
) -> str:
    """Return what to do now: enlarge a disk filled by results, otherwise the entry's own action."""
    if disk is None or what != "bytes" or not disk.bytes_used:
        return entry.action
    if box.sample is not None:
        disks = box.sample.disks
    else:
        disks = ()
    items = [item for kept in box.checkpoints for item in kept.items]
    held = sum(item.bytes for item in items if disk_of(disks, item.path) == disk)
    # Share of a disk's used bytes; if checkpoints use more, little can be removed.
    kept_part = 0.5
    if held >= kept_part * disk.bytes_used:
        return str(AdvisedAction.ENLARGE)
    return entry.action


def list_disk_fixes(
    box: BoxState, what: str, disk: DiskReading | None, run: str | None, last_good: int | None
) -> tuple[FixStep, ...]:
    """Return the steps that fix it."""
    if disk is None:
        return (FixStep(translate("Check both, bytes and inodes"), "df -h; df -i"),)
    goes_on = describe_continuation(box, run, last_good)
    if what == "inodes":
        return inode_fixes(box, disk, goes_on)
    # Where room cannot be made, the person decides with the price in view.
    enlarging = describe_enlargement(load_profile(box.spec.profile), disk, box.spec.tiers)
    *steps, wait = byte_fixes(disk, goes_on)
    if enlarging:
        steps.append(FixStep(enlarging))
    return (*steps, wait)


def from_readings(
    box: BoxState, named: set[str], previous: tuple[Finding, ...]
) -> Iterator[Finding]:
    """Yield a finding for each mount full by its reading alone, except the `named` resources."""
    standing = {finding.resource for finding in previous if not finding.cleared}
    for disk in box.sample.disks if box.sample is not None else ():
        what = find_shortage(disk)
        if what is None:
            # A finding ends only well below its limit, or it would come and go with every save.
            lower = find_shortage(disk, LIMITS.disk_margin_pct)
            if f"{lower} of {disk.mount}" in standing:
                what = lower
        if what is None or f"{what} of {disk.mount}" in named:
            continue
        entry = HANDBOOK["U7" if what == "inodes" else "U6"]
        proof, resource = describe_disk_use(disk, what), f"{what} of {disk.mount}"
        saved = _saved_since(
            box, disk, next((one for one in previous if one.resource == resource), None)
        )
        if saved is not None:
            proof += translate("; {saved} was still saved", saved=saved_point(saved))
        yield Finding(
            gotcha=entry.id,
            title=(NEARLY if _has_free_share(disk, what) or saved is not None else TITLES)[what],
            severity=entry.severity if saved is None else Severity.DEGRADING,
            resource=resource,
            evidence=f"{disk.mount}: {proof}",
            where="sample",
            fixes=list_disk_fixes(box, what, disk, None, None),
            never=entry.never,
            reading=proof,
            action=choose_disk_action(box, entry, what, disk),
            confidence=SPECIFIC,
        )


def _saved_since(box: BoxState, disk: DiskReading, before: Finding | None) -> Checkpoint | None:
    """Return the newest checkpoint saved on a disk after it was found to be full.

    None = there is none.
    """
    if box.sample is not None:
        disks = box.sample.disks
    else:
        disks = ()
    points = [entry.items[-1] for entry in box.checkpoints if entry.items]
    here = [point for point in points if disk_of(disks, point.path) == disk]
    newest = max(here, key=lambda point: point.at, default=None)
    if newest is None or before is None:
        return None
    # The checkpoint has the box's time, the finding this computer's.
    if newest.at - (box.clock_skew or 0.0) > before.since:
        return newest
    return None


def _has_free_share(disk: DiskReading, what: str) -> bool:
    """Return whether any of it is left."""
    if what == "inodes":
        share = inode_pct(disk)
    else:
        share = byte_pct(disk)
    return share is not None and share < 100


_PATH = re.compile(
    r"(?:: |directory |writing )['‘\"](/[^'’\"\n]+)['’\"]|(?:left on|exceeded on) (/[^\s;(]*)"
)
_STEP_IN_PATH = re.compile(r"(?:step|tmp)[-_]?0*(\d+)")


class ShortageCause(FrozenStruct):
    """What a mount is short of, by the live reading."""

    what: str
    """``inodes``, ``bytes`` or ``quota``; ``space`` if it is unknown which."""
    disk: DiskReading | None
    short: bool | None
    """None = there is no reading."""


def from_logs(cases: list[LogCase], previous: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield a finding for each run whose log shows a full disk that it has not recovered from."""
    for case in cases:
        hits = [
            hit for hit in case.scan.hits if hit.id in STORAGE_IDS and not _explained(hit, case)
        ]
        if not hits:
            continue
        # The OSError line names the file; the trainer's own message is the next best.
        hit = max(hits, key=lambda hit: ("Errno" in hit.line, hit.id == "U6", hit.row))
        before = find_earlier_finding(case, previous)
        cause = _find_cause(case, hit, before)
        last = max(hit.row for hit in hits)
        # While a disk stays short, only a save proves that it takes files again; `from_readings`
        # then says so.
        if _saves_again(case, last, before) or (not cause.short and _recovered(case, last, before)):
            continue
        yield _build_finding(case, hit, cause, before)


def iterate_kept_findings(
    cases: list[LogCase], named: set[str | None], previous: tuple[Finding, ...]
) -> Iterator[Finding]:
    """Yield findings whose line has left the window, until their run saves again or is done.

    Args:
        cases: The logs that count.
        named: Runs that have a finding from their log already.
        previous: The last findings.
    """
    for case in cases:
        before = find_earlier_finding(case, previous)
        if before is None or case.name in named or before.where == "sample":
            continue
        what, _, mount = before.resource.partition(" of ")
        if case.box.sample is not None:
            disks = case.box.sample.disks
        else:
            disks = ()
        disk = next((one for one in disks if one.mount == mount), None)
        if disk is not None:
            short = find_shortage(disk, 0.0 if before.cleared else LIMITS.disk_margin_pct)
        else:
            short = None
        # The line has left the window, so everything in the window came later.
        if _saves_again(case, -1, before) or (
            short is None and _has_later_checkpoint(case, _find_save_floor(case, before, -1))
        ):
            continue
        yield msgspec.structs.replace(
            before,
            cleared=disk is not None and short is None,
            reading=describe_disk_use(disk, short or what) if disk is not None else before.reading,
            fixes=list_disk_fixes(case.box, short or what, disk, case.name, case.last_good),
        )


def find_earlier_finding(case: LogCase, previous: tuple[Finding, ...]) -> Finding | None:
    """Return the full disk that was found for this run last time."""
    return next((f for f in previous if f.run == case.name and f.gotcha in STORAGE_IDS), None)


def _explained(hit: WindowHit, case: LogCase) -> bool:
    """Return whether a more exact entry near the line explains it.

    That is a failed copy right after it that claimed success, or, for a run that waits with unsaved
    work, a save that failed for another reason than space.
    """
    if hit.line.startswith(("holding at", "giving up at")):
        return any(other.id == "CKPT1" for other in case.scan.hits)
    # Lines at most this far apart are about the same failure.
    near = 4
    return any(
        hit.id in HANDBOOK[other.id].beats
        and other.id not in STORAGE_IDS
        and 0 <= other.row - hit.row <= near
        for other in case.scan.hits
    )


def _find_cause(case: LogCase, hit: WindowHit, before: Finding | None) -> ShortageCause:
    if case.box.sample is not None:
        disks = case.box.sample.disks
    else:
        disks = ()
    match = _PATH.search(hit.line)
    if match:
        path = match.group(1) or match.group(2)
    elif case.cell is not None:
        path = case.cell.out
    else:
        path = None
    if before is not None and not before.cleared:
        margin = LIMITS.disk_margin_pct
    else:
        margin = 0.0
    if case.checkpoints:
        need = case.checkpoints[-1].bytes
    else:
        need = None
    disk = disk_of(disks, path) if path else None
    if disk is None or (match is None and find_shortage(disk) is None):
        # The line names no file: the disk that is short now is the better guess.
        disk = next((one for one in disks if find_shortage(one) is not None), disk)
    # A reading shows the disk's space, not a user's quota, so it could not confirm it.
    if "quota" in hit.line:
        return ShortageCause("quota", disk, None)
    if "no inodes left" in hit.line:
        said = "inodes"
    elif "no bytes left" in hit.line:
        said = "bytes"
    else:
        said = None
    if said is None and before is not None:
        said = before.resource.split(" of ")[0]
    if disk is None:
        return ShortageCause(said or "space", None, None)
    short = find_shortage(disk, margin, need)
    return ShortageCause(short or said or "space", disk, short is not None)


def _saves_again(case: LogCase, index: int, before: Finding | None) -> bool:
    """Return whether a checkpoint was saved after the line at `index` of the window."""
    start, step = _find_save_floor(case, before, index), _newest_step(case)
    listed = start is not None and step is not None and step > start
    return case.scan.saved > index or (case.goes_on and listed)


def _recovered(case: LogCase, index: int, before: Finding | None) -> bool:
    """Return whether the run has shown that it saves again after row `index` of the window."""
    if case.scan.saved > index:
        return True
    if not case.goes_on:
        return False
    start = _find_save_floor(case, before, index)
    if start is None:  # an old line seen for the first time: later steps are the only evidence
        return case.scan.step > index
    return _has_later_checkpoint(case, start)


def _find_save_floor(case: LogCase, before: Finding | None, index: int) -> int | None:
    """Return the step after which a save counts: a newer resume, or the failed save's step."""
    # After a resume the steps count from there: an earlier, higher one proves nothing.
    if case.scan.resume > index and case.run is not None and case.run.resumes:
        return case.run.resumes[-1].step
    if case.scan.failed_step is not None:
        return case.scan.failed_step
    if before is not None:
        return before.step
    return None


def _newest_step(case: LogCase) -> int | None:
    if case.checkpoints:
        return case.checkpoints[-1].step
    return None


def _has_later_checkpoint(case: LogCase, start: int | None) -> bool:
    """Return whether a checkpoint after `start` exists.

    Without checkpoints, whether the run has advanced.
    """
    if start is None:
        return False
    step = _newest_step(case)
    if step is not None:
        return step > start
    return case.run is not None and case.run.step is not None and case.run.step > start


def _build_finding(
    case: LogCase, hit: WindowHit, cause: ShortageCause, before: Finding | None
) -> Finding:
    saving = hit.id == "U6" or case.scan.failed_step is not None
    entry = HANDBOOK["U6" if saving and cause.what in ("bytes", "space") else "U7"]
    if cause.disk is not None:
        where = f" of {cause.disk.mount}"
    else:
        where = ""
    return Finding(
        gotcha=entry.id,
        title=TITLES[cause.what] if entry.id == "U7" else entry.title,
        severity=entry.severity,
        resource=f"{cause.what}{where}",
        evidence=hit.line,
        where=case.log_path,
        fixes=list_disk_fixes(case.box, cause.what, cause.disk, case.name, case.last_good),
        never=entry.never,
        reading=describe_disk_use(cause.disk, cause.what) if cause.disk is not None else None,
        run=case.name,
        step=_find_failed_step(case, hit, before),
        cleared=cause.short is False,
        action=choose_disk_action(case.box, entry, cause.what, cause.disk),
        confidence=SPECIFIC if cause.short else entry.confidence,
        line_no=case.line_no(hit),
    )


def _find_failed_step(case: LogCase, hit: WindowHit, before: Finding | None) -> int | None:
    """Return the step of the failed save: as logged, else as first seen, so that it is stable."""
    if case.scan.failed_step is not None:
        return case.scan.failed_step
    if in_path := _STEP_IN_PATH.search(hit.line):
        return int(in_path.group(1))
    if before is not None and before.step is not None:
        return before.step
    if case.run is not None:
        return case.run.step
    return None
