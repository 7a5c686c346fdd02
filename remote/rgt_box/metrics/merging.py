"""Merges the points of a run's sources into one curve per metric. Pure.

A step that goes back is a resume: the curve continues from there, and later old points are hidden.

For each metric one source wins, by preference. A less preferred source only adds points before the
winner's first point, and only over the same x axis. Sources of equal preference follow each other
in the given order (a resume writes a new file): each begins a segment and hides the points it
overtakes.
"""

from __future__ import annotations

from bisect import bisect_left

from rgt_box.metrics.formats import COUNTED_RANK
from rgt_box.metrics.metric_names import choose_tags
from rgt_box.metrics.reader_base import EPOCH, FROM_START, POINTS, ROW, SAMPLES, STEP, TOTAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, NamedTuple, Sequence

    from rgt_box.metrics.reader_base import MetricPoint, MetricReader, ReadBatch, ReadProblem

    Key = tuple[str, str, str]

    class SourceSeries(NamedTuple):
        """The series of one source."""

        path: str
        kind: str
        run: str
        rank: int
        """Preference; 0 is best."""
        series: Mapping[Key, PointSeries]
        directory: str = ""
        """Base name of the directory of its files."""

    class CurvePart(NamedTuple):
        """A stretch of a curve from a single source."""

        path: str
        kind: str
        tag: str
        xs: Sequence[float]
        ys: Sequence[float]
        ats: Sequence[float | None]
        breaks: Sequence[float]
        segment: int = 0
        """Number of times that points of its source were overtaken."""
else:
    from collections import namedtuple

    SourceSeries = namedtuple("SourceSeries", "path kind run rank series directory", defaults=("",))
    CurvePart = namedtuple("CurvePart", "path kind tag xs ys ats breaks segment", defaults=(0,))

MAX_SERIES = 5000
"""Maximum series per file; a file with more is not a metrics file."""
MAX_STARTS = 1000
"""Restarts applied per file; after that, only a step that goes back begins a segment."""


class PointSeries:
    """The visible points of one tag over one axis, ordered by x.

    Attributes:
        xs: Increasing.
        ys: The value at each x.
        ats: The wall time at each x, or None.
        breaks: Each x at which a later segment begins, without overtaken segments.
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

    def add_point(self, x: float, y: float, at: float | None) -> None:
        """Add a point. An equal x replaces the last point; a smaller x begins a segment."""
        xs = self.xs
        if xs and x <= xs[-1]:
            # Abbreviated steps ("1K") repeat, and a bar is drawn several times at one step: the
            # last value counts.
            if x == xs[-1] and not self._restart:
                self.ys[-1], self.ats[-1] = y, at
                return
            self.begin_segment(x)
        if self._restart:
            self._restart = False
            self.segment += 1
            self.breaks.append(x)
        xs.append(x)
        self.ys.append(y)
        self.ats.append(at)

    def begin_segment(self, x: float | None) -> None:
        """Begin a new segment: hide the points at `x` or later (None: wait for the next point)."""
        self._restart = self._restart or bool(self.xs)
        if x is None:
            return
        keep = bisect_left(self.xs, x)
        del self.xs[keep:], self.ys[keep:], self.ats[keep:]
        # The start of a hidden segment is hidden, too.
        while self.breaks and self.breaks[-1] >= x:
            self.breaks.pop()


class UnwantedSeries(PointSeries):
    """A series whose name counts, but whose points are not kept."""

    __slots__ = ()

    def add_point(self, x: float, y: float, at: float | None) -> None:
        """Ignore the point."""


class SeriesStore:
    """All series of one file, updated batch by batch. Keyed by ``(group, tag, x_kind)``.

    Args:
        wanted: Returns whether to keep the points of a tag; None to keep all.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self._wanted = wanted
        self._starts = 0
        self.series: dict[tuple[str, str, str], PointSeries] = {}
        self.dropped = 0
        """Number of points dropped because of `MAX_SERIES`."""

    def apply_batch(self, batch: ReadBatch) -> None:
        """Apply one batch: reset, restarts and points, in file order."""
        if batch.reset:
            self.series.clear()
            self._starts = 0
        starts = iter(batch.starts)
        start = next(starts, None)
        for index, point in enumerate(batch.points):
            while start is not None and start.before <= index:
                self._begin_segments(start.x)
                start = next(starts, None)
            self._add_point(point)
        # A restart may be the last record of a file so far.
        while start is not None:
            self._begin_segments(start.x)
            start = next(starts, None)

    def _begin_segments(self, x: float | None) -> None:
        self._starts += 1
        if self._starts > MAX_STARTS:
            return
        for (_, _, kind), series in self.series.items():
            # A restart names a step. Epochs and samples of the file have another axis, so only a
            # point that goes back hides theirs.
            if x is None or kind == STEP:
                series.begin_segment(x)
            elif kind == ROW:
                series.begin_segment(FROM_START)  # now that positions are known

    def _add_point(self, point: MetricPoint) -> None:
        key = (point.group, point.tag, point.x_kind)
        series = self.series.get(key)
        if series is None:
            if len(self.series) >= MAX_SERIES:
                self.dropped += 1
                return
            wanted = self._wanted is None or self._wanted(point.tag)
            series = self.series[key] = PointSeries() if wanted else UnwantedSeries()
        series.add_point(point.x, point.y, point.at)


