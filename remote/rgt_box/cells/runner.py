"""The cell runner: one cell after the other."""

from __future__ import annotations

import os

from rgt_box import procstat
from rgt_box.cells import attempt, budget, process, usual
from rgt_box.cells.jobfile import Job, Line
from rgt_box.cells.journal import Journal, now

OK, FAILED, NO_ROOM, PREEMPTED = 0, 1, 74, 75


class Runner:
    """Runs the queue of one job. The caller holds the job's lock.

    Args:
        job: The job, already checked.
        skip: How many cells at the head of the queue to leave alone.
    """

    def __init__(self, job: Job, skip: int = 0) -> None:
        self._job, self._skip = job, skip
        self._journal = Journal(job)

    def run(self) -> int:
        """Run every cell that is not done.

        Returns:
            0 when all are done, 1 when one failed, 74 when the next one would not fit, 75 when one was preempted,
            128 + N when stopped by signal N.
        """
        os.makedirs(self._job.path("logs"), exist_ok=True)
        stopped = self._repair()
        if stopped:
            return 128 + stopped
        if self._journal.reread() and not self._pending(set()) and not self._skip:
            self._journal.say("every cell of this queue is done already")
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
        cells = self._journal.reread()
        for line, cell in list(zip(self._journal.lines, cells))[self._skip :]:  # noqa: B905 (3.10 has strict=)
            if cell["state"] != "done" and line.name not in tried:
                return line
        return None

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
        self._journal.state["done"] = True
        self._journal.mark("QUEUE DONE")
        self._journal.save()
        return FAILED if any(cell["state"] == "failed" for cell in cells[self._skip :]) else OK
