"""The reference loop: an example of a person's own loop around a `Run`.

The weights and their gradients stay in 32 bits. Sums over ranks are made in 32 bits, too.
"""

from __future__ import annotations

import io
import math
import os
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any, Callable

import torch
from torch.optim.swa_utils import AveragedModel

from rgt_train import exits, tasks
from rgt_train.cadence import Options
from rgt_train.config import Config
from rgt_train.data import rng
from rgt_train.exits import StopRequest, UsageError
from rgt_train.guards import RollbackStop
from rgt_train.proof import StepReplay
from rgt_train.ranks.launch import Ranks, SingleRank
from rgt_train.run import Run
from rgt_train.tasks import Task, ema_decay_of, per_sample_of, scores_of, unit_of
from rgt_train.tracking.report import print_line

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """How the losses of a run are computed.

    Args:
        name: ``fp32``, ``bf16`` or ``fp16``.
        device: The device.
        sharded: Whether the model is sharded over several ranks.

    Attributes:
        dtype: The dtype of autocast; None for 32 bits.
        scaler: Multiplies the losses of float16; part of the state of a run. None for the others.

    Raises:
        UsageError: float16 with a sharded model, whose ranks would each have a separate scale.
    """

    def __init__(self, name: str, device: torch.device, *, sharded: bool) -> None:
        if name == "fp16" and sharded:
            raise UsageError(
                "precision is fp16: a sharded model needs bf16, which has no scale to keep"
            )
        self.dtype: torch.dtype | None = _DTYPES.get(name)
        self._device = device.type
        self.scaler: Any = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def autocast(self) -> "AbstractContextManager[Any]":
        """Compute in this dtype inside the block.

        A backward pass outside of it uses the same dtypes.
        """
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self._device, dtype=self.dtype)

    def scaled_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the start value of the backward pass."""
        if self.scaler is None:
            return loss
        scaled: torch.Tensor = self.scaler.scale(loss)
        return scaled

    def unscale_gradients(self, optimizer: Any) -> None:
        """Divide the gradients by the scale, once a step, before they are examined."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def overflowed(self, norm: float) -> bool:
        """Return whether gradients of this `norm` are infinite only by the scale, a normal case."""
        # At this scale, an infinite gradient is no longer caused by the scale.
        least_scale = 1.0
        return (
            self.scaler is not None
            and not math.isfinite(norm)
            and self.scaler.get_scale() > least_scale
        )

    def take_step(self, optimizer: Any, lr: float) -> None:
        """Take the step, unless a gradient is infinite."""
        if self.scaler is None:
            optimizer.step(lr)
        else:
            self.scaler.step(optimizer, lr)

    def update_scale(self) -> None:
        """Update the scale; once a step, whether it was taken or not."""
        if self.scaler is not None:
            self.scaler.update()


def _uncompiled(method: Any) -> Any:
    """Return a method of torch's optimizers without its guard against `torch.compile`.

    The guard imports the compiler at the first call, which takes half of a trainer's start; the
    tasks here are not compiled.
    """
    return getattr(method, "__wrapped__", method)


