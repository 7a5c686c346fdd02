"""The ``queue`` verb: run, check, status, and ``cell`` for one array task or indexed pod.

A runner that is a Slurm job reports its end as a preemption, and requeues itself at its time limit.

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
import sys
import time

from rgt_box import background, files, jsonline, options, place, procstat
from rgt_box.queue import queue_check, queue_file, queue_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NamedTuple

    from rgt_wire import JsonObject

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
            array = found.get("ArrayJobId")
            task = found.get("ArrayTaskId", "")
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


def announce_end(job: queue_file.Job, cell: str, now: float) -> None:
    """Report, where this runner is a Slurm job that got a stop signal, when Slurm ends it.

    A cancel by a person and ``rgt stop`` are not reported. Slurm reports neither who sent a signal
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
    action = "time limit"
    ends = found.ends
    is_requeued = found.restarts > int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if found.is_preempted or (found.state != "RUNNING" and is_requeued):
        action = "preempted"
    elif found.state != "RUNNING":
        return
    elif ends is None or ends - now > 3600.0:
        action = "signal"
        ends = None
    if found.state != "RUNNING":
        settings = _run_program(["scontrol", "show", "config"])
        wait = re.search(r"^KillWait\s*= (\d+)", settings, re.MULTILINE)
        ends = None
        if wait is not None:
            ends = now + float(wait[1])
    # here: only a job that is ended needs it
    from rgt_box.recorder import preemption, state_files

    places = {place.state_dir(): place.boot_id()}
    boot, _, folder = os.environ.get(state_files.SUBMITTED_FROM, "").partition(" ")
    if folder:
        places.setdefault(folder, boot)
    for folder, boot in places.items():
        preemption.announce_job_end(folder, boot, action, ends, cell)


USAGE, BUSY = 2, 3
AUTO = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
"""Environment variables with the task's index: Slurm's job arrays, Kubernetes' indexed Jobs."""


def run_lane(job: queue_file.Job, found: JsonObject) -> int:
    """Act as the runner of one cell; return the exit status."""
    # here: others need none
    from rgt_box.queue import cell_process, runner
    from rgt_box.recorder import state_files

    checked = queue_check.check_queue(job)
    if checked.problems:
        print(
            "\n".join(checked.problems).encode("utf-8", "replace").decode("utf-8"), file=sys.stderr
        )
        return USAGE
    present = [line.name for line in checked.lines]
    try:
        name = found.get("name") or find_lane_cell(job, found["index"], present)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    if name not in present:
        print(f"{name}: its line is no longer in queue.txt; nothing to run", flush=True)
        return 0
    os.makedirs(queue_state.lanes_folder(job), exist_ok=True)
    held = files.FileLock(queue_state.lane_lock_path(job, name))
    if not held.acquire(1.0):
        print(f"{name} is already running: its lane is locked", file=sys.stderr)
        return BUSY
    held.write_owner({"pid": os.getpid(), "ticks": procstat.start_ticks(os.getpid())})
    if files.is_locked(job.path("runner.lock")):
        words = f"a runner is active on the queue of {job.folder}"
        print(busy_text(job) if queue_state.is_sealed(job) else words, file=sys.stderr)
        return BUSY
    state_files.register_job(job.folder)
    cell_process.block_signals()
    status = runner.QueueRunner(job, only=name, on_stop=announce_end).run()
    held.release()
    return requeue_after(status)


def find_lane_cell(job: queue_file.Job, given: str | None, present: list[str]) -> str:
    """Return the cell of a task by its index.

    Args:
        job: The job.
        given: The index, or ``auto``.
        present: The cells of the queue.

    Raises:
        ValueError: There is no such index, or the table of indexes is damaged.
    """
    cells = queue_state.read_frozen_cells(job) or present
    index = find_cell_index(given)
    if index is None or not 0 <= index < len(cells):
        raise ValueError("--index %s: the queue has the cells 0 to %d" % (given, len(cells) - 1))
    return cells[index]


def find_cell_index(given: str | None) -> int | None:
    """Return the cell's index, from 0, as given or from the environment; None if unknown."""
    if given not in (None, "auto"):
        if str(given).isdecimal():
            return int(given)
        return None
    for name in AUTO:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return None


def busy_lanes(job: queue_file.Job) -> list[str]:
    """Return the cells that run in a lane."""
    return [name for name in queue_state.lane_names(job) if queue_state.is_lane_alive(job, name)]


