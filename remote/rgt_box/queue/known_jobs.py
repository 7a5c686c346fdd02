"""Which jobs of this box are the one that is asked for, and which run its command with other code."""

from __future__ import annotations

import os
import time

from rgt_box import files
from rgt_box.queue import detach, queue_file, queue_state
from rgt_box.queue.queue_file import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JOBS = queue_file.JOBS
LAUNCH_LOCK = "launch.lock"
"""Held while a job is launched: its smoke command runs before there is a runner."""


class Found:
    """What is known here of a job that is asked for.

    Attributes:
        same: Its directory; None = there is none with this command, environment, name and code.
        begun: It was started before, however that went, or is being launched.
        others: Jobs that run the same command with other code: ``name`` and ``seconds`` since each was started.
    """

    def __init__(self, same: str | None, begun: bool, others: list[dict[str, Any]]) -> None:
        self.same, self.begun, self.others = same, begun, others


def find(asked: dict[str, Any]) -> Found:
    """Look for a job among those that rgt has made here.

    Args:
        asked: As `job_making.make` takes it: ``digest`` is that of all, ``same_command`` that of all but the code.
    """
    same: list[tuple[bool, float, str]] = []
    others = []
    for folder, settings in _made():
        job = Job(folder)
        if asked.get("digest") and settings.get("digest") == asked["digest"]:
            same.append((is_at_work(job), _made_at(folder), folder))
            continue
        alike = asked.get("same_command") and settings.get("same_command") == asked["same_command"]
        if alike and is_at_work(job):
            seconds = max(0, int(time.time() - _started(job)))
            others.append({"name": os.path.basename(folder), "seconds": seconds})
    if not same:
        return Found(None, False, others)
    newest = max(same)[-1]
    return Found(newest, is_taken(Job(newest)), others)


def folders() -> list[str]:
    """Return the directories of all jobs in the usual place."""
    return [folder for folder, _ in _made()]


def _made() -> list[tuple[str, dict[str, Any]]]:
    top = os.path.expanduser(JOBS)
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []
    found = []
    for name in names:
        settings = files.read_json(os.path.join(top, name, "job.json"), 1 << 20)
        if settings is not None and not name.startswith("."):
            found.append((os.path.join(top, name), settings))
    return found


def _made_at(folder: str) -> float:
    try:
        return os.stat(os.path.join(folder, "job.json")).st_mtime
    except OSError:
        return 0.0


def _started(job: Job) -> float:
    times = [cell.get("started") for cell in queue_state.load_state(job)["cells"]]
    return min([at for at in times if isinstance(at, (int, float))], default=_made_at(job.folder))


def is_taken(job: Job) -> bool:
    """Tell whether a job was started before, or is being launched by another process."""
    return files.is_locked(job.path(LAUNCH_LOCK)) or has_begun(job)


def has_begun(job: Job) -> bool:
    """Tell whether a job was started before, however that went."""
    return _runs(job) or any(cell.get("attempts") for cell in queue_state.load_state(job)["cells"])


def is_at_work(job: Job) -> bool:
    """Tell whether a job runs, waits in Slurm's queue, or is being launched."""
    return files.is_locked(job.path(LAUNCH_LOCK)) or _runs(job)


def _runs(job: Job) -> bool:
    if queue_state.is_runner_alive(job):
        return True
    if any(queue_state.is_lane_alive(job, name) for name in queue_state.lane_names(job)):
        return True
    try:
        return job.settings["detach"] == "slurm" and detach.waiting_in_slurm(job) is not None
    except detach.SlurmRefused:
        return True  # it may: nothing is started on a guess
