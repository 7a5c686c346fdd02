"""The cell runner: one cell after the other."""

from __future__ import annotations

import os

from rgt_box import files, procstat
from rgt_box.cells import attempt, budget, lanes, process, states, usual
from rgt_box.cells.jobfile import Job, Line
from rgt_box.cells.journal import Journal, now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OK, FAILED, LEFT_OUT, NO_ROOM, PREEMPTED = 0, 1, 4, 74, 75
CLOSING_WAIT = 30.0
"""Seconds to wait for another lane that looks whether it was the last."""


class Runner:
    """Runs the queue of one job, or one lane of it. The caller holds the lock of what it runs.

    Args:
        job: The job, already checked.
        first: Number of the first line of the queue to run; cells before it are left alone.
        only: Name of the one cell to run, in its lane; None = all.
    """

    def __init__(self, job: Job, first: int = 0, only: str | None = None) -> None:
        self._job, self._first, self._only = job, first, only
        self._journal = Journal(job, only)

    def run(self) -> int:
        """Run every cell that is not done.

        Returns:
            0 when all are done, 1 when one failed, 4 when one that was left alone has not had its turn, 74 when the
            next one would not fit, 75 when one was preempted, 128 + N when stopped by signal N.
        """
        os.makedirs(self._job.path("logs"), exist_ok=True)
        if self._only is not None:
            self._reopen_queue()
        stopped = self._repair()
        if stopped:
            return 128 + stopped
        cells = self._journal.reread()
        if cells and all(cell["state"] == "done" for cell in cells):
            what = "every cell of this queue" if self._only is None else self._only
            self._journal.say("%s is done already" % what)
            self._finish()
            return OK
        tried: set[str] = set()
        while True:
            line = self._pending(tried)
            if line is None:
                break
            tried.add(line.name)
            status = self._lacks_room(line) or self._cell(line)
            if status is not None:
                self._journal.save()
                return status
        return self._finish()

    def _pending(self, tried: set[str]) -> Line | None:
        for line, cell in self._mine():
            if cell["state"] != "done" and line.name not in tried:
                return line
        return None

    def _mine(self, left_alone: bool = False) -> list[tuple[Line, dict[str, Any]]]:
        """Return the lines that this runner is to run, or those that it leaves alone, with their cells."""
        cells = self._journal.reread()
        return [
            (line, cell)
            for line, cell in zip(self._journal.lines, cells)  # noqa: B905 (3.10 has strict=)
            if (line.number < self._first) == left_alone
        ]

    def _left_out(self) -> list[str]:
        """Return the cells before the first one to run that have not had their turn."""
        return [line.name for line, cell in self._mine(left_alone=True) if not states.is_over([cell])]

    def _repair(self) -> int:
        """Make good what a runner that died left behind; returns a stop signal that came meanwhile, else 0."""
        journal, state = self._journal, self._journal.state
        pid, ticks = state.pop("cell_pid", None), state.pop("cell_ticks", None)
        for cell in journal.reread():
            if cell["state"] != "running":
                continue
            if isinstance(pid, int) and procstat.is_alive(pid, ticks):
                state.update(cell_pid=pid, cell_ticks=ticks)
                cell["reason"] = "left running (pid %d) by a runner that died; waiting for it to end" % pid
                journal.say("%s: %s" % (cell["name"], cell["reason"]))
                journal.save()
                stopped = process.wait_for_orphan(pid, ticks)
                del state["cell_pid"], state["cell_ticks"]
                if stopped:
                    cell.update(state="interrupted", ended=now(), reason="the queue was stopped")
                    journal.save()
                    return stopped
            usual.add(cell, None)
            cell.update(state="interrupted", ended=now(), reason="the runner died while it ran")
        journal.save()
        return 0

    def _lacks_room(self, line: Line) -> int | None:
        """Check the disks again, which other cells have filled meanwhile: half a result is worth nothing."""
        problems, _ = budget.check(self._job, [line])
        if not problems:
            return None
        self._journal.cell(line.name)["reason"] = "not started: %s" % "; ".join(problems)
        self._journal.mark("STOPPED before %s: %s" % (line.name, "; ".join(problems)))
        return NO_ROOM

    def _cell(self, line: Line) -> int | None:
        """Run one cell, with its retries; returns the runner's exit status where the queue must stop."""
        retries = max(0, int(self._job.settings["retries"]))
        words = self._job.command(line)
        for number in range(1 + retries):
            stopped = attempt.run(self._job, line, words, self._journal)
            cell = self._journal.cell(line.name)
            if stopped is not None:
                return 128 + stopped
            if cell["state"] == "interrupted":
                return PREEMPTED
            if cell["state"] == "done":
                return None
            if number == retries:
                return None
            if attempt.note_config(self._job, line, cell):
                cell["reason"] += "; not tried again: its config was changed meanwhile"
                return None
            self._journal.say("%s failed (%s); trying again" % (line.name, cell["reason"]))
        return None

    def _finish(self) -> int:
        cells = self._journal.reread()
        if self._only is not None:
            self._journal.save()
            self._close_queue()
            return FAILED if any(cell["state"] == "failed" for cell in cells) else OK
        left_out = self._left_out()
        if left_out:
            self._journal.mark("QUEUE NOT DONE: left out with --from: %s" % ", ".join(left_out))
        else:
            self._journal.state["done"] = True
            self._journal.mark("QUEUE DONE")
        self._journal.save()
        if any(cell["state"] == "failed" for _, cell in self._mine()):
            return FAILED
        return LEFT_OUT if left_out else OK

    def _reopen_queue(self) -> None:
        """Take back that the queue is done where this cell is to run once more, so that its end is told again."""
        whole = Journal(self._job)
        if states.load(self._job).get("done") and not states.is_over(whole.reread()):
            with_lock = files.Lock(self._job.path(lanes.FOLDER, "closing.lock"))
            if with_lock.acquire(CLOSING_WAIT):
                whole.state.update(runner_pid=None, runner_alive=False)
                whole.save()
                with_lock.release()

    def _close_queue(self) -> None:
        """Say that the queue is done, if this lane was the last: one of them does, and once."""
        held = files.Lock(self._job.path(lanes.FOLDER, "closing.lock"))
        if not held.acquire(CLOSING_WAIT):
            return
        try:
            whole = Journal(self._job)
            already = bool(states.load(self._job).get("done"))
            whole.state.update(runner_pid=None, runner_alive=False)
            if states.is_over(whole.reread()) and not already:
                whole.state["done"] = True
                whole.mark("QUEUE DONE")
                whole.save()
        finally:
            held.release()
