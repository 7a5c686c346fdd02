"""Which other jobs of a box write to the directories of this one: the second would resume from the first one's work."""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.queue.queue_file import JOBS, Job, Line
from rgt_box.recorder import launched_jobs

MOST_JOBS = 500
"""Jobs of a box that are compared; so many nobody keeps by hand."""
KEYS = ("out", "durable")


def shared_out_problems(job: Job, lines: list[Line]) -> list[str]:
    """Return a problem for each other job that has a directory of one of these cells for its own."""
    problems = []
    mine = {key: _folders(job, key, lines) for key in KEYS}
    for folder in _other_jobs(job):
        other = Job(folder)
        theirs = other.lines()[0]
        for key in KEYS:
            found = _shared(mine[key], _folders(other, key, theirs))
            if found is not None:
                problems.append(
                    '%s: "%s": cell %s would write to %s, where cell %s of the job %s writes: name another "%s", or '
                    "remove that job if it is over" % (job.source.where(key), key, *found, folder, key)
                )
                break
    return problems


def _folders(job: Job, key: str, lines: list[Line]) -> dict[str, str]:
    """Return run directory → cell."""
    found = {}
    for line in lines:
        path = job.out(line.name) if key == "out" else job.durable(line.name)
        if path:
            found[os.path.realpath(path)] = line.name
    return found


def _shared(mine: dict[str, str], theirs: dict[str, str]) -> tuple[str, str, str] | None:
    """Return (my cell, the directory, their cell) of the first one that is the same or lies in the other one."""
    for path, name in mine.items():
        if path in theirs:
            return name, path, theirs[path]
    for path, name in mine.items():
        for other, cell in theirs.items():
            if files.is_below(path, other) or files.is_below(other, path):
                return name, path, cell
    return None


def _other_jobs(job: Job) -> list[str]:
    """Return the directories of the jobs that are made where rgt makes them, beside this one, or were launched here."""
    here = os.path.realpath(job.folder)
    found: dict[str, str] = {}
    tops = dict.fromkeys([os.path.expanduser(JOBS), os.path.dirname(job.folder)])
    paths = [os.path.join(top, name) for top in tops for name in _names(top)] + launched_jobs.known()
    for path in paths[:MOST_JOBS]:
        real = os.path.realpath(path)
        if real != here and os.path.isfile(os.path.join(real, "job.json")):
            found.setdefault(real, path)
    return list(found.values())


def _names(top: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(top) if not name.startswith("."))
    except OSError:
        return []
