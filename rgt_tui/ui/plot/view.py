"""Settings of the plot: the window of steps, metric, axes, hidden runs, crosshair."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from rgt_wire.metric_roles import display_rank

from rgt_tui.model import EPOCH, TIME, FrozenStruct, RunState

MIN_SPAN = 8.0
"""The closest zoom, in steps, seconds or tokens."""


class AxisWindow(FrozenStruct):
    """A window on the x axis.

    By default it shows everything; at the right edge it follows new points.
    """

    span: float | None = None
    """Width in steps; None = everything."""
    right: float | None = None
    """Right edge in steps; None = the newest point at any time."""

    @property
    def is_all(self) -> bool:
        """Whether everything is shown."""
        return self.span is None

    def visible_range(self, extent: tuple[float, float]) -> tuple[float, float]:
        """Return the first and the last step on screen, given those of the data.

        Never of zero width.
        """
        first, last = extent
        # The closest zoom relative to the values: some count nanoseconds since 1970, a float has 16
        # digits.
        finest_limit = 1e-12
        finest = finest_limit * max(abs(first), abs(last))
        # A single point needs a window of some width, too.
        if not last - first > finest:
            last = first + max(1.0, finest)
        if self.span is None or self.span >= last - first:
            return first, last
        span = max(self.span, finest)
        if self.right is None:
            right = last
        else:
            right = min(max(self.right, first + span), last)
        return right - span, right

    def zoom(
        self,
        factor: float,
        about: float | None,
        extent: tuple[float, float],
        closest: float = MIN_SPAN,
    ) -> AxisWindow:
        """Scale the window by `factor` (below 1 = closer).

        The step `about` (or the middle) stays.
        """
        x0, x1 = self.visible_range(extent)
        full = self.__class__().visible_range(extent)
        span = max((x1 - x0) * factor, min(closest, full[1] - full[0]))
        if span >= full[1] - full[0]:
            return AxisWindow()
        if about is None:
            anchor = (x0 + x1) / 2
        else:
            anchor = min(max(about, x0), x1)
        share = (x1 - anchor) / (x1 - x0)
        return self._window_at(anchor + share * span, span, full)

    def pan(self, share: float, extent: tuple[float, float]) -> AxisWindow:
        """Move by `share` of the window's width, to the right if positive."""
        if self.span is None:
            return self
        x0, x1 = self.visible_range(extent)
        return self._window_at(
            x1 + share * (x1 - x0), x1 - x0, self.__class__().visible_range(extent)
        )

    @staticmethod
    def _window_at(right: float, span: float, full: tuple[float, float]) -> AxisWindow:
        # At the right edge the window follows new points again.
        if right >= full[1] - span * 1e-9:
            return AxisWindow(span, None)
        return AxisWindow(span, max(right, full[0] + span))


SMOOTHING = (0.0, 0.6, 0.9, 0.97)
PREFERRED = ("loss", "val_loss", "lr", "grad_norm", "tok_s")
EVALUATIONS = ("val_loss", "eval_loss", "valid_loss", "test_loss")
"""Names of evaluations of the loss, which are drawn as points next to it."""
TOKENS = (
    "tokens",
    "tokens_seen",
    "total_tokens",
    "num_tokens",
    "num_input_tokens_seen",
    "consumed_tokens",
)
"""Names of series that count the run's tokens: lower case, without a prefix before a slash."""
NO_CURVE = frozenset({"step", "epoch", "total_steps", TIME, EPOCH})
"""Logged like metrics, but not offered as curves."""
LOG_BY_DEFAULT = frozenset({"loss", *EVALUATIONS, "lr"})
TAGS = "123456789abcdefghijklmnopqrstuvwxyz"


def run_tag(number: int) -> str:
    """Return the one character that identifies a run on the plot and in the legend."""
    return TAGS[number % len(TAGS)]


class XAxis(enum.StrEnum):
    """The quantity on the x axis; the value is its label."""

    STEP = "step"
    EPOCH = "epoch"
    SINCE = "time since its start"
    CLOCK = "time of day"
    TOKENS = "tokens"

    @property
    def closest_zoom(self) -> float:
        """The closest zoom."""
        if self is XAxis.EPOCH:
            return 1e-3
        return MIN_SPAN


def name_axis(axis: XAxis, kinds: Iterable[str]) -> str:
    """Return the label of the x axis: what the steps of the runs count, if that is one thing.

    Args:
        axis: The x axis.
        kinds: `RunState.axis` of each run that is drawn.
    """
    found = set(kinds)
    if axis is XAxis.STEP and len(found) == 1:
        return found.pop()
    return axis.value


