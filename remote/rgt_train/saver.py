"""When a checkpoint is made, and what happens when the disk does not take it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional

from rgt_train import exits, space
from rgt_train.cadence import Cadence
from rgt_train.durable import replace_file
from rgt_train.report import Report
from rgt_train.signals import StopRequest
from rgt_train.store import Checkpoint, Store, Writer

RETRY_S = 3.0
"""Seconds between quiet attempts while saving fails."""
HOLD_POLL_S = 1.0
"""Seconds between attempts while the training waits for the disk."""


@dataclass(frozen=True)
class Limits:
    """How much work may be at stake.

    Attributes:
        max_unsaved: Steps that may be unsaved while saving fails; 0 for two save intervals.
        hold_limit_s: Seconds the training may wait for the disk before it gives up.
    """

    max_unsaved: int = 0
    hold_limit_s: float = 1800.0


@dataclass(frozen=True)
class _Best:
    """A best checkpoint that is not on disk yet, with its state kept in memory."""

    step: int
    about: Mapping[str, Any]
    writers: Mapping[str, Writer]


class Saver:
    """Saves when due, retries while the disk refuses, holds the training when too much would be at stake.

    Args:
        store: Where checkpoints go.
        writers: Returns the writers of the current state.
        about: Returns the facts for the manifest.
        report: Where it is told.
        cadence: When a save is due.
        stop: Ends a wait when the process is asked to stop.
        limits: What may be at stake.
        last_good: Step of the checkpoint this incarnation came from, or None.
        start: Step this incarnation began at.
    """

    def __init__(
        self,
        store: Store,
        writers: Callable[[], Mapping[str, Writer]],
        about: Callable[[], Dict[str, Any]],
        report: Report,
        cadence: Cadence,
        stop: StopRequest,
        limits: Limits,
        last_good: Optional[int],
        start: int,
    ) -> None:
        self._store, self._writers, self._about = store, writers, about
        self._report, self._cadence, self._stop, self._limits = report, cadence, stop, limits
        self.last_good = last_good
        self.failing = False
        self.only_best = False
        """Whether ``best`` is all there is on disk: then even the step it was made at is worth a save of its own."""
        self._last_due = start
        self._retry_at = 0.0
        self._best: Optional[_Best] = None
        self._saved_once = False
        self._said = 0
        self.on_saved: Callable[[int], None] = lambda step: None

    def boundary(self, step: int) -> None:
        """Do at the end of `step` what is due.

        Raises:
            Stop: The disk took nothing for longer than the hold limit (exit code 74).
        """
        due = self._cadence.due(step, self._last_due)
        if due:
            self._last_due = step
        if due or (self.failing and time.monotonic() >= self._retry_at):
            self.save(step, loud=due)
        if self.failing and self._unsaved(step) > self._max_unsaved() and not self._stop.requested:
            self.hold(step)

    def save(self, step: int, *, loud: bool = True) -> bool:
        """Try to save `step` now; True if it is on disk.

        Args:
            step: The current step.
            loud: Whether a failure is told again where the one before was told already.
        """
        if self.last_good == step and self._best is None and not self.only_best:
            return True
        begun = time.monotonic()
        try:
            if self._best is not None:
                self._publish_best(self._best)
            saved = self._store.commit(step, self._writers(), self._about())
        except Exception as error:
            if not isinstance(error, OSError) and not self._saved_once:
                raise  # nothing was ever saved: a mistake in the state, not a mishap of the disk
            self._failed(step, error, loud or not self.failing)
            return False
        self._succeeded(saved, time.monotonic() - begun)
        return True

    def offer_best(
        self, step: int, value: float, metric: str, freeze: Callable[[], Mapping[str, Writer]]
    ) -> bool:
        """Publish the state of `step` as the best; True if it is on disk.

        Args:
            step: The current step.
            value: Its value of the metric.
            metric: The metric's name.
            freeze: Returns writers of the state as it is now: while the disk refuses, the best is kept in memory,
                and no later step is saved before it (a resume would take it for published).
        """
        about = {**self._about(), "best": {"step": step, "metric": metric, "value": value}}
        try:
            self._publish_best(_Best(step, about, self._writers()))
        except OSError as error:
            self._best = _Best(step, about, freeze())
            self._failed(step, error, loud=True)
            return False
        return True

    def hold(self, step: int, attempt: Optional[Callable[[], bool]] = None) -> None:
        """Wait until a save succeeds, a stop is asked for, or the limit is reached.

        Args:
            step: The current step.
            attempt: Tries what is waited for, True if done; by default a quiet `save` of `step`.

        Raises:
            Stop: The limit was reached (exit code 74).
        """
        if attempt is None:
            attempt = lambda: self.save(step, loud=False)  # noqa: E731
        begun = time.monotonic()
        needs = f"{space.human(self._store.need_bytes)} and {self._store.need_inodes} inodes"
        self._report.say(
            f"holding at step {step}: {self._unsaved(step)} steps are not saved "
            f"(limit {self._max_unsaved()}); waiting up to {self._limits.hold_limit_s:.0f} s "
            f"until {self._store.root} takes {needs}"
        )
        self._report.event("hold", step, unsaved=self._unsaved(step))
        while not self._stop.wait(HOLD_POLL_S):
            if attempt():
                return
            if time.monotonic() - begun >= self._limits.hold_limit_s:
                self._report.say(
                    f"giving up at step {step}: nothing could be saved for {self._limits.hold_limit_s:.0f} s; "
                    f"{self._good()}, {self._unsaved(step)} steps are lost. "
                    "Free space and launch the same command"
                )
                raise exits.Stop(exits.NO_SPACE, "hold-limit")

    def write(self, step: int, path: str, body: Mapping[str, Any]) -> bool:
        """Replace a small JSON file, reporting a failure like that of a checkpoint."""
        try:
            replace_file(path, (json.dumps(body) + "\n").encode())
        except OSError as error:
            self._failed(step, error, loud=not self.failing)
            return False
        return True

    def _publish_best(self, best: _Best) -> None:
        saved = self._store.commit_best(best.step, best.writers, best.about)
        body = (json.dumps(best.about["best"]) + "\n").encode()
        replace_file(os.path.join(self._store.out, "best.json"), body)
        self._best = None
        self._report.say(
            f"best {best.step} → {saved.path}  {best.about['best']['metric']} "
            f"{best.about['best']['value']:.4f}"
        )

    def _succeeded(self, saved: Checkpoint, seconds: float) -> None:
        self.last_good = saved.step
        self.only_best = False
        self._saved_once = True
        self._cadence.measured_save(seconds)
        self._report.say(
            f"checkpoint {saved.step} → {saved.path}  {space.human(saved.size)}  sha256 ok  {seconds:.2f} s"
        )
        self._report.event("checkpoint", saved.step, path=saved.path, bytes=saved.size)
        if self.failing:
            self.failing = False
            self._report.say(f"checkpoint saved again at step {saved.step}")
            self._report.event("checkpoint-recovered", saved.step)
        choice = self._cadence.choice()
        if not self._said or not 0.67 <= choice.steps / self._said <= 1.5:  # told again only where it moved
            self._said = choice.steps
            self._report.say(f"saving {choice.reason}")
        self.on_saved(saved.step)

    def _failed(self, step: int, error: Exception, loud: bool) -> None:
        self.failing = True
        self._retry_at = time.monotonic() + RETRY_S
        if not loud:
            return
        place, raw = self._store.root, f"{type(error).__name__}: {error}"
        why, what, mount = raw, "other", None
        if isinstance(error, OSError):
            try:
                left: Optional[space.Space] = space.read_space(self._store.out)
            except OSError:
                left = None
            need = (self._store.need_bytes, self._store.need_inodes)
            why, what = space.describe(error, left, *need), space.resource_of(error, left, *need)
            mount, place = left.mount if left else None, str(error.filename or place)
        self._report.say(raw)
        self._report.say(f"checkpoint save failed at step {step}: {why}; {self._good()}")
        self._report.event("checkpoint-failed", step, path=place, error=raw, resource=what, mount=mount)

    def _good(self) -> str:
        if self.last_good is None:
            return "there is no good checkpoint yet"
        return f"last good checkpoint is step {self.last_good}"

    def _unsaved(self, step: int) -> int:
        return step - (self.last_good or 0)

    def _max_unsaved(self) -> int:
        return self._limits.max_unsaved or 2 * self._cadence.choice().steps
