"""Train on one batch alone: a loss that does not fall shows a mistake between data and optimizer.

Handbook page O1. Nothing is written, and the trained weights are of no further use.
"""

from __future__ import annotations

import itertools
import math
import os
from statistics import median
from typing import Any, NamedTuple, Sequence

from rgt_train import exits
from rgt_train.exits import UsageError
from rgt_train.tracking.report import print_line

VARIABLE = "RGT_OVERFIT_ONE_BATCH"
"""Environment variable with a number of steps: `callbacks.resume` then checks instead of training.
"""


class OverfitVerdict(NamedTuple):
    """How the loss of one batch changed.

    Attributes:
        passed: Whether it fell as it should.
        start: Loss of the first step.
        end: Median loss of the last steps.
        steps: Optimizer steps made.
        text: The verdict in one line.
    """

    passed: bool
    start: float
    end: float
    steps: int
    text: str


def judge_losses(losses: Sequence[float], most_ratio: float = 0.5) -> OverfitVerdict:
    """Judge the losses of the steps on one batch.

    Args:
        losses: One for each step, in order.
        most_ratio: The largest ratio of end to start that passes. A loss that starts at 0 or below
            has no ratio: then it only has to fall.

    Raises:
        UsageError: There are fewer than two losses.
    """
    if len(losses) < 2:
        raise UsageError(f"{len(losses)} losses of one batch: at least 2 steps are needed")
    # A tenth of the steps, because the last step alone may be an outlier.
    start = losses[0]
    end = median(losses[-max(1, len(losses) // 10) :])
    change = f"loss {start:.4g} → {end:.4g} in {len(losses)} steps of one batch"
    bad = next((step for step, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
    if bad is not None:
        passed = False
        reason = f"step {bad} is not finite"
    elif start > 0:
        passed = end <= most_ratio * start
        reason = f"ratio {end / start:.3g}"
        if not passed:
            reason += f", at most {most_ratio:g} expected"
    else:
        passed = end < start
        reason = f"{end - start:+.4g}"
    if passed:
        text = f"overfit: {change} ({reason}): it learns"
    else:
        cause = "data, loss, gradients or optimizer are wrong, or it needs more steps"
        needed = _steps_needed(losses, end, most_ratio)
        if needed is not None and bad is None:
            cause = f"it falls steadily, but slowly: try {needed} steps, or a higher learning rate"
        text = f"overfit: FAILED: {change} ({reason}): {cause} (rgt handbook O1)"
    return OverfitVerdict(passed, start, end, len(losses), text)


def _steps_needed(losses: Sequence[float], end: float, most_ratio: float) -> int | None:
    """Return how many steps a slow fall needs at its pace; None if it is no steady fall."""
    third = len(losses) // 3
    if third < 3 or losses[0] <= 0 or not 0 < end < 0.99 * losses[0]:
        return None
    first = median(losses[:third])
    second = median(losses[third : 2 * third])
    last = median(losses[2 * third : 3 * third])
    if not first > second > last:
        return None
    needed = len(losses) * math.log(most_ratio) / math.log(end / losses[0])
    return 100 * math.ceil(needed / 100)


def check_task(config: Any, steps: int) -> int:
    """Train the task of a config on its first batch, without dropout; return the exit code.

    Args:
        config: The `Config` of the run; its warm-up is cut to a tenth of the steps.
        steps: Optimizer steps.
    """
    import torch

    from rgt_train import loop, tasks

    torch.set_num_threads(config.int("threads"))
    config.values.update(accumulate=1, warmup=min(config.int("warmup"), steps // 10))
    setup = loop.TrainingSetup(config, tasks.make_task(config), steps)
    for module in setup.model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
    indices = list(range(min(config.int("batch"), setup.task.samples)))
    losses = [loop.take_plain_step(setup, indices, step)[0] for step in range(steps)]
    return report_verdict(judge_losses(losses))


def report_verdict(verdict: OverfitVerdict) -> int:
    """Print a verdict; return the exit code."""
    print_line(verdict.text)
    if verdict.passed:
        return exits.DONE
    return exits.FAILED


def requested_steps() -> int | None:
    """Return the steps that the environment asks for; None if it asks for no check.

    Raises:
        UsageError: It is not a number of at least 2.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 2:
        raise UsageError(f"{VARIABLE} is {text!r}: it must be a number of steps, at least 2")
    return int(text)


def train_transformers(trainer: Any, steps: int, **arguments: Any) -> list[float]:
    """Train a Trainer of transformers on its first samples; return the loss of each step."""
    args = trainer.args
    data = trainer.train_dataset
    size = int(args.train_batch_size)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        trainer.train_dataset = [data[index] for index in range(min(size, len(data)))]
    else:
        trainer.train_dataset = list(itertools.islice(iter(data), size))
    changes = {
        "max_steps": steps, "gradient_accumulation_steps": 1, "logging_strategy": "steps",
        "logging_steps": 1,
        "eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False,
        "warmup_steps": 0,
        "lr_scheduler_type": "constant",
    }  # fmt: skip
    for name, value in changes.items():
        # Strategies are enums, which compare as their texts.
        before = getattr(args, name, None)
        if isinstance(value, str) and before is not None:
            value = type(before)(value)
        setattr(args, name, value)
    arguments["resume_from_checkpoint"] = None
    trainer.train(**arguments)
    return [float(line["loss"]) for line in trainer.state.log_history if "loss" in line]


def train_lightning(
    trainer: Any, steps: int, losses: list[float], *arguments: Any, **named: Any
) -> list[float]:
    """Fit with Lightning on the first batch; return `losses`, which a callback fills."""
    trainer.overfit_batches = trainer.limit_train_batches = 1
    trainer.limit_val_batches = trainer.num_sanity_val_steps = 0
    trainer.accumulate_grad_batches = 1
    trainer.fit_loop.epoch_loop.max_steps = steps
    trainer.fit_loop.max_epochs = -1
    trainer.loggers = []
    trainer.callbacks = [
        each for each in trainer.callbacks if each not in trainer.checkpoint_callbacks
    ]
    trainer.fit(*arguments, **{**named, "ckpt_path": None})
    return losses