NO_AXIS = {
    XAxis.EPOCH: "no run here logs its epoch",
    XAxis.SINCE: "no run here logs a time with its points",
    XAxis.CLOCK: "no run here logs a time with its points",
    XAxis.TOKENS: "no run here logs how many tokens it has seen",
}


def place_series(run: RunState, axis: XAxis) -> str | None:
    """Return the name of a run's series with the values of an axis.

    None if it lacks or needs none.
    """
    if axis is XAxis.STEP:
        return None
    if axis is XAxis.TOKENS:
        names = [name for name in run.series if name.rpartition("/")[2].lower() in TOKENS]
    else:
        names = [EPOCH if axis is XAxis.EPOCH else TIME]
    return next((name for name in names if len(run.series.get(name, ()))), None)


def axes_of(runs: Iterable[RunState]) -> list[XAxis]:
    """Return the axes that any run has values for; always including steps."""
    known = tuple(runs)
    return [
        axis
        for axis in XAxis
        if axis is XAxis.STEP or any(place_series(run, axis) is not None for run in known)
    ]


class RunKey(NamedTuple):
    """A run of the fleet."""

    box: str
    run: str


class ShownRun(NamedTuple):
    """A run with its box."""

    box: str
    run: RunState

    @property
    def key(self) -> RunKey:
        """Identity of the run."""
        return RunKey(self.box, self.run.name)


class PlotSettings(FrozenStruct):
    """Metric, axes, window, hidden runs, reference and crosshair."""

    metric: str = "loss"
    smooth: float = 0.0
    view: AxisWindow = AxisWindow()
    axis: XAxis = XAxis.STEP
    hidden: frozenset[RunKey] = frozenset()
    flipped: frozenset[str] = frozenset()
    """Metrics whose y axis was switched from its default."""
    pinned: float | None = None
    """X value of the crosshair set by key or click."""
    hover: float | None = None
    """X value under the pointer."""
    reference: RunKey | None = None
    """The run that others are compared with."""
    best: bool = True
    """Whether to mark the best point of a run."""
    evaluations: bool = True
    """Whether to draw evaluations as points next to the loss."""
    over_seeds: bool = False
    """Whether to draw average and band of the shown runs instead of the runs."""

    @property
    def is_log(self) -> bool:
        """Whether the y axis is logarithmic."""
        return (self.metric in LOG_BY_DEFAULT) != (self.metric in self.flipped)

    @property
    def crosshair_x(self) -> float | None:
        """X value of the crosshair; the pointer takes precedence."""
        if self.hover is None:
            return self.pinned
        return self.hover

    def for_next_screen(self) -> PlotSettings:
        """Drop what depends on the shown box: window, crosshair and hidden runs."""
        return replace(self, view=AxisWindow(), pinned=None, hover=None, hidden=frozenset())

    def toggled_log(self) -> PlotSettings:
        """Switch the y axis of the shown metric."""
        return replace(self, flipped=self.flipped ^ {self.metric})

    def next_smoothing(self) -> PlotSettings:
        """Use the next smoothing; after the last one, the first."""
        if self.smooth in SMOOTHING:
            index = SMOOTHING.index(self.smooth)
        else:
            index = -1
        return replace(self, smooth=SMOOTHING[(index + 1) % len(SMOOTHING)])

    def next_metric(self, metrics: Sequence[str]) -> PlotSettings:
        """Show the next metric that any run has; the window stays, because it is in steps."""
        if not metrics:
            return self
        if self.metric in metrics:
            index = metrics.index(self.metric)
        else:
            index = -1
        return replace(self, metric=metrics[(index + 1) % len(metrics)])

    def toggle_run(self, run: RunKey) -> PlotSettings:
        """Hide a run, or show it again."""
        return replace(self, hidden=self.hidden ^ {run})

    def isolate_run(self, run: RunKey, runs: Iterable[RunKey]) -> PlotSettings:
        """Show only one run; if only that one is shown, show all."""
        others = frozenset(runs) - {run}
        hidden = others
        if self.hidden == others:
            hidden = frozenset()
        return replace(self, hidden=hidden)


def metrics_of(runs: Iterable[RunState]) -> list[str]:
    """Return the metrics that any run has points of, the usual ones first.

    Without a loss, rewards and other measures come before the learning rate.
    """
    found = {name for run in runs for name, series in run.series.items() if len(series)} - NO_CURVE
    names = [name for name in PREFERRED if name in found] + sorted(found - set(PREFERRED))
    if "loss" not in found:
        names.sort(key=display_rank)
    return names
