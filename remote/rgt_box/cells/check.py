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
        first: Number of the first line of the queue that is to be run: those before are left alone.
    """

    def __init__(self, job: Job) -> None:
        self.lines, found = job.lines()
        self.problems = job.problems + found
        self.notes: list[str] = []
        self.crlf: list[str] = []
        self.first = 0


def check(job: Job, start: str | None = None) -> Checked:
    """Check a job.

    Args:
        job: The job, as just loaded.
        start: The cell to begin with, as `first_line` takes it: those before it need no room.
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
    if start is not None:
        try:
            found.first = first_line(job, found.lines, start)
        except ValueError as error:
            found.problems.append("--from %s: %s" % (start, error))
    if not found.lines and not found.problems:
        found.problems.append("%s:1: has no cell; write <cfg> <task> [epochs]" % job.path("queue.txt"))
    pending = to_run(job, [line for line in found.lines if line.number >= found.first])
    if pending and job.settings["out"]:
        problems, notes = budget.check(job, pending)
        found.problems += problems
        found.notes += notes
    return found


def first_line(job: Job, lines: list[Line], start: str) -> int:
    """Return the number of the queue's line that ``--from`` means.

    Args:
        job: The job.
        lines: Its cells.
        start: The name of a cell or its config as the queue has it; or how many cells to leave alone, of which those
            count whose lines are commented out: to take a line out does not move the others.

    Raises:
        ValueError: There is no such cell, or there are two; the message says it.
    """
    places = sorted(lines + job.commented(), key=lambda line: line.number)
    named = {line.number for line in places if line.cfg == start} or {
        line.number for line in places if line.name == start
    }
    counted = start.isdigit() and start.isascii() and int(start) <= len(places)
    if counted:
        ends = places[-1].number + 1 if places else 0
        named.add(places[int(start)].number if int(start) < len(places) else ends)
    if len(named) > 1:
        where = (
            "is the name of one cell and the place of another"
            if counted
            else "names lines %s" % ", ".join(map(str, sorted(named)))
        )
        raise ValueError("%s; give the config as it stands in the queue" % where)
    if not named:
        raise ValueError("no cell of the queue has this name, and there are %d" % len(places))
    return named.pop()


def to_run(job: Job, lines: list[Line]) -> list[Line]:
    """Return the cells that are not done."""
    known = states.by_name(states.load(job))
    return [line for line in lines if known.get(line.name, {}).get("state") != "done"]
