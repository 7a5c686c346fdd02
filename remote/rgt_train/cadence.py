"""How often to save (Young's and Daly's optimum), from step durations and the failure rate.

A Gamma prior on the failure rate acts like a number of node hours already observed with a number of
failures. The run log of a run soon outweighs it. An estimate wrong by a factor of four adds a
quarter to a waste of a few percent.
"""

from __future__ import annotations

import functools
import math
import os
import re
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Mapping,
)

from rgt_train.exits import StopRequest, UsageError
from rgt_train.tracking.report import RunReport

if TYPE_CHECKING:  # the mirror process imports this module and has no torch
    from rgt_train.data.position import Progress
    from rgt_train.ranks.heartbeat import StepTimes, TakenTimes

FLOOR_S = 10.0
"""Minimum seconds between saves: the estimate is rough, and others use the disks and logs too."""
CEILING_S = 900.0
"""Maximum seconds of work to lose, however rare failures seem."""


def daly_interval_s(cost_s: float, mtbf_s: float) -> float:
    """Return the optimal seconds of work between two checkpoints (Daly 2006, higher order).

    Args:
        cost_s: Seconds a save takes from the training.
        mtbf_s: Mean seconds between failures.

    Raises:
        ValueError: A cost or a time that is not positive.
    """
    if not (cost_s > 0 and mtbf_s > 0):
        raise ValueError(f"cost and mtbf must be positive, not {cost_s} and {mtbf_s}")
    # Beyond this the series does not hold; Daly gives the mean time itself.
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    x = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(x) / 3 + x / 9) - cost_s


@dataclass(frozen=True)
class SaveInterval:
    """An interval and why: `steps` between saves, and the `reason` as one readable line."""

    steps: int
    reason: str


@dataclass(frozen=True)
class FailureRate:
    """How often the run is expected to fail.

    Attributes:
        mtbf_s: Mean seconds between failures of the whole job.
        source: The origin of that figure, in words.
    """

    mtbf_s: float
    source: str = "expected"


