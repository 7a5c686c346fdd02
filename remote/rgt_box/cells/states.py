"""State of a queue: the ``queue`` frame, kept in ``state.json`` even while the disk is full."""

from __future__ import annotations

import errno
import os
import time

from rgt_box import files, jsonline
from rgt_box.cells import lanes
from rgt_box.cells.jobfile import Job, Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BLOCK = 16384
"""state.json is padded to a multiple of this, so that it can grow in place on a full disk."""

CELL_FIELDS = (
    "name", "cfg", "task", "epochs", "state", "attempts", "started", "ended", "exit_code", "signal", "reason",
    "durable", "durable_path", "out", "log", "best", "flag",
)  # fmt: skip
READS = 4
"""Looks at a state.json that is not legible: on a full disk it is overwritten in place, which takes an instant."""

FULL = (errno.ENOSPC, errno.EDQUOT)


def new_cell(job: Job, line: Line) -> dict[str, Any]:
    """Return the state of a cell that has not run yet."""
    return {
        "name": line.name,
        "cfg": line.cfg,
        "task": line.task,
        "epochs": job.settings["default_epochs"] if line.epochs is None else line.epochs,
        "state": "waiting",
        "attempts": 0,
        "durable": "pending" if job.settings["durable"] else None,
        "durable_path": job.durable(line.name),
        "out": job.out(line.name),
        "log": job.log(line.name),
    }


def merge(job: Job, known: dict[str, dict[str, Any]], lines: list[Line]) -> list[dict[str, Any]]:
    """Return one cell per queue line, in its order, keeping what is known by name."""
    cells = []
    for line in lines:
        cell = new_cell(job, line)
        before = known.get(line.name)
        if before is not None:
            cell.update({key: value for key, value in before.items() if key not in ("cfg", "task", "epochs")})
        cells.append(cell)
    return cells


def load(job: Job) -> dict[str, Any]:
    """Return what ``state.json`` and the lanes hold.

    Nothing of a file counts that is missing or (for an instant, on a full disk) half written.
    """
    found: dict[str, Any] = {}
    for _ in range(READS):
        read = files.read_json(job.path("state.json"))
        if read is not None:
            found = read
            break
        if not os.path.exists(job.path("state.json")):
            break
        time.sleep(0.005)
    cells = found.get("cells")
    if not isinstance(cells, list):
        found["cells"] = []
    else:
        found["cells"] = [
            cell for cell in cells if isinstance(cell, dict) and isinstance(cell.get("name"), str)
        ]
    found["cells"] = lanes.lay_over(found["cells"], found.get("at"), lanes.read(job))
    return found


def by_name(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the cells of a state by their names."""
    return {cell["name"]: cell for cell in state.get("cells", [])}


def frame(job: Job, path: str) -> dict[str, Any]:
    """Return the ``queue`` frame as an onlooker sees it.

    A cell that the file calls running while no runner holds the lock is shown as interrupted.

    Args:
        job: The job.
        path: What the client calls it.
    """
    state = load(job)
    lines, problems = job.lines()
    alive = files.is_locked(job.path("runner.lock"))
    cells = merge(job, by_name(state), lines)
    at_work = {name for name in lanes.names(job) if lanes.is_alive(job, name)}
    if not alive:
        for cell in cells:
            if cell["state"] == "running" and cell["name"] not in at_work:
                cell.update(state="interrupted", reason="the runner is gone; launch it again to go on")
    shown = [jsonline.compact({key: cell.get(key) for key in CELL_FIELDS}) for cell in cells]
    problems = job.problems + problems
    return jsonline.compact(
        {
            "t": "queue",
            "path": path,
            "at": round(time.time(), 3),
            "cells": shown,
            "runner_pid": state.get("runner_pid") if alive else None,
            "runner_alive": alive or bool(at_work),
            "done": bool(state.get("done")) and is_over(cells),
            "error": "; ".join(problems) or state.get("error"),
        }
    )


def shortened(frame: dict[str, Any], most: int) -> dict[str, Any]:
    """Return a ``queue`` frame of at most `most` bytes: without what a client can do without, cell by cell.

    A queue of which some cells were left out might pass for done. One that is too long even so has no cells, and
    an error.
    """
    keep = ("name", "cfg", "task", "epochs", "state", "attempts", "exit_code", "signal", "durable", "best")
    for less in (("durable_path",), ("durable_path", "out", "log"), None):
        cells = [
            {key: value for key, value in cell.items() if (key in keep if less is None else key not in less)}
            for cell in frame["cells"]
        ]
        found = dict(frame, cells=cells)
        if len(jsonline.dumps(found)) < most:
            return found
    error = "%d cells are more than can be told at once: split the queue" % len(frame["cells"])
    return dict(frame, cells=[], done=False, error=error)


def is_over(cells: list[dict[str, Any]]) -> bool:
    """Tell whether every cell has had its turn."""
    return all(cell["state"] in ("done", "failed") for cell in cells)


def padded(state: dict[str, Any]) -> bytes:
    """Return the state as JSON, padded with blanks to whole blocks with room to spare."""
    data = jsonline.dumps(state)
    size = (len(data) + BLOCK // 4 + BLOCK - 1) // BLOCK * BLOCK
    return data + b" " * (size - len(data) - 1) + b"\n"


def store(path: str, state: dict[str, Any]) -> str | None:
    """Replace ``state.json`` atomically, or in place when the disk has no room for a second copy.

    Returns:
        None, or why it could not be stored at all (the queue goes on regardless).
    """
    data = padded(state)
    try:
        files.replace(path, data, sync=True, mode=0o644)
        return None
    except OSError as error:
        if error.errno not in FULL:
            return "state.json: %s" % error.strerror
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        return "state.json: %s" % error.strerror
    try:
        os.pwrite(fd, data, 0)
        os.fsync(fd)
        return None
    except OSError as error:
        return "state.json: %s" % error.strerror
    finally:
        os.close(fd)