HELP = """
usage: queue run --job DIR [--from NAME]         run every cell that is not done, one after the other
       queue cell --job DIR [--index K]          run one cell in a lane of its own, beside others
       queue check --job DIR [--json] [--fix]    list everything that keeps the queue from running
       queue status --job DIR                    print the state of the queue as one JSON line
       queue list                                print the job directories that this box knows: {"jobs": [DIR, ...]}
       queue wait --job DIR [--seconds S]        the same, once no runner is active, or after S seconds (default: 60);
                                                 "queued" = it waits in Slurm's queue
       queue new < JSON                          make a job with an empty queue for one command with fields; prints
                                                 {"folder", "made", "out", "workdir", "durable", "notes"}
       queue pod < JSON                          in a pod of an indexed Kubernetes Job: make the job as new does, below
                                                 the directory "jobs", unless it exists; add its "lines", and run the
                                                 cell in the line of the pod's index
       queue add --job DIR < LINES               append lines, all or none; prints {"added", "there"}
       queue take-out --job DIR --cell NAME ... [--why TEXT]
                                                 comment out lines of cells that are neither running nor
                                                 done; prints {"out", "kept", "absent"}
       queue again --job DIR --cell NAME ...     run cells again that are done or have failed; no runner may be at work;
                                                 prints {"again", "absent"}

  --from NAME  begin with this cell and leave those before it alone; a number leaves that many alone, including
               those whose lines are commented out
  --index K    the cell's row in indexes.json, which detach writes at the first submission and only ever adds to, from 0
               (without that file, its place in the queue); auto (the default) takes it from SLURM_ARRAY_TASK_ID or
               JOB_COMPLETION_INDEX
  --fix        first replace files that have Windows line endings with corrected copies

Exit status of run and cell: 0 all done, 1 a cell failed, 2 the queue cannot be run, 3 another runner is alive,
4 a cell before --from has not had its turn, 74 the next cell would not fit on the disk, 75 a cell was preempted,
128+N stopped by signal N.
Exit status of add, take-out and again: 0 done, 1 a line was kept, 2 refused: nothing was changed.
Exit status of check: 0 nothing wrong, 2 the queue cannot be run, 3 a runner is alive and nothing was fixed.

Example: queue check --job ~/jobs/sweep --fix && queue run --job ~/jobs/sweep
"""
FAILED, USAGE, BUSY = 1, 2, 3
SPEC = {
    "--job": "str",
    "--from": "str",
    "--json": "flag",
    "--fix": "flag",
    "--env-fifo": "str",
    "--index": "str",
    "--seconds": "float",
    "--cell": "list",
    "--why": "str",
}


def main(argv: list[str]) -> int:
    """Run the verb; return the exit status."""
    actions: dict[str, Callable[[queue_file.Job, JsonObject], int]] = {
        "run": run_queue,
        "cell": run_one_cell,
        "check": print_check,
        "status": print_status,
        "wait": wait_for_queue,
        "add": lambda job, found: edit_queue(job, found, "add"),
        "again": lambda job, found: edit_queue(job, found, "again"),
        "take-out": lambda job, found: edit_queue(job, found, "take-out"),
    }
    if not argv or argv[0] not in (*actions, "list", "new", "pod"):
        return options.refuse_verb(argv, HELP)
    if argv[0] == "new":
        return make_sweep_job()
    if argv[0] == "pod":
        return run_pod_cell()
    found = options.parse_or_exit(argv[1:], SPEC, HELP)
    if argv[0] == "list":
        return list_jobs()
    if not found["job"]:
        print("--job DIR is missing", file=sys.stderr)
        return USAGE
    if found["env-fifo"]:
        load_environment(found["env-fifo"])
    try:
        return actions[argv[0]](queue_file.Job(found["job"]), found)
    except OSError as error:  # a pipe or a directory where the job needs a file or a directory
        print(
            f"queue: {error.filename or found['job']}: {background.error_text(error)}",
            file=sys.stderr,
        )
        return USAGE


def list_jobs() -> int:
    """Print the directories of all known jobs: in the default location, or launched on this box."""
    from rgt_box.queue import job_making
    from rgt_box.recorder import state_files

    launched = [
        job for job in state_files.LaunchedJobs(place.state_dir()).read() if os.path.isdir(job)
    ]
    jsonline.print_frame({"jobs": list(dict.fromkeys([*job_making.job_folders(), *launched]))})
    return 0