class SaveCadence:
    """Decides when the next save is due.

    The cost of a save is the time that training loses: the pause for it, and the extra time of the
    steps while it is being written. The duration of the write does not move the optimum (training
    continues meanwhile); it only sets a lower bound, because one save runs at a time.

    Args:
        save_every: Steps between saves, or 0 to choose them from the measurements.
        failures: How often the run fails.
    """

    def __init__(self, save_every: int, failures: FailureRate) -> None:
        self._fixed = save_every
        self._failures = failures
        self._costs: deque[float] = deque(maxlen=5)
        self._writes: deque[float] = deque(maxlen=5)
        self._steps: deque[float] = deque(maxlen=50)
        self._beside: deque[float] = deque(maxlen=10_000)
        self._chosen = 0
        self._unjudged_s = 0.0

    def measured_step(self, seconds: float, *, saving: bool = False) -> None:
        """Record the duration of one step; `saving` while a save was in flight."""
        (self._beside if saving else self._steps).append(seconds)
        self._unjudged_s += seconds

    def measured_save(self, stall_s: float, durable_s: float = 0.0, waited_s: float = 0.0) -> None:
        """Record the duration of one save.

        Args:
            stall_s: Seconds that training was paused.
            durable_s: Seconds until it was on the disk.
            waited_s: The seconds of `stall_s` that are part of a step (which waited for the copy).
        """
        usual = 0.0
        if self._steps:
            usual = median(self._steps)
        slower = 0.0
        if usual:
            # What the writer process takes from the steps that run next to it.
            slower = sum(seconds - usual for seconds in self._beside)
        self._beside.clear()
        self._chosen = 0
        self._costs.append(stall_s - waited_s + max(waited_s, slower, 0.0))
        self._writes.append(durable_s)

    def is_due(self, step: int, last: int) -> bool:
        """Return whether to save at the end of `step`, if the previous save was due at `last`."""
        if self._fixed:
            return step % self._fixed == 0  # the same steps after any history: easy to predict
        # Choosing an interval takes as long as a third of `run.step`. It is at least some seconds,
        # so that one of the last second serves fast steps as well.
        valid_s = 1.0
        if not self._chosen or self._unjudged_s >= valid_s:
            self._chosen = self.current_interval().steps
            self._unjudged_s = 0.0
        return step - last >= self._chosen

    def current_interval(self) -> SaveInterval:
        """Return the current interval."""
        if self._fixed:
            return SaveInterval(self._fixed, f"every {_steps_text(self._fixed)}, as asked")
        # With saves in flight all the time, there are no other steps to measure.
        known = self._steps or self._beside
        step = 0.0
        if known:
            step = max(median(known), 1e-6)
        first_steps = 10
        if not self._costs or not known:
            if known:
                steps = min(first_steps, max(1, int(CEILING_S / step)))
            else:
                steps = first_steps
            return SaveInterval(
                steps, f"first after {_steps_text(steps)}, to measure what a save costs"
            )
        # A save that costs nothing measurable would give an interval of nothing.
        cost = max(median(self._costs), 1e-4)
        write = median(self._writes)
        mtbf = self._failures.mtbf_s
        optimum = daly_interval_s(cost, mtbf)
        # One save at a time: a shorter interval than a write cannot be met.
        floor = max(FLOOR_S, write)
        seconds = min(max(optimum, floor), max(CEILING_S, floor))
        bound = ""
        if seconds > optimum:
            if floor == FLOOR_S:
                bound = " (floor)"
            else:
                bound = f" (a write takes {write:.0f} s)"
        elif seconds < optimum:
            bound = " (ceiling)"
        steps = max(1, round(seconds / step))
        return SaveInterval(
            steps,
            f"every {_steps_text(steps)} = {seconds:.0f} s{bound}: a save costs "
            f"{1000 * cost:.0f} ms and is on disk after "
            f"{1000 * write:.0f} ms, a failure is expected every {mtbf / 3600:.1f} h "
            f"({self._failures.source})",
        )


def _steps_text(steps: int) -> str:
    if steps == 1:
        return "1 step"
    return f"{steps} steps"


Number = Any
"""A number as a loop has it: a plain one, or a tensor of one element."""


