"""Back into Slurm's queue: a runner that was stopped because its time was up asks to be started again.

Slurm itself requeues what it preempts or loses with a node (``--requeue``). What it does not requeue is a job whose
time limit comes near: ``--signal`` tells it, and the job has to ask (``scontrol requeue``, see sbatch(1) and
scontrol(1)). A job that a person cancelled is not put back: its state is then no longer RUNNING.
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
    state = _state(number)
    if state != "RUNNING":
        print("left as Slurm has it: job %s is %s" % (number, state or "unknown"), flush=True)
        return status
    done = _ask(["scontrol", "requeue", number])
    print("put back into Slurm's queue" if done == "" else "scontrol requeue: %s" % done, flush=True)
    return status


def _state(number: str) -> str | None:
    found = re.search(r"\bJobState=(\w+)", _ask(["scontrol", "show", "job", number]) or "")
    return found.group(1) if found else None


def _ask(words: list[str]) -> str | None:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=ANSWERS_WITHIN, env=dict(os.environ, LC_ALL="C"),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode("utf-8", "replace").strip()
