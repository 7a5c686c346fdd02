"""The jobs that were launched on this box, which the recorder knows although no client may have named them.

`launch` and the runner write a job's directory into one file of the state directory before anything starts. So the
recorder sees how the job's cells begin and end while nobody watches, and a process of theirs is never taken for a
training of unknown origin, whose exit status nobody would know.
"""

from __future__ import annotations

import os
import time

from rgt_box import files, ownership, place
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE, LOCK = "launched.json", "launched.lock"
MOST = 32
"""Jobs that are remembered, the newest: each costs the recorder a few system calls per second until it is done."""
LOCK_WAIT_S = 2.0


def register(job: str) -> None:
    """Write down that a job is about to be launched. Where the state directory cannot be written, nothing happens.

    Args:
        job: Its directory.
    """
    folder = place.state_dir()
    try:
        ownership.take(folder)
        held = files.Lock(os.path.join(folder, LOCK))
        if not held.acquire(LOCK_WAIT_S):
            return
    except OSError:
        return
    try:
        kept = _read(folder)
        kept.pop(os.path.abspath(job), None)
        kept[os.path.abspath(job)] = round(time.time(), 3)
        newest = sorted(kept.items(), key=lambda item: item[1])[-MOST:]
        state_files.write_json(folder, FILE, {"jobs": dict(newest)})
    finally:
        held.release()


def known() -> list[str]:
    """Return the directories of the jobs that were launched here, as far as they are remembered."""
    return list(_read(place.state_dir()))


def _read(folder: str) -> dict[str, float]:
    jobs = state_files.read_json(folder, FILE).get("jobs")
    rows = jobs.items() if isinstance(jobs, dict) else ()
    return {path: float(at) for path, at in rows if isinstance(at, (int, float)) and os.path.isabs(path)}


class LaunchedJobs:
    """The registered jobs, read again only when the file changed.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: Any = ()
        self._jobs: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """Return directory → when the job was launched last."""
        seen = [files.signature(os.path.join(where, FILE)) for where in state_files.places(self._folder)]
        if seen != self._seen:
            self._seen, self._jobs = seen, _read(self._folder)
        return self._jobs