class AdamW(torch.optim.AdamW):
    """torch's AdamW, stepped with a learning rate."""

    add_param_group = _uncompiled(torch.optim.AdamW.add_param_group)
    load_state_dict = _uncompiled(torch.optim.AdamW.load_state_dict)
    state_dict = _uncompiled(torch.optim.AdamW.state_dict)
    zero_grad = _uncompiled(torch.optim.AdamW.zero_grad)
    _step = _uncompiled(torch.optim.AdamW.step)

    def step(self, lr: Any = None, closure: Any = None) -> None:  # type: ignore[override]
        """Apply the gradients with learning rate `lr`.

        Torch passes ``closure=None`` before a load.
        """
        if lr is not None:
            for group in self.param_groups:
                group["lr"] = lr
        with torch.no_grad():
            self._step(closure)

    def migrated(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state in torch's form: earlier versions had their own AdamW."""
        if "first" not in saved:
            return saved
        steps = torch.tensor(float(saved["steps"]))
        moments = zip(saved["first"], saved["second"])
        state = {
            number: {"step": steps.clone(), "exp_avg": first, "exp_avg_sq": second}
            for number, (first, second) in enumerate(moments)
        }
        return {
            "state": state if saved["steps"] else {},
            "param_groups": self.state_dict()["param_groups"],
        }


class Ema(AveragedModel):
    """An exponential moving average of the weights and buffers of a model, in evaluation mode.

    The average warms up: after n updates its decay is at most (1 + n) / (10 + n), so that a short
    run is not judged by its initial weights. It is never swapped into the training model, because a
    save may be reading that one.

    Args:
        model: The model that is trained.
        decay: Share of the average that stays in an update.
    """

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        def mix_average(average: torch.Tensor, new: torch.Tensor, updates: Any) -> torch.Tensor:
            if not average.is_floating_point():
                return new  # counters, such as batch norm's
            done = int(updates)
            warm = (1 + done) / (10 + done)
            return average.lerp(new, 1 - min(decay, warm))

        super().__init__(model, avg_fn=mix_average, use_buffers=True)
        self.eval().requires_grad_(False)
        self.n_averaged.fill_(1)  # the initial weights count, or the first update would only copy

    def migrated(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state in torch's form: earlier versions had their own averages."""
        if "average" not in saved:
            return saved
        weights = {f"module.{name}": value for name, value in saved["average"].items()}
        return {"n_averaged": torch.tensor(saved["updates"] + 1), **weights}


class TrainingSetup:
    """Task, model, optimizer, averaged weights and learning rates of a config, freshly seeded.

    Args:
        config: The values of the run.
        task: The task it names.
        total_steps: Optimizer steps over which the learning rate decays.
        ranks: The processes that share the work; None for a single one.

    Raises:
        UsageError: The task keeps averaged weights, which a sharded model cannot.
    """

    def __init__(
        self, config: Config, task: Task, total_steps: int, ranks: Ranks | None = None
    ) -> None:
        rng.seed_all(config.int("seed"))
        own: Any
        if config.str("device") == "auto":
            own = getattr(ranks, "device", None)
        else:
            own = None
        self.device: torch.device = own or device_of(config.str("device"))
        self.task = task
        if ranks is None or ranks.is_writer:
            self.tell = print_line
        else:
            self.tell = _print_nothing
        self._whole = task.model().to(self.device)
        decay = ema_decay_of(task)
        self.ema = Ema(self._whole, decay) if decay > 0 else None
        if ranks is not None:
            kind = config.str("parallel")
        else:
            kind = "none"
        self._sharded = kind in ("fsdp", "shard_grad_op", "hsdp")
        self.precision = Precision(config.str("precision"), self.device, sharded=self._sharded)
        self._ranks: Ranks = ranks or SingleRank()
        self.model = self._whole
        if kind != "none":
            from rgt_train.ranks import choose

            if self._sharded and decay > 0:
                raise exits.UsageError(
                    f"parallel is {kind}: averaged weights are not sharded, set ema to 0"
                )
            assert ranks is not None, "asked above"
            self.model = choose.wrap_model(self._whole, kind, ranks, self.precision.dtype)
        # After wrapping: FSDP2 replaces the parameters.
        self.optimizer = AdamW(self.model.parameters(), weight_decay=config.float("weight_decay"))
        self._peak = config.float("lr")
        self._warmup = config.int("warmup")
        self._total = total_steps
        self._clip = config.float("clip") or math.inf
        self.accumulate = config.int("accumulate")

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of the step after `step` steps: linear warm-up, then a cosine down to 5%."""
        if step < self._warmup:
            # Neither 0 at the first step, which would learn nothing, nor the peak before the
            # warm-up is over.
            return self._peak * (step + 1) / (self._warmup + 1)
        share = min(1.0, (step - self._warmup) / max(1, self._total - self._warmup))
        return self._peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))

    def compute_loss(self, indices: list[int], seed_of: Callable[[int], int]) -> torch.Tensor:
        """Return the mean loss of the samples `indices`."""
        with self.precision.autocast():
            return self.task.loss(self.model, indices, seed_of, self.device)

    def add_gradients(self, loss: torch.Tensor) -> None:
        """Add the gradients of one batch of the step."""
        # Divided before the backward pass: the sum of the batches' gradients is then their mean.
        self.precision.scaled_loss(loss / self.accumulate).backward()  # type: ignore[no-untyped-call]

    def grad_norm(self) -> float:
        """Return the norm of all gradients, unscaled from here on; once a step."""
        self.precision.unscale_gradients(self.optimizer)
        if self._sharded:
            from rgt_train.ranks.choose import sharded_grad_norm

            return sharded_grad_norm(self.model)
        norms = [
            torch.linalg.vector_norm(p.grad) for p in self.model.parameters() if p.grad is not None
        ]
        if not norms:
            return 0.0
        together = torch.stack([norm.to(self.device) for norm in norms])
        return float(torch.linalg.vector_norm(together))

    @torch.no_grad()
    def apply_gradients(self, lr: float, norm: float) -> None:
        """Clip gradients of this `norm`, and take the step."""
        if norm > self._clip:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    # 1e-6 as in torch's clip_grad_norm_, so that the results are comparable.
                    parameter.grad.mul_(self._clip / (norm + 1e-6))
        self.precision.take_step(self.optimizer, lr)
        if self.ema is not None:
            self.ema.update_parameters(self._whole)

    def overflowed(self, loss: float, norm: float) -> bool:
        """Return whether to leave this step out because the scale is too large.

        Same on all ranks.
        """
        return self.precision.overflowed(norm) and math.isfinite(
            self._ranks.mean_over_ranks([loss])[0]
        )

    @property
    def validated_model(self) -> torch.nn.Module:
        """The validated model: the one with the averaged weights, if there is one."""
        if self.ema is not None:
            return self.ema.module
        if self._sharded:
            return self.model
        return self._whole


def train(config: Config, out: str, stop: StopRequest | None = None) -> int:
    """Train as `config` says in `out`, resuming an existing run, and return the exit code 0.

    Raises:
        TrainingStop: It ended before the last step.
        UsageError: It cannot run like this.
    """
    torch.set_num_threads(config.int("threads"))
    os.environ.setdefault("OMP_NUM_THREADS", str(config.int("threads")))
    while True:
        try:
            return _train_attempt(config, out, stop)
        except RollbackStop as back:
            print_line(f"starting again: {back.cause}")
            stop = None  # the first attempt's is closed


def _train_attempt(config: Config, out: str, stop: StopRequest | None) -> int:
    ranks = _join_launch(config)
    task = tasks.make_task(config)
    accumulate = config.int("accumulate")
    samples = min(task.samples, config.int("data_limit") or task.samples)
    per_epoch = config.int("steps_per_epoch") or max(
        1, -(-samples // config.int("batch")) // accumulate
    )
    total = config.int("epochs") * per_epoch
    setup = TrainingSetup(config, task, total, ranks)
    weights = sum(p.numel() for p in setup.model.parameters())
    for note in config.notes:
        setup.tell(note)
    setup.tell(
        f"{config.str('task')} on {setup.device}: torch {torch.__version__}, "
        f"python {sys.version.split()[0]}, {weights:,} parameters, {total} steps in "
        f"{config.int('epochs')} epochs, seed {config.int('seed')}, {config.int('threads')} threads"
        + (f", {ranks.world} ranks ({config.str('parallel')})" if ranks is not None else "")
    )
    try:
        run = Run(
            out,
            model=setup.model,
            optimizer=setup.optimizer,
            scaler=setup.precision.scaler,
            ema=setup.ema,
            samples=samples,
            batch_size=config.int("batch"),
            epochs=config.int("epochs"),
            steps_per_epoch=per_epoch,
            accumulate=accumulate,
            seed=config.int("seed"),
            options=_run_options(config, task),
            stop=stop,
            ranks=ranks,
        )
    except ValueError as error:
        raise exits.UsageError(str(error)) from error
    with run:
        for _ in run.epochs():
            _train_epoch(run, setup)
            validate(run, setup)
    return exits.DONE


def _train_epoch(run: Run, setup: TrainingSetup) -> None:
    p = run.progress
    setup.optimizer.zero_grad()
    for indices, part in run.parts(run.batches()):
        run.phase("forward")
        loss = setup.compute_loss(indices[: part.real], run.sample_seed)
        if part.share != 1:
            loss = loss * part.share
        run.phase("backward")
        setup.add_gradients(loss)
        p.micro_loss += loss.item()
        if not run.micro():
            continue
        mean = p.micro_loss / p.micro
        norm = setup.grad_norm()
        lr = setup.learning_rate(run.step_now)
        # An overflow of the scale is normal for float16 and must not count as a bad step.
        if not setup.overflowed(mean, norm) and run.healthy(mean, norm):
            setup.apply_gradients(lr, norm)
        setup.precision.update_scale()
        setup.optimizer.zero_grad()
        run.step(mean, lr=lr, grad_norm=norm)


def _join_launch(config: Config) -> Ranks | None:
    """Return the ranks of a launch of several; None for a single process, without any import."""
    if config.str("parallel") == "none" and os.environ.get("WORLD_SIZE", "") in ("", "1"):
        return None
    from rgt_train.ranks import choose

    return choose.join_ranks(config.str("parallel"))


def _print_nothing(line: str) -> None:
    """Print nothing: rank 0 prints for all."""


def validate(run: Run, setup: TrainingSetup) -> None:
    """Measure the validation loss, ready to stop between two batches."""
    total = count = 0.0
    with run.evaluating(), setup.precision.autocast():
        for losses, number in setup.task.validation(setup.validated_model, setup.device):
            total = total + losses
            count = count + number
            run.check()
        if count:
            scores = scores_of(setup.task, setup.validated_model, setup.device)
        else:
            scores = {}
    if count:
        run.validated(total / count, scores=scores)
    else:  # not an error, but a reason to report that the model is not validated
        setup.tell(f"nothing is validated, and there is no best: {_NOTHING_TO_JUDGE}")


def estimate_batch(config: Config, budget: str) -> int:
    """Print the largest batch of the task that fits into `budget` (text, or empty); return 0.

    Raises:
        UsageError: The budget is not a size, or missing on a CPU.
    """
    from rgt_train import batch_size

    setup = TrainingSetup(config, tasks.make_task(config), 1)

    def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        loss = setup.compute_loss(batch.tolist(), lambda index: index)
        return setup.precision.scaled_loss(loss)

    found = batch_size.estimate_batch(
        setup.model,
        torch.zeros(1, dtype=torch.int64),
        budget or None,
        loss=loss_of,
        most=setup.task.samples,
    )
    print_line(f"estimate: {found}")
    return exits.DONE


def run_smoke_test(config: Config, steps: int) -> int:
    """Run `steps` steps and a validation on the CPU without writing anything, as a smoke test.

    Returns:
        The exit code: 0, or 1 if a loss or gradient is not finite.
    """
    torch.set_num_threads(config.int("threads"))
    config.values.update(device="cpu", accumulate=1)
    replay = StepReplay.of_process()
    if replay is not None:
        return _train_attempt(_proving(config, steps), replay.out, None)
    setup = TrainingSetup(config, tasks.make_task(config), steps)
    batch = min(config.int("batch"), setup.task.samples)
    for step in range(steps):
        indices = [(step * batch + i) % setup.task.samples for i in range(batch)]
        loss, norm = take_plain_step(setup, indices, step)
        good = math.isfinite(loss)
        # The norm is infinite also where only the scale of float16 is too large.
        if good and not math.isfinite(norm):
            good = setup.overflowed(loss, norm)
        if not good:
            print_line(f"smoke: step {step + 1} is not finite: loss {loss}, gradient norm {norm}")
            return exits.FAILED
    setup.model.eval()
    with torch.no_grad(), setup.precision.autocast():
        judged, count = next(
            iter(setup.task.validation(setup.validated_model, setup.device)), (0.0, 0.0)
        )
    if not count:
        print_line(f"smoke: {_NOTHING_TO_JUDGE}")
        return exits.FAILED
    if not (math.isfinite(judged) and count > 0):
        print_line(f"smoke: the validation is not finite: {judged} over {count}")
        return exits.FAILED
    if os.environ.get("WORLD_SIZE", "") in ("", "1"):
        lines = io.StringIO()
        with tempfile.TemporaryDirectory() as place, redirect_stdout(lines):
            _train_attempt(_proving(config, steps), place, None)
        (proof,) = [line for line in lines.getvalue().splitlines() if "prove" in line]
        print_line(f"smoke: {proof}")
        if "not proved" in proof:
            return exits.FAILED
    print_line(
        f"smoke: {steps} steps ok, loss {loss:.4f}, validation {judged / count:.4f}; nothing was "
        "written"
    )
    return exits.DONE


def take_plain_step(setup: TrainingSetup, indices: list[int], step: int) -> tuple[float, float]:
    """Make one optimizer step on the samples `indices`; return its loss and its gradient norm."""
    setup.optimizer.zero_grad()
    loss = setup.compute_loss(indices, lambda index: index)
    setup.add_gradients(loss)
    norm = setup.grad_norm()
    setup.apply_gradients(setup.learning_rate(step), norm)
    setup.precision.update_scale()
    return loss.item(), norm


def _proving(config: Config, steps: int) -> Config:
    """Set `config` to `steps` steps before a checkpoint, and as many after it, which a replay proves."""
    samples = tasks.make_task(config).samples
    batches = max(1, min(samples, config.int("data_limit") or samples) // config.int("batch"))
    per_epoch = min(2 * steps, batches)
    config.values.update(
        steps_per_epoch=per_epoch,
        epochs=-(-2 * steps // per_epoch),
        save_every=steps,
        prove=steps,
        log_every=0,
        loggers="",
        mirror="",
    )
    return config


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


def _run_options(config: Config, task: Task) -> Options:
    same: dict[str, Any] = {name: config.int(name) for name in _WHOLE}
    return Options(
        hold_limit_s=config.float("hold_limit"),
        keep_hours=config.float("keep_hours"),
        mirror=config.str("mirror"),
        platform="" if config.str("platform") == "auto" else config.str("platform"),
        pace_s=config.float("pace_ms") / 1000,
        unit=unit_of(task),
        per_sample=per_sample_of(task),
        loggers=config.names("loggers"),
        project=config.str("project"),
        tracker_group=config.str("tracker_group"),
        tags=config.names("tags"),
        result_name=config.str("result_name"),
        spike=config.str("spike"),
        spike_factor=config.float("spike_factor"),
        stall_factor=config.float("stall_factor"),
        stall_floor_s=config.float("stall_floor"),
        settings=config.values,
        overrides=config.given,
        **same,
    )


_NOTHING_TO_JUDGE = (
    "the task's validation() yields no losses; let it yield (sum of the losses, how many)"
)
_WHOLE = (
    "save_every",
    "keep",
    "max_unsaved",
    "prove",
    "log_every",
    "dynamics_every",
    "max_bad_steps",
    "spike_window",
    "stall_exit",
)
"""Whole numbers with the same name in a config and in `Options`."""
