"""The note of ``rgt stop`` next to a queue: its runner then writes that a person stopped it, not the machine."""

from __future__ import annotations

import contextlib
import os

from rgt_box import files, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.queue.queue_file import Job

NAME = "stop_request.json"
BY_PERSON = "rgt stop"


def note(job: Job, pid: int, ticks: int) -> None:
    """Name the runner that is about to get SIGTERM. A full disk is no reason to let the run continue."""
    with contextlib.suppress(OSError):
        files.write_json(job.path(NAME), {"pid": pid, "ticks": ticks})


def withdraw(job: Job) -> None:
    """Remove the note, if there is one."""
    files.unlink(job.path(NAME))


def names_this_process(job: Job) -> bool:
    """Tell whether a person has asked this runner to stop; a note for an earlier runner does not count."""
    pid = os.getpid()
    return files.read_json(job.path(NAME)) == {"pid": pid, "ticks": procstat.start_ticks(pid)}
