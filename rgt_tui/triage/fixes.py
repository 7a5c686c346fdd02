"""The way out of a full disk: concrete, checked against what must be kept, and never without a look first."""

from __future__ import annotations

import posixpath
import shlex

from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Finding, Fix
from rgt_tui.model.protocol import Disk, InodeHog
from rgt_tui.profiles.readings import size

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
"""Names of directories whose content can be made again, by wide convention."""
_REMOVE = "rm -rf -- "


def quoted(path: str) -> str:
    """Return `path` in single quotes for a shell, always quoted, so that the eye sees where it ends."""
    return "'" + path.replace("'", "'\"'\"'") + "'"


def inode_fixes(box: BoxState, disk: Disk, last_good: int | None) -> tuple[Fix, ...]:
    """Return the steps out of used-up inodes: check, look, remove what can be made again."""
    mount = shlex.quote(disk.mount)
    fixes = [Fix("Check: it is the inodes, not the bytes", f"df -i {mount}")]
    goes_on = "the cell then goes on from its last good checkpoint"
    goes_on += f" (step {last_good})" if last_good is not None else ""
    for hog in sorted(disk.hogs, key=lambda hog: -hog.inodes)[:2]:
        where = quoted(hog.path)
        fixes.append(Fix(f"Look first at what is in {hog.path} ({size(hog.bytes)})", f"ls {where} | head"))
        if removable(box, disk.mount, hog):
            text = f"{hog.inodes:,} files in {hog.path} can be made again: remove them, {goes_on}"
            fixes.append(Fix(text, _REMOVE + where))
        else:
            fixes.append(Fix(f"{hog.inodes:,} files in {hog.path}: yours to judge, they may not come again"))
    if not disk.hogs:
        fixes.append(
            Fix("Find the directory with the most files", f"du --inodes -x -d3 {mount} | sort -n | tail")
        )
        fixes.append(Fix(f"Remove or pack what can be made again; {goes_on}"))
    return tuple(fixes)


def byte_fixes(disk: Disk, last_good: int | None) -> tuple[Fix, ...]:
    """Return the steps out of a disk without bytes."""
    mount = shlex.quote(disk.mount)
    goes_on = f" (step {last_good})" if last_good is not None else ""
    return (
        Fix("Check: it is the bytes", f"df -h {mount}"),
        Fix(
            "Find what is large; caches of models often outweigh all results",
            f"du -xh -d3 {mount} | sort -h | tail",
        ),
        Fix("Remove left-over .tmp checkpoints and caches, name by name; keep best and the newest good one"),
        Fix(f"With room again, the cell goes on from its last good checkpoint{goes_on}"),
    )


def removable(box: BoxState, mount: str, hog: InodeHog) -> bool:
    """Say whether `hog` may be offered for removal: its name says cache, and nothing kept lies in it.

    Refused are a mount point itself, a relative or crooked path, and every directory that holds or is held by
    a run, a checkpoint, a durable copy, a job or a followed log.
    """
    path = hog.path
    if not path.startswith("/") or posixpath.normpath(path) != path or any(ord(c) < 32 for c in path):
        return False
    if path == posixpath.normpath(mount) or path.count("/") < 2:
        return False
    if not REMAKEABLE & set(path.split("/")):
        return False
    return not any(_overlap(path, kept) for kept in _kept(box))


def _kept(box: BoxState) -> set[str]:
    cells = [cell for queue in box.queues for cell in queue.cells]
    named = [path for cell in cells for path in (cell.out, cell.durable_path, cell.log)]
    points = [item.path for entry in box.checkpoints for item in entry.items]
    logs = [view.path for view in box.logs]
    queues = [queue.path for queue in box.queues]
    return {path for path in (*named, *points, *logs, *queues, *box.spec.jobs, box.spec.durable) if path}


def _overlap(one: str, other: str) -> bool:
    a, b = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return a.startswith(b) or b.startswith(a)


def headline_fix(finding: Finding) -> Fix | None:
    """Return the step that cures, for a screen with room for one line: the removal, else the first step."""
    cure = next((fix for fix in finding.fixes if (fix.command or "").startswith(_REMOVE)), None)
    return cure or next(iter(finding.fixes), None)
