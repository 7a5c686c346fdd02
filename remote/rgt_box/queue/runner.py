"""The cell runner: runs cells one after another, writing each attempt to disk first.

It also flags cells that end much sooner than comparable ones: these have probably not done their
work.
"""

from __future__ import annotations

import os
import re
import time
import zlib

from rgt_wire import duration_text, size_text

from rgt_box import files, place, procstat, secret_store
from rgt_box.background import error_text
from rgt_box.queue import (
    cell_command,
    cell_process,
    disk_budget,
    durable_copy,
    queue_file,
    queue_state,
)
from rgt_box.queue.queue_file import Job, QueueLine
from rgt_box.queue.queue_state import QueueJournal, clock_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from rgt_wire import JsonObject


def add_attempt_time(cell: JsonObject, seconds: float | None) -> None:
    """Add an attempt to the cell's total run time, so that a resumed cell does not look short.

    Args:
        cell: Its state.
        seconds: How long the attempt ran; None if unknown, which makes the total unknown for good.
    """
    before = cell.get("seconds", 0.0)
    known = seconds is not None and isinstance(before, (int, float))
    if known:
        cell["seconds"] = round(before + seconds, 3)
    else:
        cell["seconds"] = None


def unusual_flag(cell: JsonObject, cells: list[JsonObject]) -> str | None:
    """Return a warning if a cell ended unusually soon; None if not.

    Compared with the median of the done cells with the same task and epochs.
    """
    seconds = cell.get("seconds")
    name = cell.get("name")
    kind = (cell.get("task"), cell.get("epochs"))
    like = []
    for other in cells:
        if other is cell or (name is not None and other.get("name") == name):
            continue
        if other.get("state") != "done" or other.get("flag"):
            continue
        alike = (other.get("task"), other.get("epochs")) == kind
        if alike and isinstance(other.get("seconds"), (int, float)):
            like.append(other["seconds"])
    like.sort()
    if not like or not isinstance(seconds, (int, float)):
        return None
    middle = len(like) // 2
    if len(like) % 2:
        usual = like[middle]
    else:
        usual = (like[middle - 1] + like[middle]) / 2
    # Fraction of the usual time below which a cell is flagged.
    short = 0.5
    # Minimum usual time in seconds: below it, startup dominates.
    least = 5.0
    if usual < least or seconds >= short * usual:
        return None
    return (
        "ended after %s, where %s is usual (median of %d done with task %s and %s epochs): read "
        "its log"
    ) % (
        duration_text(seconds),
        duration_text(usual),
        len(like),
        cell.get("task"),
        cell.get("epochs"),
    )


BOOKKEEPING = (
    "job.json",
    "queue.txt",
    "state.json",
    "master.log",
    "smoke.json",
    "indexes.json",
    "runner.sbatch",
)
"""Files of a job directory that are not results; cells may work in that directory."""

CHANGED = "its config changed between attempts: its result is not comparable"


