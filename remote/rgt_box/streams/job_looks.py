"""Read job directories for the sampler in the background, so that a hung mount delays no sample."""

from __future__ import annotations

import os
import time

from rgt_box.background import Background
from rgt_box.recorder.state_files import LaunchedJobs
from rgt_box.sampling.processes import LiveCells

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject

EVERY, TIMEOUT = 1.0, 5.0
"""Seconds between two checks of a job (a few system calls if nothing has changed), and until it
counts as hung.
"""
PATIENCE, FIRST = 0.02, 1.0
"""Seconds to wait for a round of checks, and for one with a new job: the owners of the running
processes must be known before trainings are searched for.
"""


DONE_S = 300.0
"""Seconds for which a done job is still checked: the end of its processes is noticed after its own.
"""


class JobPoll:
    """State of one job, read in its own thread, since its directory may be on a mount that hangs.

    Args:
        path: The directory.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        from rgt_box.streams.job_files import (
            JobWatch,
        )  # here: a box without jobs does not need its readers

        self._job = JobWatch(path)
        self._live = LiveCells([path])
        self._newest: JsonObject | None = None
        self._asking = Background(self._read_job, EVERY, TIMEOUT)
        self._written: list[str] = []
        self.is_new = True
        self.hangs = False
        self.frame: JsonObject | None = None
        """The last ``queue`` frame; None if there was none yet."""
        self.cells: dict[int, str] = {}
        """pid → name of each live cell."""
        self.smoke: dict[int, str] = {}
        """pid → label of its running smoke command."""

    def _read_job(self) -> tuple[JsonObject | None, dict[int, str], dict[int, str], list[str]]:
        try:
            self._newest = self._job.poll_frame() or self._newest
        except (OSError, ValueError, TypeError, KeyError):
            pass  # `watch` reports an invalid queue file with its own message
        return self._newest, self._live.read(), self._live.read_smoke(), self._job.written_folders()

    def apply_result(self, wait: float) -> list[tuple[str, str, str]]:
        """Apply the last result.

        Return events as ``(kind, text, level)`` when it hangs or answers again.
        """
        self.is_new = False
        told, error = self._asking.poll(0.0 if self.hangs else wait)
        if told is not None:
            self.frame, self.cells, self.smoke, self._written = told
        if self._asking.is_hanging == self.hangs:
            return []
        self.hangs = not self.hangs
        if self.hangs:
            text = f"{self.path}: {error}; the state of its queue is unknown"
            return [("files-hang", text, "warn")]
        return [("files-answer", f"{self.path}: answers again", "info")]

    @property
    def written_folders(self) -> list[str]:
        """Directories whose mounts are sampled: its runs' and, while that hangs, its own."""
        return self._written + [self.path] * self.hangs


class JobPolls:
    """The jobs that the sampler has to know: those named by clients, and those launched on the box.

    A hanging disk does not delay a caller.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._launched = LaunchedJobs(folder)
        self._all: dict[str, JobPoll] = {}
        self._named: set[str] = set()
        self._over: dict[str, float] = {}
        """Done jobs that no client names → when they had been launched."""

    def poll_jobs(self, jobs: list[str]) -> list[tuple[str, str, str]]:
        """Poll the jobs and apply their results.

        Args:
            jobs: Directories named by clients.

        Returns:
            Events, see `JobPoll.apply_result`, limited to jobs that a client names.
        """
        launched = self._launched.read()
        self._over = {path: at for path, at in self._over.items() if launched.get(path) == at}
        looks = {path: self._all.get(path) or JobPoll(path) for path in jobs}
        self._named = {look.path for look in looks.values()}
        for path, at in launched.items():
            if path not in self._named and not self._is_over(path, at):
                looks[path] = self._all.get(path) or JobPoll(path)
        self._all = looks
        until = time.monotonic() + (
            FIRST if any(look.is_new for look in looks.values()) else PATIENCE
        )
        events = []
        for look in looks.values():
            news = look.apply_result(max(0.0, until - time.monotonic()))
            if look.path in self._named:
                events += news
        return events

    def _is_over(self, path: str, launched: float) -> bool:
        """Return whether an unnamed job has been done for `DONE_S`; a new launch resets this."""
        if path in self._all:
            frame = self._all[path].frame
        else:
            frame = None
        if frame is not None and frame.get("done") and time.time() - frame["at"] > DONE_S:
            self._over[path] = launched
        return path in self._over

    def launched_at(self, path: str) -> float | None:
        """Return when the job in a directory was last launched on this box, or None."""
        return self._launched.read().get(path)

    def queue_frames(self) -> dict[str, JsonObject]:
        """Return the last ``queue`` frame of each job, by its absolute directory path."""
        return {look.path: look.frame for look in self._all.values() if look.frame is not None}

    def live_cells(self) -> dict[int, str]:
        """Return pid → name of the live cells of named jobs, and of all jobs' smoke commands."""
        found: dict[int, str] = {}
        for look in self._all.values():
            found.update(look.smoke)
            if look.path in self._named:
                found.update(look.cells)
        return found

    def unnamed_cells(self) -> dict[int, tuple[str, str]]:
        """Return pid → (job directory, name) of the live cells of jobs that no client names."""
        unnamed = [look for look in self._all.values() if look.path not in self._named]
        return {pid: (look.path, name) for look in unnamed for pid, name in look.cells.items()}

    def is_named(self, path: str) -> bool:
        """Return whether a client names the job in a directory."""
        return path in self._named

    def find_cell(self, path: str, name: str) -> JsonObject | None:
        """Return a cell from its job's queue; None if unknown."""
        look = self._all.get(path)
        if look is not None:
            cells = (look.frame or {}).get("cells", [])
        else:
            cells = []
        return next((cell for cell in cells if cell["name"] == name), None)

    def written_folders(self) -> list[str]:
        """Return the directories whose mounts are sampled."""
        return [
            path
            for look in self._all.values()
            if look.path in self._named
            for path in look.written_folders
        ]
