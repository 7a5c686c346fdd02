"""Decides when to make a checkpoint, and how to react when the disk refuses it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from rgt_wire import size_text

from rgt_train import exits
from rgt_train.cadence import SaveCadence
from rgt_train.checkpoint import store as space
from rgt_train.checkpoint.async_saver import BEST, STEP, Persister, SaveOutcome, SaveRequest
from rgt_train.checkpoint.diskio import replace_file
from rgt_train.checkpoint.publish import FULL, TransientFailure
from rgt_train.checkpoint.snapshot import TornSnapshot
from rgt_train.checkpoint.state import CannotLoad, RunState
from rgt_train.checkpoint.store import Checkpoint, CheckpointStore
from rgt_train.exits import StopRequest
from rgt_train.ranks import launch
from rgt_train.tracking.report import RunReport


class SaveReporter:
    """Reports failures of saves.

    Args:
        report: Receives the messages.
        store: The target of the checkpoints.
        needs: Returns the bytes and inodes of one checkpoint.

    Attributes:
        loud: Whether the next failure is reported; a quiet retry that fails like the previous one
            is not.
    """

    def __init__(
        self, report: RunReport, store: CheckpointStore, needs: Callable[[], tuple[int, int]]
    ) -> None:
        self._report = report
        self._store = store
        self._needs = needs
        self.loud = True

    def report_failure(self, step: int, error: BaseException, good: str) -> None:
        """Report that the save of `step` failed, and which checkpoint is still `good`."""
        if not self.loud:
            return
        place = self._store.root
        raw = f"{type(error).__name__}: {error}"
        why = raw
        what = "other"
        mount = None
        if isinstance(error, OSError):
            try:
                left: space.DiskSpace | None = space.read_space(self._store.out)
            except OSError:
                left = None
            need = self._needs()
            why = space.why_failed(error, left, *need)
            what = space.exhausted_resource(error, left, *need)
            if left:
                mount = left.mount
            else:
                mount = None
            place = str(error.filename or place)
        self._report.print_line(raw)
        self._report.print_line(f"checkpoint save failed at step {step}: {why}; {good}")
        self._report.append_event(
            "checkpoint-failed", step, path=place, error=raw, resource=what, mount=mount
        )

    def report_hold(self, step: int, unsaved: int, most: int, limit_s: float) -> None:
        """Report that the training waits until there is room."""
        size, inodes = self._needs()
        self._report.print_line(
            f"holding at step {step}: {unsaved} steps are not saved (limit {most}); waiting up to "
            f"{limit_s:.0f} s until {self._store.root} takes {size_text(size)} and {inodes} inodes"
        )
        self._report.append_event("hold", step, unsaved=unsaved, limit_s=limit_s)

    def report_given_up(self, step: int, unsaved: int, limit_s: float, good: str) -> None:
        """Report that the training ends because nothing could be saved."""
        self._report.print_line(
            f"giving up at step {step}: nothing could be saved for {limit_s:.0f} s; {good}, "
            f"{unsaved} steps are lost. Free space and launch the same command"
        )
        self._report.append_event("given-up", step, unsaved=unsaved)

    def report_mistake(self, step: int, unsaved: int, error: BaseException, good: str) -> None:
        """Report that the training ends because of an error that free space would not fix."""
        self._report.print_line(
            f"giving up at step {step}: saving fails again and again, and not because of the disk: "
            f"{type(error).__name__}: {error}; {good}, {unsaved} steps are lost. Mend that and "
            "launch the same command"
        )
        self._report.append_event(
            "given-up", step, unsaved=unsaved, error=f"{type(error).__name__}: {error}"
        )

    @staticmethod
    def replace_json(path: str, body: Mapping[str, Any]) -> OSError | None:
        """Replace a small JSON file; return why that failed."""
        try:
            replace_file(path, (json.dumps(body) + "\n").encode())
        except OSError as error:
            return error
        return None


RETRY_S = 3.0
"""Seconds between quiet attempts while saving fails."""
HOLD_POLL_S = 1.0
"""Seconds between attempts while the training waits for the disk."""
MOST_MISTAKES = 3
"""Saves in a row that may fail for another reason than the disk (or the writer) before the training
ends with that error.
"""


@dataclass(frozen=True)
class LossLimits:
    """How much work may be lost.

    Attributes:
        max_unsaved: Steps that may be unsaved while saving fails; 0 for two save intervals.
        hold_limit_s: Seconds the training may wait for the disk before it gives up.
    """

    max_unsaved: int = 0
    hold_limit_s: float = 1800.0


class CheckpointSaver:
    """Saves when due, retries while the disk refuses, holds the training if too much may be lost.

    Saves run in the background, one at a time: a save that is due while another is in flight begins
    at the first step boundary after the end of that one. `save` waits until its step is on the
    disk.

    Args:
        persister: Puts the state onto the disk.
        state: The state to save.
        store: The target.
        about: Returns the facts for the manifest.
        report: Receives messages.
        cadence: When a save is due.
        stop: Ends a wait when the process is asked to stop.
        limits: How much may be lost.
        last_good: Step of the checkpoint that this attempt loaded, or None.
        start: Step at which this attempt began.
        outdated: Whether even the step that is on disk is worth a save, because only ``best`` of it
            is there.
        on_saved: Called with every checkpoint, ``best`` too, when it is on the disk.
        on_wait: Called now and then while the training waits; returns whether any rank was asked
            to stop.

    Attributes:
        last_good: Step of the newest checkpoint that is on the disk.
        failing: Whether the last save failed.
    """

    def __init__(
        self,
        persister: Persister,
        state: RunState,
        store: CheckpointStore,
        about: Callable[[], dict[str, Any]],
        report: RunReport,
        cadence: SaveCadence,
        stop: StopRequest,
        limits: LossLimits,
        last_good: int | None,
        start: int,
        *,
        outdated: bool = False,
        on_saved: Callable[[Checkpoint], None] = lambda saved: None,
        on_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._persister = persister
        self._state = state
        self._store = store
        self._about = about
        self._report = report
        self._cadence = cadence
        self._stop = stop
        self._limits = limits
        self._telling = SaveReporter(report, store, persister.needs)
        self.last_good = last_good
        self.failing = False
        self.on_saved = on_saved
        self.on_wait = on_wait
        self._outdated = outdated
        self._last_due = start
        self._due = False
        self._loud = False
        self._retry_at = 0.0
        self._best: SaveRequest | None = None
        self._mistake: BaseException | None = None
        self._mistakes = 0
        self._saved_once = False
        self._said = 0
        self._prepared = False

    @property
    def busy(self) -> bool:
        """Whether a save is in flight."""
        return self._persister.busy

    def wishes(self, step: int) -> int:
        """Return this rank's wishes at the end of `step` (flags of `rgt_train.ranks.launch`)."""
        # First: a save that has just failed changes what this rank wishes.
        outcome = self._persister.poll_outcome()
        if outcome is not None:
            self._apply_outcome(outcome)
        if self._cadence.is_due(step, self._last_due):
            self._last_due = step
            self._due = True
            self._loud = True
        if not (self._due or self.failing):
            return 0
        retry = self.failing and time.monotonic() >= self._retry_at
        save = 0
        # One at a time: a second copy of the state would need its memory twice.
        if (self._due or retry) and not self._persister.busy:
            save = launch.SAVE
        return save | (launch.HOLD if self.failing and self._is_too_much_unsaved(step) else 0)

    def is_due_after(self, step: int) -> bool:
        """Return whether a save is due at the end of the step after `step`."""
        return self._cadence.is_due(step + 1, self._last_due)

    def prepare(self) -> None:
        """Prepare for the first save, once."""
        if not self._prepared:
            self._prepared = True
            self._persister.prepare(self._state)

    def perform_agreed(self, step: int, agreed: int) -> None:
        """Perform at the end of `step` the actions that the ranks agreed on.

        Raises:
            TrainingStop: The disk refused everything for longer than the hold limit (exit code 74).
        """
        self.prepare()
        if agreed & launch.SAVE:
            loud = self._loud
            self._due = False
            self._loud = False
            self._telling.loud = loud or not self.failing
            self._begin_save(step, give_up=self._is_too_much_unsaved(step))
        if (
            self.failing
            and self._is_too_much_unsaved(step)
            and not self._stop.requested
            and not self.save(step, loud=False)
        ):
            self.hold_training(step)

    def save(self, step: int, *, loud: bool = True, force: bool = False) -> bool:
        """Save `step` and wait for it; return whether it is on disk.

        Args:
            step: The current step.
            loud: Whether to report a failure again if the previous one was reported.
            force: Save although the step is on disk (work on the next one has begun).
        """
        self._apply_outcome(self._persister.wait())
        self._telling.loud = loud or not self.failing
        # The best comes first: a resume from a later step would assume that it exists.
        if self._best is not None and not self._save_and_wait(step):
            return False
        if self.last_good == step and not self._outdated and not force:
            return True
        return self._save_and_wait(step)

    def offer_best(self, step: int, value: float, metric: str) -> bool:
        """Publish the state of `step` as the best.

        Return False if there was no memory for its copy.

        While the disk refuses, its snapshot is kept in memory, and no later step is saved before it
        (a resume would assume that it was published).

        Args:
            step: The current step.
            value: Its value of the metric.
            metric: The metric's name.
        """
        self._apply_outcome(self._persister.wait())
        self._telling.loud = True
        about = {**self._about(), "best": {"step": step, "metric": metric, "value": value}}
        self._best = SaveRequest(BEST, step, about)
        request = self._best
        self._try_begin(lambda: self._persister.begin_save(request, self._state), step)
        if not self._persister.busy:
            self._best = None
            return False
        # the copy is complete before anything else happens: it must be of this step
        self._persister.before_change()
        return True

    def hold_training(self, step: int, attempt: Callable[[], bool] | None = None) -> bool:
        """Wait for a save (True), a requested stop on any rank (False), or the limit.

        Args:
            step: The current step.
            attempt: Tries the awaited work, True if done; by default a quiet `save` of `step`.

        Raises:
            TrainingStop: The limit was reached (exit code 74).
            Exception: The saves fail for another reason than space: that error.
        """
        if attempt is None:
            attempt = lambda: self.save(step, loud=False)  # noqa: E731
        limit = self._limits.hold_limit_s
        begun = time.monotonic()
        # A mistake in the state repeats at once; waiting for the disk would only cost time.
        while 0 < self._mistakes < MOST_MISTAKES:
            if attempt():
                return True
        self._raise_repeated_error(step)
        self._telling.report_hold(step, self._count_unsaved(step), self._max_unsaved(), limit)
        # on_wait shows the other ranks that this one is alive: they wait for its orders.
        while not self._stop.wait(HOLD_POLL_S) and not self.on_wait():
            if attempt():
                return True
            self._raise_repeated_error(step)
            if time.monotonic() - begun >= limit:
                self._telling.report_given_up(
                    step, self._count_unsaved(step), limit, self._last_good_text()
                )
                raise exits.TrainingStop(exits.NO_SPACE, "hold-limit")
        return False

    def write_json(self, step: int, path: str, body: dict[str, Any]) -> bool:
        """Replace a small JSON file, reporting a failure like that of a checkpoint.

        If the disk is full, checkpoints older than the newest are deleted first: this file records
        that the newest is the end.
        """
        error = self._telling.replace_json(path, body)
        while error is not None and error.errno in FULL:
            given_up = self._store.make_room(valuable=True)
            if given_up is None:
                break
            self._report.print_line(f"no room for {os.path.basename(path)}: gave up {given_up}")
            error = self._telling.replace_json(path, body)
        if error is not None:
            self._telling.loud = not self.failing
            self._note_failure(step, error)
        return error is None

    def require_save(self) -> None:
        """Make the next `save` save, although its step may be on disk: the state has changed since."""
        self.wait_for_save()
        self._outdated = True

    def wait_for_save(self) -> None:
        """Wait for the save in flight and process its result."""
        self._apply_outcome(self._persister.wait())

    def _save_and_wait(self, step: int) -> bool:
        """Save and wait; older checkpoints are worth less than the work that would be lost here."""
        self._begin_save(step, give_up=True)
        outcome = self._persister.wait()
        self._apply_outcome(outcome)
        if outcome is not None and isinstance(outcome.error, TornSnapshot):
            return self._save_and_wait(step)
        return outcome is not None and outcome.error is None

    def _begin_save(self, step: int, *, give_up: bool) -> None:
        """Start to write: the best that is still missing, otherwise the state of `step`."""
        # The best first: see `save`.
        if self._best is not None:
            self._try_begin(lambda: self._persister.write_again(give_up=give_up), step)
        else:
            request = SaveRequest(STEP, step, self._about(), give_up)
            self._try_begin(lambda: self._persister.begin_save(request, self._state), step)

    def _try_begin(self, begin: Callable[[], None], step: int) -> None:
        self._report.flush_lines()  # a checkpoint is never of a step that is not in the metrics
        try:
            begin()
        except Exception as error:
            if isinstance(error, (exits.RanksError, CannotLoad)) or (
                not isinstance(error, OSError) and not self._saved_once
            ):
                raise  # a mistake, or nothing was ever saved: a bug in the state, not a disk failure
            self._note_failure(step, error)

    def _apply_outcome(self, outcome: SaveOutcome | None) -> None:
        """Process the result of a save."""
        if outcome is None:
            return
        for note in outcome.notes:
            self._report.print_line(note)
        if isinstance(outcome.error, TornSnapshot):
            self._due = True  # only this copy is worthless: make another one at the next boundary
        elif isinstance(outcome.error, AssertionError):
            # A failed assertion is a bug of the saver itself, so its saves cannot be trusted.
            raise outcome.error
        elif outcome.error is not None or outcome.checkpoint is None:
            self._note_failure(
                outcome.request.step, outcome.error or RuntimeError("nothing was published")
            )
        elif outcome.request.kind == BEST:
            self._best = None
            best = outcome.request.about["best"]
            path = outcome.checkpoint.path
            value = best["value"]
            self._report.print_line(
                f"best {outcome.request.step} → {path}  {best['metric']} {value:.4f}"
            )
            self.on_saved(outcome.checkpoint)
        else:
            self._succeeded(outcome, outcome.checkpoint)

    def _succeeded(self, outcome: SaveOutcome, saved: Checkpoint) -> None:
        self.last_good = saved.step
        self._outdated = False
        self._saved_once = True
        self._cadence.measured_save(outcome.stall_s, outcome.durable_s, outcome.waited_s)
        self._report.print_line(
            f"checkpoint {saved.step} → {saved.path}  {size_text(saved.size)}  "
            f"on disk after {outcome.durable_s:.2f} s, stalled {1000 * outcome.stall_s:.0f} ms"
        )
        self._report.append_event(
            "checkpoint", saved.step, path=saved.path, bytes=saved.size,
            stall_s=round(outcome.stall_s, 6), durable_s=round(outcome.durable_s, 6),
        )  # fmt: skip
        if self.failing:
            self.failing = False
            self._mistakes = 0
            self._report.print_line(f"checkpoint saved again at step {saved.step}")
            self._report.append_event("checkpoint-recovered", saved.step)
        choice = self._cadence.current_interval()
        # reported again only after a change
        if not self._said or not 0.67 <= choice.steps / self._said <= 1.5:
            self._said = choice.steps
            self._report.print_line(f"saving {choice.reason}")
        self.on_saved(saved)

    def _note_failure(self, step: int, error: BaseException) -> None:
        self.failing = True
        self._retry_at = time.monotonic() + RETRY_S
        self._mistake = error
        if isinstance(error, (OSError, MemoryError, TransientFailure)):
            self._mistakes = 0
        else:
            self._mistakes = self._mistakes + 1
        self._telling.report_failure(step, error, self._last_good_text())

    def _raise_repeated_error(self, step: int) -> None:
        if self._mistake is not None and self._mistakes >= MOST_MISTAKES:
            self._telling.report_mistake(
                step, self._count_unsaved(step), self._mistake, self._last_good_text()
            )
            raise self._mistake

    def _last_good_text(self) -> str:
        if self.last_good is None:
            return "there is no good checkpoint yet"
        return f"last good checkpoint is step {self.last_good}"

    def _count_unsaved(self, step: int) -> int:
        return step - (self.last_good or 0)

    def _is_too_much_unsaved(self, step: int) -> bool:
        """Return whether too much is unsaved, or the failure is permanent."""
        return self._mistakes >= MOST_MISTAKES or self._count_unsaved(step) > self._max_unsaved()

    def _max_unsaved(self) -> int:
        return self._limits.max_unsaved or 2 * self._cadence.current_interval().steps
