"""Decides when to make a checkpoint, and how to react when the disk refuses it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from rgt_wire.shared_text import size_text

from rgt_train import exits
from rgt_train.cadence import Cadence
from rgt_train.checkpoint import store as space
from rgt_train.checkpoint.async_saver import BEST, STEP, Outcome, Persister, Request
from rgt_train.checkpoint.diskio import replace_file
from rgt_train.checkpoint.publish import FULL, Mishap
from rgt_train.checkpoint.snapshot import Torn
from rgt_train.checkpoint.state import CannotLoad, RunState
from rgt_train.checkpoint.store import Checkpoint, Store
from rgt_train.exits import StopRequest
from rgt_train.ranks import launch
from rgt_train.tracking.report import Report


class Telling:
    """Reports failures of saves.

    Args:
        report: Receives the messages.
        store: The target of the checkpoints.
        needs: Returns the bytes and inodes of one checkpoint.

    Attributes:
        loud: Whether the next failure is reported; a quiet retry that fails like the previous one
            is not.
    """

    def __init__(self, report: Report, store: Store, needs: Callable[[], Tuple[int, int]]) -> None:
        self._report, self._store, self._needs = report, store, needs
        self.loud = True

    def failed(self, step: int, error: BaseException, good: str) -> None:
        """Report that the save of `step` failed, and which checkpoint is still `good`."""
        if not self.loud:
            return
        place, raw = self._store.root, f"{type(error).__name__}: {error}"
        why, what, mount = raw, "other", None
        if isinstance(error, OSError):
            try:
                left: Optional[space.Space] = space.read_space(self._store.out)
            except OSError:
                left = None
            need = self._needs()
            why, what = space.why_failed(error, left, *need), space.resource_of(error, left, *need)
            mount, place = left.mount if left else None, str(error.filename or place)
        self._report.say(raw)
        self._report.say(f"checkpoint save failed at step {step}: {why}; {good}")
        self._report.event(
            "checkpoint-failed", step, path=place, error=raw, resource=what, mount=mount
        )

    def holding(self, step: int, unsaved: int, most: int, limit_s: float) -> None:
        """Report that the training waits until there is room."""
        size, inodes = self._needs()
        self._report.say(
            f"holding at step {step}: {unsaved} steps are not saved (limit {most}); waiting up to {limit_s:.0f} s "
            f"until {self._store.root} takes {size_text(size)} and {inodes} inodes"
        )
        self._report.event("hold", step, unsaved=unsaved, limit_s=limit_s)

    def given_up(self, step: int, unsaved: int, limit_s: float, good: str) -> None:
        """Report that the training ends because nothing could be saved."""
        self._report.say(
            f"giving up at step {step}: nothing could be saved for {limit_s:.0f} s; {good}, {unsaved} steps are lost. "
            "Free space and launch the same command"
        )
        self._report.event("given-up", step, unsaved=unsaved)

    def mistaken(self, step: int, unsaved: int, error: BaseException, good: str) -> None:
        """Report that the training ends because of an error that free space would not fix."""
        self._report.say(
            f"giving up at step {step}: saving fails again and again, and not because of the disk: "
            f"{type(error).__name__}: {error}; {good}, {unsaved} steps are lost. Mend that and launch the same command"
        )
        self._report.event(
            "given-up", step, unsaved=unsaved, error=f"{type(error).__name__}: {error}"
        )

    @staticmethod
    def replace(path: str, body: Mapping[str, Any]) -> Optional[OSError]:
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
class Limits:
    """How much work may be lost.

    Attributes:
        max_unsaved: Steps that may be unsaved while saving fails; 0 for two save intervals.
        hold_limit_s: Seconds the training may wait for the disk before it gives up.
    """

    max_unsaved: int = 0
    hold_limit_s: float = 1800.0


class Saver:
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
        only_best: Whether only ``best`` is on disk: then even its own step is worth a save.
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
        store: Store,
        about: Callable[[], Dict[str, Any]],
        report: Report,
        cadence: Cadence,
        stop: StopRequest,
        limits: Limits,
        last_good: Optional[int],
        start: int,
        *,
        only_best: bool = False,
        on_saved: Callable[[Checkpoint], None] = lambda saved: None,
        on_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._persister, self._state, self._store, self._about = persister, state, store, about
        self._report, self._cadence, self._stop, self._limits = report, cadence, stop, limits
        self._telling = Telling(report, store, persister.needs)
        self.last_good = last_good
        self.failing = False
        self.only_best, self.on_saved, self.on_wait = only_best, on_saved, on_wait
        self._last_due = start
        self._due = False
        self._loud = False
        self._retry_at = 0.0
        self._best: Optional[Request] = None
        self._mistake: Optional[BaseException] = None
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
        self._collect(self._persister.poll())
        if self._cadence.due(step, self._last_due):
            self._last_due, self._due, self._loud = step, True, True
        retry = self.failing and time.monotonic() >= self._retry_at
        save = launch.SAVE if (self._due or retry) and not self._persister.busy else 0
        return save | (launch.HOLD if self.failing and self._at_stake(step) else 0)

    def prepare(self) -> None:
        """Prepare for the first save, once."""
        if not self._prepared:
            self._prepared = True
            self._persister.prepare(self._state)

    def boundary(self, step: int, agreed: int) -> None:
        """Perform at the end of `step` the actions that the ranks agreed on.

        Raises:
            Stop: The disk refused everything for longer than the hold limit (exit code 74).
        """
        self.prepare()
        if agreed & launch.SAVE:
            loud, self._due, self._loud = self._loud, False, False
            self._telling.loud = loud or not self.failing
            self._begin(step, give_up=self._at_stake(step))
        if (
            self.failing
            and self._at_stake(step)
            and not self._stop.requested
            and not self.save(step, loud=False)
        ):
            self.hold(step)

    def save(self, step: int, *, loud: bool = True, force: bool = False) -> bool:
        """Save `step` and wait for it; return whether it is on disk.

        Args:
            step: The current step.
            loud: Whether to report a failure again if the previous one was reported.
            force: Save although the step is on disk (work on the next one has begun).
        """
        self._collect(self._persister.wait())
        self._telling.loud = loud or not self.failing
        if self._best is not None and not self._finish(step):
            return False
        if self.last_good == step and not self.only_best and not force:
            return True
        return self._finish(step)

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
        self._collect(self._persister.wait())
        self._telling.loud = True
        about = {**self._about(), "best": {"step": step, "metric": metric, "value": value}}
        self._best = Request(BEST, step, about)
        request = self._best
        self._start(lambda: self._persister.begin(request, self._state), step)
        if not self._persister.busy:
            self._best = None
            return False
        # the copy is complete before anything else happens: it must be of this step
        self._persister.before_change()
        return True

    def hold(self, step: int, attempt: Optional[Callable[[], bool]] = None) -> bool:
        """Wait for a save (True), a requested stop on any rank (False), or the limit.

        Args:
            step: The current step.
            attempt: Tries the awaited work, True if done; by default a quiet `save` of `step`.

        Raises:
            Stop: The limit was reached (exit code 74).
            Exception: The saves fail for another reason than space: that error.
        """
        if attempt is None:
            attempt = lambda: self.save(step, loud=False)  # noqa: E731
        limit = self._limits.hold_limit_s
        begun = time.monotonic()
        while 0 < self._mistakes < MOST_MISTAKES:
            if attempt():
                return True
        self._end_by_mistake(step)
        self._telling.holding(step, self._unsaved(step), self._max_unsaved(), limit)
        while not self._stop.wait(HOLD_POLL_S) and not self.on_wait():
            if attempt():
                return True
            self._end_by_mistake(step)
            if time.monotonic() - begun >= limit:
                self._telling.given_up(step, self._unsaved(step), limit, self._good())
                raise exits.Stop(exits.NO_SPACE, "hold-limit")
        return False

    def write(self, step: int, path: str, body: Dict[str, Any]) -> bool:
        """Replace a small JSON file, reporting a failure like that of a checkpoint.

        If the disk is full, checkpoints older than the newest are deleted first: this file records
        that the newest is the end.
        """
        error = self._telling.replace(path, body)
        while error is not None and error.errno in FULL:
            given_up = self._store.make_room(valuable=True)
            if given_up is None:
                break
            self._report.say(f"no room for {os.path.basename(path)}: gave up {given_up}")
            error = self._telling.replace(path, body)
        if error is not None:
            self._telling.loud = not self.failing
            self._failed(step, error)
        return error is None

    def finish(self) -> None:
        """Wait for the save in flight and process its result."""
        self._collect(self._persister.wait())

    def _finish(self, step: int) -> bool:
        """Save and wait; older checkpoints are worth less than the work that would be lost here."""
        self._begin(step, give_up=True)
        outcome = self._persister.wait()
        self._collect(outcome)
        if outcome is not None and isinstance(outcome.error, Torn):
            return self._finish(step)
        return outcome is not None and outcome.error is None

    def _begin(self, step: int, *, give_up: bool) -> None:
        """Start to write: the best that is still missing, otherwise the state of `step`."""
        if self._best is not None:
            self._start(lambda: self._persister.again(give_up=give_up), step)
        else:
            request = Request(STEP, step, self._about(), give_up)
            self._start(lambda: self._persister.begin(request, self._state), step)

    def _start(self, begin: Callable[[], None], step: int) -> None:
        try:
            begin()
        except Exception as error:
            if isinstance(error, (exits.RanksError, CannotLoad)) or (
                not isinstance(error, OSError) and not self._saved_once
            ):
                raise  # a mistake, or nothing was ever saved: a bug in the state, not a disk failure
            self._failed(step, error)

    def _collect(self, outcome: Optional[Outcome]) -> None:
        """Process the result of a save."""
        if outcome is None:
            return
        for note in outcome.notes:
            self._report.say(note)
        if isinstance(outcome.error, Torn):
            self._due = True  # only this copy is worthless: make another one at the next boundary
        elif isinstance(outcome.error, AssertionError):
            raise outcome.error
        elif outcome.error is not None or outcome.checkpoint is None:
            self._failed(
                outcome.request.step, outcome.error or RuntimeError("nothing was published")
            )
        elif outcome.request.kind == BEST:
            self._best = None
            best = outcome.request.about["best"]
            path, value = outcome.checkpoint.path, best["value"]
            self._report.say(f"best {outcome.request.step} → {path}  {best['metric']} {value:.4f}")
            self.on_saved(outcome.checkpoint)
        else:
            self._succeeded(outcome, outcome.checkpoint)

    def _succeeded(self, outcome: Outcome, saved: Checkpoint) -> None:
        self.last_good = saved.step
        self.only_best = False
        self._saved_once = True
        self._cadence.measured_save(outcome.stall_s, outcome.durable_s, outcome.waited_s)
        self._report.say(
            f"checkpoint {saved.step} → {saved.path}  {size_text(saved.size)}  "
            f"on disk after {outcome.durable_s:.2f} s, stalled {1000 * outcome.stall_s:.0f} ms"
        )
        self._report.event(
            "checkpoint", saved.step, path=saved.path, bytes=saved.size,
            stall_s=round(outcome.stall_s, 6), durable_s=round(outcome.durable_s, 6),
        )  # fmt: skip
        if self.failing:
            self.failing, self._mistakes = False, 0
            self._report.say(f"checkpoint saved again at step {saved.step}")
            self._report.event("checkpoint-recovered", saved.step)
        choice = self._cadence.choice()
        # reported again only after a change
        if not self._said or not 0.67 <= choice.steps / self._said <= 1.5:
            self._said = choice.steps
            self._report.say(f"saving {choice.reason}")
        self.on_saved(saved)

    def _failed(self, step: int, error: BaseException) -> None:
        self.failing = True
        self._retry_at = time.monotonic() + RETRY_S
        self._mistake = error
        self._mistakes = (
            0 if isinstance(error, (OSError, MemoryError, Mishap)) else self._mistakes + 1
        )
        self._telling.failed(step, error, self._good())

    def _end_by_mistake(self, step: int) -> None:
        if self._mistake is not None and self._mistakes >= MOST_MISTAKES:
            self._telling.mistaken(step, self._unsaved(step), self._mistake, self._good())
            raise self._mistake

    def _good(self) -> str:
        if self.last_good is None:
            return "there is no good checkpoint yet"
        return f"last good checkpoint is step {self.last_good}"

    def _unsaved(self, step: int) -> int:
        return step - (self.last_good or 0)

    def _at_stake(self, step: int) -> bool:
        """Return whether too much is unsaved, or the failure is permanent."""
        return self._mistakes >= MOST_MISTAKES or self._unsaved(step) > self._max_unsaved()

    def _max_unsaved(self) -> int:
        return self._limits.max_unsaved or 2 * self._cadence.choice().steps