def read_all(
    reader: MetricReader, limit: int = POINTS, rounds: int = 10000
) -> tuple[SeriesStore, list[ReadProblem]]:
    """Read a file to its current end.

    Returns:
        Its series, and the first 20 problems.
    """
    store = SeriesStore()
    cursor = None
    problems: list[ReadProblem] = []
    for _ in range(rounds):
        batch = reader.read(cursor, limit)
        store.apply_batch(batch)
        problems.extend(batch.problems[: 20 - len(problems)])
        cursor = batch.cursor
        if not batch.more:
            break
    return store, problems


AXES = (STEP, SAMPLES, EPOCH, ROW)
"""Axes by preference, for a source that has a metric over several."""


class Curve:
    """One metric of one run.

    Attributes:
        x_kind: ``step``, ``epoch``, ``samples`` or ``row``; the same for all points.
        parts: Stretches ordered by x, without overlap.
    """

    __slots__ = ("parts", "x_kind")

    def __init__(self, x_kind: str, parts: list[CurvePart]) -> None:
        self.x_kind = x_kind
        self.parts = parts

    @property
    def growing_part(self) -> CurvePart:
        """The stretch that is still growing, from the winning source."""
        return self.parts[-1]

    def list_points(self) -> list[tuple[float, float, float | None]]:
        """Return (x, y, wall time) of every point, with increasing x."""
        return [point for part in self.parts for point in zip(part.xs, part.ys, part.ats)]

    def point_columns(self) -> tuple[list[float], list[float], list[float | None]]:
        """Return the same as three new lists."""
        xs: list[float] = []
        ys: list[float] = []
        ats: list[float | None] = []
        for part in self.parts:
            xs += part.xs
            ys += part.ys
            ats += part.ats
        return xs, ys, ats

    def segment_starts(self) -> list[float]:
        """Return each x at which a segment begins, except for the first point."""
        found = {x for part in self.parts for x in part.breaks}
        found.update(part.xs[0] for part in self.parts[1:])
        found.discard(self.parts[0].xs[0])
        return sorted(found)


def merge_curves(offers: Sequence[SourceSeries]) -> dict[tuple[str, str], Curve]:
    """Return (run, metric) → curve.

    Args:
        offers: All sources; those of equal preference in order of creation.
    """
    stacks: dict[tuple[str, str], list[tuple[int, str, CurvePart]]] = {}
    placed = {offer.run for offer in offers if offer.rank < COUNTED_RANK and _has_curve(offer)}
    for offer in offers:
        # If other rows have positions, rows that are only counted belong to something else.
        if offer.rank == COUNTED_RANK and not placed.isdisjoint(("", offer.run)):
            continue
        groups = sorted({group for group, _, _ in offer.series})
        for group in groups:
            # A database of one run keeps the name of its directory, so that its curve joins the
            # run's other sources.
            if group and len(groups) > 1:
                run = group
            else:
                run = offer.run
            for metric, (kind, part) in _metrics_of_group(offer, group).items():
                stacks.setdefault((run, metric), []).append((offer.rank, kind, part))
    ratios = _steps_per_epoch(offers)
    curves = {}
    for (run, metric), stack in stacks.items():
        curve = _combine_sources(stack, ratios.get(run))
        if curve is not None:
            curves[run, metric] = curve
    return curves


def _has_curve(offer: SourceSeries) -> bool:
    """Return whether a source has more than planned steps."""
    return any(tag != TOTAL and one.xs for (_, tag, _), one in offer.series.items())


