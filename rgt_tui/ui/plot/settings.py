"""What the person chose to see of the curves, as one value; every key makes a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rgt_tui.model.run import RunState
from rgt_tui.ui.plot.view import View

SMOOTHING = (0.0, 0.6, 0.9, 0.97)
PREFERRED = ("loss", "val_loss", "lr", "grad_norm", "tok_s")
NO_CURVE = frozenset({"step", "epoch", "total_steps"})
"""Logged beside the metrics, but nothing to look at."""
LOG_BY_DEFAULT = frozenset({"loss", "val_loss", "lr"})
TAGS = "123456789abcdefghijklmnopqrstuvwxyz"


def tag(number: int) -> str:
    """Return the one character that names a run on the plot and in the legend."""
    return TAGS[number % len(TAGS)]


@dataclass(frozen=True)
class Settings:
    """Metric, axes, window, hidden runs and crosshair."""

    metric: str = "loss"
    smooth: float = 0.0
    view: View = field(default_factory=View)
    hidden: frozenset[str] = frozenset()
    flipped: frozenset[str] = frozenset()
    """Metrics whose y axis is not the one they begin with."""
    pinned: float | None = None
    """Step of the crosshair set by key or click."""
    hover: float | None = None
    """Step under the pointer."""

    @property
    def log(self) -> bool:
        """Whether the y axis is logarithmic."""
        return (self.metric in LOG_BY_DEFAULT) != (self.metric in self.flipped)

    @property
    def cross(self) -> float | None:
        """Step of the crosshair; the pointer wins."""
        return self.pinned if self.hover is None else self.hover

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

    def toggled(self, run: str) -> Settings:
        """Hide a run, or show it again."""
        return replace(self, hidden=self.hidden ^ {run})

    def only(self, run: str, runs: Iterable[str]) -> Settings:
        """Show one run alone; if it already is alone, all of them."""
        others = frozenset(runs) - {run}
        return replace(self, hidden=frozenset() if self.hidden == others else others)


def metrics_of(runs: Iterable[RunState]) -> list[str]:
    """Return the metrics that any run has points of, the usual ones first."""
    found = {name for run in runs for name, series in run.series.items() if len(series)} - NO_CURVE
    return [name for name in PREFERRED if name in found] + sorted(found - set(PREFERRED))