class StepPace:
    """Measures steps without the saves between them, and logs them.

    Args:
        report: Receives points and lines.
        stop: Ends the wait of a paced step.
        cadence: Learns how long a step takes.
        options: Pace, log interval and unit.
        step_samples: Samples of an optimizer step.
        epoch: Returns the epoch, with a fraction.
        saving: Returns whether a save is in flight: then a step may take longer than usual.
        times: Splits the time of the steps.
        rates: Returns the learning rates of the parameter groups, by name.
    """

    def __init__(
        self,
        report: RunReport,
        stop: StopRequest,
        cadence: SaveCadence,
        options: Options,
        step_samples: int,
        epoch: Callable[[], float],
        saving: Callable[[], bool],
        times: StepTimes,
        rates: Callable[[], Mapping[str, float]],
    ) -> None:
        self._rates = rates
        self._report = report
        self._stop = stop
        self._cadence = cadence
        self._options = options
        self._rate_name = f"{options.unit}_s"
        self._epoch = epoch
        self._saving = saving
        self._times = times
        self._per_step = step_samples * options.per_sample
        self._busy = 0.0
        self._steps = 0
        self._begin = time.monotonic()
        self._templates: dict[tuple[str, ...], str] = {}

    def begin_step(self) -> None:
        """Start the clock of the next step."""
        self._begin = time.monotonic()

    def end_of_step(self, progress: Progress, values: dict[str, float]) -> None:
        """Stop the clock, log the step if due, then wait for the rest of its minimum time."""
        spent = time.monotonic() - self._begin
        rest = self._options.pace_s - spent
        seconds = max(spent, self._options.pace_s)
        self._cadence.measured_step(seconds, saving=self._saving())
        self._busy += seconds
        self._steps += 1
        every = self._options.log_every
        if every and progress.step % every == 0:
            self._log_steps(progress, values)
        if rest > 0:
            self._stop.wait(rest)

    def _log_steps(self, progress: Progress, values: dict[str, float]) -> None:
        steps = self._steps
        rate = self._per_step * steps / max(self._busy, 1e-9)
        self._busy = 0.0
        self._steps = 0
        loss = progress.loss
        if loss is None:
            loss = float("nan")
        # Fast steps are written several at a time, and their numbers are computed there: right
        # after a step the caches hold the model, and each line of code here costs several times
        # as much.
        numbers = functools.partial(
            self._list_numbers, loss, self._times.take_times(steps), self._rates(), values, rate
        )
        names = tuple(values)
        # Built once per set of names: formatting is on the training thread.
        template = self._templates.get(names)
        if template is None:
            shown = [f"{_SHORT.get(k, k)} %{_FORMAT.get(k, '.4g')}" for k in _escaped(names)]
            unit = _escaped([self._options.unit])[0]
            shown = ["step %d", "epoch %d", "loss %.4f", *shown, f"%.*f%s {unit}/s"]
            template = self._templates[names] = "  ".join(shown)
        shown_rate = (0, rate, "")
        if rate >= 1e6:
            shown_rate = (1, rate / 1e6, "M")
        elif rate >= 1e3:
            shown_rate = (1, rate / 1e3, "k")
        line = template % (progress.step, progress.epoch + 1, loss, *values.values(), *shown_rate)
        self._report.record_step(progress.step, self._epoch(), numbers, line)

    def _list_numbers(
        self,
        loss: float,
        times: TakenTimes,
        rates: Mapping[str, float],
        values: Mapping[str, float],
        rate: float,
    ) -> Mapping[str, float]:
        """Return the numbers of a point of the curves."""
        numbers: dict[str, float] = {"loss": loss}
        numbers.update(self._times.mean_times(times))
        numbers.update(rates)
        numbers.update(values)
        numbers[self._rate_name] = round(rate, 1)
        return numbers


_SHORT = {"grad_norm": "gnorm"}
_FORMAT = {"lr": ".1e", "grad_norm": ".2f"}


def _escaped(names: Iterable[str]) -> list[str]:
    return [name.replace("%", "%%") for name in names]


def plain_number(name: str, value: Number) -> float:
    """Return the `value` from a loop as a plain number: a tensor would keep its graph alive.

    Raises:
        UsageError: It is not one number.
    """
    # The usual case first: this runs at every step.
    if type(value) is float:
        return value
    if getattr(value, "numel", lambda: 1)() != 1:
        raise UsageError(
            f"{name} is a tensor of the shape {tuple(value.shape)}: give one number, such as its "
            "mean"
        )
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is {value!r:.80}, not a number") from error


def group_rates(optimizers: Mapping[str, Any]) -> dict[str, float]:
    """Return the learning rate of each parameter group; nothing where there is only one group.

    The names are ``lr/`` and the ``name`` of the group, or its number from 0. With several
    optimizers theirs comes first: ``lr/generator/0``.
    """
    # The usual case first: this runs at every step.
    groups = 0
    for optimizer in optimizers.values():
        groups += len(getattr(optimizer, "param_groups", ()))
    if groups < 2:
        return {}
    found: dict[str, float] = {}
    for optimizer_name, optimizer in optimizers.items():
        first = "lr/"
        if len(optimizers) > 1:
            first = f"lr/{optimizer_name.partition('.')[2] or optimizer_name}/"
        for number, group in enumerate(getattr(optimizer, "param_groups", ())):
            if "lr" in group:
                found[f"{first}{group.get('name', number)}"] = float(group["lr"])
    if len(found) > 1:
        return found
    return {}


