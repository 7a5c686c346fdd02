"""The callback for the Trainer of transformers."""

from __future__ import annotations

import glob
import os
from typing import Any, Mapping

from transformers import TrainerCallback

from rgt_train import exits
from rgt_train.cadence import group_rates
from rgt_train.callbacks.proven import newest_good
from rgt_train.callbacks.recorder import StepPhases, TrainingRecorder, plain_settings
from rgt_train.checkpoint.diskio import StrPath
from rgt_train.overfit import train_transformers
from rgt_train.ranks.heartbeat import CHECKPOINT, DATA, EVALUATION, LOOP, OPTIMIZER


class RgtCallback(TrainerCallback):  # type: ignore[misc]  # an untyped base
    """Writes ``metrics.jsonl`` and ``run.json`` next to the Trainer's checkpoints.

    The checkpoints themselves are never changed. Usage::

        from rgt_train.callbacks import RgtCallback
        trainer = Trainer(…, callbacks=[RgtCallback()])

    The Trainer has no hook for an exception: the callback records it when the process ends or
    trains again. With several ranks, each publishes its step and its phase, so that a hang is
    reported with the rank that the others wait for.

    The checksums of each checkpoint are recorded, SIGTERM saves after the step and ends with exit
    code 75, and a launch continues from the newest complete checkpoint, local or in the mirror, if
    `resume` replaces ``trainer.train()``, because the Trainer calls no callback before it reads the
    checkpoint::

        from rgt_train.callbacks import resume
        resume(trainer)

    Args:
        out: The run directory; the Trainer's ``output_dir`` by default.
        mirror: A place that outlives the machine, for a second copy of each checkpoint: an
            absolute path, or an fsspec URL such as ``s3://bucket/run``. Empty for none.
        keep: How many checkpoints stay there, besides the best.
    """

    def __init__(self, out: StrPath | None = None, *, mirror: str = "", keep: int = 2) -> None:
        self._out = out
        self._mirror = mirror
        self._keep = keep
        self._recorder: TrainingRecorder | None = None
        self._recorded = True
        self._phases = StepPhases()
        self._rates: dict[str, float] = {}

    @staticmethod
    def newest_good(out: StrPath, mirror: str = "") -> str | None:
        """Return the newest intact checkpoint of the run directory `out`; None for a fresh start.

        A newer one in the `mirror` is fetched first.

        Raises:
            NotStarted: There are checkpoints, and none is known to be good (exit code 2).
        """
        there = glob.iglob(os.path.join(glob.escape(os.fspath(out)), "checkpoint-*"))
        return newest_good(
            out,
            there,
            mirror,
            lambda path: os.path.exists(os.path.join(path, "trainer_state.json")),
        )

    def go_on(self, trainer: Any, **arguments: Any) -> Any:
        """Train from the newest good checkpoint; see `rgt_train.callbacks.resume`."""
        if arguments.get("resume_from_checkpoint") is None:
            if self._out is not None:
                out = self._out
            else:
                out = trainer.args.output_dir
            arguments["resume_from_checkpoint"] = self.newest_good(out, self._mirror)
        return trainer.train(**arguments)

    def overfit_batch(self, trainer: Any, steps: int, **arguments: Any) -> list[float]:
        """Train on one batch without a record; see `rgt_train.callbacks.overfit_one_batch`."""
        self._recorded = False
        return train_transformers(trainer, steps, **arguments)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record that the training starts or resumes."""
        if self._recorder is not None:  # an earlier `train` of this process ended with an exception
            self._recorder.record_early_exit()
            self._recorder = None
        self._phases.begin_training(int(args.process_index), int(args.world_size))
        self._phases.hook_model(kwargs.get("model"))
        if not (state.is_world_process_zero and self._recorded):
            return
        world = max(1, int(args.world_size))
        facts = {
            "seed": int(args.seed),
            "batch": int(args.train_batch_size) * world,
            "accumulate": int(args.gradient_accumulation_steps),
            "world": world,
            "settings": plain_settings(args.to_sanitized_dict()),
        }
        if self._out is not None:
            out = self._out
        else:
            out = args.output_dir
        step = int(state.global_step)
        last = int(state.max_steps)
        self._recorder = TrainingRecorder(out, step, last, facts, self._mirror, self._keep)
        if world == 1:  # several ranks would not agree on a step to save
            self._recorder.handle_signals()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the training waits for its data."""
        self._phases.beat.enter_phase(DATA)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the data has arrived."""
        self._phases.beat.enter_phase(LOOP)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that a part of a step is done: its batches were loaded together."""
        self._phases.beat.enter_phase(LOOP)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the optimizer runs, and with which learning rates."""
        self._phases.beat.enter_phase(OPTIMIZER)
        # Later the schedule has changed them: the Trainer, too, logs those of the step that is
        # done.
        self._rates = group_rates({"optimizer": kwargs.get("optimizer")})

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the optimizer is done."""
        self._phases.beat.enter_phase(LOOP)

    def _note_next_phase(self, control: Any, *, evaluated: bool = False) -> None:
        """Note the Trainer's next action between two steps."""
        next_one = DATA
        if control.should_evaluate and not evaluated:
            next_one = EVALUATION
        elif control.should_save:
            next_one = CHECKPOINT
        self._phases.beat.enter_phase(next_one)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the phase between two epochs."""
        self._note_next_phase(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that the evaluation is over."""
        self._note_next_phase(control, evaluated=True)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append a point."""
        self._note_next_phase(control)
        if self._recorder is None or not logs:
            return
        values = dict(logs)
        if "learning_rate" in logs:  # the line of a step, not of an evaluation
            values.update(self._rates)
        self._recorder.record_point(int(state.global_step), float(state.epoch or 0.0), values)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the checkpoint."""
        self._phases.beat.enter_phase(DATA)
        if self._recorder is not None:
            step = int(state.global_step)
            path = os.path.join(args.output_dir, f"checkpoint-{step}")
            self._recorder.checkpoint(step, path, state.best_model_checkpoint)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let the Trainer save and stop if a signal asks for it."""
        self._phases.note_step(int(state.global_step))
        if self._recorder is not None:
            self._recorder.poll_mirror()
            if self._recorder.stop_signal:
                # The Trainer saves at the end of this step, and then ends its loop by itself.
                control.should_save = control.should_training_stop = True
        if not control.should_log:  # otherwise the point is written and sent first
            self._note_next_phase(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record how the training ended.

        Raises:
            TrainingStop: A signal asked for it (exit code 75).
        """
        self._phases.end_training()
        if self._recorder is not None:
            step = int(state.global_step)
            last = int(state.max_steps)
            asked = self._recorder.stop_signal
            # Before an exception: `train` may be called again in this process.
            recorder = self._recorder
            self._recorder = None
            recorder.record_end(step, last, asked if step < last else None)
            if asked and step < last:
                raise exits.TrainingStop(exits.PREEMPTED, asked)
