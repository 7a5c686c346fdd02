"""The end of a run: finished, with its result on disk and mirror, or stopped and saved."""

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable

from rgt_train import exits
from rgt_train.checkpoint import resume
from rgt_train.data.position import Progress
from rgt_train.exits import StopRequest
from rgt_train.ranks.launch import Coordinator
from rgt_train.run_files import RunFiles

MIRROR_GRACE_S = 20.0
"""Seconds that a run asked to stop waits for its mirror; most platforms give 30."""
LOGS_GRACE_S = 5.0
"""Seconds that it waits until the mirror also has the last lines of its logs."""
LATE_S = 1.0
"""Maximum delay between the loader workers and the trainer for a signal to all processes of a job.
"""
_LOADER = "torch/utils/data/dataloader.py"


@dataclass(frozen=True)
class RunEnding:
    """Ends a run.

    Attributes:
        files: The files in its directory.
        progress: Its counters.
        planned: Steps in all, if all epochs are as long as the first.
        over: Whether the training has ended: all steps are done, or the person has ended it.
        hold_limit_s: Seconds it waits for the disk or the mirror.
        stop: Whether a signal asks for the end.
        coordinator: The ranks.
        restore_rng: Restores the random state if no batch was requested yet.
        spoilt: Returns why the state is no longer that of the last step, in words.
        random_at_end: The random state after the last epoch.
        outdated: Whether a checkpoint of the last step may lack changes that were made after it and
            belong to the result.
    """

    files: RunFiles
    progress: Progress
    planned: int
    over: bool
    hold_limit_s: float
    stop: StopRequest
    coordinator: Coordinator
    restore_rng: Callable[[], None]
    spoilt: Callable[[], str]
    random_at_end: dict[str, Any] | None = None
    outdated: bool = False

    def finish_run(self) -> None:
        """Save the last state and write the result; wait for the disk if necessary. For the writer.

        Raises:
            TrainingStop: A signal asked for the end meanwhile (75), or neither disk nor mirror
                accepted it (74).
        """
        p = self.progress
        if not self.over:
            if not self._is_spoilt():
                self.files.saver.save(p.step)
            self._note_end("left early")
            self.files.report.print_line(
                f"left early at step {p.step} of {self.files.data.total}: the same command trains "
                "on. Where this is meant as the end, call run.finish() before leaving the loop"
            )
            return
        result: dict[str, Any] = {"step": p.step, "loss": p.loss, "best": p.best}
        if p.step != self.planned:
            result["planned"] = self.planned
        path = resume.result_path(self.files.out)
        named = self.files.named_result_path(p.step)
        random = {"step": p.step, "rng": self.random_at_end}

        def is_saved() -> bool:
            return bool(
                # The result last: with one, the run counts as finished.
                self.files.saver.save(p.step, loud=False)
                and self.files.saver.write_json(p.step, resume.random_path(self.files.out), random)
                and (not named or self.files.saver.write_json(p.step, named, result))
                and self.files.saver.write_json(p.step, path, result)
            )

        if self.outdated:
            self.files.saver.require_save()
        if self.files.saver.save(p.step) and not self._wait_for_mirror(
            self.hold_limit_s, self._wait_for_stop
        ):
            self._end_without_result(p.step)
        if not is_saved() and not self.files.saver.hold_training(p.step, is_saved):
            self._leave_by_signal()
        self.files.report.append_event("done", p.step)
        self._note_end("done")
        loss = ""
        if p.loss is not None:
            loss = f"  loss {p.loss:.4f}"
        best = ""
        if p.best is not None:
            best = f"  best {p.best:.4f} of step {p.best_step}"
        self.files.report.print_line(f"done: step {p.step}{loss}{best}")

    def save_and_leave(self, stop: exits.TrainingStop) -> None:
        """Save if that is useful, and record why the run ends. On every rank."""
        p = self.progress
        if stop.code == exits.PREEMPTED and stop.saves:
            self.restore_rng()
            self.coordinator.run_on_leader(lambda: self._save_before_stop(stop))
        self.files.report.append_event("stop", p.step, reason=stop.cause)
        self._note_end(stop.cause)

    def end_by_error(
        self, error: BaseException, trace: TracebackType | None, *, whole: bool
    ) -> exits.TrainingStop | None:
        """Handle an error that ends the training; return the `Stop` if a signal caused it.

        A signal often goes to all processes of a job. Then loader workers die too, or a pipe
        breaks, and the error in the training is only a consequence.

        Args:
            error: The exception.
            trace: Its traceback.
            whole: Whether the process only waited for a batch since the last step: then it can be
                saved.
        """
        p = self.progress
        blamed = self.coordinator.name_missing_ranks(error)
        if blamed:
            print(f"rgt_train: {blamed}", file=sys.stderr, flush=True)
        if not isinstance(error, Exception) or not self._was_stop_requested(error):
            self._note_end(f"{type(error).__name__}: {blamed or error}"[:200])
            return None
        stop = exits.TrainingStop(exits.PREEMPTED, str(self.stop.name))
        told = f"{stop.cause} at step {p.step}, and then {type(error).__name__}: {str(error)[:200]}"
        if "DataLoader worker" not in str(error):
            # The person's own error must be seen, although the run ends as if it had been asked to.
            traceback.print_exception(type(error), error, trace, file=sys.stderr)
        if whole and _is_fetching_batch(trace):
            self.files.report.print_line(told)
            self.save_and_leave(stop)
            return stop
        self.files.report.print_line(
            f"{told}; step {p.step + 1} was not over: a relaunch resumes from the last good "
            "checkpoint"
        )
        self.files.report.append_event("stop", p.step, reason=stop.cause)
        self._note_end(stop.cause)
        return stop

    def _note_end(self, cause: str) -> None:
        """Record in the run log how this attempt ends, and copy the logs to the mirror again."""
        # Before the mirror: that may take until the platform kills this process.
        self.files.report.flush_lines()
        self.files.run_log.record_end(self.progress.step, cause)
        if self.files.mirror is not None:
            self.files.mirror.queue_logs(self.progress.step)
            self.files.mirror.finish_copies(LOGS_GRACE_S, _pause)

    def _was_stop_requested(self, error: Exception) -> bool:
        if "DataLoader worker" in str(error):
            # The worker may die of the signal before it has reached this process.
            self.stop.wait(LATE_S)
        return self.stop.requested

    def _save_before_stop(self, stop: exits.TrainingStop) -> None:
        p = self.progress
        self.files.report.print_line(
            f"{stop.cause} at step {p.step}: saving, then exit {exits.PREEMPTED}"
        )
        if p.step == 0 and not p.micro:
            self.files.report.print_line("nothing to save yet")
        elif self._is_spoilt():
            pass  # already reported
        elif not self._saved(p):
            self.files.report.print_line(
                f"step {p.step} could not be saved; a relaunch resumes from the last good "
                "checkpoint"
            )
        self._wait_for_mirror(MIRROR_GRACE_S, self._sleep_alive)

    def _saved(self, p: Progress) -> bool:
        try:
            return bool(self.files.saver.save(p.step, force=p.micro > 0))
        except exits.UsageError as error:
            self.files.report.print_line(str(error))
            return False

    def _is_spoilt(self) -> bool:
        """Return whether the unsaved state is of no step, and report it."""
        # A save in progress may be of this very step.
        self.files.saver.wait_for_save()
        spoilt = ""
        if self.files.saver.last_good != self.progress.step:
            spoilt = self.spoilt()
        if spoilt:
            self.files.report.print_line(
                f"step {self.progress.step} is not saved: {spoilt}, from the last good checkpoint "
                "on"
            )
        return bool(spoilt)

    def _leave_by_signal(self) -> None:
        """End here if a signal to any rank asked for it while the end of the run was saved."""
        stop = exits.TrainingStop(exits.PREEMPTED, self.stop.name or "a signal to another rank")
        self.save_and_leave(stop)
        raise stop

    def _end_without_result(self, step: int) -> None:
        """End without a result: the mirror has not accepted the last checkpoint.

        A relaunch tries again.
        """
        if self.coordinator.signal_alive():
            self._leave_by_signal()
        self.files.run_log.record_end(step, "mirror")
        self.files.report.append_event("stop", step, reason="mirror")
        raise exits.TrainingStop(exits.NO_SPACE, "mirror")

    def _wait_for_mirror(self, seconds: float, wait: Callable[[float], bool]) -> bool:
        return self.files.mirror is None or self.files.mirror.finish_copies(seconds, wait)

    def _wait_for_stop(self, seconds: float) -> bool:
        """Wait; return whether any rank was asked to stop."""
        return self.stop.wait(seconds) or self.coordinator.signal_alive()

    def _sleep_alive(self, seconds: float) -> bool:
        """Wait in any case: a signal has already asked for the end."""
        time.sleep(seconds)
        self.coordinator.signal_alive()
        return False


def _pause(seconds: float) -> bool:
    """Wait, and return False to keep waiting."""
    time.sleep(seconds)
    return False


def _is_fetching_batch(trace: TracebackType | None) -> bool:
    """Return whether an error was raised while the loader was fetching a batch."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.replace("\\", "/").endswith(_LOADER):
            return True
        trace = trace.tb_next
    return False