@dataclass(frozen=True)
class AssumedMtbf:
    """The assumed failure rate of one kind of machine.

    Attributes:
        hours: Mean hours between failures of one node.
        failures: The weight of the prior, as a number of imagined failures.
        why: In words.
    """

    hours: float
    failures: float
    why: str


ASSUMED: Mapping[str, AssumedMtbf] = {
    "spot": AssumedMtbf(2.2, 1.0, "spot machines"),
    "session": AssumedMtbf(8.0, 1.0, "a notebook session"),
    "batch": AssumedMtbf(24.0, 1.0, "a batch system"),
    "rented": AssumedMtbf(72.0, 1.0, "a rented machine"),
    "owned": AssumedMtbf(1000.0, 1.0, "a machine of one's own"),
    "unknown": AssumedMtbf(4.0, 1.0, "an unknown machine"),
}
"""``spot``: mean up-time of one-GPU machines in four zones of one cloud, 1.4 to 3.2 h (public spot
traces). ``owned``: a large training reported one unexpected end per 6,300 node hours (419 in 54
days on 2,048 nodes), and a private machine is less well maintained. The others are estimates from
session limits, time limits and announced evictions of the platforms.
"""

_SIGNS: tuple[tuple[str, str], ...] = (
    ("KAGGLE_KERNEL_RUN_TYPE", "session"),
    ("COLAB_RELEASE_TAG", "session"),
    ("SLURM_JOB_ID", "batch"),
    ("KUBERNETES_SERVICE_HOST", "batch"),
    ("RUNPOD_POD_ID", "rented"),
    ("VAST_CONTAINERLABEL", "rented"),
    ("AutoDLContainerUUID", "rented"),
)
"""Variable that a platform sets → kind. A box cannot tell from inside whether it is interruptible.
"""


def assumed_mtbf(platform: str = "", environment: Mapping[str, str] | None = None) -> AssumedMtbf:
    """Return the prior of a platform.

    Args:
        platform: A key of `PRIORS`; empty to look at the environment.
        environment: Variables of the process.

    Raises:
        ValueError: The platform is unknown.
    """
    if platform:
        if platform not in ASSUMED:
            raise ValueError(f"platform is {platform!r}; known are {', '.join(ASSUMED)}")
        return ASSUMED[platform]
    if environment is None:
        environment = os.environ
    kind = next((kind for name, kind in _SIGNS if environment.get(name)), "unknown")
    return ASSUMED[kind]


# The options for saving and logging.


