"""Averages and extremes of growing curves, without reading all points each time.

Buckets of 8, 32, 128, … points keep their extremes. A range is computed from buckets so small that
it spans at least `FINE` of them. It may include less than an eighth of its length from each
neighbour, but misses no extreme. A short range is computed from its points.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgt_tui.language import translate
from rgt_tui.model import Series

Places = NDArray[np.intp]

FIRST, FACTOR = 8, 4
FINE = 8
_LONG_ENOUGH = np.array([FIRST * FACTOR**level * FINE for level in range(24)])
"""Minimum points of a range for using the buckets of each level."""
Floats = NDArray[np.float64]

LARGEST = 1e200
MOST = float(np.finfo(np.float64).max)
MEMORY = 1024
"""Number of values that affect a smoothed one: 0.97¹⁰²⁴ is 3 × 10⁻¹⁴."""


class ExtremesPyramid:
    """Extremes of one curve in levels of buckets; NaN for a bucket without values."""

    def __init__(self) -> None:
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._size = 0

    def truncate_to(self, size: int) -> None:
        """Forget everything after the first `size` points."""
        self._size = min(self._size, size)

    def append_new(self, values: Floats) -> None:
        """Add the new points of the curve; the points seen before must be unchanged."""
        if len(values) == self._size:
            return
        low = high = values
        bucket, level = FIRST, 0
        factor = FIRST
        while len(values) > bucket * FINE:
            whole = self._size // bucket  # complete buckets, which cannot have changed
            # Rounded up, because the last bucket may be incomplete.
            count = -(-len(low) // factor)
            if level == len(self._low):
                self._low.append(np.empty(64))
                self._high.append(np.empty(64))
                whole = 0
            for kept, source, least in ((self._low, low, True), (self._high, high, False)):
                kept[level] = grow_array(kept[level], whole, count)
                _fold_groups(
                    source[whole * factor :], factor, kept[level][whole:count], least=least
                )
            low, high = self._low[level][:count], self._high[level][:count]
            bucket, level, factor = bucket * FACTOR, level + 1, FACTOR
        del self._low[level:], self._high[level:]
        self._size = len(values)

    def range_extremes(self, values: Floats, starts: Places, ends: Places) -> tuple[Floats, Floats]:
        """Return the lowest and highest value of each range ``values[start:end]``.

        The ranges must be in order and not empty.
        """
        lengths = ends - starts
        levels = np.searchsorted(_LONG_ENOUGH[: len(self._low)], lengths, side="right")
        lowest, highest = (int(levels.min()), int(levels.max())) if len(levels) else (0, 0)
        # The usual case: all columns have about as many points.
        if lowest == highest:
            return self._at_level(lowest, values, starts, ends)
        low, high = np.empty(len(starts)), np.empty(len(starts))
        for level in range(lowest, highest + 1):
            chosen = np.flatnonzero(levels == level)
            if len(chosen):
                low[chosen], high[chosen] = self._at_level(
                    level, values, starts[chosen], ends[chosen]
                )
        return low, high

    def _at_level(
        self, level: int, values: Floats, starts: Places, ends: Places
    ) -> tuple[Floats, Floats]:
        if not len(starts):
            return np.empty(0), np.empty(0)
        if not level:
            return _reduce_ranges(values, values, starts, ends)
        bucket = FIRST * FACTOR ** (level - 1)
        count = -(-self._size // bucket)
        return _reduce_ranges(
            self._low[level - 1][:count],
            self._high[level - 1][:count],
            starts // bucket,
            -(-ends // bucket),
        )


def _fold_groups(source: Floats, factor: int, into: Floats, *, least: bool) -> None:
    """Write the extreme of each group of `factor` values; the last group may be smaller."""
    fold = np.fmin if least else np.fmax
    whole = len(source) // factor
    if whole:
        found = into[:whole]
        found[:] = source[: whole * factor : factor]
        for place in range(1, factor):
            fold(found, source[place : whole * factor : factor], out=found)
    if whole < len(into):
        into[whole] = fold.reduce(source[whole * factor :])


def _reduce_ranges(
    low: Floats, high: Floats, starts: Places, ends: Places
) -> tuple[Floats, Floats]:
    lengths = ends - starts
    total = int(lengths.sum())
    begin, end = int(starts[0]), int(ends.max())
    # Ranges close to each other are reduced where they are, without copying their values.
    if end - begin <= 2 * total:
        cuts = np.empty(2 * len(starts), dtype=np.intp)
        cuts[::2], cuts[1::2] = starts - begin, ends - begin
        # `reduceat` takes no index at the end of an array; its last group ends there anyway.
        if cuts[-1] == end - begin:
            cuts = cuts[:-1]
        if cuts.max() < end - begin:
            return (
                np.fmin.reduceat(low[begin:end], cuts)[::2],
                np.fmax.reduceat(high[begin:end], cuts)[::2],
            )
    offsets = np.cumsum(lengths) - lengths
    places = np.repeat(starts - offsets, lengths) + np.arange(total)
    return np.fmin.reduceat(low[places], offsets), np.fmax.reduceat(high[places], offsets)


# Exponential moving averages of growing curves, exact and in blocks: a million points in about 25
# ms.
#
# The average after *n* finite values is their weighted mean with weights w⁰, w¹, … from the newest
# back. With ``s[t] = w s[t-1] + (1 - w) x[t]``, within a block that begins at 0 ``s[t] = wᵗ Σ w⁻ⁱ
# (1 - w) x[i]``, a cumulative sum; the values before the block add ``wᵗ⁺¹ s[-1]``. The newest terms
# weigh most, so the rounding error is at most about one unit in the last place per point of a
# block, of the average of the values' sizes.


def moving_average(
    values: Floats, keep: float, total: float = 0.0, count: int = 0
) -> tuple[Floats, float]:
    """Return the bias-corrected average after each value, and the last uncorrected one.

    Args:
        values: Must be finite.
        keep: The weight of the past, ``w``.
        total: The uncorrected average before `values`.
        count: Number of values before `values`.
    """
    size = len(values)
    if not size:
        return values.copy(), total
    compute = _one_by_one
    if np.abs(values).max() < LARGEST:
        compute = _in_blocks
    sums = compute(values, keep, total)
    last = float(sums[-1])
    # After a few thousand values the correction is exactly 1.
    young = max(0, min(size, int(-40.0 / np.log(keep)) + 1 - count))
    if young:
        # `expm1`, because 1 - wⁿ loses digits while wⁿ is close to 1.
        weights = -np.expm1(np.arange(count + 1, count + young + 1) * np.log(keep))
        # the largest floats, divided by a weight that rounds to below 1
        with np.errstate(over="ignore"):
            sums[:young] = np.clip(sums[:young] / weights, -MOST, MOST)
    return sums, last


def bias_divisor(keep: float, count: int) -> float:
    """Return the divisor of the bias correction after `count` values."""
    return float(-np.expm1(count * np.log(keep)))


def _in_blocks(values: Floats, keep: float, total: float) -> Floats:
    size = len(values)
    # Points per block: 0.6⁻²⁵⁶ is 10⁵⁷, so values up to `LARGEST` do not overflow.
    block = 256
    blocks = -(-size // block)
    made = np.zeros(blocks * block)
    made[:size] = values
    table = made.reshape(blocks, block)
    powers: Floats = keep ** np.arange(block, dtype=np.float64)
    table *= (1.0 - keep) / powers
    np.cumsum(table, axis=1, out=table)
    table *= powers
    over = keep**block
    before = list(
        accumulate(
            table[:-1, -1].tolist(), lambda carried, own: carried * over + own, initial=total
        )
    )
    table += np.array(before)[:, None] * (powers * keep)
    return made[:size]


def _one_by_one(values: Floats, keep: float, total: float) -> Floats:
    """Compute the same value by value, for values that would overflow in a block."""
    take = 1.0 - keep
    found = accumulate(
        (value * take for value in values.tolist()), lambda s, v: s * keep + v, initial=total
    )
    return np.array(list(found)[1:], dtype=np.float64)


class RunningAverage:
    """The average of one growing curve; gaps (NaN) stay gaps and do not change it."""

    def __init__(self, keep: float) -> None:
        self.keep = keep
        self._ys: Floats = np.empty(256)
        self._size = 0
        self._known: tuple[int, float, int] = (0, 0.0, 0)
        """Number of points, and the uncorrected average and the count of finite values there."""

    @property
    def size(self) -> int:
        """Number of processed points."""
        return self._size

    @property
    def averages(self) -> Floats:
        """The averages."""
        return self._ys[: self._size]

    def truncate_to(self, size: int) -> None:
        """Forget everything after the first `size` points."""
        self._size = min(self._size, size)

    def append_new(self, raw: Floats) -> None:
        """Process the new points; the first `size` points must be unchanged."""
        start = self._size
        if len(raw) == start:
            return
        total, count = self._resume_state(raw)
        fresh = raw[start:]
        finite = np.isfinite(fresh)
        whole = bool(finite.all())
        counted = fresh
        if not whole:
            counted = fresh[finite]
        means, total = moving_average(counted, self.keep, total, count)
        self._ys = grow_array(self._ys, start, len(raw))
        if whole:
            self._ys[start : len(raw)] = means
        else:
            self._ys[start : len(raw)] = np.nan
            self._ys[start : len(raw)][finite] = means
        self._size = len(raw)
        self._known = (self._size, total, count + len(means))

    def _resume_state(self, raw: Floats) -> tuple[float, int]:
        at, total, count = self._known
        if at == self._size:
            return total, count
        known = np.flatnonzero(np.isfinite(raw[: self._size]))
        if not len(known):
            return 0.0, 0
        # After a cut, the uncorrected average follows from the corrected one.
        return float(self._ys[known[-1]]) * bias_divisor(self.keep, len(known)), len(known)


def grow_array(array: Floats, used: int, size: int) -> Floats:
    """Return an array with room for `size` values that keeps the first `used` ones."""
    if size <= len(array):
        return array
    larger: Floats = np.empty(max(size, 2 * len(array)))
    larger[:used] = array[:used]
    return larger


# Several runs of one setting, which differ in their seeds.


class AverageBand(enum.StrEnum):
    """What the band around the average of several runs shows."""

    BOOTSTRAP = "bootstrap"
    RANGE = "range"
    STD = "std"

    @property
    def ends_text(self) -> str:
        """Return what its ends are, in a few words."""
        if self is AverageBand.BOOTSTRAP:
            return translate("95% bootstrap interval of the IQM")
        if self is AverageBand.RANGE:
            return translate("lowest and highest run")
        return translate("mean minus and plus the standard deviation")


@dataclass(frozen=True)
class SeedSummary:
    """Average and band of several runs, at the steps that they share."""

    steps: Floats
    iqm: Floats
    """Interquartile mean: of the values at a step, a quarter of the runs (rounded down) is left out
    at each end."""
    mean: Floats
    low: Floats
    high: Floats
    runs: int
    shortest: int
    """Index of the run that ends first."""
    last_step: float
    """The last step of any run."""

    def listed_curves(self) -> Iterator[tuple[str, list[float]]]:
        """Yield each curve of the summary with its name."""
        for name in ("IQM", "mean", "low", "high"):
            yield name, getattr(self, name.lower()).tolist()

    def describe_range(self, names: Sequence[str]) -> str:
        """Return which steps are compared, and which of the runs ends first."""
        shared = translate(
            "steps {steps:,.0f} to {steps_2:,.0f}", steps=self.steps[0], steps_2=self.steps[-1]
        )
        if self.steps[-1] < self.last_step:
            return translate(
                "{shared} of {last_step:,.0f}: {names} ends there",
                shared=shared,
                last_step=self.last_step,
                names=names[self.shortest],
            )
        return shared


def summarize_seeds(
    curves: Sequence[tuple[Floats, Floats]],
    band: AverageBand = AverageBand.BOOTSTRAP,
    *,
    most_steps: int = 400,
    resamples: int = 1000,
) -> SeedSummary:
    """Return average and band of several runs.

    The runs are compared at the steps that all of them reached, never beyond the end of one. The
    steps are those of the run with the fewest points there; between its own points, a run's value
    is interpolated.

    Args:
        curves: Steps (increasing) and values of each run; values that are not finite are left out.
        band: The ends of the band.
        most_steps: Steps are thinned out evenly to this number.
        resamples: Of the bootstrap: runs are drawn with replacement, the same at all steps.

    Raises:
        ValueError: There are fewer than two runs, or no step that all reached.
    """
    known = [(xs[np.isfinite(ys)], ys[np.isfinite(ys)]) for xs, ys in curves]
    if len(known) < 2 or not all(len(xs) for xs, _ in known):
        raise ValueError(translate("it takes two runs or more with values of this metric"))
    first = max(float(xs[0]) for xs, _ in known)
    ends = [float(xs[-1]) for xs, _ in known]
    last = min(ends)
    if first > last:
        raise ValueError(translate("the runs share no step"))
    inside = [xs[(xs >= first) & (xs <= last)] for xs, _ in known]
    # Without a point of any run in between, they are compared at one step.
    grid = min((steps for steps in inside if len(steps)), key=len, default=np.array([first]))
    if len(grid) > most_steps:
        grid = grid[np.linspace(0, len(grid) - 1, most_steps).round().astype(np.intp)]
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in known])
    ranked = np.sort(values, axis=0)
    cut = int(len(known) * 0.25)
    iqm, mean = ranked[cut : len(known) - cut].mean(axis=0), values.mean(axis=0)
    if band is AverageBand.BOOTSTRAP:
        low, high = _bootstrap_iqm(values, cut, resamples)
    elif band is AverageBand.RANGE:
        low, high = ranked[0], ranked[-1]
    else:
        spread = values.std(axis=0, ddof=1)
        low, high = mean - spread, mean + spread
    return SeedSummary(grid, iqm, mean, low, high, len(known), ends.index(last), float(max(ends)))


def _bootstrap_iqm(values: Floats, cut: int, resamples: int) -> tuple[Floats, Floats]:
    """Return the 2.5% and 97.5% quantiles of the IQM of resampled runs, for each step."""
    runs, steps = values.shape
    # A fixed seed: the same curves have the same band, in each frame and in each report.
    drawn = np.random.default_rng(0).integers(runs, size=(resamples, runs))
    # How often each run was drawn; a step then only has to put the runs in order.
    counts = np.stack([np.bincount(row, minlength=runs) for row in drawn])
    order = np.argsort(values, axis=0)
    found = np.empty((steps, resamples))
    for step in range(steps):
        # In order of value, each run counts as often as it was drawn; `cut` of them are left out at
        # each end.
        ends = np.clip(np.cumsum(counts[:, order[:, step]], axis=1) - cut, 0, runs - 2 * cut)
        kept = np.diff(ends, axis=1, prepend=0)
        found[step] = kept @ values[order[:, step], step] / (runs - 2 * cut)
    low, high = np.quantile(found, (0.025, 0.975), axis=1)
    return low, high


class FirstDifference(NamedTuple):
    """Where two curves part."""

    step: int
    values: tuple[float, float]
    """Both values at that step."""
    noise: float
    """The usual difference before that step."""
    equal_steps: int
    """Common steps before it."""


class DifferenceRule(NamedTuple):
    """When a difference is more than noise."""

    spans: tuple[int, ...] = (1, 8, 64)
    """Points whose mean is compared: a small lasting difference needs many."""
    sigmas: float = 6.0
    """Standard deviations of such a mean."""
    own_share: float = 0.1
    """A smaller part of the noise of the curves themselves is no difference, such as rounding."""
    fewest_points: int = 50
    """Points at the beginning from which the noise is estimated at once."""
    window: int = 200
    """Points before a step from which the noise there is estimated."""


DIFFERENCE_RULE = DifferenceRule()


def common_points(one: Series, two: Series) -> tuple[list[int], Floats, Floats]:
    """Return the steps that both curves have, and the values there.

    Of a step that was logged several times, as after a resume, the last finite value counts.
    """
    first, second = ({x: y for x, y in series if math.isfinite(y)} for series in (one, two))
    steps = sorted(first.keys() & second.keys())
    values = [np.array([points[step] for step in steps]) for points in (first, second)]
    return steps, values[0], values[1]


def find_first_difference(
    one: Series, two: Series, rule: DifferenceRule = DIFFERENCE_RULE
) -> FirstDifference | None:
    """Return the first step where two curves differ by more than their noise; None = nowhere.

    The noise of the difference is estimated from the jumps between its points before a step, so
    that two runs that agree exactly differ at the first step that does not, and two runs with other
    seeds only where their levels part.

    Args:
        one: A curve.
        two: Another one of the same metric.
        rule: When a difference counts.

    Raises:
        ValueError: they have no steps in common.
    """
    steps, left, right = common_points(one, two)
    if not steps:
        raise ValueError(translate("the runs have no logged step in common"))
    apart = left - right
    noise = _noise_before(apart, rule)
    # 1e-12 for a curve that is zero.
    rounding = 1e-9 * max(1e-12, float(np.median(np.abs(left))))
    floor = np.full(len(apart), rounding)
    for values in (left, right):
        floor = np.maximum(floor, rule.own_share * _noise_before(values, rule, whole=True))
    found = [
        place
        for span in rule.spans
        if (place := _first_apart(apart, noise, floor, span, rule.sigmas)) is not None
    ]
    if not found:
        return None
    place = min(found)
    # Runs that agreed exactly until then differ from their first other value on, however small.
    while place and noise[place] <= rounding < abs(apart[place - 1]):
        place -= 1
    there = (float(left[place]), float(right[place]))
    return FirstDifference(steps[place], there, float(noise[place]), place)


def _noise_before(values: Floats, rule: DifferenceRule, *, whole: bool = False) -> Floats:
    """Return the noise before each point: the usual jump between neighbours, as a deviation.

    Args:
        values: A curve.
        rule: How many points count.
        whole: Estimate it once, from the whole curve.
    """
    jumps = np.abs(np.diff(values, prepend=values[:1]))
    # 1.4826 makes a median a standard deviation of normal noise; a jump has the noise of two
    # points.
    to_deviation = 1.4826 / math.sqrt(2.0)
    if whole:
        return np.full(len(values), to_deviation * float(np.median(jumps)))
    noise = np.empty(len(values))
    # One median for ten points, because it takes most of the time.
    every_points = 10
    for begin in range(0, len(values), every_points):
        # Only earlier points: those after the difference are noisier.
        before = jumps[max(0, begin - rule.window) : begin]
        if len(before) < rule.fewest_points:
            before = jumps[: rule.fewest_points]
        noise[begin : begin + every_points] = to_deviation * float(np.median(before))
    return noise


def _first_apart(
    apart: Floats, noise: Floats, floor: Floats, span: int, sigmas: float
) -> int | None:
    """Return the first point where the mean over a span is more than noise."""
    if len(apart) < span:
        return None
    sums = np.concatenate([[0.0], np.cumsum(apart)])
    means = np.abs(sums[span:] - sums[:-span]) / span
    count = len(means)
    # A mean of `span` points has a deviation that is smaller by √span.
    limit = np.maximum(sigmas * noise[:count] / math.sqrt(span), floor[:count])
    over = np.flatnonzero(means > limit)
    if not len(over):
        return None
    begin = int(over[0])
    if span == 1:
        return begin
    # Within the span, the difference begins where what follows is furthest from zero.
    rest = np.cumsum(apart[begin : begin + span][::-1])[::-1]
    lengths = np.arange(span, 0, -1)
    return begin + int(np.argmax(np.abs(rest) / np.sqrt(lengths)))
