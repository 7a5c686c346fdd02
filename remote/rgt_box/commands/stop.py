"""The ``stop`` verb: ends one run so that it can save, and reports what it saved."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from rgt_box import files, jsonline, options, place, procstat
from rgt_box.autostop.saving import catches_sigterm
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.commands.reap import open_process, parse_process, send_to_process
from rgt_box.discovery import found_run
from rgt_box.queue import job_making, queue_state
from rgt_box.queue.cell_process import stop_grace_seconds
from rgt_box.queue.queue_file import Job
from rgt_box.recorder import state_files
from rgt_box.sampling.processes import LiveCells
from rgt_box.streams.job_files import CheckpointWatch, JobWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from rgt_wire import JsonObject

HELP = """
usage: stop --run NAME [--job DIR ...]
       stop --run NAME [--job DIR ...] --end PID:START [--after-checkpoint] [--wait S] [--seconds S]

Say which process a run is, and what it has saved, as a JSON line; with --end, end it: SIGTERM to the process that the
first form has shown, then wait for it. A run of a queue is ended through its runner, which hands the signal on, waits
RGT_STOP_GRACE seconds for the save, and marks the cell as interrupted. Any other run gets no further signal.

  --run NAME          job (name or directory), cell, or found training, exactly as rgt shows it
  --job DIR           a job to look for, besides those in ~/jobs and those that were launched here (may be repeated)
  --end PID:START     end it, if it is still this process
  --after-checkpoint  first wait until the run has saved once more
  --wait S            seconds to wait for that (default: 3600)
  --seconds S         seconds to wait for the end (default: RGT_STOP_GRACE and 30)

Prints JSON lines: {"phase": "found"}, {"phase": "waits"}, {"phase": "asked"}, {"phase": "ended"}.

Exit status: 0 it has ended (or, without --end, it runs), 1 it has not, 2 there is no such run, or several.

