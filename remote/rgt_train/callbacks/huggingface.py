"""The callback for the Trainer of transformers."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from transformers import TrainerCallback

from rgt_train.callbacks.recorder import Recorder, plain
from rgt_train.durable import StrPath


class RgtCallback(TrainerCallback):  # type: ignore[misc]  # an untyped base
    """Writes ``metrics.jsonl`` and ``run.json`` beside the Trainer's own checkpoints, which it never touches.

    Two lines::

        from rgt_train.callbacks import RgtCallback
        trainer = Trainer(…, callbacks=[RgtCallback()])

    The Trainer has no hook for an exception: it is told when the process ends, or trains again.

    Args:
        out: The run directory; the Trainer's ``output_dir`` by default.
    """

    def __init__(self, out: Optional[StrPath] = None) -> None:
        self._out = out
        self._recorder: Optional[Recorder] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the start, or that it goes on."""
        if self._recorder is not None:  # an earlier `train` of this process ended with an exception
            self._recorder.left()
            self._recorder = None
        if not state.is_world_process_zero:
            return
        world = max(1, int(args.world_size))
        facts = {
            "seed": int(args.seed),
            "batch": int(args.train_batch_size) * world,
            "accumulate": int(args.gradient_accumulation_steps),
            "world": world,
            "settings": plain(args.to_sanitized_dict()),
        }
        out = self._out if self._out is not None else args.output_dir
        self._recorder = Recorder(out, int(state.global_step), int(state.max_steps), facts)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Optional[Mapping[str, Any]] = None, **kwargs: Any
    ) -> None:
        """Append a point."""
        if self._recorder is not None and logs:
            self._recorder.point(int(state.global_step), float(state.epoch or 0.0), logs)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell about the checkpoint."""
        if self._recorder is not None:
            step = int(state.global_step)
            self._recorder.checkpoint(step, os.path.join(args.output_dir, f"checkpoint-{step}"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell how it ended."""
        if self._recorder is not None:
            self._recorder.end(int(state.global_step), int(state.max_steps))
            self._recorder = None
