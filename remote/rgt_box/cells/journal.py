"""What the runner writes down: ``state.json`` for programs, ``master.log`` for people, and the screen."""

from __future__ import annotations

import os
import sys
import time

from rgt_box import files
from rgt_box.cells import lanes, states
from rgt_box.cells.jobfile import Job, Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Journal:
    """The state of one queue and its markers.

    Args:
        job: The job.
        only: Name of the one cell whose lane this is; None = the whole queue.

    Attributes:
        state: The ``queue`` frame, with fields of the runner's own.
        lines: The cells' lines, as of the last `reread`.
    """

    def __init__(self, job: Job, only: str | None = None) -> None:
        self._job = job
        self._only = only
        self._path = job.path("state.json") if only is None else lanes.state_path(job, only)
        self._unwritten: list[bytes] = []
        self.lines: list[Line] = []
        self.state = states.load(job) if only is None else self._lane(only)
        self.state.update(runner_pid=os.getpid(), runner_alive=True, done=False, error=None)

    def _lane(self, name: str) -> dict[str, Any]:
        """Return the state of a lane to go on with: its own fields, and the newest account of its cell."""
        state = files.read_json(self._path) or {}
        known = states.by_name(states.load(self._job))
        state["cells"] = [known[name]] if name in known else []
        return state

    def reread(self) -> list[dict[str, Any]]:
        """Re-read the queue (lines may have been appended) and return its cells."""
        lines, problems = self._job.lines()
        self.lines = [line for line in lines if self._only in (None, line.name)]
        self.state["error"] = "; ".join(problems) or None
        self.state["cells"] = states.merge(self._job, states.by_name(self.state), self.lines)
        cells: list[dict[str, Any]] = self.state["cells"]
        return cells

    def everyone(self) -> list[dict[str, Any]]:
        """Return all cells of the queue, also those of other lanes."""
        found: list[dict[str, Any]] = states.load(self._job)["cells"] if self._only else self.state["cells"]
        return found

    def cell(self, name: str) -> dict[str, Any]:
        """Return the state of a cell, to be changed in place."""
        return states.by_name(self.state)[name]

    def save(self) -> None:
        """Write the state; what cannot be written is said, and the queue goes on."""
        self.state.update(t="queue", path=self._job.folder, at=now(), runner_pid=os.getpid())
        problem = states.store(self._path, self.state)
        if problem:
            print(problem, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Write to the screen."""
        print(text, flush=True)

    def mark(self, marker: str) -> None:
        """Write a marker to the screen and to master.log, now or as soon as the disk takes it."""
        self.say(marker)
        self._unwritten.append(marker.encode("utf-8", "replace") + b"\n")
        try:
            fd = files.open_appending(self._job.path("master.log"), 0o644)
            try:
                while self._unwritten:
                    files.write_all(fd, self._unwritten[0])
                    self._unwritten.pop(0)
            finally:
                os.close(fd)
        except OSError as error:
            print("master.log: %s" % error.strerror, file=sys.stderr, flush=True)


def now() -> float:
    """Return the box's clock (epoch seconds)."""
    return round(time.time(), 3)