def run_attempt(
    job: Job,
    line: QueueLine,
    words: list[str],
    journal: QueueJournal,
    on_stop: Callable[[Job, str, float], None] | None = None,
) -> int | None:
    """Run one attempt.

    Args:
        job: The job.
        line: The cell.
        words: Its command, the same for every attempt.
        journal: Where state and markers are written.
        on_stop: Called with job, cell and time (epoch seconds) once a stop signal was forwarded.

    Returns:
        The signal that stopped the runner meanwhile, if any.
    """
    cell = journal.cell_state(line.name)
    cell.update(
        state="running",
        attempts=int(cell.get("attempts") or 0) + 1,
        started=clock_seconds(),
        ended=None,
    )
    # Left over from the previous attempt.
    cell.update(exit_code=None, signal=None, reason=None, pruned=None)
    has_config_changed(job, line, cell)
    journal.write_marker("START %s attempt=%d" % (line.name, cell["attempts"]))
    log = job.log_path(line.name)
    before = files.size_or_zero(log)
    watch = cell_process.OomWatch()
    began = time.monotonic()
    try:
        env = cell_environment(job, line)
        secrets, notes = secret_store.secrets_of_job(job.folder)
        env.update(secrets)
        for note in notes:
            journal.print_line(f"{line.name}: {note}")
        # Not the directory itself: many trainers refuse one that exists, or resume from it.
        out = job.run_folder(line.name)
        if out is not None:
            os.makedirs(os.path.dirname(out), exist_ok=True)
        hooked = cell_command.wrap_with_hooks(
            words, queue_file.platform_hooks(place.state_dir()), env
        )
        child = cell_process.CellProcess(hooked, job.workdir, env, log, int(job.settings["nice"]))
    except OSError as error:
        reason = f"could not be started: {error_text(error)}"
        cell.update(
            state="failed",
            exit_code=cell_process.NOT_EXECUTABLE,
            ended=clock_seconds(),
            reason=reason,
        )
        journal.write_marker("FINISHED %s exit=%d" % (line.name, cell_process.NOT_EXECUTABLE))
        return None
    # Written before the command runs: after a crash of the runner, the next one finds the cell.
    journal.state.update(cell_pid=child.pid, cell_ticks=child.ticks, stopped_by=None)
    journal.save_state()
    child.start_command()
    status, stopped = child.wait(on_stop and (lambda at: on_stop(job, line.name, at)))
    at = clock_seconds()  # before the copy: files written from now on may be missing in it
    del journal.state["cell_pid"], journal.state["cell_ticks"]
    add_attempt_time(cell, time.monotonic() - began)
    if stopped:
        name = cell_process.signal_name(stopped)
    else:
        name = None
    if stopped and queue_state.is_stopped_by_person(job):
        name = queue_state.BY_PERSON
    journal.state["stopped_by"] = name
    if status:
        # Only of this attempt: an older "Killed" in the same log says nothing about it.
        # Enough to search for a bare ``Killed``.
        tail = files.read_tail(log, 4096, before)
    else:
        tail = b""
    ended = cell_process.classify_exit(
        status, name, watch.oom_kill_reason(), tail, env.get("PATH", os.defpath)
    )
    shown = cell_process.format_exit_status(status)
    if ended["state"] == "done":
        ended.update(copy_finished_run(job, line, cell.get("since") or cell["started"]))
        # A failed copy makes the cell fail, although its process exited with 0.
        shown = 1
        if ended["state"] == "done":
            shown = 0
    cell.update(ended, ended=at, best=read_best_metric(cell.get("out")))
    _set_flag(cell, journal)
    journal.write_marker("FINISHED %s exit=%d" % (line.name, shown))
    journal.save_state()
    return stopped


def has_config_changed(job: Job, line: QueueLine, cell: JsonObject) -> bool:
    """Return whether the config differs from the one of the previous attempt."""
    data = files.read_file(job.config_path(line))
    # A checksum against accidents: a cryptographic one would load libcrypto into every runner.
    if data is None:
        digest = None
    else:
        digest = "%d-%08x" % (len(data), zlib.crc32(data))
    cell["told"] = queue_file.read_config_settings(data)
    before = cell.get("config_digest")
    cell["config_digest"] = digest
    changed = before is not None and before != digest
    # Once changed, always changed: earlier attempts are part of the result.
    cell["config_changed"] = changed or bool(cell.get("config_changed"))
    return changed


def _set_flag(cell: JsonObject, journal: QueueJournal) -> None:
    """Flag an unusual result of a cell that was not interrupted."""
    if cell["state"] == "interrupted":
        return
    found = [
        unusual_flag(cell, journal.all_cells()),
        CHANGED if cell.get("config_changed") else None,
    ]
    cell["flag"] = "; ".join(text for text in found if text) or None
    if cell["flag"]:
        journal.print_line(f"{cell['name']}: {cell['flag']}")


