"""Recording shared by both callbacks: points, events, and the phase of each rank."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from typing import Any, Mapping

import torch

from rgt_train.callbacks.proven import last_recorded_attempt, record_checksums
from rgt_train.checkpoint.diskio import StrPath
from rgt_train.checkpoint.mirror import CheckpointMirror
from rgt_train.checkpoint.store import CheckpointStore, KeepPolicy
from rgt_train.exits import StopRequest, UsageError
from rgt_train.ranks.heartbeat import BACKWARD, END, FORWARD, START, Heartbeat
from rgt_train.ranks.torch_ranks import wait_for_foreign_threads
from rgt_train.tracking import run_log
from rgt_train.tracking.report import RunReport, last_logged_point, print_line

NAMES = {"learning_rate": "lr", "eval_loss": "val_loss", "train_loss_step": "loss"}
"""Other libraries' names of numbers → ours."""
MIRROR_GRACE_S, MIRROR_LIMIT_S = 20.0, 1800.0
"""Seconds for which a launch waits until its last checkpoint is in the mirror: after a signal, and
at its end.
"""
_SECRET = ("token", "key", "secret", "password")


class TrainingRecorder:
    """Writes ``metrics.jsonl`` and ``run.json`` of one launch; a full disk never ends the training.

    If the other trainer has no hook for an exception, the launch is ended when the interpreter
    exits, with the exception that ended it. A launch killed by a signal is recorded only by the
    next launch.

    Args:
        out: The run directory; created if missing.
        step: The step from which the other trainer continues.
        total_steps: Its last step.
        facts: Keyword arguments of `rgt_train.tracking.run_log.launch_facts` besides attempt, step
            and git.
        mirror: Place of a second copy of each checkpoint: an absolute path or an fsspec URL;
            empty for none.
        keep: How many checkpoints stay there, besides the best.

    Attributes:
        stop: The signal handling; None while signals are not handled.
    """

    def __init__(
        self,
        out: StrPath,
        step: int,
        total_steps: int,
        facts: Mapping[str, Any],
        mirror: str = "",
        keep: int = 2,
    ) -> None:
        self.out = os.path.abspath(out)
        try:
            os.makedirs(self.out, exist_ok=True)
        except OSError as error:
            print_line(f"rgt: {self.out} cannot be made: {error}; metrics wait in memory")
        logged, _ = last_logged_point(self.out)
        self._report = RunReport(self.out)
        self._bad = 0
        self._last = step
        self._total = total_steps
        self._process = os.getpid()
        atexit.register(self.record_early_exit)
        self.stop: StopRequest | None = None
        attempt = max(run_log.last_recorded_attempt(self.out), last_recorded_attempt(self.out)) + 1
        self._attempt = attempt
        self._mirrored = -1
        self._best: dict[str, int] = {}
        self._mirror: CheckpointMirror | None = None
        if mirror:
            store = CheckpointStore(self.out, attempt, KeepPolicy(keep))
            self._mirror = CheckpointMirror(mirror, store, self._report, lambda pid: None)
        record = run_log.launch_facts(
            **facts, attempt=attempt, step=step, git=run_log.git_state(os.getcwd())
        )
        complaint = run_log.write_launch_record(self.out, record)
        if complaint:
            print_line(f"rgt: {complaint}")
        if logged is None and step == 0:
            self._report.append_event("start", 0, total_steps=total_steps)
        else:
            lost = max(0, (logged or 0) - step)
            self._report.append_event(
                "resume", step, reason="unknown", total_steps=total_steps, lost_steps=lost
            )

    def handle_signals(self) -> None:
        """Handle signals from now on, until the end."""
        self.stop = StopRequest()
        self.stop.tell = lambda name: print_line(
            f"rgt: {name}: stopping as soon as the step is over"
        )

    @property
    def stop_signal(self) -> str | None:
        """The signal that asks for the end, or None."""
        if self.stop is not None:
            return self.stop.name
        return None

    def record_point(self, step: int, epoch: float, values: Mapping[str, Any]) -> None:
        """Append the numbers in `values`; a loss that is not finite also becomes an event."""
        numbers = numbers_in(values)
        if not numbers:
            return
        self._last = max(self._last, step)
        self._report.record_point(step, epoch, **numbers)
        loss = numbers.get("loss", 0.0)
        norm = numbers.get("grad_norm", 0.0)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._bad += 1
            self._report.append_event(
                "nonfinite", step, loss=loss, grad_norm=norm, row=self._bad, total=self._bad
            )

    def poll_mirror(self) -> None:
        """Let the copy to the mirror make progress; called after each step."""
        if self._mirror is not None:
            self._mirror.poll_copy()

    def checkpoint(self, step: int, path: str, best: str | None = None) -> None:
        """Flush a checkpoint of the other trainer to the disk, and record its checksums and itself.

        One of each step goes to the mirror.

        Args:
            step: The step of the checkpoint.
            path: The checkpoint, a file or a directory.
            best: The best one so far, according to its trainer.
        """
        try:
            proof = record_checksums(self.out, step, path, best, self._attempt)
            self._best[proof.path] = step
            if self._mirror is not None and step > self._mirrored:
                self._mirrored = step
                name = f"step-{step:08d}-a{self._attempt}"
                keep = []
                best_path = os.path.abspath(best or "")
                if best_path in self._best:
                    keep = [self._best[best_path]]
                self._mirror.queue_files(step, name, proof.files, proof.note, keep)
        except (OSError, UsageError) as error:
            print_line(f"rgt: {path} does not count as good: {type(error).__name__}: {error}")
        self._report.append_event(
            "checkpoint", step, path=os.path.abspath(path), bytes=total_size(path)
        )

    def record_end(self, step: int, total_steps: int, reason: str | None = None) -> None:
        """Record how the launch ends, and close."""
        atexit.unregister(self.record_early_exit)
        if self.stop is not None:
            self.stop.close()
        done = reason is None and step >= total_steps
        if done:
            self._report.append_event("done", step)
        else:
            self._report.append_event("stop", step, reason=reason or "left early")
        if self._mirror is not None:
            self._mirror.queue_logs(step)
            self._mirror.finish_copies(MIRROR_LIMIT_S if done else MIRROR_GRACE_S, _pause)
            self._mirror.close()
        self._report.close()

    def record_early_exit(self) -> None:
        """Record that the launch ended without a call to `end`, with the exception if any."""
        if os.getpid() == self._process:  # not in a forked data worker
            # Python sets ``last_exc`` from 3.12 on, and ``last_value`` before.
            error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
            self.record_end(
                self._last, self._total, "left early" if error is None else error_text(error)
            )


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def error_text(error: BaseException) -> str:
    """Return type and message of an exception, at most 200 characters."""
    return f"{type(error).__name__}: {error}"[:200]


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers (plain or one-element tensors) in `values` under our names."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if name == "epoch" or isinstance(value, (bool, str)):
            continue
        item = getattr(value, "item", None)
        if item is not None and getattr(value, "numel", lambda: 1)() == 1:
            value = item()
        if isinstance(value, (int, float)):
            found[_metric_name(name)] = float(value)
    return found


