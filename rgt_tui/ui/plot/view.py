"""Which part of the curves is on screen: the window of steps, metric, axes, hidden runs, crosshair."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rgt_tui.model import EPOCH, TIME, RunState

MIN_SPAN = 8.0
"""The closest zoom, in steps, seconds or tokens."""
FINEST = 1e-12
"""The same, as a share of the steps themselves: some count nanoseconds since 1970, and a float has 16 digits."""


@dataclass(frozen=True)
class View:
    """A window on the x axis. The default shows everything; a window at the right edge follows new points."""

    span: float | None = None
    """Width in steps; None = all there is."""
    right: float | None = None
    """Right edge in steps; None = the newest point, wherever that is by then."""

    @property
    def is_all(self) -> bool:
        """Whether everything is shown."""
        return self.span is None

    def window(self, extent: tuple[float, float]) -> tuple[float, float]:
        """Return the first and the last step on screen, given those of the data. Never of zero width."""
        first, last = extent
        finest = FINEST * max(abs(first), abs(last))
        if not last - first > finest:
            last = first + max(1.0, finest)
        if self.span is None or self.span >= last - first:
            return first, last
        span = max(self.span, finest)
        right = last if self.right is None else min(max(self.right, first + span), last)
        return right - span, right

    def zoom(
        self,
        factor: float,
        about: float | None,
        extent: tuple[float, float],
        closest: float = MIN_SPAN,
    ) -> View:
        """Scale the window by `factor` (below 1 = closer); the step `about` (or the middle) stays."""
        x0, x1 = self.window(extent)
        full = self.__class__().window(extent)
        span = max((x1 - x0) * factor, min(closest, full[1] - full[0]))
        if span >= full[1] - full[0]:
            return View()
        anchor = (x0 + x1) / 2 if about is None else min(max(about, x0), x1)
        share = (x1 - anchor) / (x1 - x0)
        return self._at(anchor + share * span, span, full)

    def pan(self, share: float, extent: tuple[float, float]) -> View:
        """Move by `share` of the window's width, to the right if positive."""
        if self.span is None:
            return self
        x0, x1 = self.window(extent)
        return self._at(x1 + share * (x1 - x0), x1 - x0, self.__class__().window(extent))

    @staticmethod
    def _at(right: float, span: float, full: tuple[float, float]) -> View:
        if right >= full[1] - span * 1e-9:
            return View(span, None)
        return View(span, max(right, full[0] + span))


SMOOTHING = (0.0, 0.6, 0.9, 0.97)
PREFERRED = ("loss", "val_loss", "lr", "grad_norm", "tok_s")
EVALUATIONS = ("val_loss", "eval_loss", "valid_loss", "test_loss")
"""What an evaluation of the loss is called; drawn as points beside it."""
TOKENS = (
    "tokens",
    "tokens_seen",
    "total_tokens",
    "num_tokens",
    "num_input_tokens_seen",
    "consumed_tokens",
)
"""What counts the tokens that a run has seen, lower case, without what stands before a slash."""
NO_CURVE = frozenset({"step", "epoch", "total_steps", TIME, EPOCH})
"""Logged beside the metrics, but nothing to look at."""
LOG_BY_DEFAULT = frozenset({"loss", *EVALUATIONS, "lr"})
TAGS = "123456789abcdefghijklmnopqrstuvwxyz"
LOWER = ("loss", "nll", "ppl", "perplexity", "bpb", "error", "wer", "cer", "fid")
HIGHER = ("accuracy", "acc", "f1", "bleu", "rouge", "map", "auc", "reward", "score", "psnr")


def tag(number: int) -> str:
    """Return the one character that names a run on the plot and in the legend."""
    return TAGS[number % len(TAGS)]


def best_is_highest(metric: str) -> bool | None:
    """Tell which end of a metric is the better one, by its name; None where the name does not say."""
    words = set(metric.lower().replace("/", "_").replace("-", "_").replace(".", "_").split("_"))
    if words & set(LOWER):
        return False
    if words & set(HIGHER):
        return True
    return None


