"""Lanes: cells of one queue that run side by side, each under a lock and with a state file of its own.

A lane is what one task of a Slurm job array, or one pod of an indexed Kubernetes Job, works in. It needs nothing of
the others: ``JOB/lanes/NAME.lock`` keeps a second runner of the same cell out, ``JOB/lanes/NAME.json`` holds the cell's
state. Who reads the queue lays the lanes over ``state.json``; of two accounts of a cell the one written last counts.

Which task is which cell is frozen when the tasks are submitted, in ``JOB/indexes.json``: the queue goes on to be edited
while they wait, and a line that is commented out must not give the tasks behind it other cells.
"""

from __future__ import annotations

import os

from rgt_box import files, jsonline
from rgt_box.cells.jobfile import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "lanes"
INDEXES = "indexes.json"
FREEZING_WAIT = 30.0


def frozen(job: Job) -> list[str] | None:
    """Return the name of each task's cell by the task's index; None where no submission has frozen them.

    Raises:
        ValueError: The file is there and is not what `freeze` writes: a guess would run another cell.
    """
    data = files.read(job.path(INDEXES))
    if data is None and not os.path.lexists(job.path(INDEXES)):
        return None
    cells = (jsonline.loads_dict(data or b"") or {}).get("cells")
    if not isinstance(cells, list) or not all(isinstance(name, str) for name in cells):
        raise ValueError(
            "%s is damaged; tasks that wait need it: restore it from the submission" % job.path(INDEXES)
        )
    return [str(name) for name in cells]


def freeze(job: Job) -> list[str]:
    """Give every cell of the queue an index, once and for all submissions to come; returns the names by index.

    Raises:
        OSError: It could not be written.
        ValueError: See `frozen`.
    """
    held = files.Lock(job.path("indexes.lock"))
    if not held.acquire(FREEZING_WAIT):
        raise ValueError("another submission of %s is under way" % job.folder)
    try:
        before = frozen(job) or []
        names = before + [line.name for line in job.lines()[0] if line.name not in before]
        if names != before:
            files.replace(job.path(INDEXES), jsonline.line({"cells": names}), sync=True, mode=0o644)
        return names
    finally:
        held.release()


def folder(job: Job) -> str:
    """Return the directory of a job's lanes."""
    return job.path(FOLDER)


def state_path(job: Job, name: str) -> str:
    """Return the state file of a cell's lane."""
    return job.path(FOLDER, name + ".json")


def lock_path(job: Job, name: str) -> str:
    """Return the lock file of a cell's lane."""
    return job.path(FOLDER, name + ".lock")


def names(job: Job) -> list[str]:
    """Return the names of the cells that have a lane."""
    try:
        found = os.listdir(folder(job))
    except OSError:
        return []
    return sorted(name[: -len(".json")] for name in found if name.endswith(".json"))


def is_alive(job: Job, name: str) -> bool:
    """Tell whether a lane's runner is at work."""
    return files.is_locked(lock_path(job, name))


def read(job: Job) -> dict[str, dict[str, Any]]:
    """Return name → state of every lane that can be read."""
    found = {}
    for name in names(job):
        state = files.read_json(state_path(job, name))
        if state is not None:
            found[name] = state
    return found


def lay_over(cells: list[dict[str, Any]], at: Any, found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with those of newer lanes in their place.

    Args:
        cells: The cells as ``state.json`` has them.
        at: When that was written; None where it never was.
        found: What `read` returned.
    """
    newer: dict[str, dict[str, Any]] = {}
    for name, state in found.items():
        mine = [
            cell for cell in state.get("cells") or [] if isinstance(cell, dict) and cell.get("name") == name
        ]
        if mine and float(state.get("at") or 0.0) > float(at or 0.0):
            newer[name] = mine[0]
    known = [newer.pop(cell["name"], cell) for cell in cells]
    return known + list(newer.values())


def signatures(job: Job) -> list[Any]:
    """Return what changes whenever a lane's state does, or one begins or ends."""
    return [(name, files.signature(state_path(job, name)), is_alive(job, name)) for name in names(job)]
