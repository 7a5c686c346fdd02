"""The clock of a run: how long steps take, the line each one prints, and an optional slower beat."""

from __future__ import annotations

import time
from typing import Callable, Dict, Union

import torch

from rgt_train.cadence import Cadence
from rgt_train.exits import UsageError
from rgt_train.options import Options
from rgt_train.progress import Progress
from rgt_train.report import Report
from rgt_train.sampler import EpochSampler
from rgt_train.signals import StopRequest

Number = Union[float, torch.Tensor]
"""A number as a loop has it; a tensor has one element."""


class Pace:
    """Measures steps without the saves between them, and logs them.

    Args:
        report: Where points and lines go.
        stop: Ends the wait of a paced step.
        cadence: Learns how long a step takes.
        options: Pace, log interval and unit.
        sampler: Sizes of a step.
        epochs: Epochs in all.
    """

    def __init__(
        self,
        report: Report,
        stop: StopRequest,
        cadence: Cadence,
        options: Options,
        sampler: EpochSampler,
        epochs: int,
    ) -> None:
        self._report, self._stop, self._cadence, self._options = report, stop, cadence, options
        self._sampler, self._epochs = sampler, epochs
        self._per_step = sampler.batch_size * sampler.accumulate * options.per_sample
        self.saving: Callable[[], bool] = lambda: False
        """Says whether a save is in flight: then a step may take longer than usual."""
        self._busy = 0.0
        self._steps = 0
        self._begin = time.monotonic()

    def begin_step(self) -> None:
        """Start the clock of the next step."""
        self._begin = time.monotonic()

    def end_of_step(self, progress: Progress, values: Dict[str, float]) -> None:
        """Stop the clock, log the step if its turn has come, then wait until its time is over."""
        spent = time.monotonic() - self._begin
        rest = self._options.pace_s - spent
        seconds = max(spent, self._options.pace_s)
        self._cadence.measured_step(seconds, saving=self.saving())
        self._busy += seconds
        self._steps += 1
        every = self._options.log_every
        if every and progress.step % every == 0:
            self._log(progress, values)
        if rest > 0:
            self._stop.wait(rest)

    def _log(self, progress: Progress, values: Dict[str, float]) -> None:
        rate = self._per_step * self._steps / max(self._busy, 1e-9)
        self._busy, self._steps = 0.0, 0
        unit = self._options.unit
        epoch = progress.epoch + progress.done_steps / self._sampler.steps_per_epoch
        loss = progress.loss if progress.loss is not None else float("nan")
        numbers = {"loss": loss, **values, f"{unit}_s": round(rate, 1)}
        self._report.point(progress.step, epoch, **numbers)
        shown = [f"step {progress.step}", f"epoch {progress.epoch + 1}", f"loss {loss:.4f}"]
        shown += [f"{_SHORT.get(k, k)} {v:{_FORMAT.get(k, '.4g')}}" for k, v in values.items()]
        shown += [f"{_rate(rate)} {unit}/s"]
        self._report.say("  ".join(shown))


_SHORT = {"grad_norm": "gnorm"}
_FORMAT = {"lr": ".1e", "grad_norm": ".2f"}


def _rate(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    return f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"


def number(name: str, value: Number) -> float:
    """Return the `value` that a loop gives as a plain number: a tensor would keep the graph of its step alive.

    Raises:
        UsageError: It is none.
    """
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise UsageError(
            f"{name} is a tensor of the shape {tuple(value.shape)}: give one number, such as its mean"
        )
    try:
        return float(value.item() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is {value!r:.80}, not a number") from error
