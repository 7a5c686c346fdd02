"""A job directory as a watch sees it: its queue, what else to follow, and its runs' checkpoints."""

from __future__ import annotations

import os
import re
import time

from rgt_box import files
from rgt_box.queue import queue_state
from rgt_box.queue.queue_file import Job

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

SOURCES = ("job.json", "queue.txt", "state.json")


class JobWatch:
    """Watches one job. To make one asks nothing of the directory, which may hang.

    Args:
        given: The directory as the client named it; frames call it so.
    """

    def __init__(self, given: str) -> None:
        self.given = given
        self._read: Job | None = None
        self._seen: object = None
        self._sent: dict[str, Any] | None = None
        self.runs: list[tuple[str, str]] = []
        """(name, run directory) of every cell."""
        self.running: set[str] = set()
        """Names of the cells that run."""

    @property
    def _job(self) -> Job:
        if self._read is None:
            self._read = Job(self.given)
        return self._read

    def poll(self) -> dict[str, Any] | None:
        """Return a ``queue`` frame when the state changed since the last call, else None."""
        signatures = [files.signature(self._job.path(name)) for name in SOURCES]
        seen = [
            signatures,
            queue_state.is_runner_alive(self._job),
            queue_state.lane_signatures(self._job),
        ]
        if seen == self._seen:
            return None
        self._seen = seen
        self._read = Job(self.given)
        frame = queue_state.queue_frame(self._job, self.given)
        self.runs = [(cell["name"], cell["out"]) for cell in frame.get("cells", []) if cell.get("out")]
        self.running = {cell["name"] for cell in frame.get("cells", []) if cell.get("state") == "running"}
        comparable = dict(frame, at=None)
        if comparable == self._sent:
            return None
        self._sent = comparable
        return frame

    def written(self) -> list[str]:
        """Return the directories that its runs write to."""
        return self._job.written()

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


_STEP = re.compile(r"step-(\d{1,15})(?:-a\d+(?:\.\d+)?)?$")
MOST = 500
MOST_FILES = 20_000
"""Files of a checkpoint that has no manifest whose sizes are added up: our trainer's have one."""


class CheckpointWatch:
    """Lists a run's checkpoints when its directories changed.

    Args:
        run: The cell's name.
        out: Its run directory.
    """

    def __init__(self, run: str, out: str) -> None:
        self.run, self._out = run, out
        self._seen: object = None
        self._items: list[dict[str, Any]] | None = None
        self._known: dict[tuple[str, tuple[int, int, int] | None], dict[str, Any]] = {}

    @property
    def newest(self) -> float:
        """When the newest one was written; 0 where there is none."""
        return max((item["at"] for item in self._items or []), default=0.0)

    def poll(self) -> dict[str, Any] | None:
        """Return a ``ckpt`` frame when the list changed since the last call, else None."""
        seen = (
            _mark(self._out),
            _mark(os.path.join(self._out, "checkpoints")),
            _mark(os.path.join(self._out, "best")),
        )
        if seen == self._seen:
            return None
        self._seen = seen
        items = self._list()
        if items == self._items or (self._items is None and not items):
            return None
        self._items = items
        return {"t": "ckpt", "run": self.run, "at": round(time.time(), 3), "items": items}

    def _list(self) -> list[dict[str, Any]]:
        folder = os.path.join(self._out, "checkpoints")
        found = []
        for name in _names(folder):
            match = _STEP.match(name)
            if match:
                found.append(self._describe(os.path.join(folder, name), int(match.group(1)), False))
        best = os.path.join(self._out, "best")
        if os.path.isdir(best):
            found.append(self._describe(best, _best_step(self._out), True))
        items = [item for item in found if item is not None]
        items.sort(key=lambda item: (item["step"], item["at"]))
        return items[-MOST:]

    def _describe(self, path: str, step: int, best: bool) -> dict[str, Any] | None:
        manifest = os.path.join(path, "manifest.json")
        key = (path, files.signature(manifest) or _mark(path))
        if key not in self._known:
            try:
                at = os.stat(manifest if os.path.exists(manifest) else path).st_mtime
            except OSError:
                return None
            content = files.read_json(manifest) or {}
            size = manifest_bytes(content)
            if size is None and os.path.islink(path):
                return None  # it may lead to ``/``, and is none that our trainer has published
            if best and isinstance(content.get("step"), int):
                step = content["step"]
            item = {
                "path": path,
                "step": step,
                "bytes": _tree_bytes(path) if size is None else size,
                "at": round(at, 3),
            }
            self._known[key] = dict(item, best=True) if best else item
        return self._known[key]


def manifest_bytes(manifest: dict[str, Any]) -> int | None:
    """Return the bytes that a manifest lists; None when it lists none in a form we know."""
    listed = manifest.get("files")
    entries = list(listed.values()) if isinstance(listed, dict) else listed
    if not isinstance(entries, list) or not entries:
        return None
    sizes: list[Any] = [
        entry.get("size", entry.get("bytes")) if isinstance(entry, dict) else None for entry in entries
    ]
    return sum(sizes) if all(isinstance(size, int) and not isinstance(size, bool) for size in sizes) else None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _mark(path: str) -> tuple[int, int, int] | None:
    return files.signature(path)


def _best_step(out: str) -> int:
    step = (files.read_json(os.path.join(out, "best.json"), 1 << 20) or {}).get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) else 0


def _tree_bytes(top: str) -> int:
    """Return the bytes of the first `MOST_FILES` entries below a directory."""
    total, left = 0, MOST_FILES
    for folder, inside, names in os.walk(top):
        left -= len(inside) + len(names)
        if left < 0:
            break
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