class Axis(enum.StrEnum):
    """What the x axis counts; the value says it."""

    STEP = "step"
    EPOCH = "epoch"
    SINCE = "time since its start"
    CLOCK = "time of day"
    TOKENS = "tokens"

    @property
    def closest(self) -> float:
        """The closest zoom."""
        if self is Axis.EPOCH:
            return 1e-3
        return MIN_SPAN


MISSING = {
    Axis.EPOCH: "no run here logs its epoch",
    Axis.SINCE: "no run here logs a time with its points",
    Axis.CLOCK: "no run here logs a time with its points",
    Axis.TOKENS: f"no run here logs how many tokens it has seen ({', '.join(TOKENS[:4])}, …)",
}


def place_series(run: RunState, axis: Axis) -> str | None:
    """Return the name of the series with a run's places on an axis; None where it has none, or needs none."""
    if axis is Axis.STEP:
        return None
    if axis is Axis.TOKENS:
        names = [name for name in run.series if name.rpartition("/")[2].lower() in TOKENS]
    else:
        names = [EPOCH if axis is Axis.EPOCH else TIME]
    return next((name for name in names if len(run.series.get(name, ()))), None)


def axes_of(runs: Iterable[RunState]) -> list[Axis]:
    """Return the axes that any run has places on; steps always."""
    known = tuple(runs)
    return [
        axis
        for axis in Axis
        if axis is Axis.STEP or any(place_series(run, axis) is not None for run in known)
    ]


class RunKey(NamedTuple):
    """A run of the fleet."""

    box: str
    run: str


class Shown(NamedTuple):
    """A run with its box."""

    box: str
    run: RunState

    @property
    def key(self) -> RunKey:
        """Which run it is."""
        return RunKey(self.box, self.run.name)


@dataclass(frozen=True)
class Settings:
    """Metric, axes, window, hidden runs, reference and crosshair."""

    metric: str = "loss"
    smooth: float = 0.0
    view: View = field(default_factory=View)
    axis: Axis = Axis.STEP
    hidden: frozenset[RunKey] = frozenset()
    flipped: frozenset[str] = frozenset()
    """Metrics whose y axis is not the one they begin with."""
    pinned: float | None = None
    """Place on the x axis of the crosshair set by key or click."""
    hover: float | None = None
    """The same, under the pointer."""
    reference: RunKey | None = None
    """The run that others are compared with."""
    best: bool = True
    """Whether the best point of a run is marked."""
    evaluations: bool = True
    """Whether evaluations are drawn as points beside the loss."""

    @property
    def log(self) -> bool:
        """Whether the y axis is logarithmic."""
        return (self.metric in LOG_BY_DEFAULT) != (self.metric in self.flipped)

    @property
    def cross(self) -> float | None:
        """Place of the crosshair; the pointer wins."""
        if self.hover is None:
            return self.pinned
        return self.hover

    def toggled_log(self) -> Settings:
        """Change the y axis of the metric that is shown."""
        return replace(self, flipped=self.flipped ^ {self.metric})

    def smoother(self) -> Settings:
        """Take the next smoothing, round and round."""
        index = SMOOTHING.index(self.smooth) if self.smooth in SMOOTHING else -1
        return replace(self, smooth=SMOOTHING[(index + 1) % len(SMOOTHING)])

    def next_metric(self, metrics: Sequence[str]) -> Settings:
        """Take the next metric that any run has; the window stays, it is in steps."""
        if not metrics:
            return self
        index = metrics.index(self.metric) if self.metric in metrics else -1
        return replace(self, metric=metrics[(index + 1) % len(metrics)])

    def toggled(self, run: RunKey) -> Settings:
        """Hide a run, or show it again."""
        return replace(self, hidden=self.hidden ^ {run})

    def only(self, run: RunKey, runs: Iterable[RunKey]) -> Settings:
        """Show one run alone; if it already is alone, all of them."""
        others = frozenset(runs) - {run}
        return replace(self, hidden=frozenset() if self.hidden == others else others)


def metrics_of(runs: Iterable[RunState]) -> list[str]:
    """Return the metrics that any run has points of, the usual ones first."""
    found = {name for run in runs for name, series in run.series.items() if len(series)} - NO_CURVE
    return [name for name in PREFERRED if name in found] + sorted(found - set(PREFERRED))
