"""Reads job directories for the sampler in the background, so that a hung mount delays no sample."""

from __future__ import annotations

import os
import time

from rgt_box.background import Background
from rgt_box.sampling.processes import LiveCells

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

EVERY, TIMEOUT = 1.0, 5.0
"""Seconds between two looks at a job (a few system calls where nothing has changed), and until it counts as hung."""
PATIENCE, FIRST = 0.02, 1.0
"""Seconds that a round of looks is waited for, and one with a job that was not asked before: whose the processes are
that run must be known before trainings are looked for."""


class JobLook:
    """What is known of one job, read in a thread of its own, since its directory may be on a mount that hangs.

    Args:
        path: The directory.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        from rgt_box.streams.job_files import JobWatch  # here: a box without a job does without its readers

        self._job, self._live = JobWatch(path), LiveCells([path])
        self._newest: dict[str, Any] | None = None
        self._asking = Background(self._look, EVERY, TIMEOUT)
        self._written: list[str] = []
        self.is_new = True
        self.hangs = False
        self.frame: dict[str, Any] | None = None
        """The last ``queue`` frame; None as long as there was none."""
        self.cells: dict[int, str] = {}
        """The pid of each cell that is alive → its name."""

    def _look(self) -> tuple[dict[str, Any] | None, dict[int, str], list[str]]:
        try:
            self._newest = self._job.poll() or self._newest
        except (OSError, ValueError, TypeError, KeyError):
            pass  # a queue file that makes no sense is shown by `watch`, with its words
        return self._newest, self._live.read(), self._job.written()

    def poll(self, wait: float) -> list[tuple[str, str, str]]:
        """Take over what the last look has found; returns events as ``(kind, text, level)``: it hangs, it answers."""
        self.is_new = False
        told, error = self._asking.poll(0.0 if self.hangs else wait)
        if told is not None:
            self.frame, self.cells, self._written = told
        if self._asking.hangs == self.hangs:
            return []
        self.hangs = not self.hangs
        if self.hangs:
            text = "%s: %s; what its queue does is not known meanwhile" % (self.path, error)
            return [("files-hang", text, "warn")]
        return [("files-answer", "%s: answers again" % self.path, "info")]

    @property
    def written(self) -> list[str]:
        """Directories whose mounts matter: those that its runs write to, and its own while that does not answer."""
        return self._written + [self.path] * self.hangs


class JobLooks:
    """The jobs that the sampler has to know of. A hanging disk delays no caller."""

    def __init__(self) -> None:
        self._all: dict[str, JobLook] = {}

    def poll(self, jobs: list[str]) -> list[tuple[str, str, str]]:
        """Look at the jobs in these directories, and take over what is known; returns events, see `JobLook.poll`."""
        self._all = {path: self._all.get(path) or JobLook(path) for path in jobs}
        new = any(look.is_new for look in self._all.values())
        until = time.monotonic() + (FIRST if new else PATIENCE)
        looks = self._all.values()
        return [event for look in looks for event in look.poll(max(0.0, until - time.monotonic()))]

    def frames(self) -> dict[str, dict[str, Any]]:
        """Return the last ``queue`` frame of each job that has sent one."""
        return {path: look.frame for path, look in self._all.items() if look.frame is not None}

    def cells(self) -> dict[int, str]:
        """Return the pid of each cell that is alive → its name."""
        return {pid: name for look in self._all.values() for pid, name in look.cells.items()}

    def written(self) -> list[str]:
        """Return the directories whose mounts matter."""
        return [path for look in self._all.values() for path in look.written]
