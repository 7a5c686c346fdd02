"""One run's curve prepared for drawing: split at resumes and gaps, smoothed, with its extremes.

A `CurveTrace` is fed repeatedly with the newest snapshot of a growing series, and reads only the
new
points. It is drawn from a `CurvePath`: the raw or smoothed values, with the pyramid of their
    extremes.
`AxisKnots` map its steps to the x axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from rgt_tui.model import Series
from rgt_tui.ui.plot.curve_stats import (
    LARGEST,
    MEMORY,
    ExtremesPyramid,
    Floats,
    Places,
    RunningAverage,
    grow_array,
    moving_average,
)

MOST_LOST = 64
"""Maximum discarded pieces kept for drawing."""


@dataclass(frozen=True)
class CurveGap:
    """Consecutive logged steps without a finite value."""

    first: float
    last: float
    count: int
    kind: str
    """``NaN`` or ``Inf``, by the first of them."""
    beside: float | None
    """The last finite value before the gap, where its marker is drawn."""
    lost: bool = False
    """Whether a resume went back to before it."""


@dataclass(frozen=True)
class CurvePath:
    """The drawn form of a curve: values per step, and their extremes."""

    xs: Floats
    """Steps, strictly increasing."""
    ys: Floats
    """NaN breaks the line."""
    pyramid: ExtremesPyramid

    def range_extremes(self, starts: Places, ends: Places) -> tuple[Floats, Floats]:
        """Return the extremes of some index ranges."""
        return self.pyramid.range_extremes(self.ys, starts, ends)


@dataclass
class _PreparedCurve:
    """The values of one smoothing, also without the values that a log axis cannot show."""

    average: RunningAverage | None
    pyramid: ExtremesPyramid = field(default_factory=ExtremesPyramid)
    positive: tuple[int, CurvePath] | None = None
    """Number of points, and their path on a log axis."""

    def truncate_to(self, size: int) -> None:
        self.positive = None
        self.pyramid.truncate_to(size)
        if self.average is not None:
            self.average.truncate_to(size)


@dataclass(frozen=True)
class _LostPoints:
    """Points lost on a resume, from the last point that both attempts share."""

    xs: Floats
    ys: Floats
    lead: Floats
    """Values before it that its average depends on."""


class CurveTrace:
    """A curve in order of steps. The points may arrive in any order.

    When a run resumes, it repeats some steps: the points of the first attempt move to
    `lost_pieces`.
    """

    def __init__(self) -> None:
        self.revision = 0
        """Rises with each change; the number of points may be the same again after a resume."""
        self._reset_points(None)

    def _reset_points(self, source: list[int] | None) -> None:
        self._lost: list[_LostPoints] = []
        self._lost_drawn: dict[float, list[tuple[Floats, Floats]]] = {}
        self.gaps: list[CurveGap] = []
        self._source = source
        self._fed = 0
        self._size = 0
        self._xs: Floats = np.empty(256)
        self._ys: Floats = np.empty(256)
        self._prepared: dict[float, _PreparedCurve] = {}
        self._best: dict[bool, tuple[int, int | None]] = {}

    @property
    def xs(self) -> Floats:
        """Steps, strictly increasing."""
        return self._xs[: self._size]

    @property
    def ys(self) -> Floats:
        """Raw values, NaN for missing ones."""
        return self._ys[: self._size]

    def feed(self, series: Series) -> bool:
        """Add the points that `series` has gained; return whether anything changed."""
        xs, ys, n = series.backing_columns()
        # A series appends to its own lists: other lists, or fewer points, are a series that began
        # again.
        anew = xs is not self._source or n < self._fed
        if anew:
            emptied = self._size > 0
            self._reset_points(xs)
        if n == self._fed:
            self.revision += anew and emptied
            return anew and emptied
        self.revision += 1
        steps, values = _to_floats(xs[self._fed : n]), _to_floats(ys[self._fed : n])
        self._fed = n
        known = np.isfinite(steps)
        if not known.all():
            steps, values = steps[known], values[known]
        # Where steps do not rise, the run has resumed; each stretch is added separately.
        turns = np.flatnonzero(np.diff(steps) <= 0) + 1
        for a, b in zip([0, *turns.tolist()], [*turns.tolist(), len(steps)], strict=True):
            if b > a:
                self._append_points(steps[a:b], values[a:b])
        return True

    def smoothed_path(self, keep: float = 0.0, *, positive: bool = False) -> CurvePath:
        """Return the path to draw, smoothed with weight `keep` (0 = raw).

        With `positive`, only positive values are included, for a log axis.
        """
        prepared = self._prepared.setdefault(
            keep, _PreparedCurve(RunningAverage(keep) if keep > 0 else None)
        )
        ys = self.ys
        if prepared.average is not None:
            prepared.average.append_new(ys)
            ys = prepared.average.averages
        prepared.pyramid.append_new(ys)
        if positive and self._size:
            if prepared.positive is None or prepared.positive[0] != self._size:
                start, end = np.array([0]), np.array([self._size])
                shown, pyramid = ys, prepared.pyramid
                # Usually all values are positive, and nothing has to be copied.
                if not pyramid.range_extremes(ys, start, end)[0][0] > 0:
                    shown, pyramid = np.where(ys > 0, ys, np.nan), ExtremesPyramid()
                    pyramid.append_new(shown)
                prepared.positive = self._size, CurvePath(self.xs, shown, pyramid)
            return prepared.positive[1]
        return CurvePath(self.xs, ys, prepared.pyramid)

    def path_bounds(self, keep: float = 0.0) -> tuple[float, float]:
        """Return the lowest and the highest value of the path; NaN if it is empty."""
        path = self.smoothed_path(keep)
        low, high = path.range_extremes(np.array([0]), np.array([len(path.xs)]))
        if len(path.xs):
            return (float(low[0]), float(high[0]))
        return (math.nan, math.nan)

    def is_prepared(self, keep: float) -> bool:
        """Return whether `smoothed_path` has nothing to calculate."""
        known = self._prepared.get(keep)
        return known is not None and (known.average is None or known.average.size == self._size)

    def lost_pieces(self, keep: float = 0.0) -> list[tuple[Floats, Floats]]:
        """Return the points lost on resumes, as they were drawn before."""
        made = self._lost_drawn.get(keep)
        if made is None:
            made = [(piece.xs, _smooth_piece(piece, keep)) for piece in self._lost]
            self._lost_drawn[keep] = made
        return made

    def value_at(self, step: float, keep: float = 0.0) -> float | None:
        """Return the value of the last logged step at or before `step`; None outside the curve."""
        i = self.index_at(step)
        if i is None:
            return None
        return float(self.smoothed_path(keep).ys[i])

    def index_at(self, step: float) -> int | None:
        """Return the index of the last point at or before `step`; None outside the curve."""
        i = int(np.searchsorted(self.xs, step, side="right")) - 1
        if i < 0 or step > self.xs[-1]:
            return None
        return i

    def best_point(self, *, highest: bool) -> tuple[float, float] | None:
        """Return step and raw value of the best point; with several equal ones, the first."""
        looked, found = self._best.get(highest, (0, None))
        if looked != self._size:
            fresh = self._ys[looked : self._size]
            if np.isfinite(fresh).any():
                place = looked + int(np.nanargmax(fresh) if highest else np.nanargmin(fresh))
                if found is None:
                    better = True
                elif highest:
                    better = self._ys[place] > self._ys[found]
                else:
                    better = self._ys[place] < self._ys[found]
                if better:
                    found = place
            self._best[highest] = self._size, found
        if found is None:
            return None
        return (float(self._xs[found]), float(self._ys[found]))

    def _append_points(self, steps: Floats, values: Floats) -> None:
        if self._size and steps[0] <= self._xs[self._size - 1]:
            self._cut_repeated(int(np.searchsorted(self.xs, steps[0], side="left")))
        start, end = self._size, self._size + len(steps)
        self._xs, self._ys = grow_array(self._xs, start, end), grow_array(self._ys, start, end)
        self._note_gaps(steps, values)
        self._xs[start:end] = steps
        self._ys[start:end] = np.where(np.isfinite(values), values, np.nan)
        self._size = end

    def _cut_repeated(self, k: int) -> None:
        # From the last shared point, so that the lost piece is joined to the curve.
        first = max(0, k - 1)
        if self._size - k > 1:
            piece = slice(first, self._size)
            lead = self._ys[max(0, first - MEMORY) : first]
            self._lost.append(
                _LostPoints(self._xs[piece].copy(), self._ys[piece].copy(), lead.copy())
            )
            del self._lost[:-MOST_LOST]
            self._lost_drawn.clear()
        limit = self._xs[k]
        self.gaps = [
            gap if gap.lost or gap.first < limit else replace(gap, lost=True) for gap in self.gaps
        ]
        self._size = k
        self._best.clear()
        for prepared in self._prepared.values():
            prepared.truncate_to(k)

    def _note_gaps(self, steps: Floats, values: Floats) -> None:
        most_gaps = 256
        # A diverged run may log NaN at every step, so this loop has a limit.
        for i in np.flatnonzero(~np.isfinite(values)).tolist()[-most_gaps * 8 :]:
            if i:
                before = values[i - 1]
            elif self._size:
                before = self._ys[self._size - 1]
            else:
                before = math.nan
            if self.gaps:
                previous = self.gaps[-1]
            else:
                previous = None
            open_gap = not math.isfinite(before) and (i > 0 or self._size > 0)
            if previous is not None and open_gap and not previous.lost:
                self.gaps[-1] = replace(previous, last=float(steps[i]), count=previous.count + 1)
                continue
            if math.isnan(values[i]):
                kind = "NaN"
            else:
                kind = "Inf"
            if math.isfinite(before):
                beside = float(before)
            else:
                beside = None
            self.gaps.append(CurveGap(float(steps[i]), float(steps[i]), 1, kind, beside))
        del self.gaps[:-most_gaps]


def _smooth_piece(piece: _LostPoints, keep: float) -> Floats:
    if keep <= 0:
        return piece.ys
    values = np.concatenate([piece.lead, piece.ys])
    # Gaps do not change the average, as in `RunningAverage`.
    finite = np.isfinite(values)
    values[finite] = moving_average(values[finite], keep)[0]
    return values[len(piece.lead) :]


def _to_floats(values: list[int] | list[float]) -> Floats:
    """Return an array, with infinity for values that do not fit a float."""
    try:
        return np.array(values, dtype=np.float64)
    # An integer that a box logged may be too large for a float.
    except (OverflowError, ValueError, TypeError):
        out = []
        for value in values:
            try:
                out.append(float(value))
            except (OverflowError, ValueError, TypeError):
                out.append(math.inf)
        return np.array(out, dtype=np.float64)


@dataclass(frozen=True)
class AxisKnots:
    """A run's logged x values: steps and x values, both increasing. Never empty.

    Epochs, times and tokens are as logged. Between two points they are interpolated; beyond the
    logged range there are none.
    """

    steps: Floats
    xs: Floats

    @classmethod
    def from_trace(cls, trace: CurveTrace, *, from_zero: bool = False) -> AxisKnots | None:
        """Return the knots of a logged curve, or None.

        `from_zero` subtracts the first.
        """
        known = np.abs(trace.ys) < LARGEST
        steps, xs = trace.xs[known], trace.ys[known]
        if not len(steps):
            return None
        xs = np.maximum.accumulate(xs)  # a clock that was set back must not make a run go backwards
        rising = np.concatenate([[True], np.diff(xs) > 0])
        steps, xs = steps[rising], xs[rising]
        moved = xs
        if from_zero:
            moved = xs - xs[0]
        return cls(steps, moved)

    def x_of(self, step: float) -> float | None:
        """Return the x value of a step; None outside the logged range."""
        if not self.steps[0] <= step <= self.steps[-1]:
            return None
        return _interpolate_clipped(step, self.steps, self.xs)

    def step_of(self, x: float) -> float | None:
        """Return the step at an x value; None outside the logged range."""
        if not self.xs[0] <= x <= self.xs[-1]:
            return None
        return _interpolate_clipped(x, self.xs, self.steps)

    def steps_of(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return the steps at some edges, once for counting points and once for drawing lines.

        Outside the logged range the first has the nearest step, so that no point is missed, the
        second NaN.
        """
        # Just beyond the last step, so that the last point counts as left of that edge.
        beyond = math.nextafter(float(self.steps[-1]), math.inf)
        steps: Floats = np.interp(edges, self.xs, self.steps, right=beyond)
        known = (edges >= self.xs[0]) & (edges <= self.xs[-1])
        return steps, np.where(known, steps, np.nan)

    def trace_extent(self, trace: CurveTrace) -> tuple[float, float] | None:
        """Return the first and last x value of a curve's points; None if none is known."""
        if not len(trace.xs):
            return None
        first = max(float(trace.xs[0]), float(self.steps[0]))
        last = min(float(trace.xs[-1]), float(self.steps[-1]))
        if first > last:
            return None
        return _interpolate_clipped(first, self.steps, self.xs), _interpolate_clipped(
            last, self.steps, self.xs
        )


def _interpolate_clipped(place: float, known: Floats, wanted: Floats) -> float:
    """Interpolate linearly; clip to the ends, because rounding could exceed them."""
    found = float(np.interp(place, known, wanted))
    return min(max(found, float(wanted[0])), float(wanted[-1]))