def _metric_name(name: str) -> str:
    return NAMES.get(name) or ("val_" + name[5:] if name.startswith("eval_") else name)


def total_size(path: str) -> int:
    """Return the bytes of a file, or of all files below a directory; 0 without one."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    total = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += os.path.getsize(os.path.join(folder, file))
            except OSError:
                # Deleted meanwhile: the other trainer keeps only its last ones.
                continue
    return total


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that JSON can hold, without those whose name marks a secret."""
    return {
        name: value
        for name, value in settings.items()
        if isinstance(value, (int, float, str, bool)) and not name.lower().endswith(_SECRET)
    }


class StepPhases:
    """The phases of this process over all its trainings, as a heartbeat for outside readers.

    A single process has no other rank to wait for, and shows nothing.

    Attributes:
        beat: The heartbeat.
    """

    def __init__(self) -> None:
        self.beat = Heartbeat()
        self._handles: list[Any] = []

    def begin_training(self, rank: int, world: int) -> None:
        """Note that the training begins, or begins again."""
        self._remove_hooks()
        if world > 1 and not self.beat.shown:
            self.beat.share_page(rank, world)
            # These trainers keep their process group; its threads can abort a process at its very
            # end.
            atexit.register(wait_for_foreign_threads)
        self.beat.loads = True
        self.beat.enter_phase(START)

    def hook_model(self, model: Any) -> None:
        """Hook the calls of a model to separate forward from backward, if its trainer has no hooks.

        Calls without gradients are not part of a step: generation or evaluation.
        """
        if not self.beat.shown or not hasattr(model, "register_forward_pre_hook"):
            return

        def enter_forward(*_: Any) -> None:
            if torch.is_grad_enabled():
                self.beat.enter_step_phase(FORWARD)

        def enter_backward(*_: Any) -> None:
            if torch.is_grad_enabled():
                self.beat.enter_step_phase(BACKWARD)

        self._handles += [
            model.register_forward_pre_hook(enter_forward),
            model.register_forward_hook(enter_backward),
        ]

    def note_step(self, step: int) -> None:
        """Note the number of optimizer steps done."""
        self.beat.record_step(step)

    def end_training(self) -> None:
        """Note that the training is over, for any reason."""
        self._remove_hooks()
        self.beat.enter_phase(END)

    def _remove_hooks(self) -> None:
        while self._handles:
            self._handles.pop().remove()
