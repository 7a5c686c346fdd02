"""The way out of a full disk: concrete, checked against what must be kept, and never without a look first."""

from __future__ import annotations

import posixpath

from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Fix
from rgt_tui.model.plain import exact
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
_REMOVE = "rm -rf -- {}"


def command(words: str, path: str | None) -> str | None:
    """Return a command for a person to run on the box, or None where it might name another file than was judged.

    Args:
        words: The command, with ``{}`` for the path.
        path: As the box has sent it. Always put in quotes, so that the eye sees where it ends.
    """
    if path is None or not path.startswith("/") or not exact(path):
        return None
    return words.replace("{}", "'" + path.replace("'", "'\"'\"'") + "'")


def inode_fixes(box: BoxState, disk: Disk, last_good: int | None) -> tuple[Fix, ...]:
    """Return the steps out of used-up inodes: check, look, remove what can be made again."""
    fixes = [Fix("Check: it is the inodes, not the bytes", command("df -i -- {}", disk.mount))]
    goes_on = "the cell then goes on from its last good checkpoint"
    goes_on += f" (step {last_good})" if last_good is not None else ""
    for hog in sorted(disk.hogs, key=lambda hog: -hog.inodes)[:2]:
        if not exact(hog.path):
            fixes += _unnameable(hog)
            continue
        look = command("ls -A -- {} | head", hog.path)
        fixes.append(Fix(f"Look first at what is in {hog.path} ({size(hog.bytes)})", look))
        if removable(box, disk.mount, hog):
            text = f"{hog.inodes:,} files in {hog.path} can be made again: remove them, {goes_on}"
            fixes.append(Fix(text, command(_REMOVE, hog.path)))
        else:
            fixes.append(Fix(f"{hog.inodes:,} files in {hog.path}: yours to judge, they may not come again"))
    if not disk.hogs:
        find = command("du --inodes -x -d3 -- {} | sort -n | tail", disk.mount)
        fixes.append(Fix("Find the directory with the most files", find))
        fixes.append(Fix(f"Remove or pack what can be made again; {goes_on}"))
    return tuple(fixes)


def byte_fixes(disk: Disk, last_good: int | None) -> tuple[Fix, ...]:
    """Return the steps out of a disk without bytes."""
    goes_on = f" (step {last_good})" if last_good is not None else ""
    return (
        Fix("Check: it is the bytes", command("df -h -- {}", disk.mount)),
        Fix(
            "Find what is large; caches of models often outweigh all results",
            command("du -xh -d3 -- {} | sort -h | tail", disk.mount),
        ),
        Fix("Remove left-over .tmp checkpoints and caches, name by name; keep best and the newest good one"),
        Fix(f"With room again, the cell goes on from its last good checkpoint{goes_on}"),
    )


def _unnameable(hog: InodeHog) -> tuple[Fix, Fix]:
    """Return the steps for a directory whose name cannot be shown: it is listed escaped, and nothing is removed."""
    above = posixpath.dirname(hog.path)
    inside = f" in {above}" if exact(above) else ""
    return (
        Fix(
            f"Look first: {hog.inodes:,} files are in a directory{inside} whose name has characters that cannot be "
            "shown; this lists names with such characters escaped",
            command("ls -lAb -- {}", above),
        ),
        Fix("No command is offered for it: what is shown here may be the name of another directory"),
    )


def removable(box: BoxState, mount: str, hog: InodeHog) -> bool:
    """Say whether `hog` may be offered for removal: its name says cache, and nothing kept lies in it.

    Refused are a mount point itself, what another mount lies in, a relative or crooked path, and every directory
    that holds or is held by a run, a checkpoint, a durable copy, a job or a followed log.
    """
    path = hog.path
    if not path.startswith("/") or posixpath.normpath(path) != path or not exact(path):
        return False
    if any(f"{other.rstrip('/')}/".startswith(f"{path}/") for other in _mounts(box)):
        return False
    if path == posixpath.normpath(mount) or path.count("/") < 2:
        return False
    if not REMAKEABLE & set(path.split("/")):
        return False
    return not any(_overlap(path, kept) for kept in _kept(box))


def _mounts(box: BoxState) -> tuple[str, ...]:
    return tuple(disk.mount for disk in box.sample.disks) if box.sample is not None else ()


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
