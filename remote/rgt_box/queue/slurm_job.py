"""The Slurm job that a queue's runner is: its end announced as a preemption, and its requeue.

Slurm requeues jobs that it preempts or loses with a node (``--requeue``). It does not requeue a job
that reaches its time limit: ``--signal`` notifies the job, which has to call ``scontrol requeue``
(see sbatch(1) and scontrol(1)). A job that a user cancelled is not requeued: its state is then no
longer RUNNING.

One task of a job array has the array's own number: ``scontrol requeue`` with it would also stop the
other tasks, and ``scontrol show job`` lists all of them. A task is therefore named ``ARRAY_TASK``.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from rgt_box import place
from rgt_box.queue import queue_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from rgt_box.queue.queue_file import Job

    class SlurmRecord(NamedTuple):
        """One job as ``scontrol show job`` prints it."""

        name: str
        """``ARRAY_TASK`` for a task that was started, otherwise the number."""
        state: str
        ends: "float | None"
        """When its time limit is reached, or its grace time is over (epoch seconds)."""
        is_preempted: bool
        """It runs in the grace time of a preemption."""
        restarts: int
else:
    from collections import namedtuple

    SlurmRecord = namedtuple("SlurmRecord", "name state ends is_preempted restarts")

PREEMPTED = 75
STOPPED = (PREEMPTED, 128 + 15, 128 + 10, 128 + 1, 128 + 2)
"""Exit statuses of a runner that was asked to stop."""


def requeue_after(status: int) -> int:
    """Requeue this Slurm job if its time limit was reached; return the unchanged exit status."""
    number = os.environ.get("SLURM_JOB_ID", "")
    if status not in STOPPED or not number.isdigit():
        return status
    again = os.environ.get("SLURM_RESTART_COUNT", "0")
    # Maximum number of restarts; more indicate an error.
    most = 1000
    if again.isdigit() and int(again) >= most:
        print(f"not requeued: Slurm has already restarted this job {again} times", flush=True)
        return status
    told = _run_program(["scontrol", "--oneliner", "show", "job", number])
    found = slurm_record(number, told)
    if found is None:
        print(f"not requeued: scontrol show job {number}: {told[:500]}", flush=True)
        return status
    if found.state != "RUNNING":
        print(f"not requeued: job {found.name} is {found.state}", flush=True)
        return status
    done = _run_program(["scontrol", "requeue", found.name])
    print("requeued in Slurm" if done == "" else f"scontrol requeue: {done}", flush=True)
    return status


def slurm_record(number: str, listing: str) -> SlurmRecord | None:
    """Return one job from ``scontrol --oneliner show job``.

    Return None if it is not listed.

    Args:
        number: The job's own number, ``SLURM_JOB_ID``.
        listing: One line per job; for the number of an array, one line per task.
    """
    for line in listing.splitlines():
        # A field's first value counts: the job's command and directory come last.
        found = dict(reversed(_FIELD.findall(line)))
        if found.get("JobId") == number:
            array, task = found.get("ArrayJobId"), found.get("ArrayTaskId", "")
            name = number
            if array and task.isdecimal():
                name = f"{array}_{task}"
            ends = None
            with contextlib.suppress(ValueError):
                ends = time.mktime(time.strptime(found.get("EndTime", ""), "%Y-%m-%dT%H:%M:%S"))
            is_preempted = found.get("PreemptTime", "None") != "None"
            restarts = int(found.get("Restarts") or 0)
            return SlurmRecord(name, found.get("JobState", ""), ends, is_preempted, restarts)
    return None


_FIELD = re.compile(
    r"(?:^| )(JobId|ArrayJobId|ArrayTaskId|JobState|EndTime|PreemptTime|Restarts)=(\S+)"
)


def _run_program(words: list[str]) -> str:
    import subprocess  # imported here because check and status start no process

    try:
        answers_within = 30.0
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=answers_within, env=dict(os.environ, LC_ALL="C"),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.decode("utf-8", "replace").strip()


SUBMITTED_FROM = "RGT_SUBMITTED_FROM"
"""Variable with boot and state directory of the host that submitted the job: its recorder reports
the end of the job, too, because people watch the login node, not the node of the job.
"""


def announce_end(job: Job, cell: str, now: float) -> None:
    """Report, where this runner is a Slurm job that got a stop signal, when Slurm ends it.

    A cancel by a person and ``rgt stop`` are not reported. Slurm tells neither who sent a signal
    nor when it ends a job that is already being requeued, so the job's record says which it is.

    Args:
        job: The job of the queue.
        cell: The running cell, which has already got SIGTERM.
        now: When the signal arrived (epoch seconds).
    """
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number.isdigit() or queue_state.is_stopped_by_person(job):
        return
    found = slurm_record(number, _run_program(["scontrol", "--oneliner", "show", "job", number]))
    if found is None:
        return
    action, ends = "time limit", found.ends
    is_requeued = found.restarts > int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if found.is_preempted or (found.state != "RUNNING" and is_requeued):
        action = "preempted"
    elif found.state != "RUNNING":
        return
    elif ends is None or ends - now > 3600.0:
        action, ends = "signal", None
    if found.state != "RUNNING":
        settings = _run_program(["scontrol", "show", "config"])
        wait = re.search(r"^KillWait\s*= (\d+)", settings, re.MULTILINE)
        ends = None
        if wait is not None:
            ends = now + float(wait[1])
    from rgt_box.recorder import preemption  # here: only a job that is ended needs it

    places = {place.state_dir(): place.boot_id()}
    boot, _, folder = os.environ.get(SUBMITTED_FROM, "").partition(" ")
    if folder:
        places.setdefault(folder, boot)
    for folder, boot in places.items():
        preemption.announce_job_end(folder, boot, action, ends, cell)
