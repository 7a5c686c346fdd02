"""How fast something grows, robust to bursts: the median of all slopes over half an hour."""

from __future__ import annotations

from array import array
from statistics import median

import msgspec

EVERY_S = 60.0
"""Seconds between two points."""
POINTS = 30
LEAST = 10
"""Points before anything is said: a burst of a few minutes is a download or a checkpoint, and ends by itself."""


class Trend(msgspec.Struct, frozen=True):
    """The last half hour of one figure. There are some of them per box, so the points are kept packed."""

    points: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """Known seconds, value, known seconds, value …, oldest first; never changed."""
    slope: float | None = None
    """Growth per second; None = too early to tell."""

    def fed(self, at: float, value: float) -> Trend:
        """Return the trend with one more point at `at`, known seconds."""
        points = self.points[-2 * (POINTS - 1) :]
        points.extend((at, value))
        return Trend(points, _slope(points) if len(points) >= 2 * LEAST else None)


def _slope(points: array[float]) -> float:
    """Return the Theil-Sen estimate, which up to 29 % of wild points cannot move far.

    https://en.wikipedia.org/wiki/Theil%E2%80%93Sen_estimator
    """
    times, values = points[::2], points[1::2]
    if min(values) == max(values):
        return 0.0  # nearly always
    slopes = [
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(len(times))
        for j in range(i + 1, len(times))
        if times[j] > times[i]
    ]
    return median(slopes) if slopes else 0.0
