"""The ``queue`` verb: run, check, status."""

from __future__ import annotations

import os
import sys

from rgt_box import background, files, jsonline, options, procstat
from rgt_box.cells import check as checks
from rgt_box.cells import jobfile, lineends, states

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

HELP = """
usage: queue run --job DIR [--from NAME]         run every cell that is not done, one after the other
       queue cell --job DIR [--index K]          run one cell in a lane of its own, beside others
       queue check --job DIR [--json] [--fix]    say everything that keeps the queue from running
       queue status --job DIR                    print the state of the queue as one JSON line

  --from NAME  begin with this cell and leave those before it alone; a number leaves so many alone, of which those
               count whose lines are commented out
  --index K    the cell's row in indexes.json, which detach writes at the first submission and only ever adds to, from 0
               (without that file, its place in the queue); auto (the default) takes it from SLURM_ARRAY_TASK_ID or
               JOB_COMPLETION_INDEX
  --fix        first put corrected copies in the place of files with Windows line ends

Exit status of run and cell: 0 all done, 1 a cell failed, 2 the queue cannot be run, 3 another runner is alive,
4 a cell before --from has not had its turn, 74 the next cell would not fit on the disk, 75 a cell was preempted,
128+N stopped by signal N.
Exit status of check: 0 nothing wrong, 2 the queue cannot be run, 3 a runner is alive and nothing was mended.

Example: queue check --job ~/jobs/sweep --fix && queue run --job ~/jobs/sweep
"""
USAGE, BUSY = 2, 3
SPEC = {
    "--job": "str",
    "--from": "str",
    "--json": "flag",
    "--fix": "flag",
    "--env-fifo": "str",
    "--index": "str",
}


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    actions: dict[str, Callable[[jobfile.Job, dict[str, Any]], int]] = {
        "run": run,
        "cell": cell,
        "check": check,
        "status": status,
    }
    if not argv or argv[0] not in actions:
        print(HELP.strip(), file=sys.stdout if argv and argv[0] in ("-h", "--help") else sys.stderr)
        return 0 if argv and argv[0] in ("-h", "--help") else USAGE
    found = options.parse_or_exit(argv[1:], SPEC, HELP)
    if not found["job"]:
        print("--job DIR is missing", file=sys.stderr)
        return USAGE
    if found["env-fifo"]:
        load_environment(found["env-fifo"])
    try:
        return actions[argv[0]](jobfile.Job(found["job"]), found)
    except OSError as error:  # a pipe or a directory where a file or folder of the job belongs
        print("queue: %s: %s" % (error.filename or found["job"], background.describe(error)), file=sys.stderr)
        return USAGE


def status(job: jobfile.Job, _: dict[str, Any]) -> int:
    """Print the ``queue`` frame."""
    sys.stdout.buffer.write(jsonline.line(states.frame(job, job.folder)))
    return 0 if not job.problems else USAGE


def check(job: jobfile.Job, found: dict[str, Any]) -> int:
    """Print all problems, or how many cells there are."""
    checked = checks.check(job, found["from"])
    fixed: list[str] = []
    if found["fix"] and checked.crlf:
        if files.is_locked(job.path("runner.lock")):
            print("%s; nothing was mended" % busy(job), file=sys.stderr)
            return BUSY
        fixed, problems = mend(checked.crlf)
        checked = checks.check(jobfile.Job(job.folder), found["from"])
        checked.problems += problems
    if found["json"]:
        shown: dict[str, Any] = {"ok": not checked.problems, "cells": len(checked.lines)}
        shown.update(problems=checked.problems, notes=checked.notes, fixed=fixed)
        sys.stdout.buffer.write(jsonline.line(shown))
    else:
        rows = ["mended: %s" % path for path in fixed] + checked.problems
        rows += ["note: %s" % note for note in checked.notes]
        if not checked.problems:
            rows.append("%d cells, nothing wrong" % len(checked.lines))
        print(printable(rows))
    return USAGE if checked.problems else 0


def mend(paths: list[str]) -> tuple[list[str], list[str]]:
    """Correct the line ends of files; returns those that were, and why others were not."""
    fixed, problems = [], []
    for path in paths:
        try:
            lineends.fix(path)
            fixed.append(path)
        except OSError as error:
            problems.append("%s: could not be mended: %s" % (path, background.describe(error)))
    return fixed, problems


def printable(rows: list[str]) -> str:
    """Join rows for a terminal: names of files that are no UTF-8 must not end in an exception."""
    return "\n".join(rows).encode("utf-8", "replace").decode("utf-8")


def run(job: jobfile.Job, found: dict[str, Any]) -> int:
    """Be the runner of a job."""
    from rgt_box.cells import lane_command, process, requeue, runner  # here: only this action needs them

    checked = checks.check(job, found["from"])
    if checked.problems:
        print(printable(checked.problems), file=sys.stderr)
        return USAGE
    for note in checked.notes:
        print("note: %s" % note, flush=True)
    held = files.Lock(job.path("runner.lock"))
    if not held.acquire(1.0):
        print(busy(job), file=sys.stderr)
        return BUSY
    held.write({"pid": os.getpid(), "ticks": procstat.start_ticks(os.getpid())})
    lanes = lane_command.busy_lanes(job)
    if lanes:
        print("being run in lanes of their own: %s" % ", ".join(lanes), file=sys.stderr)
        return BUSY
    process.block_signals()
    status = runner.Runner(job, checked.first).run()
    held.release()
    return requeue.after(status)


def cell(job: jobfile.Job, found: dict[str, Any]) -> int:
    """Be the runner of one cell."""
    from rgt_box.cells import lane_command  # here: only this action needs it

    return lane_command.run(job, found)


def busy(job: jobfile.Job) -> str:
    """Say that a runner is alive, and which."""
    pid = files.lock_holder(job.path("runner.lock")).get("pid")
    return "a runner (pid %s) is already at work on %s" % (pid or "unknown", job.folder)


def load_environment(path: str) -> None:
    """Take over the environment that `detach` hands on through a named pipe: never by argv, never on a disk."""
    try:
        with open(path, "rb") as pipe:
            sent = jsonline.loads_dict(pipe.read())
    except OSError:
        return
    files.unlink(path)
    if sent:
        os.environ.clear()
        os.environ.update({str(key): str(value) for key, value in sent.items()})
