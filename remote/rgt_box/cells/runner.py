"""The cell runner: one cell after the other, every step written down before the next."""

from __future__ import annotations

import os
import sys
import time

from rgt_box import files, procstat
from rgt_box.background import describe
from rgt_box.cells import durable, outcome, process, states
from rgt_box.cells.jobfile import Job, Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OK, FAILED, PREEMPTED = 0, 1, 75


class Runner:
    """Runs the queue of one job. The caller holds the job's lock.

    Args:
        job: The job, already checked.
        skip: How many cells at the head of the queue to leave alone.
    """

    def __init__(self, job: Job, skip: int = 0) -> None:
        self._job, self._skip = job, skip
        self._state = states.load(job)
        self._state.update(runner_pid=os.getpid(), runner_alive=True, done=False, error=None)
        self._unwritten: list[bytes] = []

    def run(self) -> int:
        """Run every cell that is not done.

        Returns:
            0 when all are done, 1 when one failed, 75 when one was preempted, 128 + N when stopped by signal N.
        """
        os.makedirs(self._job.path("logs"), exist_ok=True)
        stopped = self._repair()
        if stopped:
            return 128 + stopped
        if self._cells() and not self._pending(set()) and not self._skip:
            self._say("every cell of this queue is done already")
            self._finish()
            return OK
        tried: set[str] = set()
        while True:
            line = self._pending(tried)
            if line is None:
                break
            tried.add(line.name)
            status = self._cell(line)
            if status is not None:
                self._save()
                return status
        return self._finish()

    def _cells(self) -> list[dict[str, Any]]:
        """Re-read the queue (lines may have been appended) and return its cells."""
        lines, problems = self._job.lines()
        self._state["error"] = "; ".join(problems) or None
        self._lines = lines
        self._state["cells"] = states.merge(self._job, states.by_name(self._state), lines)
        cells: list[dict[str, Any]] = self._state["cells"]
        return cells

    def _pending(self, tried: set[str]) -> Line | None:
        cells = self._cells()
        for line, cell in list(zip(self._lines, cells))[self._skip :]:  # noqa: B905 (strict= needs Python 3.10)
            if cell["state"] != "done" and line.name not in tried:
                return line
        return None

    def _cell_state(self, name: str) -> dict[str, Any]:
        return states.by_name(self._state)[name]

    def _repair(self) -> int:
        """Make good what a runner that died left behind; returns a stop signal that came meanwhile, else 0."""
        pid, ticks = self._state.pop("cell_pid", None), self._state.pop("cell_ticks", None)
        self._cells()
        for cell in self._state["cells"]:
            if cell["state"] != "running":
                continue
            if isinstance(pid, int) and procstat.is_alive(pid, ticks):
                self._state.update(cell_pid=pid, cell_ticks=ticks)
                cell["reason"] = "left running (pid %d) by a runner that died; waiting for it to end" % pid
                self._say("%s: %s" % (cell["name"], cell["reason"]))
                self._save()
                stopped = process.wait_for_orphan(pid, ticks)
                del self._state["cell_pid"], self._state["cell_ticks"]
                if stopped:
                    cell.update(state="interrupted", ended=now(), reason="the queue was stopped")
                    self._save()
                    return stopped
            cell.update(state="interrupted", ended=now(), reason="the runner died while it ran")
        self._save()
        return 0

    def _cell(self, line: Line) -> int | None:
        """Run one cell, with its retries; returns the runner's exit status where the queue must stop."""
        for attempt in range(1 + max(0, int(self._job.settings["retries"]))):
            stopped = self._attempt(line)
            cell = self._cell_state(line.name)
            if stopped is not None:
                return 128 + stopped
            if cell["state"] == "interrupted":
                return PREEMPTED
            if cell["state"] == "done":
                return None
            if attempt < int(self._job.settings["retries"]):
                self._say("%s failed (%s); trying again" % (line.name, cell["reason"]))
        return None

    def _attempt(self, line: Line) -> int | None:
        """Run one attempt; returns the signal that the runner was stopped with meanwhile, if any."""
        cell = self._cell_state(line.name)
        cell.update(state="running", attempts=int(cell.get("attempts") or 0) + 1, started=now(), ended=None)
        cell.update(exit_code=None, signal=None, reason=None)
        self._mark("START %s attempt=%d" % (line.name, cell["attempts"]))
        try:
            child = process.Process(
                self._job.command(line),
                self._job.workdir,
                environment(self._job, line),
                self._job.log(line.name),
                int(self._job.settings["nice"]),
            )
        except OSError as error:
            reason = "could not be started: %s" % describe(error)
            cell.update(state="failed", exit_code=outcome.NOT_EXECUTABLE, ended=now(), reason=reason)
            self._mark("FINISHED %s exit=%d" % (line.name, outcome.NOT_EXECUTABLE))
            return None
        self._state.update(cell_pid=child.pid, cell_ticks=child.ticks)
        self._save()
        child.release()
        status, stopped = child.wait()
        del self._state["cell_pid"], self._state["cell_ticks"]
        name = outcome.signal_name(stopped) if stopped else None
        ended = outcome.judge(status, name)
        shown = outcome.shown_exit(status)
        if ended["state"] == "done":
            ended.update(self._keep(line))
            shown = 0 if ended["state"] == "done" else 1
        cell.update(ended, ended=now(), best=best_of(cell.get("out")))
        self._mark("FINISHED %s exit=%d" % (line.name, shown))
        self._save()
        return stopped

    def _keep(self, line: Line) -> dict[str, Any]:
        """Copy a finished run to durable storage; only a verified copy makes it done."""
        target, out = self._job.durable(line.name), self._job.out(line.name)
        if not target or not out:
            return {"state": "done", "durable": None}
        try:
            kept = durable.copy_verified(out, list(self._job.settings["keep"]), target)
        except durable.CopyFailed as error:
            return {"state": "failed", "durable": "failed", "reason": "the durable copy failed: %s" % error}
        if not kept:
            return {
                "state": "failed",
                "durable": "failed",
                "reason": "it ended with 0 but left nothing to keep in %s" % out,
            }
        return {"state": "done", "durable": "verified", "durable_path": target}

    def _finish(self) -> int:
        cells = self._cells()
        self._state["done"] = True
        self._mark("QUEUE DONE")
        self._save()
        return FAILED if any(cell["state"] == "failed" for cell in cells[self._skip :]) else OK

    def _save(self) -> None:
        self._state.update(t="queue", path=self._job.folder, at=now(), runner_pid=os.getpid())
        problem = states.store(self._job.path("state.json"), self._state)
        if problem:
            print(problem, file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        print(text, flush=True)

    def _mark(self, marker: str) -> None:
        """Write a marker to the screen and to master.log, now or as soon as the disk takes it."""
        self._say(marker)
        self._unwritten.append(marker.encode("utf-8", "replace") + b"\n")
        try:
            fd = os.open(
                self._job.path("master.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
            try:
                while self._unwritten:
                    files.write_all(fd, self._unwritten[0])
                    self._unwritten.pop(0)
            finally:
                os.close(fd)
        except OSError as error:
            print("master.log: %s" % error.strerror, file=sys.stderr, flush=True)


def now() -> float:
    """Return the box's clock (epoch seconds)."""
    return round(time.time(), 3)


def environment(job: Job, line: Line) -> dict[str, str]:
    """Return the environment of a cell; the job's own wins."""
    env = dict(os.environ, PYTHONUNBUFFERED="1", RGT_CELL=line.name)
    env.update({str(key): str(value) for key, value in job.settings["env"].items()})
    return env


def best_of(out: str | None) -> float | None:
    """Return the best metric of a run: ``value`` of best.json, else ``best`` of result.json."""
    if not out:
        return None
    for name, key in (("best.json", "value"), ("result.json", "best")):
        value = (files.read_json(os.path.join(out, name), 1 << 20) or {}).get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None
