"""A job directory for a watch: its queue, the files to follow, and its runs' checkpoints."""

from __future__ import annotations

import os
import time

from rgt_box import files, jsonline
from rgt_box.checkpoint_search import CheckpointSearch, FoundCheckpoint
from rgt_box.queue import queue_state
from rgt_box.queue.queue_file import Job

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable

    from rgt_wire import JsonObject

SOURCES = ("job.json", "queue.txt", "state.json")


class JobWatch:
    """Watches one job; creating it does not access the directory, which may hang.

    Args:
        given: The directory as the client named it; also used in frames.
    """

    def __init__(self, given: str) -> None:
        self.given = given
        self._read: Job | None = None
        self._seen: object = None
        self._sent: JsonObject | None = None
        self.runs: list[tuple[str, str]] = []
        """(name, run directory) of every cell."""
        self.running: set[str] = set()
        """Names of the running cells."""

    @property
    def _loaded_job(self) -> Job:
        if self._read is None:
            self._read = Job(self.given)
        return self._read

    def poll_frame(self) -> JsonObject | None:
        """Return a ``queue`` frame if the state changed since the last call, else None."""
        signatures = [files.signature(self._loaded_job.path(name)) for name in SOURCES]
        seen = [
            signatures,
            queue_state.is_runner_alive(self._loaded_job),
            queue_state.lane_signatures(self._loaded_job),
        ]
        if seen == self._seen:
            return None
        self._seen = seen
        self._read = Job(self.given)
        frame = queue_state.queue_frame(self._loaded_job, self.given)
        self.runs = [
            (cell["name"], cell["out"]) for cell in frame.get("cells", []) if cell.get("out")
        ]
        self.running = {
            cell["name"] for cell in frame.get("cells", []) if cell.get("state") == "running"
        }
        comparable = dict(frame, at=None)
        if comparable == self._sent:
            return None
        self._sent = comparable
        return frame

    def written_folders(self) -> list[str]:
        """Return the directories that its runs write to."""
        return self._loaded_job.written_folders()

    def log_path(self, name: str) -> str:
        """Return the log of a cell."""
        return self._loaded_job.log_path(name)

    def checkpoints(self, name: str, out: str) -> CheckpointWatch:
        """Return a watch on a cell's checkpoints, in its run directory and its working directory.

        A program without rgt support writes below its working directory. There, only files newer
        than the job count, and with several cells in the queue only those below a directory with
        the cell's name.
        """
        searches = [CheckpointSearch(out)]
        workdir = self._loaded_job.workdir
        home = os.path.expanduser("~")
        if not any(files.is_below(path, workdir) for path in (home, self._loaded_job.folder)):
            made = files.signature(self._loaded_job.path("job.json"))
            since = 0.0
            if made:
                since = made[2] / 1e9
            searches.append(CheckpointSearch(workdir, since, name if len(self.runs) > 1 else ""))
        return CheckpointWatch(name, *searches)

    def list_logs(self) -> list[str]:
        """Return the logs that belong to the job."""
        folder = self._loaded_job.path("logs")
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
        except OSError:
            names = []
        return [self._loaded_job.path("master.log")] + [
            os.path.join(folder, name) for name in names
        ]


class CheckpointWatch:
    """Lists a run's checkpoints when the list changes.

    Args:
        run: The cell's name.
        searches: Searches of the possible directories.
        is_mine: Returns whether a path with its write time belongs to this run; None if all do.
    """

    def __init__(
        self,
        run: str,
        *searches: CheckpointSearch,
        is_mine: Callable[[str, float], bool] | None = None,
    ) -> None:
        self.run = run
        self._searches = searches
        self._is_mine = is_mine
        self._sent: JsonObject = {"items": [], "writing": []}

    @property
    def newest_time(self) -> float:
        """When the newest one was written, or 0."""
        return max((item["at"] for item in self._sent["items"]), default=0.0)

    def poll_frame(self) -> JsonObject | None:
        """Return a ``ckpt`` frame if the list changed since the last call, else None."""
        by_path = {one.path: one for search in self._searches for one in search.poll_checkpoints()}
        found = sorted(
            by_path.values(), key=lambda one: (one.at, -1 if one.step is None else one.step)
        )
        if self._is_mine is not None:
            found = [one for one in found if self._is_mine(one.path, one.at)]
        # Maximum number of checkpoints listed per run, the newest.
        most = 500
        body = {
            "items": [_checkpoint_item(one) for one in found if not one.unfinished][-most:],
            "writing": [
                dict(_checkpoint_item(one), why=one.unfinished) for one in found if one.unfinished
            ][-most:],
        }
        if body == self._sent:
            return None
        self._sent = body
        return jsonline.drop_empty(
            {"t": "ckpt", "run": self.run, "at": round(time.time(), 3), **body}
        )


def _checkpoint_item(one: FoundCheckpoint) -> JsonObject:
    """Return a checkpoint as in the frame, without unknown fields."""
    item = {
        "path": one.path,
        "step": one.step,
        "epoch": one.epoch,
        "bytes": one.bytes,
        "at": round(one.at, 3),
        "best": one.best or None,
        "group": one.group,
    }
    return {key: value for key, value in item.items() if value is not None}