Example: stop --run try-1
"""
SPEC = {
    "--run": "str", "--job": "list", "--end": "str", "--after-checkpoint": "flag",
    "--wait": "float",
    "--seconds": "float",
}  # fmt: skip
OK, FAILED, USAGE = 0, 1, 2
POLL_S, SAVE_POLL_S = 0.1, 0.5


class StopTarget:
    """A live run, and the process that receives the signal.

    Args:
        names: All names the user may use; the first is shown.
        pid: The process: a queue's runner, or the root of the training run.
        ticks: Its start time in ticks.
        works: The training process, whose SIGTERM handling matters.

    Attributes:
        job, cell: Of a queue; None and "" for a found run.
        waiting: Cells of the queue that wait for their turn.
        command: Its command line without secrets, if known.
        search: Creates a search for its checkpoints.
    """

    def __init__(self, names: list[str], pid: int, ticks: int, works: int) -> None:
        self.names = names
        self.pid = pid
        self.ticks = ticks
        self.works = works
        self.job: Job | None = None
        self.cell = self.command = ""
        self.waiting: list[str] = []
        self.search: Callable[[], CheckpointWatch] = lambda: CheckpointWatch(names[0])
        self._watch: CheckpointWatch | None = None
        self._items: list[JsonObject] = []

    def newest_checkpoint(self, again: bool = False) -> JsonObject | None:
        """Return the newest complete checkpoint.

        Args:
            again: Start a new search: a continued search rescans large trees only occasionally.
        """
        if self._watch is None or again:
            self._watch = self.search()
            self._items = []
        frame = self._watch.poll_frame()
        if frame is not None:
            self._items = frame.get("items", [])
        return max(self._items, key=lambda item: item["at"], default=None)

    def to_row(self) -> JsonObject:
        """Return the target as a JSON row."""
        return jsonline.drop_empty(
            {
                "phase": "found",
                "run": self.names[0],
                "job": self.job.folder if self.job is not None else None,
                "cell": self.cell or None,
                "waiting": self.waiting,
                "command": self.command or None,
                "end": "%d:%d" % (self.pid, self.ticks),
                "pid": self.works,
                "handles_sigterm": catches_sigterm(self.works),
                "newest": self.newest_checkpoint(),
                "at": round(time.time(), 3),
            }
        )


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    if not found["run"]:
        return _print_usage_error("--run NAME is missing")
    try:
        if found["end"]:
            wanted = parse_process("--end", found["end"])
        else:
            wanted = None
    except ValueError as problem:
        return _print_usage_error(str(problem))
    targets = find_targets(found["job"])
    mine = [target for target in targets if _is_called(target, found["run"])]
    # Ending the wrong run cannot be undone: an ambiguous name ends nothing.
    if len(mine) != 1:
        return _print_usage_error(_why_no_single_target(found["run"], mine, targets))
    target = mine[0]
    jsonline.print_frame(target.to_row())
    if wanted is None:
        return OK
    # The user confirmed a process, not a name: a queue may have started its next cell since.
    if wanted != (target.pid, target.ticks):
        return _print_usage_error(
            "%s is now another process, %d:%d; nothing was sent"
            % (found["run"], target.pid, target.ticks)
        )
    wait_s = 3600.0
    if found["wait"] is None:
        wait = wait_s
    else:
        wait = found["wait"]
    if found["after-checkpoint"] and not _wait_for_save(target, wait):
        return FAILED
    # Seconds for a runner to record how its cell ended, after the cell's own time to save.
    slack_s = 30.0
    return _stop_and_report(
        target, stop_grace_seconds() + slack_s if found["seconds"] is None else found["seconds"]
    )


def find_targets(jobs: list[str]) -> list[StopTarget]:
    """Return the live runs on this box: of known job directories, and found training runs.

    Args:
        jobs: Additional job directories.
    """
    known = [os.path.abspath(os.path.expanduser(job)) for job in jobs]
    known += [*state_files.LaunchedJobs(place.state_dir()).read(), *job_making.job_folders()]
    runs = _found_runs()
    targets = []
    for folder in dict.fromkeys(known):
        target = _target_of_job(folder, [run.name for run in runs if run.job == folder])
        if target is not None:
            targets.append(target)
    # A training that the recorder found may be a cell of a queue.
    taken = {target.works for target in targets}
    return targets + [
        _target_of_found_run(run) for run in runs if run.pid not in taken and not run.job
    ]


def _target_of_job(folder: str, found: list[str]) -> StopTarget | None:
    job = Job(folder)
    cells = LiveCells([folder]).read()
    if queue_state.is_runner_alive(job):
        holder = files.lock_holder(job.path("runner.lock"))
    else:
        holder = {}
    pid = holder.get("pid")
    ticks = holder.get("ticks")
    works, cell = next(iter(cells.items()), (0, ""))
    # Without a live runner, the cell itself is ended.
    if not (isinstance(pid, int) and procstat.is_alive(pid, ticks)):
        if not works:
            return None
        pid = works
        ticks = procstat.start_ticks(works)
    name = os.path.basename(folder)
    names = [name, folder, *cells.values(), *(f"{name}/{one}" for one in cells.values()), *found]
    target = StopTarget(names, pid, int(ticks or 0), works or pid)
    watch = JobWatch(folder)
    frame = watch.poll_frame() or {}
    target.job = job
    target.cell = cell
    target.waiting = [
        one["name"] for one in frame.get("cells", []) if one.get("state") == "waiting"
    ]
    if cell:
        out = job.run_folder(cell)
    else:
        out = None
    if out:
        target.search = lambda: watch.checkpoints(cell, out)
    return target


def _target_of_found_run(run: found_run.FoundRun) -> StopTarget:
    target = StopTarget([run.name], run.pid, run.ticks, run.pid)
    target.command = run.command
    folders = [*run.dirs, *map(os.path.dirname, run.files)]
    if run.cwd:
        folders.append(run.cwd)
    roots = dict.fromkeys(folders)
    target.search = lambda: CheckpointWatch(
        run.name, *(CheckpointSearch(root, run.first_start) for root in roots)
    )
    return target


def _found_runs() -> list[found_run.FoundRun]:
    raws = state_files.read_found(place.state_dir())
    runs = [run for run in map(found_run.load_run, raws) if run is not None and run.ended is None]
    return [run for run in runs if procstat.is_alive(run.pid, run.ticks)]


def _is_called(target: StopTarget, name: str) -> bool:
    return name in target.names or os.path.abspath(os.path.expanduser(name)) in target.names


def _why_no_single_target(name: str, mine: list[StopTarget], targets: list[StopTarget]) -> str:
    if mine:
        choices = [
            target.job.folder if target.job is not None else target.names[0] for target in mine
        ]
        return f"{name} is ambiguous: {', '.join(choices)}; name one"
    running = ", ".join(sorted(target.names[0] for target in targets))
    if running:
        what = "running: " + running
    else:
        what = "no other run is known here"
    return f"no run of the name {name} is alive on this box; {what}"


def _wait_for_save(target: StopTarget, seconds: float) -> bool:
    """Wait for the next checkpoint; returns True if one was saved or the run has ended."""
    before = target.newest_checkpoint()
    began = time.monotonic()
    since = 0.0
    if before is not None:
        since = before["at"]
    jsonline.print_frame({"phase": "waits", "seconds": seconds})
    while time.monotonic() - began < seconds:
        if not procstat.is_alive(target.pid, target.ticks):
            return True
        newest = target.newest_checkpoint()
        if newest is not None and newest["at"] > since:
            return True
        time.sleep(SAVE_POLL_S)
    print(
        "stop: no checkpoint within %d s: it is still running, nothing was sent" % seconds,
        file=sys.stderr,
    )
    return False


def _stop_and_report(target: StopTarget, seconds: float) -> int:
    """Send SIGTERM, wait for the exit, and report the saved checkpoint."""
    before = target.newest_checkpoint()
    asked = time.time()
    # A pidfd before the check: from then on the number cannot come to mean another process.
    fd = open_process(target.pid)
    try:
        # The PID may have been reused meanwhile; the pidfd still refers to the original process.
        if procstat.is_alive(target.pid, target.ticks):
            if target.job is not None:
                # Before the signal: the runner must know that a person stopped it, or a restart of
                # the box would continue the queue.
                queue_state.note_stop(target.job, target.pid, target.ticks)
            send_to_process(fd, target.pid, signal.SIGTERM)
            jsonline.print_frame({"phase": "asked", "at": round(asked, 3), "seconds": seconds})
        ended = _wait_for_exit(fd, target, seconds)
    except ProcessLookupError:
        ended = True
    except PermissionError:
        return _print_usage_error("it belongs to another user; nothing was sent")
    finally:
        if fd is not None:
            os.close(fd)
        if target.job is not None:
            queue_state.withdraw_stop(target.job)
    newest = target.newest_checkpoint(again=True)
    saved = newest is not None and newest != before
    row: JsonObject = {"phase": "ended", "ended": ended, "newest": newest, "saved": saved}
    row["took"] = round(time.time() - asked, 1)
    row["at"] = round(time.time(), 3)
    if target.job is not None and target.cell:
        cells = queue_state.queue_frame(target.job, target.job.folder)["cells"]
        own = [one for one in cells if one["name"] == target.cell]
        cell: JsonObject = {}
        if own:
            cell = own[0]
        row.update({key: cell.get(key) for key in ("state", "exit_code", "reason")})
    jsonline.print_frame(jsonline.drop_empty(row))
    if ended:
        return OK
    return FAILED


def _wait_for_exit(fd: int | None, target: StopTarget, seconds: float) -> bool:
    """Wait until the process exits; polls if the system has no pidfd."""
    deadline = time.monotonic() + seconds
    while procstat.is_alive(target.pid, target.ticks):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if fd is None:
            time.sleep(min(POLL_S, left))
        elif select.select([fd], [], [], left)[0]:
            return True  # a zombie counts: only its parent has not reaped it yet
    return True


def _print_usage_error(text: str) -> int:
    print(f"stop: {text}", file=sys.stderr)
    return USAGE