def written_files(job: Job, since: float) -> tuple[str, tuple[str, ...]]:
    """Return a job's working directory, and the files written there that count as results.

    Args:
        job: The job.
        since: When the first of its attempts began. With several cells, only files written since
            then count as the cell's.

    Raises:
        rgt_box.queue.durable_copy.CopyFailed: The files cannot all be listed.
    """
    from rgt_box.commands import (
        results,
        work_folders,
    )  # slow import: only for a copy

    found = work_folders.find_job_folder(job.workdir)
    if found is None:
        return "", ()
    folder, is_pushed = found
    # With a single cell no other can have written there, so nothing is left out by its age.
    if len(job.read_lines()[0]) == 1:
        if is_pushed:
            since = 0.0
        else:
            since = os.stat(job.path("job.json")).st_mtime
    files_there, problems = results.list_job_files(job, folder)
    if problems:
        raise durable_copy.CopyFailed(problems[0])
    own = {job.path(name) for name in BOOKKEEPING}
    return folder, tuple(
        path for path, changed in files_there if changed >= since and path not in own
    )


def copy_finished_run(job: Job, line: QueueLine, since: float) -> JsonObject:
    """Copy a finished run to durable storage; only a verified copy makes it done.

    Args:
        job: The job.
        line: The cell.
        since: When the first of its attempts began.
    """
    target = job.durable_folder(line.name)
    out = job.run_folder(line.name)
    if not target or not out:
        return {"state": "done", "durable": None}
    try:
        work, written = written_files(job, since)
        kept = durable_copy.copy_verified(
            out, list(job.settings["keep"]), target, job.log_path(line.name), work, written
        )
    except durable_copy.CopyFailed as error:
        return {
            "state": "failed",
            "durable": "failed",
            "reason": f"the durable copy failed: {error}",
        }
    # An empty copy verifies perfectly, but proves that there is no result.
    if not kept:
        places = ""
        if work:
            places = f" or {work}"
        reason = f"it exited with 0 but left no results in {out}{places}"
        return {"state": "failed", "durable": "failed", "reason": reason}
    return {"state": "done", "durable": "verified", "durable_path": target}


def cell_environment(job: Job, line: QueueLine) -> dict[str, str]:
    """Return a cell's environment: the platform's, overridden by the runner's and the job's."""
    env = queue_file.platform_environment(place.state_dir())
    env.update(
        os.environ,
        PYTHONUNBUFFERED="1",
        RGT_CELL=line.name,
        RGT_OUT=job.run_folder(line.name) or "",
    )
    env.update({str(key): str(value) for key, value in job.settings["env"].items()})
    threads = threads_of_quota(queue_file.command_words(job.settings["command"]), env)
    if threads is not None:
        env[THREADS] = str(threads)
    return env


THREADS = "OMP_NUM_THREADS"
_PYTHON = re.compile(r"(?:^|/)(?:python[0-9.]*|[^/]+\.py|\{py\})$")
_LAUNCHERS = re.compile(
    r"\b(?:torchrun|accelerate|deepspeed|torch\.distributed\.\w+|mpirun|mpiexec|srun|horovodrun)\b"
)
"""Programs that start several processes: each needs only a part, and they set the variable."""


def threads_of_quota(words: list[str], env: dict[str, str]) -> int | None:
    """Return the threads that a Python program should use; None where its default is right.

    Without ``OMP_NUM_THREADS``, torch and NumPy start a thread for each core that they see. In a
    container with a CPU quota these are those of the host, and the kernel throttles them.
    """
    if THREADS in env or not any(_PYTHON.search(word) for word in words):
        return None
    if _LAUNCHERS.search(" ".join(words)):
        return None
    from rgt_box.sampling import cgroup

    cpu = cgroup.CpuSampler(cgroup.locate_own_controller("cpu")).read()
    quota = cpu.get("quota")
    cores = cpu.get("cores")
    if quota is None or cores is None or quota >= cores:
        return None
    # A quota of 0.5 cores still needs one thread.
    return max(1, int(quota))


def read_best_metric(out: str | None) -> float | None:
    """Return the best metric of a run: ``value`` of best.json, else ``best`` of result.json."""
    if not out:
        return None
    for name, key in (("best.json", "value"), ("result.json", "best")):
        document = files.read_json(os.path.join(out, name), 1 << 20) or {}
        value = document.get(key)
        # JSON's true is an int in Python.
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


OK, FAILED, LEFT_OUT, NO_ROOM, PREEMPTED = 0, 1, 4, 74, 75
CLOSING_WAIT = 30.0
"""Seconds to wait for another lane that checks whether it was the last."""