@dataclass(frozen=True)
class Options:
    """Options of `Run`; the defaults are meant to be right.

    Attributes:
        save_every: Steps between checkpoints; 0 chooses them from the measured cost of a save.
        keep: Number of newest step checkpoints to keep.
        keep_hours: Keep one more for each period of this many hours; 0 for none.
        mirror: Place of a second copy of the checkpoints: an absolute path or an fsspec URL;
            empty for none.
        background: Whether saves are copied during training and written by another process.
        platform: Kind of machine, which sets the expected failure rate: ``spot``, ``rented``,
            ``session``, ``batch``, ``owned``; empty to look at the environment.
        max_unsaved: Steps that may be unsaved while the disk refuses; 0 for two save intervals.
        hold_limit_s: Seconds the training waits for the disk before exit code 74.
        log_every: Steps between lines and points; 0 logs nothing.
        dynamics_every: Steps between measurements of the updates against the weights
            (``update_ratio``) and of dead ReLU units (``dead_units``); 0 for none.
        pace_s: Minimum seconds of a step, for demos and tests: the process sleeps the rest.
        max_bad_steps: NaN or infinite steps in a row after which the run stops with exit code 1.
        unit: The unit of the rate, ``tok`` or ``img``.
        per_sample: Number of units in a sample.
        loggers: Further loggers of points besides ``metrics.jsonl``: ``tensorboard``, ``wandb``,
            ``trackio``, ``mlflow``.
        project: The project's name at W&B or trackio, the experiment's at MLflow.
        tracker_group: Group of runs there; empty for none.
        tags: Labels of the run there.
        result_name: A further name of ``result.json``, in which ``{model}``, ``{time}`` (UTC),
            ``{step}`` and ``{run}`` (the directory) are replaced; empty for none.
        spike: Reaction to a loss spike: ``ignore``, ``warn``, ``skip`` or ``rollback``.
        spike_factor: A loss this many spreads above the running median is a spike.
        spike_window: Steps that a rollback leaves out; the last of them is the spike.
        stall_factor: A step that takes this many median steps counts as stalled; 0 does not watch.
        stall_floor_s: A step that takes less than these seconds never counts as stalled.
        stall_exit: Exit code of a stalled run; 0 reports it and waits.
        desync_every: With several ranks: saves between two comparisons of their replicas; 0 for
            never.
        override: Hyperparameters, such as ``lr``, ``weight_decay`` or ``T_max``, whose edited value
            in the code replaces the checkpoint's at a resume.
        prove: Steps that a second process repeats from the first checkpoint of a launch, to prove
            that a relaunch makes the same weights; 0 proves nothing.
        settings: Plain values whose change is reported at a resume, and that further logs and
            ``run.json`` receive.
        overrides: The settings that the person gave, for ``run.json``.
    """

    save_every: int = 0
    keep: int = 2
    keep_hours: float = 0.0
    mirror: str = ""
    background: bool = True
    platform: str = ""
    max_unsaved: int = 0
    hold_limit_s: float = 1800.0
    log_every: int = 1
    dynamics_every: int = 0
    pace_s: float = 0.0
    max_bad_steps: int = 5
    unit: str = "sample"
    per_sample: int = 1
    loggers: tuple[str, ...] = ()
    project: str = "rgt"
    tracker_group: str = ""
    tags: tuple[str, ...] = ()
    result_name: str = ""
    spike: str = "warn"
    spike_factor: float = 10.0
    spike_window: int = 1
    stall_factor: float = 20.0
    stall_floor_s: float = 300.0
    stall_exit: int = 0
    desync_every: int = 1
    override: tuple[str, ...] = ()
    prove: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Check that the numbers are in their range.

        Raises:
            UsageError: One is not.
        """
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
                raise UsageError(
                    f"Options({name}={value!r}): it must be a number, at least {least}"
                )
        if self.result_name:
            fill_result_name(self.result_name, model="m", step=0, run="r")


def fill_result_name(template: str, *, model: str, step: int, run: str) -> str:
    """Return the file name that `template` describes; it has no folder.

    Characters other than letters, digits, dots and ``_`` become ``_``.

    Raises:
        UsageError: The template has other names in braces, or means ``result.json`` itself.
    """
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    try:
        filled = template.format(model=model, step=step, run=run, time=now)
    except (KeyError, ValueError, IndexError) as error:
        raise UsageError(
            f"result_name is {template!r}: it takes {{model}}, {{time}}, {{step}} and {{run}}"
        ) from error
    name = re.sub(r"[^A-Za-z0-9._]+", "_", filled).lstrip(".")
    if name in ("", "result.json"):
        raise UsageError(
            f"result_name is {template!r}: give a name of its own, such as result_{{model}}.json"
        )
    return name


_LEAST = {
    "save_every": 0, "keep": 1, "keep_hours": 0, "max_unsaved": 0, "hold_limit_s": 0,
    "log_every": 0, "pace_s": 0,
    "max_bad_steps": 1, "spike_factor": 0, "spike_window": 1, "stall_factor": 0, "stall_floor_s": 0,
    "desync_every": 0,
    "prove": 0, "dynamics_every": 0,
}  # fmt: skip
"""Minimum values of the options that are numbers."""
