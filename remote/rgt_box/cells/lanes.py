"""Lanes: cells of one queue that run side by side, each under a lock and with a state file of its own.

A lane is what one task of a Slurm job array, or one pod of an indexed Kubernetes Job, works in. It needs nothing of
the others: ``JOB/lanes/NAME.lock`` keeps a second runner of the same cell out, ``JOB/lanes/NAME.json`` holds the cell's
state. Who reads the queue lays the lanes over ``state.json``; of two accounts of a cell the one written last counts.
"""

from __future__ import annotations

import os

from rgt_box import files, lock
from rgt_box.cells.jobfile import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "lanes"


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
    return lock.is_held(lock_path(job, name))


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