class QueueRunner:
    """Runs the queue of one job, or one lane of it; the caller holds the corresponding lock.

    Args:
        job: The job, already checked.
        on_stop: See `run_attempt`.
        first: Number of the first line of the queue to run; cells before it are skipped.
        only: Name of the one cell to run, in its lane; None for all cells.
    """

    def __init__(
        self,
        job: Job,
        first: int = 0,
        only: str | None = None,
        on_stop: Callable[[Job, str, float], None] | None = None,
    ) -> None:
        self._job = job
        self._first = first
        self._only = only
        self._on_stop = on_stop
        self._journal = QueueJournal(job, only)

    def run(self) -> int:
        """Run every cell that is not done.

        Returns:
            0 if all are done, 1 if one failed, 4 if a skipped cell has not run yet, 74 if the next
            one would not fit on the disk, 75 if one was preempted, 128 + N if stopped by signal N.
        """
        os.makedirs(self._job.path("logs"), exist_ok=True)
        if self._only is not None:
            self._reopen_queue()
        stopped = self._repair_state()
        if stopped:
            return 128 + stopped
        cells = self._journal.reread_queue()
        if cells and all(cell["state"] == "done" for cell in cells):
            if self._only is None:
                what = "every cell of this queue"
            else:
                what = self._only
            self._journal.print_line(f"{what} is done already")
            self._report_result()
            return OK
        tried: set[str] = set()
        while True:
            line = self._next_pending(tried)
            if line is None:
                break
            tried.add(line.name)
            status = self._lacks_room(line) or self._run_cell(line)
            if status is not None:
                self._journal.save_state()
                return status
        return self._report_result()

    def _next_pending(self, tried: set[str]) -> QueueLine | None:
        for line, cell in self._own_lines():
            if cell["state"] != "done" and line.name not in tried:
                return line
        return None

    def _own_lines(self, left_alone: bool = False) -> list[tuple[QueueLine, JsonObject]]:
        """Return the lines that this runner runs, or those that it skips, with their cells."""
        cells = self._journal.reread_queue()
        return [
            (line, cell)
            for line, cell in zip(self._journal.lines, cells)
            if (line.number < self._first) == left_alone
        ]

    def _left_out(self) -> list[str]:
        """Return the skipped cells that are neither done nor failed."""
        return [
            line.name
            for line, cell in self._own_lines(left_alone=True)
            if not queue_state.is_over([cell])
        ]

    def _repair_state(self) -> int:
        """Repair the state left by a runner that died.

        Return a stop signal received meanwhile, else 0.
        """
        journal = self._journal
        state = self._journal.state
        pid = state.pop("cell_pid", None)
        ticks = state.pop("cell_ticks", None)
        for cell in journal.reread_queue():
            if cell["state"] != "running":
                continue
            if isinstance(pid, int) and procstat.is_alive(pid, ticks):
                state.update(cell_pid=pid, cell_ticks=ticks)
                cell["reason"] = (
                    "still running (pid %d) after its runner died; waiting for it to end" % pid
                )
                journal.print_line(f"{cell['name']}: {cell['reason']}")
                journal.save_state()
                stopped = cell_process.wait_for_orphan(pid, ticks)
                del state["cell_pid"], state["cell_ticks"]
                if stopped:
                    cell.update(
                        state="interrupted", ended=clock_seconds(), reason="the queue was stopped"
                    )
                    journal.save_state()
                    return stopped
            add_attempt_time(cell, None)
            cell.update(
                state="interrupted", ended=clock_seconds(), reason="the runner died while it ran"
            )
        journal.save_state()
        return 0

    def _lacks_room(self, line: QueueLine) -> int | None:
        """Check the disks again, which other cells may have filled.

        Return `NO_ROOM` if the cell would not fit.

        An incomplete result is useless.
        """
        problems, _ = disk_budget.check_budget(self._job, [line])
        if problems:
            problems = self._make_room(line, problems)
        if not problems:
            return None
        self._journal.cell_state(line.name)["reason"] = f"not started: {'; '.join(problems)}"
        self._journal.write_marker(f"STOPPED before {line.name}: {'; '.join(problems)}")
        return NO_ROOM

    def _make_room(self, line: QueueLine, problems: list[str]) -> list[str]:
        """Remove checkpoints of finished cells until a cell fits; return the remaining problems."""
        for one in durable_copy.removable_checkpoints(self._job, self._journal.all_cells()):
            what = f"{size_text(one.bytes)} of {one.cell}: {one.path}"
            self._journal.write_marker(f"PRUNE {what} (room for {line.name})")
            why = durable_copy.remove_checkpoint(one)
            self._journal.write_marker(f"KEPT {one.path}: {why}" if why else f"PRUNED {what}")
            if why:
                continue
            cell = queue_state.cells_by_name(self._journal.state).get(one.cell)
            if cell is not None:
                cell["pruned"] = int(cell.get("pruned") or 0) + one.bytes
                self._journal.save_state()
            problems, _ = disk_budget.check_budget(self._job, [line])
            if not problems:
                break
        return problems

    def _run_cell(self, line: QueueLine) -> int | None:
        """Run one cell with its retries; return the runner's exit status if the queue must stop."""
        retries = max(0, int(self._job.settings["retries"]))
        # Once for all attempts: a retry must run what failed, even if the job was edited meanwhile.
        words = self._job.command_of(line)
        cell = self._journal.cell_state(line.name)
        # An attempt that is continued or repeated may have written results that a later one keeps.
        if cell["state"] != "interrupted" or not cell.get("since"):
            cell["since"] = clock_seconds()
        for number in range(1 + retries):
            stopped = run_attempt(self._job, line, words, self._journal, self._on_stop)
            cell = self._journal.cell_state(line.name)
            if stopped is not None:
                return 128 + stopped
            if cell["state"] == "interrupted":
                return PREEMPTED
            if cell["state"] == "done":
                return None
            if number == retries:
                return None
            if has_config_changed(self._job, line, cell):
                cell["reason"] += "; not retried: its config has been changed since"
                return None
            self._journal.print_line(f"{line.name} failed ({cell['reason']}); trying again")
        return None

    def _report_result(self) -> int:
        cells = self._journal.reread_queue()
        if self._only is not None:
            self._journal.save_state()
            self._close_queue()
            if any(cell["state"] == "failed" for cell in cells):
                return FAILED
            return OK
        left_out = self._left_out()
        if left_out:
            self._journal.write_marker(
                f"QUEUE NOT DONE: left out with --from: {', '.join(left_out)}"
            )
        else:
            self._journal.state["done"] = True
            self._journal.write_marker("QUEUE DONE")
        self._journal.save_state()
        if any(cell["state"] == "failed" for _, cell in self._own_lines()):
            return FAILED
        if left_out:
            return LEFT_OUT
        return OK

    def _reopen_queue(self) -> None:
        """Mark the queue as not done when this cell runs again; its end is then reported again."""
        whole = QueueJournal(self._job)
        if queue_state.load_state(self._job).get("done") and not queue_state.is_over(
            whole.reread_queue()
        ):
            with_lock = files.FileLock(self._job.path(queue_state.FOLDER, "closing.lock"))
            if with_lock.acquire(CLOSING_WAIT):
                try:
                    whole.state.update(runner_pid=None, runner_alive=False)
                    whole.save_state()
                finally:
                    with_lock.release()

    def _close_queue(self) -> None:
        """Mark the queue as done if this lane was the last; exactly one lane does so."""
        held = files.FileLock(self._job.path(queue_state.FOLDER, "closing.lock"))
        if not held.acquire(CLOSING_WAIT):
            return
        try:
            whole = QueueJournal(self._job)
            # Under the lock: two lanes that end at once would both write QUEUE DONE.
            already = bool(queue_state.load_state(self._job).get("done"))
            whole.state.update(runner_pid=None, runner_alive=False)
            if queue_state.is_over(whole.reread_queue()) and not already:
                whole.state["done"] = True
                whole.write_marker("QUEUE DONE")
                whole.save_state()
        finally:
            held.release()
