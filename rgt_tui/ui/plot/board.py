"""Prepared curves of the listed runs, kept between two frames."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rgt_wire.metric_roles import best_is_highest

from rgt_tui.model import TIME, RunState, Series
from rgt_tui.ui.plot.canvas import DASHES
from rgt_tui.ui.plot.curve_stats import SeedSummary, summarize_seeds
from rgt_tui.ui.plot.frame import PlotCurve, PlotFrame, curves_extent, draw_plot
from rgt_tui.ui.plot.trace import AxisKnots, CurveGap, CurveTrace
from rgt_tui.ui.plot.view import (
    EVALUATIONS,
    SMOOTHING,
    PlotSettings,
    RunKey,
    ShownRun,
    XAxis,
    place_series,
    run_tag,
)


class Board:
    """The curves of some runs.

    A run keeps its number, and thus its colour, as long as the board exists.

    Args:
        like: A board to share the numbers of the runs with.
    """

    def __init__(self, like: Board | None = None) -> None:
        self._runs: tuple[ShownRun, ...] = ()
        self._by_key: dict[RunKey, RunState] = {}
        self._numbers: dict[RunKey, int] = {} if like is None else like._numbers
        self._traces: dict[tuple[RunKey, str], CurveTrace] = {}
        self._knots: dict[RunKey, tuple[XAxis, CurveTrace, int, AxisKnots | None]] = {}
        # Of the last frame, as a guess for the next one, see `draw_plot`.
        self._gutter = 5
        self.settings = PlotSettings()
        self.selected: RunKey | None = None

    def update(
        self, runs: Sequence[ShownRun], settings: PlotSettings, selected: RunKey | None
    ) -> bool:
        """Apply the newest runs and settings; return whether a frame would look different."""
        changed = settings != self.settings or selected != self.selected
        changed = changed or [r.key for r in runs] != [r.key for r in self._runs]
        changed = changed or [r.run.resumes for r in runs] != [r.run.resumes for r in self._runs]
        self._runs, self.settings, self.selected = tuple(runs), settings, selected
        self._by_key = {each.key: each.run for each in runs}
        for key in self._by_key:
            # A run keeps its number, and so its colour, when others come and go.
            self._numbers.setdefault(key, len(self._numbers))
        needed: set[tuple[RunKey, str]] = set()
        for key, run in self._by_key.items():
            for name in self._series_of(run):
                needed.add((key, name))
                trace = self._traces.setdefault((key, name), CurveTrace())
                # `feed` is on the left, because it must run even if something has changed already.
                changed = trace.feed(run.series[name]) or changed
        # Traces of other metrics hold all points of a run: a key that goes back makes them again.
        for gone in self._traces.keys() - needed:
            del self._traces[gone]
            changed = True
        return changed

    def _series_of(self, run: RunState) -> list[str]:
        """Return the names of a run's series that are needed."""
        names = [self.settings.metric]
        if self.settings.evaluations and self.settings.metric == "loss":
            names += EVALUATIONS
        place = place_series(run, self.settings.axis)
        names += [place] if place is not None else []
        # The metric may itself be one of the evaluations.
        return [name for name in dict.fromkeys(names) if len(run.series.get(name, ()))]

    @property
    def runs(self) -> tuple[ShownRun, ...]:
        """All listed runs."""
        return self._runs

    def find_trace(self, key: RunKey) -> CurveTrace | None:
        """Return the prepared curve of a run in the shown metric."""
        return self._traces.get((key, self.settings.metric))

    def run_number(self, key: RunKey) -> int:
        """Return the number of a run, from 0, in the order in which the runs were first seen."""
        return self._numbers.get(key, 0)

    def list_gaps(self, key: RunKey) -> list[CurveGap]:
        """Return the gaps of a run."""
        trace = self.find_trace(key)
        if trace is not None:
            return list(trace.gaps)
        return []

    def best_point(self, key: RunKey) -> tuple[float, float] | None:
        """Return step and value of a run's best point.

        None if the metric has no better direction.
        """
        highest, trace = best_is_highest(self.settings.metric), self.find_trace(key)
        if highest is None or trace is None:
            return None
        return trace.best_point(highest=highest)

    def find_knots(self, key: RunKey) -> AxisKnots | None:
        """Return a run's mapping from steps to the x axis.

        None if it has no values on that axis, or if the axis is in steps.
        """
        axis, run = self.settings.axis, self._by_key.get(key)
        if run is not None:
            name = place_series(run, axis)
        else:
            name = None
        if name is not None:
            trace = self._traces.get((key, name))
        else:
            trace = None
        if trace is None:
            return None
        # Made again only for new points, because it reads all of them.
        known = self._knots.get(key)
        if known is None or known[:3] != (axis, trace, trace.revision):
            known = (
                axis,
                trace,
                trace.revision,
                AxisKnots.from_trace(trace, from_zero=axis is XAxis.SINCE),
            )
            self._knots[key] = known
        return known[3]

    def is_placed(self, key: RunKey) -> bool:
        """Return whether a run has values on the x axis."""
        return self.settings.axis is XAxis.STEP or self.find_knots(key) is not None

    @property
    def shown_runs(self) -> list[RunKey]:
        """The runs that are drawn."""
        return [
            each.key
            for each in self._runs
            if each.key not in self.settings.hidden
            and (each.key, self.settings.metric) in self._traces
            and self.is_placed(each.key)
        ]

    @property
    def x_extent(self) -> tuple[float, float]:
        """First and last x value of the drawn curves."""
        return curves_extent(self.build_curves())

    def step_at(self, key: RunKey, x: float) -> float | None:
        """Return the step of a run at an x value; None outside its range."""
        if self.settings.axis is XAxis.STEP:
            return x
        knots = self.find_knots(key)
        if knots is None:
            return None
        return knots.step_of(x)

    def x_of(self, key: RunKey, step: float) -> float | None:
        """Return the x value of a run's step."""
        if self.settings.axis is XAxis.STEP:
            return step
        knots = self.find_knots(key)
        if knots is None:
            return None
        return knots.x_of(step)

    def value_at(self, key: RunKey, x: float) -> float | None:
        """Return a run's value at an x value, smoothed as drawn; None outside its range."""
        trace, step = self.find_trace(key), self.step_at(key, x)
        if trace is None or step is None:
            return None
        return trace.value_at(step, self.settings.smooth)

    def prepare_smoothings(self, seconds: float) -> bool:
        """Prepare the other smoothings for at most `seconds`; return whether any are left."""
        # In slices, so that keys pressed meanwhile come first.
        end = time.monotonic() + seconds
        for keep in SMOOTHING:
            for key in self.shown_runs:
                trace = self.find_trace(key)
                if trace is None or trace.is_prepared(keep):
                    continue
                if time.monotonic() >= end:
                    return True
                trace.smoothed_path(keep)
        return False

    def build_curves(self) -> list[PlotCurve]:
        """Return the drawn curves, the selected run last, on top."""
        shown = self.shown_runs
        shown.sort(key=lambda key: (key == self.selected, key == self.settings.reference))
        # With more runs than this on screen, gaps and best values are only explained in the legend.
        most_noted = 4
        few = len(shown) <= most_noted
        curves = []
        for key in shown:
            number = self.run_number(key)
            evaluations = [
                self._traces[key, name]
                for name in EVALUATIONS
                if name != self.settings.metric and (key, name) in self._traces
            ]
            tag = ""
            if len(shown) > 1:
                tag = run_tag(number)
            knots_of_run = None
            if evaluations:
                knots_of_run = evaluations[0]
            best = None
            if self.settings.best and (few or key == self.selected):
                best = self.best_point(key)
            curves.append(
                PlotCurve(
                    self._traces[key, self.settings.metric],
                    number,
                    tuple(float(resume.step) for resume in self._by_key[key].resumes),
                    note_gaps=few,
                    tag=tag,
                    keep=self.settings.smooth,
                    dash=number % len(DASHES),
                    knots=self.find_knots(key),
                    evaluations=knots_of_run,
                    best=best,
                    unit=self._by_key[key].axis,
                )
            )
        return curves

    def draw_plot_frame(
        self, size: tuple[int, int], *, ascii_only: bool = False
    ) -> PlotFrame | None:
        """Draw a frame; None if there is nothing to draw."""
        curves = self.build_curves()
        if not curves:
            return None
        frame = draw_plot(
            curves,
            size,
            view=self.settings.view,
            log=self.settings.is_log,
            cross=self.settings.crosshair_x,
            ascii_only=ascii_only,
            axis=self.settings.axis,
            gutter=self._gutter,
        )
        self._gutter = frame.gutter
        return frame