def print_status(job: queue_file.Job, _: JsonObject) -> int:
    """Print the ``queue`` frame."""
    from rgt_box.metrics.jsonl import read_last_wait

    frame = queue_state.queue_frame(job, job.folder, edits=True)
    for cell in frame.get("cells", ()):
        if cell["state"] == "running":
            out = job.run_folder(cell["name"])
        else:
            out = None
        if out:
            waits = read_last_wait(os.path.join(out, "metrics.jsonl"))
        else:
            waits = None
        if waits is not None:
            cell["wait"] = jsonline.drop_empty(waits)
    jsonline.print_frame(frame)
    if not job.problems:
        return 0
    return USAGE


def wait_for_queue(job: queue_file.Job, found: JsonObject) -> int:
    """Print the ``queue`` frame once no runner is active, or the time is up."""
    from rgt_box.queue import launch

    if found["seconds"] is None:
        seconds = 60.0
    else:
        seconds = found["seconds"]
    slurm = (lambda: launch.in_slurm(job)) if job.settings["detach"] == "slurm" else None
    jsonline.print_frame(launch.wait_until_done(job, seconds, slurm))
    if not job.problems:
        return 0
    return USAGE


def make_sweep_job() -> int:
    """Make the job of a sweep from the JSON object on standard input."""
    from rgt_box.queue import job_making

    asked = jsonline.loads_dict(sys.stdin.buffer.read(1 << 20))
    try:
        if asked is None:
            raise job_making.JobNotMade("standard input is not a JSON object")
        jsonline.print_frame(job_making.make_sweep(asked))
    except job_making.JobNotMade as error:
        print(f"queue new: {error}", file=sys.stderr)
        return USAGE
    return 0


def run_pod_cell() -> int:
    """Run the cell of this pod's index, for the JSON object on standard input."""
    from rgt_box.queue import job_making, queue_edit

    asked = jsonline.loads_dict(sys.stdin.buffer.read(1 << 20)) or {}
    lines = [str(line) for line in asked.get("lines") or []]
    index = find_cell_index("auto")
    if index is None or index >= len(lines):
        print("queue pod: no cell has the index %s" % index, file=sys.stderr)
        return USAGE
    try:
        try:
            made = job_making.make_sweep(asked)
        except job_making.JobNotMade:
            # Another pod of the Job may have made it at the same time.
            made = job_making.make_sweep(asked)
        job = queue_file.Job(made["folder"])
        rows = (
            (files.read_file(job.path("queue.txt")) or b"").decode("utf-8", "replace").split("\n")
        )
        # A line that a person has taken out stays out.
        taken_out = [row for row in rows if row.startswith("#")]
        fresh = [line for line in lines if not any(row.endswith(" " + line) for row in taken_out)]
        if fresh:
            queue_edit.add_lines(job, "\n".join(fresh).encode())
    except (job_making.JobNotMade, queue_edit.NotEdited) as error:
        print(f"queue pod: {error}", file=sys.stderr)
        return USAGE
    (line,), _ = queue_file.parse_queue(lines[index].encode(), "line")
    status = run_lane(job, {"name": line.name})
    # A seal expires, and a pod on a lost node ends: unlike 3, 75 lets the Job try again.
    if status == BUSY:
        return PREEMPTED
    if status == FAILED:
        # The cell's log is on the claim, which cannot be read once no pod runs; the pod's is kept.
        tail = files.read_tail(job.log_path(line.name), 2048)
        print(tail.decode("utf-8", "replace"), flush=True)
    return status


def edit_queue(job: queue_file.Job, found: JsonObject, action: str) -> int:
    """Append lines, comment them out, or make cells run again."""
    from rgt_box.queue import queue_edit

    if not os.path.isfile(job.path("job.json")):
        words = (
            f"there is no job {job.folder} on this box; make it first: "
            f"rgt queue BOX new {os.path.basename(job.folder)} "
            "--push . -- 'python train.py --config {cfg}'"
        )
        print(f"queue {action}: {words}", file=sys.stderr)
        return USAGE
    try:
        if action == "add":
            done = queue_edit.add_lines(job, sys.stdin.buffer.read(queue_edit.MOST_BYTES + 1))
        elif action == "again":
            done = queue_edit.mark_for_rerun(job, found["cell"])
        else:
            done = queue_edit.comment_out_lines(job, found["cell"], found["why"] or "taken out")
    except queue_edit.NotEdited as error:
        print(f"queue {action}: {error}", file=sys.stderr)
        return USAGE
    jsonline.print_frame(done)
    if done.get("kept"):
        return 1
    return 0


