"""One job directory as ``watch`` sees it: its queue, and what else there is to follow because of it."""

from __future__ import annotations

import os

from rgt_box import files, lock
from rgt_box.cells import lanes, states
from rgt_box.cells.jobfile import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOURCES = ("job.json", "queue.txt", "state.json")


class JobWatch:
    """Watches one job.

    Args:
        given: The directory as the client named it; frames call it so.
    """

    def __init__(self, given: str) -> None:
        self._given = given
        self._job = Job(given)
        self._seen: object = None
        self._sent: dict[str, Any] | None = None
        self.runs: list[tuple[str, str]] = []
        """(name, run directory) of every cell."""
        self.running: set[str] = set()
        """Names of the cells that run."""

    def poll(self) -> dict[str, Any] | None:
        """Return a ``queue`` frame when the state changed since the last call, else None."""
        signatures = [files.signature(self._job.path(name)) for name in SOURCES]
        seen = [signatures, lock.is_held(self._job.path("runner.lock")), lanes.signatures(self._job)]
        if seen == self._seen:
            return None
        self._seen = seen
        self._job = Job(self._given)
        frame = states.frame(self._job, self._given)
        self.runs = [(cell["name"], cell["out"]) for cell in frame.get("cells", []) if cell.get("out")]
        self.running = {cell["name"] for cell in frame.get("cells", []) if cell.get("state") == "running"}
        comparable = dict(frame, at=None)
        if comparable == self._sent:
            return None
        self._sent = comparable
        return frame

    def log(self, name: str) -> str:
        """Return the log of a cell."""
        return self._job.log(name)

    def logs(self) -> list[str]:
        """Return the logs that belong to the job."""
        folder = self._job.path("logs")
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
        except OSError:
            names = []
        return [self._job.path("master.log")] + [os.path.join(folder, name) for name in names]