class AveragedRuns:
    """Average and band of several runs, kept until one of them changes."""

    def __init__(self) -> None:
        self._source = Board()
        self._known: tuple[object, ...] = ()
        self._made: list[ShownRun] = []
        self.summary: SeedSummary | None = None
        self.names: tuple[str, ...] = ()
        """Of the runs, as they are counted in the summary."""
        self.problem = ""
        """Why there is no average."""

    def summarize(
        self, runs: Sequence[ShownRun], settings: PlotSettings, box: str
    ) -> list[ShownRun]:
        """Return `SeedSummary.listed_curves` as runs of `box`; the runs themselves if they have none."""
        self._source.update(runs, settings, None)
        keys = self._source.shown_runs
        traces = [self._source.find_trace(key) for key in keys]
        known = (settings.metric, keys, [trace.revision for trace in traces if trace])
        # Only for new points: the band takes a thousand samples.
        if known != self._known:
            self._known = known
            self.names, self.problem, self.summary = tuple(key.run for key in keys), "", None
            try:
                self.summary = summarize_seeds([(one.xs, one.ys) for one in traces if one])
            except ValueError as error:
                self.problem = str(error)
            self._made = []
            if self.summary is not None:
                steps = self.summary.steps.astype(int).tolist()
                self._made = [
                    ShownRun(box, RunState(name, series={settings.metric: Series(steps, ys)}))
                    for name, ys in self.summary.listed_curves()
                ]
        return self._made or list(runs)


def clock_of(run: RunState) -> AxisKnots | None:
    """Return the mapping from a run's steps to the client clock; None if it logs no time."""
    series = run.series.get(TIME)
    if series is None:
        return None
    trace = CurveTrace()
    trace.feed(series)
    return AxisKnots.from_trace(trace)
