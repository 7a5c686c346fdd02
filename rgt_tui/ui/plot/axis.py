"""Where on the x axis the steps of a run stand.

Epochs, time and tokens are as the run logged them: between two of its points in proportion, beyond them nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rgt_tui.ui.plot.averages import LARGEST, Floats
from rgt_tui.ui.plot.trace import Trace


@dataclass(frozen=True)
class Knots:
    """What a run logged of its place on the axis: steps, and as many places, both increasing. Never empty."""

    steps: Floats
    xs: Floats

    @classmethod
    def of(cls, trace: Trace, *, from_zero: bool = False) -> Knots | None:
        """Return the knots of a logged curve, its places counted `from_zero` on demand; None where there are none."""
        known = np.abs(trace.ys) < LARGEST
        steps, xs = trace.xs[known], trace.ys[known]
        if not len(steps):
            return None
        xs = np.maximum.accumulate(xs)  # a clock that was set back does not make a run go backwards
        rising = np.concatenate([[True], np.diff(xs) > 0])
        rising[-1] |= len(xs) == 1
        steps, xs = steps[rising], xs[rising]
        return cls(steps, xs - xs[0] if from_zero else xs)

    def x_of(self, step: float) -> float | None:
        """Return the place of a step; None where the run did not say."""
        if not self.steps[0] <= step <= self.steps[-1]:
            return None
        return _between(step, self.steps, self.xs)

    def step_of(self, x: float) -> float | None:
        """Return the step at a place; None where the run was not there."""
        if not self.xs[0] <= x <= self.xs[-1]:
            return None
        return _between(x, self.xs, self.steps)

    def steps_of(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return the steps at some edges, for counting points and for drawing lines.

        Outside of what is known the first has the nearest step, so that no point falls between; the second NaN.
        """
        beyond = math.nextafter(float(self.steps[-1]), math.inf)
        steps: Floats = np.interp(edges, self.xs, self.steps, right=beyond)
        known = (edges >= self.xs[0]) & (edges <= self.xs[-1])
        return steps, np.where(known, steps, np.nan)

    def extent(self, trace: Trace) -> tuple[float, float] | None:
        """Return the first and the last place of a curve's points; None where none is known."""
        if not len(trace.xs):
            return None
        first = max(float(trace.xs[0]), float(self.steps[0]))
        last = min(float(trace.xs[-1]), float(self.steps[-1]))
        if first > last:
            return None
        return _between(first, self.steps, self.xs), _between(last, self.steps, self.xs)


def _between(place: float, known: Floats, wanted: Floats) -> float:
    """Return what belongs to a place in proportion; never beyond the ends, whatever the rounding."""
    found = float(np.interp(place, known, wanted))
    return min(max(found, float(wanted[0])), float(wanted[-1]))