def print_check(job: queue_file.Job, found: JsonObject) -> int:
    """Print all problems, or else the number of cells."""
    checked = queue_check.check_queue(job, found["from"])
    fixed: list[str] = []
    if found["fix"] and checked.crlf:
        if files.is_locked(job.path("runner.lock")):
            print(f"{busy_text(job)}; nothing was fixed", file=sys.stderr)
            return BUSY
        fixed, problems = fix_all_line_ends(checked.crlf)
        checked = queue_check.check_queue(queue_file.Job(job.folder), found["from"])
        checked.problems += problems
    if found["json"]:
        shown: JsonObject = {"ok": not checked.problems, "cells": len(checked.lines)}
        shown.update(problems=checked.problems, notes=checked.notes, fixed=fixed)
        jsonline.print_frame(shown)
    else:
        rows = [f"fixed: {path}" for path in fixed] + checked.problems
        rows += [f"note: {note}" for note in checked.notes]
        if not checked.problems:
            count = len(checked.lines)
            rows.append("%d cell%s, nothing wrong" % (count, "" if count == 1 else "s"))
        print(printable(rows))
    if checked.problems:
        return USAGE
    return 0


def fix_all_line_ends(paths: list[str]) -> tuple[list[str], list[str]]:
    """Correct the line endings of files; return the corrected files, and why others were not."""
    fixed = []
    problems = []
    for path in paths:
        try:
            queue_check.fix_line_ends(path)
            fixed.append(path)
        except OSError as error:
            problems.append(f"{path}: could not be fixed: {background.error_text(error)}")
    return fixed, problems


def printable(rows: list[str]) -> str:
    """Join rows for a terminal; file names that are not UTF-8 must not raise an exception."""
    return "\n".join(rows).encode("utf-8", "replace").decode("utf-8")


def run_queue(job: queue_file.Job, found: JsonObject) -> int:
    """Act as the runner of a job."""
    # here: only this action needs them
    from rgt_box.queue import cell_process, runner
    from rgt_box.recorder import state_files

    checked = queue_check.check_queue(job, found["from"])
    if checked.problems:
        print(printable(checked.problems), file=sys.stderr)
        return USAGE
    told = queue_file.platform_environment(place.state_dir())
    names = sorted(
        name for name in told if name not in os.environ and name not in job.settings["env"]
    )
    if names:
        checked.notes.append(f"set by the platform's profile: {', '.join(names)}")
    words = queue_file.command_words(job.settings["command"])
    threads = runner.threads_of_quota(words, {**told, **os.environ, **job.settings["env"]})
    if threads is not None:
        checked.notes.append(
            f"{runner.THREADS}={threads}: the container's CPU quota is below its cores; set it to "
            "use another number"
        )
    for note in checked.notes:
        print(f"note: {note}", flush=True)
    held = files.FileLock(job.path("runner.lock"))
    if not held.acquire(1.0):
        print(busy_text(job), file=sys.stderr)
        return BUSY
    held.write_owner({"pid": os.getpid(), "ticks": procstat.start_ticks(os.getpid())})
    lanes = busy_lanes(job)
    if lanes:
        print(f"running in separate lanes: {', '.join(lanes)}", file=sys.stderr)
        return BUSY
    state_files.register_job(job.folder)
    cell_process.block_signals()
    status = runner.QueueRunner(job, checked.first, on_stop=announce_end).run()
    held.release()
    return requeue_after(status)


def run_one_cell(job: queue_file.Job, found: JsonObject) -> int:
    """Act as the runner of one cell."""
    return run_lane(job, found)


def busy_text(job: queue_file.Job) -> str:
    """Return a text that says which runner is alive, or that the job is sealed."""
    if queue_state.is_sealed(job):
        return f"{job.folder} is sealed for a billing action; the seal expires automatically"
    pid = files.lock_holder(job.path("runner.lock")).get("pid")
    return f"a runner (pid {pid or 'unknown'}) is already active on {job.folder}"


def load_environment(path: str) -> None:
    """Replace the environment with the one that `detach` sends through a named pipe.

    It is never passed in argv or on a disk.
    """
    try:
        with open(path, "rb") as pipe:
            sent = jsonline.loads_dict(pipe.read())
    except OSError:
        return
    files.unlink_if_exists(path)
    if sent:
        os.environ.clear()
        os.environ.update({str(key): str(value) for key, value in sent.items()})
