"""How fast something grows, robust to bursts: the median of all slopes over half an hour."""

from __future__ import annotations

from statistics import median

import msgspec

EVERY_S = 60.0
"""Seconds between two points."""
POINTS = 30
LEAST = 10
"""Points before anything is said: a burst of a few minutes is a download or a checkpoint, and ends by itself."""


class Trend(msgspec.Struct, frozen=True):
    """The last half hour of one figure."""

    points: tuple[tuple[float, float], ...] = ()
    """(known seconds, value), oldest first."""
    slope: float | None = None
    """Growth per second; None = too early to tell."""

    def fed(self, at: float, value: float) -> Trend:
        """Return the trend with one more point at `at`, known seconds."""
        points = (*self.points[-(POINTS - 1) :], (at, value))
        return Trend(points, _slope(points) if len(points) >= LEAST else None)


def _slope(points: tuple[tuple[float, float], ...]) -> float:
    """Return the Theil-Sen estimate, which up to 29 % of wild points cannot move far.

    https://en.wikipedia.org/wiki/Theil%E2%80%93Sen_estimator
    """
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for i, earlier in enumerate(points)
        for later in points[i + 1 :]
        if later[0] > earlier[0]
    ]
    return median(slopes) if slopes else 0.0
