"""Everything that keeps a queue from being run, found before anything starts and told all at once."""

from __future__ import annotations

import os

from rgt_box.cells import budget, lineends, states
from rgt_box.cells.jobfile import Job, Line


class Checked:
    """What a check found.

    Attributes:
        lines: The cells.
        problems: What keeps them from being run; each names file and line, and what to do.
        notes: What could not be checked.
        crlf: Files with Windows line ends, which `lineends.fix` can mend.
    """

    def __init__(self, job: Job) -> None:
        self.lines, found = job.lines()
        self.problems = job.problems + found
        self.notes: list[str] = []
        self.crlf: list[str] = []


def check(job: Job, skip: int = 0) -> Checked:
    """Check a job.

    Args:
        job: The job, as just loaded.
        skip: How many cells at the head of the queue are left alone: they need no room.
    """
    found = Checked(job)
    if not os.path.isdir(job.workdir):
        found.problems.append(
            '%s: "workdir" %s is no directory; make it' % (job.source.where("workdir"), job.workdir)
        )
    for line in found.lines:
        path = job.config(line)
        if not os.path.isfile(path):
            found.problems.append(
                "%s:%d: the config %s does not exist; put it there, or correct the line"
                % (job.path("queue.txt"), line.number, path)
            )
    for path in lineends.candidates(job, found.lines):
        number = lineends.first_bad(path)
        if number is not None:
            found.crlf.append(path)
            found.problems.append(lineends.problem(path, number))
    if not 0 <= skip <= len(found.lines):
        found.problems.append("--from %d: the queue has %d cells" % (skip, len(found.lines)))
    if not found.lines and not found.problems:
        found.problems.append("%s:1: has no cell; write <cfg> <task> [epochs]" % job.path("queue.txt"))
    pending = to_run(job, found.lines[max(0, skip) :])
    if pending and job.settings["out"]:
        problems, notes = budget.check(job, pending)
        found.problems += problems
        found.notes += notes
    return found


def to_run(job: Job, lines: list[Line]) -> list[Line]:
    """Return the cells that are not done."""
    known = states.by_name(states.load(job))
    return [line for line in lines if known.get(line.name, {}).get("state") != "done"]
