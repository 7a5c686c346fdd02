"""The callback for Lightning."""

from __future__ import annotations

import glob
import os
import stat
import zipfile
from typing import Any, Iterator, Mapping

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the same library under its older name
    from pytorch_lightning.callbacks import Callback

from rgt_train import exits
from rgt_train.cadence import group_rates
from rgt_train.callbacks.proven import newest_good
from rgt_train.callbacks.recorder import StepPhases, TrainingRecorder, error_text, plain_settings
from rgt_train.checkpoint.diskio import StrPath
from rgt_train.overfit import train_lightning
from rgt_train.ranks.heartbeat import (
    BACKWARD,
    CHECKPOINT,
    DATA,
    EVALUATION,
    FORWARD,
    LOOP,
    OPTIMIZER,
)


class RgtLightningCallback(Callback):  # type: ignore[misc]  # an untyped base
    """Writes ``metrics.jsonl`` and ``run.json``, and records Lightning's own checkpoints.

    The checkpoints themselves are never changed. Usage::

        from rgt_train.callbacks import RgtLightningCallback
        trainer = L.Trainer(…, callbacks=[RgtLightningCallback()])

    Points have the values that the module logs, the loss of the step and the learning rate, every
    ``log_every_n_steps``. With several ranks, each publishes its step and its phase, so that a hang
    is reported with the rank that the others wait for.

    The checksums of each checkpoint are recorded, SIGTERM saves one more after the step and ends
    with exit code 75, and a launch continues from the newest complete checkpoint, local or in the
    mirror, if `resume` replaces ``trainer.fit``, because Lightning calls no callback before it
    reads the checkpoint::

        from rgt_train.callbacks import resume
        resume(trainer, module, datamodule=data)

    Args:
        out: The run directory; the Trainer's ``default_root_dir`` by default.
        mirror: A place that outlives the machine, for a second copy of each checkpoint: an
            absolute path, or an fsspec URL such as ``s3://bucket/run``. Empty for none.
        keep: How many checkpoints stay there, besides the best.
    """

    def __init__(self, out: StrPath | None = None, *, mirror: str = "", keep: int = 2) -> None:
        super().__init__()
        self._out = out
        self._mirror = mirror
        self._keep = keep
        self._recorder: TrainingRecorder | None = None
        self._losses: list[float] | None = None
        self._told: dict[str, tuple[int, ...]] = {}
        self._seen: dict[int, tuple[Any, ...]] = {}
        self._step = -1
        self._phases = StepPhases()
        self._stepped = 0

    @staticmethod
    def newest_good(out: StrPath, mirror: str = "") -> str | None:
        """Return the newest intact checkpoint below the run directory `out`.

        None for a fresh start.

        A newer one in the `mirror` is fetched first.

        Raises:
            NotStarted: There are checkpoints, and none is known to be good (exit code 2).
        """
        pattern = os.path.join(glob.escape(os.fspath(out)), "**", "*.ckpt")
        # `save_last="link"` makes a link to another checkpoint, which is in the list already.
        there = (path for path in glob.iglob(pattern, recursive=True) if not os.path.islink(path))
        return newest_good(out, there, mirror, zipfile.is_zipfile)

    def go_on(self, trainer: Any, *arguments: Any, **named: Any) -> Any:
        """Fit from the newest good checkpoint; see `rgt_train.callbacks.resume`."""
        if named.get("ckpt_path") is None:
            if self._out is not None:
                out = self._out
            else:
                out = trainer.default_root_dir
            named["ckpt_path"] = self.newest_good(out, self._mirror)
        return trainer.fit(*arguments, **named)

    def overfit_batch(self, trainer: Any, steps: int, *arguments: Any, **named: Any) -> list[float]:
        """Fit one batch without a record; see `rgt_train.callbacks.overfit_one_batch`."""
        self._losses = []
        return train_lightning(trainer, steps, self._losses, *arguments, **named)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Note that the training begins."""
        self._stepped = int(trainer.global_step)
        self._phases.begin_training(int(trainer.global_rank), int(trainer.world_size))
        save = trainer.save_checkpoint

        def save_in_phase(*arguments: Any, **named: Any) -> None:
            with self._phases.beat.within_phase(CHECKPOINT):
                save(*arguments, **named)

        # No hook reports the end of a save: the wait for data after it would look like one.
        trainer.save_checkpoint = save_in_phase

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Restore the trainer's own `save_checkpoint`."""
        # The instance's attribute only: the class's method shows again.
        vars(trainer).pop("save_checkpoint", None)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Note that the training waits for its data."""
        self._phases.beat.enter_phase(DATA)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note that the data has arrived."""
        self._phases.beat.enter_phase(FORWARD)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Note that the forward pass is over."""
        self._phases.beat.enter_step_phase(BACKWARD)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Note that the backward pass is over."""
        self._phases.beat.enter_step_phase(LOOP)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note that the optimizer runs."""
        self._phases.beat.enter_step_phase(OPTIMIZER)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Note that the validation runs."""
        self._phases.beat.enter_phase(EVALUATION)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Record that the training starts or resumes."""
        if self._losses is not None or not trainer.is_global_zero:
            return
        batch = _batch_size(trainer)
        # Set by `seed_everything`, which has no other trace.
        seed = os.environ.get("PL_GLOBAL_SEED", "")
        facts = {
            "seed": int(seed) if seed.isdigit() else None,
            "batch": None if batch is None else batch * int(trainer.world_size),
            "accumulate": int(trainer.accumulate_grad_batches),
            "world": int(trainer.world_size),
            "settings": plain_settings(dict(pl_module.hparams)),
        }
        if self._out is not None:
            out = self._out
        else:
            out = trainer.default_root_dir
        self._step = int(trainer.global_step)
        for callback in trainer.checkpoint_callbacks:
            self._told.update(_kept_checkpoints(callback))  # those of previous launches
        total = self._planned_steps(trainer)
        self._recorder = TrainingRecorder(out, self._step, total, facts, self._mirror, self._keep)
        if int(trainer.world_size) == 1:  # several ranks would not agree on a step to save
            self._recorder.handle_signals()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Append a point where Lightning logs, once per optimizer step."""
        step = int(trainer.global_step)
        if step != self._stepped:
            self._stepped = step
            self._phases.note_step(step)
        self._phases.beat.enter_phase(DATA)
        if self._losses is not None:
            self._losses.append(float(_step_loss(outputs)))
        if self._recorder is None or step == self._step:
            return
        self._step = step
        self._record_checkpoints(trainer)
        self._recorder.poll_mirror()
        planned = self._planned_steps(trainer)
        # At the last step it ends by itself; an endless run has no planned steps.
        if self._recorder.stop_signal and not 0 < planned <= step:
            self._save_and_stop(trainer, self._recorder, self._recorder.stop_signal)
        if step % max(1, int(trainer.log_every_n_steps)):
            return
        values: dict[str, Any] = dict(trainer.logged_metrics)
        loss = _step_loss(outputs)
        if loss is not None:
            values["loss"] = loss
        if trainer.optimizers:
            values["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        numbered = enumerate(trainer.optimizers)
        values.update(group_rates({str(number): optimizer for number, optimizer in numbered}))
        self._recorder.record_point(step, self._epoch_with_fraction(trainer), values)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Append the values that the validation logged."""
        self._phases.beat.enter_phase(DATA)
        # The sanity check runs a few batches before the training; its values are no results.
        if self._recorder is None or trainer.sanity_checking:
            return
        self._recorder.record_point(
            int(trainer.global_step),
            self._epoch_with_fraction(trainer),
            dict(trainer.callback_metrics),
        )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Record the exception that ended the training."""
        self._phases.end_training()
        self._end_recording(
            trainer,
            exception.cause if isinstance(exception, exits.TrainingStop) else error_text(exception),
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Note that the loop is over; Lightning may write its last checkpoint after this call."""
        self._phases.end_training()
        if self._recorder is not None:
            self._record_checkpoints(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Record how the training ended."""
        self._end_recording(trainer, None)

    @staticmethod
    def _save_and_stop(trainer: Any, recorder: TrainingRecorder, asked: str) -> None:
        step = int(trainer.global_step)
        path = os.path.join(recorder.out, "stopped", f"step={step}.ckpt")
        trainer.save_checkpoint(path)
        best = getattr(trainer.checkpoint_callback, "best_model_path", "")
        recorder.checkpoint(step, path, best or None)
        folder = glob.escape(os.path.dirname(path))
        for older in glob.glob(os.path.join(folder, "*.ckpt")):
            if older != path:
                # After the new one is recorded, so that there is always one.
                os.unlink(older)
        raise exits.TrainingStop(exits.PREEMPTED, asked)

    def _end_recording(self, trainer: Any, reason: str | None) -> None:
        if self._recorder is not None:
            self._record_checkpoints(trainer)
            self._recorder.record_end(
                int(trainer.global_step), self._planned_steps(trainer), reason
            )
            self._recorder = None

    def _record_checkpoints(self, trainer: Any) -> None:
        for number, callback in enumerate(trainer.checkpoint_callbacks):
            state = _last_save(callback)
            if state is not None and self._seen.get(number) == state:
                continue
            if state is not None:
                self._seen[number] = state
            for path, stamp in _kept_checkpoints(callback):
                if self._told.get(path) != stamp and self._recorder is not None:
                    self._told[path] = stamp
                    # Lightning saves after this callback, so the checkpoint is seen one step later.
                    step = int(
                        getattr(callback, "_last_global_step_saved", 0) or trainer.global_step
                    )
                    self._recorder.checkpoint(
                        step, path, getattr(callback, "best_model_path", "") or None
                    )

    @staticmethod
    def _planned_steps(trainer: Any) -> int:
        total = trainer.estimated_stepping_batches
        if total != float("inf"):
            return int(total)
        return 0

    @staticmethod
    def _epoch_with_fraction(trainer: Any) -> float:
        batches = trainer.num_training_batches
        share = 0.0
        if 0 < batches < float("inf"):
            share = (trainer.fit_loop.batch_idx + 1) / batches
        return float(trainer.current_epoch + min(1.0, share))


def _step_loss(outputs: Any) -> Any:
    """Return the loss that a training step returned."""
    if isinstance(outputs, Mapping):
        return outputs.get("loss")
    return outputs


def _last_save(callback: Any) -> tuple[Any, ...] | None:
    """Return the part of a `ModelCheckpoint` that changes when it saves.

    None for another kind, which is always examined.
    """
    step = getattr(callback, "_last_global_step_saved", None)
    if step is None:
        return None
    return (step, getattr(callback, "_last_checkpoint_saved", ""))


def _kept_checkpoints(callback: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield path and stamp of each checkpoint that `callback` keeps.

    The stamp changes when the checkpoint is rewritten. Links are skipped: they repeat one of them.
    """
    names = ("best_model_path", "last_model_path", "_last_checkpoint_saved")
    paths = [getattr(callback, name, "") for name in names] + list(
        getattr(callback, "best_k_models", ())
    )
    for path in dict.fromkeys(str(path) for path in paths if path):
        try:
            found = os.lstat(path)
        except OSError:
            continue
        # A link's target is listed by its own name.
        if not stat.S_ISLNK(found.st_mode):
            yield path, (found.st_ino, found.st_mtime_ns, found.st_size)


def _batch_size(trainer: Any) -> int | None:
    loader = trainer.train_dataloader
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        size = getattr(holder, "batch_size", None)
        if isinstance(size, int):
            return size
    return None