def _metrics_of_group(offer: SourceSeries, group: str) -> dict[str, tuple[str, CurvePart]]:
    """Return metric → (axis, points) of one group of a source."""
    tags = {tag for place, tag, _ in offer.series if place == group}
    by_step = {
        tag
        for (place, tag, kind), series in offer.series.items()
        if (place, kind) == (group, STEP) and series.xs
    }
    if offer.kind.startswith("console:") and by_step - {TOTAL}:
        tags = by_step  # the summaries of its epochs are among its steps, too
    found = {}
    for metric, tag in choose_tags(sorted(tags), offer.directory).items():
        for kind in AXES:
            series = offer.series.get((group, tag, kind))
            if series is not None and series.xs:
                part = CurvePart(
                    offer.path, offer.kind, tag, series.xs, series.ys, series.ats, series.breaks,
                    series.segment,
                )  # fmt: skip
                found[metric] = kind, part
                break
    return found


def _combine_sources(stack: list[tuple[int, str, CurvePart]], ratio: float | None) -> Curve | None:
    """Combine the sources of one metric; the most preferred covers the end of the curve."""
    if ratio:
        stack = [_by_step(each, ratio) for each in stack]
    best = min(rank for rank, _, _ in stack)
    # Of several sources of the best rank, the newest decides: it is the one that still grows.
    x_kind = [kind for rank, kind, _ in stack if rank == best][-1]
    same = [(rank, part) for rank, kind, part in stack if kind == x_kind]
    parts: list[CurvePart] = []
    for rank in sorted({rank for rank, _ in same}):
        tier: list[CurvePart] = []
        for part in [part for each, part in same if each == rank]:
            tier = _cut_parts(tier, part.xs[0]) + [part]
        if parts:
            # A less preferred source fills in only the part before the first point of the better
            # ones.
            parts = _cut_parts(tier, parts[0].xs[0]) + parts
        else:
            parts = tier
    if parts:
        return Curve(x_kind, parts)
    return None


def _cut_parts(parts: list[CurvePart], x: float) -> list[CurvePart]:
    """Return `parts` without the points at `x` or later."""
    kept = []
    for part in parts:
        keep = bisect_left(part.xs, x)
        if keep:
            shorter = part._replace(
                xs=part.xs[:keep],
                ys=part.ys[:keep],
                ats=part.ats[:keep],
                breaks=[each for each in part.breaks if each < x],
            )
            kept.append(shorter)
    return kept


def _steps_per_epoch(offers: Sequence[SourceSeries]) -> dict[str, float]:
    """Return run → steps per epoch from ``trainer_state.json``: HF's console prints only epochs."""
    found: dict[str, float] = {}
    for offer in offers:
        if offer.kind == "hf_trainer":
            series = offer.series.get(("", "epoch", "step"))
        else:
            series = None
        if series is not None and series.xs and series.ys[-1] > 0:
            found[offer.run] = series.xs[-1] / series.ys[-1]
    return found


def _by_step(each: tuple[int, str, CurvePart], ratio: float) -> tuple[int, str, CurvePart]:
    """Convert points of transformers' console output from epochs to steps."""
    rank, kind, part = each
    if kind != "epoch" or part.kind not in ("console:hf", "console:llamafactory"):
        return each
    move: Callable[[float], float] = lambda x: float(round(x * ratio))  # noqa: E731
    # Rounded epochs can give one step twice: the last value counts, as everywhere.
    points = {move(x): (y, at) for x, y, at in zip(part.xs, part.ys, part.ats)}
    xs = sorted(points)
    return (
        rank,
        "step",
        part._replace(
            xs=xs,
            ys=[points[x][0] for x in xs],
            ats=[points[x][1] for x in xs],
            breaks=[move(x) for x in part.breaks],
        ),
    )


class CurveUpdate:
    """The part of a curve that its reader does not have yet.

    Attributes:
        keep: Number of sent points that remain valid; the later ones are overtaken.
        points: The points after them.
        resumes: True if a segment begins at the first of `points` (a restart or another source);
            False if points were only appended or the last one corrected.
    """

    __slots__ = ("keep", "points", "resumes")

    def __init__(self, sent: Sequence[tuple[float, float]], curve: Curve) -> None:
        points = curve.list_points()
        keep = 0
        for (x, y), (now, value, _) in zip(sent, points):
            # NaN is unequal to itself: without the second test, a curve with a NaN would be sent
            # again from there every time.
            if x != now or (y != value and (y == y or value == value)):
                break
            keep += 1
        self.keep = keep
        self.points = points[keep:]
        self.resumes = (
            keep > 0 and bool(self.points) and self.points[0][0] in curve.segment_starts()
        )
