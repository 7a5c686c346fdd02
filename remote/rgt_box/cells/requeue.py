"""Back into Slurm's queue: a runner that was stopped because its time was up asks to be started again.

Slurm itself requeues what it preempts or loses with a node (``--requeue``). What it does not requeue is a job whose
time limit comes near: ``--signal`` tells it, and the job has to ask (``scontrol requeue``, see sbatch(1) and
scontrol(1)). A job that a person cancelled is not put back: its state is then no longer RUNNING.

One task of a job array has the array's own number: ``scontrol requeue`` with it would stop the other tasks, too, and
``scontrol show job`` lists all of them. So a task is asked for, and named, as ``ARRAY_TASK``.
"""

from __future__ import annotations

import os
import re
import subprocess

PREEMPTED = 75
STOPPED = (PREEMPTED, 128 + 15, 128 + 1, 128 + 2)
"""Exit statuses of a runner that was asked to stop."""
MOST = 1000
"""Restarts after which something is taken to be wrong."""
ANSWERS_WITHIN = 30.0


def after(status: int) -> int:
    """Put this Slurm job back where its time was up; returns the exit status to end with, which stays the same."""
    number = os.environ.get("SLURM_JOB_ID", "")
    if status not in STOPPED or not number.isdigit():
        return status
    again = os.environ.get("SLURM_RESTART_COUNT", "0")
    if again.isdigit() and int(again) >= MOST:
        print("not put back into Slurm's queue: it has been %s times" % again, flush=True)
        return status
    told = _ask(["scontrol", "--oneliner", "show", "job", number])
    found = record(number, told)
    if found is None:
        print("not put back into Slurm's queue: scontrol show job %s: %s" % (number, told[:500]), flush=True)
        return status
    name, state = found
    if state != "RUNNING":
        print("left as Slurm has it: job %s is %s" % (name, state), flush=True)
        return status
    done = _ask(["scontrol", "requeue", name])
    print("put back into Slurm's queue" if done == "" else "scontrol requeue: %s" % done, flush=True)
    return status


def record(number: str, listing: str) -> tuple[str, str] | None:
    """Return name and state of one job in what ``scontrol --oneliner show job`` prints; None where it is not there.

    Args:
        number: The job's own number, ``SLURM_JOB_ID``.
        listing: A line for each job: of the number of an array, for each of its tasks.

    Returns:
        ``ARRAY_TASK`` of a task that has been started, else the number; and its state.
    """
    for line in listing.splitlines():
        found = _RECORD.match(line)
        if found and found.group("number") == number:
            array, task = found.group("array"), found.group("task")
            return ("%s_%s" % (array, task) if array and task else number), found.group("state")
    return None


_RECORD = re.compile(
    r"JobId=(?P<number>\d+) (?:ArrayJobId=(?P<array>\d+) ArrayTaskId=(?:(?P<task>\d+)|\S+) )?"
    r".*? JobState=(?P<state>\w+)"
)


def _ask(words: list[str]) -> str:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=ANSWERS_WITHIN, env=dict(os.environ, LC_ALL="C"),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode("utf-8", "replace").strip()
