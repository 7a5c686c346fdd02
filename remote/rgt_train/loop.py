"""The reference loop: what a person's own loop looks like around a `Run`."""

from __future__ import annotations

import math
import sys
from typing import List, Optional

import torch

from rgt_train import exits, rng, tasks
from rgt_train.config.merge import Config
from rgt_train.options import Options
from rgt_train.report import say
from rgt_train.run import Run
from rgt_train.signals import StopRequest
from rgt_train.tasks.adamw import AdamW
from rgt_train.tasks.base import Task


class Setup:
    """Task, model, optimizer and learning rates of a config, freshly seeded.

    Args:
        config: The values of the run.
        total_steps: Optimizer steps over which the learning rate decays.
    """

    def __init__(self, config: Config, task: Task, total_steps: int) -> None:
        rng.seed_all(config.int("seed"))
        self.device = device_of(config.str("device"))
        self.task = task
        self.model = task.model().to(self.device)
        self.optimizer = AdamW(self.model.parameters(), config.float("weight_decay"))
        self._peak, self._warmup, self._total = config.float("lr"), config.int("warmup"), total_steps
        self._clip = config.float("clip") or math.inf

    def lr(self, step: int) -> float:
        """Return the learning rate of the step after `step` steps: linear warm-up, then a cosine down to 5 %."""
        if step < self._warmup:
            return self._peak * (step + 1) / (self._warmup + 1)
        share = min(1.0, (step - self._warmup) / max(1, self._total - self._warmup))
        return self._peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))

    def backward(self, loss: torch.Tensor) -> float:
        """Compute and clip the gradients of `loss`; return their norm before clipping."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip))


def train(config: Config, out: str, stop: Optional[StopRequest] = None) -> int:
    """Train what `config` says in `out`, from wherever it stands, and return the exit code 0.

    Raises:
        Stop: It ended before the last step.
        UsageError: It cannot run like this.
    """
    torch.set_num_threads(config.int("threads"))
    task = tasks.make(config)
    per_epoch = config.int("steps_per_epoch") or -(-task.samples // config.int("batch"))
    total = config.int("epochs") * per_epoch
    setup = Setup(config, task, total)
    weights = sum(p.numel() for p in setup.model.parameters())
    say(
        f"{config.str('task')} on {setup.device}: torch {torch.__version__}, "
        f"python {sys.version.split()[0]}, {weights:,} parameters, {total} steps in {config.int('epochs')} epochs, "
        f"seed {config.int('seed')}, {config.int('threads')} threads"
    )
    try:
        run = Run(
            out,
            model=setup.model,
            optimizer=setup.optimizer,
            samples=task.samples,
            batch_size=config.int("batch"),
            epochs=config.int("epochs"),
            steps_per_epoch=per_epoch,
            seed=config.int("seed"),
            options=_options(config, task),
            settings=config.values,
            stop=stop,
        )
    except ValueError as error:
        raise exits.UsageError(str(error)) from error
    with run:
        for _ in run.epochs():
            for indices in run.batches():
                loss = task.loss(setup.model, indices, run.sample_seed, setup.device)
                norm, lr = setup.backward(loss), setup.lr(run.step_now)
                if run.healthy(loss.item(), norm):
                    setup.optimizer.step(lr)
                run.step(loss.item(), lr=lr, grad_norm=norm)
            validate(run, setup)
    return exits.DONE


def validate(run: Run, setup: Setup) -> None:
    """Measure the validation loss, ready to stop between two batches."""
    losses: List[float] = []
    with run.evaluating():
        for loss in setup.task.validation(setup.model, setup.device):
            losses.append(loss)
            run.check()
    run.validated(sum(losses) / len(losses))


def smoke(config: Config, steps: int) -> int:
    """Run `steps` steps on the CPU without writing anything: does it work at all? Returns the exit code."""
    torch.set_num_threads(config.int("threads"))
    config.values["device"] = "cpu"
    setup = Setup(config, tasks.make(config), steps)
    for step in range(steps):
        indices = list(range(step * config.int("batch"), (step + 1) * config.int("batch")))
        loss = setup.task.loss(setup.model, indices, lambda index: index, setup.device)
        norm = setup.backward(loss)
        if not (math.isfinite(loss.item()) and math.isfinite(norm)):
            say(f"smoke: step {step + 1} is not finite: loss {loss.item()}, gradient norm {norm}")
            return exits.FAILED
        setup.optimizer.step(setup.lr(step))
    say(f"smoke: {steps} steps ok, loss {loss.item():.4f}; nothing was written")
    return exits.DONE


def device_of(name: str) -> torch.device:
    """Return the device that a config calls `name`.

    Raises:
        UsageError: There is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise exits.UsageError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise exits.UsageError(
            f"device {name} was asked for, but torch {torch.__version__} sees no CUDA device here"
        )
    return device


def _options(config: Config, task: Task) -> Options:
    return Options(
        save_every=config.int("save_every"),
        keep=config.int("keep"),
        max_unsaved=config.int("max_unsaved"),
        hold_limit_s=config.float("hold_limit"),
        log_every=config.int("log_every"),
        pace_s=config.float("pace_ms") / 1000,
        max_bad_steps=config.int("max_bad_steps"),
        unit=task.unit,
        per_sample=task.per_sample,
    )
