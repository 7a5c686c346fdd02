"""A step that goes back is a resume: the curve goes on from there, and what it overtakes is hidden."""

from __future__ import annotations

from bisect import bisect_left

from rgt_box.metrics.base import POINTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from rgt_box.metrics.base import Batch, Point, Problem, Reader

MAX_SERIES = 5000
"""Series of one file; a file that names more is not about metrics."""
MAX_STARTS = 1000
"""Restarts of one file that are looked at; behind them only a step that goes back begins a segment."""


class Series:
    """The visible points of one tag over one axis, in order of x.

    Attributes:
        xs: Increasing.
        ys: The values beside them.
        ats: Wall times, or None.
        breaks: x where a later segment begins, of those that are not overtaken themselves.
        segment: Index of the current segment.
    """

    __slots__ = ("_restart", "ats", "breaks", "segment", "xs", "ys")

    def __init__(self) -> None:
        self.xs: list[float] = []
        self.ys: list[float] = []
        self.ats: list[float | None] = []
        self.breaks: list[float] = []
        self.segment = 0
        self._restart = False

    def add(self, x: float, y: float, at: float | None) -> None:
        """Take the next point. The same x replaces the point; a smaller one begins a segment."""
        xs = self.xs
        if xs and x <= xs[-1]:
            if x == xs[-1] and not self._restart:
                self.ys[-1], self.ats[-1] = y, at
                return
            self.cut(x)
        if self._restart:
            self._restart = False
            self.segment += 1
            self.breaks.append(x)
        xs.append(x)
        self.ys.append(y)
        self.ats.append(at)

    def cut(self, x: float | None) -> None:
        """Begin a new segment: hide what stands at `x` or later (None: wait for the next point)."""
        self._restart = self._restart or bool(self.xs)
        if x is None:
            return
        keep = bisect_left(self.xs, x)
        del self.xs[keep:], self.ys[keep:], self.ats[keep:]
        while self.breaks and self.breaks[-1] >= x:
            self.breaks.pop()


class Unwanted(Series):
    """A series of which the name counts, and no point is kept."""

    __slots__ = ()

    def add(self, x: float, y: float, at: float | None) -> None:
        """Leave it out."""


class Store:
    """All series of one file, kept up to date batch by batch. Keyed by ``(group, tag, x_kind)``.

    Args:
        wanted: Tells by its tag whether the points of a series are kept; None = of all.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self._wanted = wanted
        self._starts = 0
        self.series: dict[tuple[str, str, str], Series] = {}
        self.dropped = 0
        """Points of series beyond `MAX_SERIES`."""

    def take(self, batch: Batch) -> None:
        """Apply one batch: reset, restarts and points, in this order of the file."""
        if batch.reset:
            self.series.clear()
            self._starts = 0
        starts = iter(batch.starts)
        start = next(starts, None)
        for index, point in enumerate(batch.points):
            while start is not None and start.before <= index:
                self._restart(start.x)
                start = next(starts, None)
            self._add(point)
        while start is not None:
            self._restart(start.x)
            start = next(starts, None)

    def _restart(self, x: float | None) -> None:
        self._starts += 1
        if self._starts > MAX_STARTS:
            return
        for (_, _, kind), series in self.series.items():
            if x is None or kind == "step":
                series.cut(x)

    def _add(self, point: Point) -> None:
        key = (point.group, point.tag, point.x_kind)
        series = self.series.get(key)
        if series is None:
            if len(self.series) >= MAX_SERIES:
                self.dropped += 1
                return
            wanted = self._wanted is None or self._wanted(point.tag)
            series = self.series[key] = Series() if wanted else Unwanted()
        series.add(point.x, point.y, point.at)


def read_all(reader: Reader, limit: int = POINTS, rounds: int = 10000) -> tuple[Store, list[Problem]]:
    """Read a file to its present end.

    Returns:
        Its series, and the first problems.
    """
    store, cursor = Store(), None
    problems: list[Problem] = []
    for _ in range(rounds):
        batch = reader.read(cursor, limit)
        store.take(batch)
        problems.extend(batch.problems[: 20 - len(problems)])
        cursor = batch.cursor
        if not batch.more:
            break
    return store, problems
