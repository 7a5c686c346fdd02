"""Checks a provider's word for when the machine was created against what on the box is certainly not older.

Files that are older than the machine came with its image, and nobody would miss them. A date that is too late, or a
clock that was wrong while files were written, would take results for such files: so one contradiction is enough.
"""

from __future__ import annotations

import os
import time

from rgt_box import landing, place, procstat
from rgt_box.commands import result_walk
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

CLOCK_SLACK_S = 2.0
"""Process starts are known to a tick since boot, and the time of the boot to a second."""

BOOT_S = 60.0
"""Seconds after the boot of the kernel within which the first process of a whole machine has started."""


def contradiction(since: float, now: float, roots: list[str], jobs: list[str]) -> str:
    """Return why the machine cannot have been created as late as `since`; "" = nothing on the box speaks against it.

    Args:
        since: Epoch seconds.
        now: The box's clock.
        roots: Where the file system of the machine begins.
        jobs: Job directories.
    """
    if since > now:
        return "the machine was created later than now, by the box's clock"
    for what, at in witnesses(roots, jobs):
        if at < since - CLOCK_SLACK_S:
            text = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
            return "%s is older than the machine: of %s, by the box's clock" % (what, text)
    return ""


def witnesses(roots: list[str], jobs: list[str]) -> Iterator[tuple[str, float]]:
    """Yield what came to be on this machine, and when, by the clock that it had then."""
    starts = [procstat.start_ticks(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    known = [ticks for ticks in starts if ticks is not None]
    first = min(known) / procstat.CLOCK_TICKS if known else 0.0
    if known:
        yield "the oldest process", procstat.boot_time() + first
    mounts = result_walk.read_mounts().rows
    for root in roots:
        # Made with the container, before anything in it runs, and in /dev again at every start.
        yield from _changed("/.dockerenv", [os.path.join(root, ".dockerenv")])
        dev = os.path.join(root, "dev")
        # A container that is shown the /dev of its host is younger than that.
        if first < BOOT_S or mounts.get(os.fsencode(dev), ("", ""))[0] != "devtmpfs":
            yield from _changed("a file in /dev", _inside(dev))
    state = place.state_dir()
    folders = [os.path.expanduser(folder) for folder in jobs]
    # What lies on a disk of its own may have been there before the machine.
    yield from _changed(
        "the agent of rgt", _inside(landing.home()) if _is_on_root(landing.home(), roots) else []
    )
    yield from _changed(
        "a job", [os.path.join(folder, "job.json") for folder in folders if _is_on_root(folder, roots)]
    )
    if not _is_on_root(state, roots):
        return
    for raw in state_files.read_json(state, state_files.FOUND).get("runs") or []:
        started = raw.get("started") if isinstance(raw, dict) else None
        if isinstance(started, (int, float)):
            yield "a run", float(started)


def _is_on_root(path: str, roots: list[str]) -> bool:
    try:
        return os.stat(path).st_dev == os.stat(roots[0]).st_dev
    except (OSError, IndexError):
        return False


def _changed(what: str, paths: list[str]) -> Iterator[tuple[str, float]]:
    times = []
    for path in paths:
        try:
            times.append(os.lstat(path).st_ctime)
        except OSError:
            continue
    if times:
        yield what, min(times)


def _inside(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
