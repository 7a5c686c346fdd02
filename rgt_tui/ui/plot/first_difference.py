"""The first step at which two curves differ by more than their noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rgt_tui.model import Series
from rgt_tui.ui.plot.curve_stats import Floats


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
        raise ValueError("the runs have no logged step in common")
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
