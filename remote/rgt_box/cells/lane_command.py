"""``queue cell``: run one cell of the queue in its lane, as one task of a job array or one pod of an indexed Job."""

from __future__ import annotations

import os
import sys

from rgt_box import files, procstat
from rgt_box.cells import check as checks
from rgt_box.cells import jobfile, lanes, process, requeue, runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USAGE, BUSY = 2, 3
AUTO = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
"""Where the engines say which task this is: Slurm's job arrays, Kubernetes' indexed Jobs."""


def run(job: jobfile.Job, found: dict[str, Any]) -> int:
    """Be the runner of one cell; returns the exit status."""
    checked = checks.check(job)
    if checked.problems:
        print("\n".join(checked.problems).encode("utf-8", "replace").decode("utf-8"), file=sys.stderr)
        return USAGE
    index = which(found["index"])
    present = [line.name for line in checked.lines]
    try:
        cells = lanes.frozen(job) or present
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    if index is None or not 0 <= index < len(cells):
        told = found["index"] if index is None else index
        print("--index %s: the queue has the cells 0 to %d" % (told, len(cells) - 1), file=sys.stderr)
        return USAGE
    name = cells[index]
    if name not in present:
        print("%s: its line is no longer in queue.txt; there is nothing to run" % name, flush=True)
        return 0
    os.makedirs(lanes.folder(job), exist_ok=True)
    held = files.Lock(lanes.lock_path(job, name))
    if not held.acquire(1.0):
        print("%s is being run already: its lane is held" % name, file=sys.stderr)
        return BUSY
    held.write({"pid": os.getpid(), "ticks": procstat.start_ticks(os.getpid())})
    if files.is_locked(job.path("runner.lock")):
        print("a runner is at work on the whole queue of %s" % job.folder, file=sys.stderr)
        return BUSY
    process.block_signals()
    status = runner.Runner(job, only=name).run()
    held.release()
    return requeue.after(status)


def which(given: str | None) -> int | None:
    """Return the number of the cell, from 0: as given, or as the engine says; None where nobody does."""
    if given not in (None, "auto"):
        return int(given) if str(given).isdecimal() else None
    for name in AUTO:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def busy_lanes(job: jobfile.Job) -> list[str]:
    """Return the cells that are being run in a lane."""
    return [name for name in lanes.names(job) if lanes.is_alive(job, name)]
