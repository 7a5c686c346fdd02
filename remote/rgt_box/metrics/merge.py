"""Many sources of one run → one curve per metric. Pure.

One source wins each metric, by preference; a less preferred one only fills in what lies before the winner's first
point, and only over the same axis. Sources of the same preference follow each other in the order in which they are
given (a resume writes a new file): each begins a segment, and hides what it overtakes.
"""

from __future__ import annotations

from bisect import bisect_left

from rgt_box.metrics.canonical import METRICS, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, NamedTuple, Optional, Sequence

    from rgt_box.metrics.segments import Series

    Key = tuple[str, str, str]

    class Offer(NamedTuple):
        """What one source has."""

        path: str
        kind: str
        run: str
        rank: int
        """Preference, 0 is best."""
        series: Mapping[Key, Series]
        directory: str = ""
        """Base name of the directory of its files."""

    class Part(NamedTuple):
        """A stretch of a curve, all from one source."""

        path: str
        kind: str
        tag: str
        xs: Sequence[float]
        ys: Sequence[float]
        ats: Sequence[Optional[float]]
        breaks: Sequence[float]
else:
    from collections import namedtuple

    Offer = namedtuple("Offer", "path kind run rank series directory", defaults=("",))
    Part = namedtuple("Part", "path kind tag xs ys ats breaks")

AXES = ("step", "samples", "epoch", "time")
"""Axes by preference, where one source has a metric over several."""


class Curve:
    """One metric of one run.

    Attributes:
        metric: Canonical name.
        x_kind: step, epoch, samples or time; of all points.
        parts: Stretches in order of x; they do not overlap.
    """

    __slots__ = ("metric", "parts", "x_kind")

    def __init__(self, metric: str, x_kind: str, parts: list[Part]) -> None:
        self.metric, self.x_kind, self.parts = metric, x_kind, parts

    @property
    def source(self) -> Part:
        """The stretch that goes on: the winner's."""
        return self.parts[-1]

    def points(self) -> list[tuple[float, float, float | None]]:
        """Return (x, y, wall time) of every point, x increasing."""
        return [point for part in self.parts for point in zip(part.xs, part.ys, part.ats)]  # noqa: B905 (3.10)

    def columns(self) -> tuple[list[float], list[float], list[float | None]]:
        """Return the same as three lists of its own."""
        xs: list[float] = []
        ys: list[float] = []
        ats: list[float | None] = []
        for part in self.parts:
            xs += part.xs
            ys += part.ys
            ats += part.ats
        return xs, ys, ats

    def breaks(self) -> list[float]:
        """Return every x at which a segment begins, but for the first point."""
        found = {x for part in self.parts for x in part.breaks}
        found.update(part.xs[0] for part in self.parts[1:])
        found.discard(self.parts[0].xs[0])
        return sorted(found)


def merge(offers: Sequence[Offer]) -> dict[tuple[str, str], Curve]:
    """Return (run, metric) → curve.

    Args:
        offers: Every source, those of one preference in the order in which they were begun.
    """
    stacks: dict[tuple[str, str], list[tuple[int, str, Part]]] = {}
    for offer in offers:
        groups = sorted({group for group, _, _ in offer.series})
        for group in groups:
            run = group if group and len(groups) > 1 else offer.run
            for metric, (kind, part) in _metrics(offer, group).items():
                stacks.setdefault((run, metric), []).append((offer.rank, kind, part))
    ratios = _ratios(offers)
    curves = {}
    for (run, metric), stack in stacks.items():
        curve = _stack(metric, stack, ratios.get(run))
        if curve is not None:
            curves[run, metric] = curve
    return curves


def _metrics(offer: Offer, group: str) -> dict[str, tuple[str, Part]]:
    """Return metric → (axis, points) of one group of a source."""
    tags = {tag for place, tag, _ in offer.series if place == group}
    found = {}
    for metric, tag in choose(sorted(tags), offer.directory).items():
        for kind in AXES:
            series = offer.series.get((group, tag, kind))
            if series is not None and series.xs:
                part = Part(offer.path, offer.kind, tag, series.xs, series.ys, series.ats, series.breaks)
                found[metric] = kind, part
                break
    return found


def _stack(metric: str, stack: list[tuple[int, str, Part]], ratio: float | None) -> Curve | None:
    """Lay the sources of one metric over each other, the best last."""
    if ratio:
        stack = [_by_step(each, ratio) for each in stack]
    best = min(rank for rank, _, _ in stack)
    x_kind = [kind for rank, kind, _ in stack if rank == best][-1]
    same = [(rank, part) for rank, kind, part in stack if kind == x_kind]
    parts: list[Part] = []
    for rank in sorted({rank for rank, _ in same}):
        tier: list[Part] = []
        for part in [part for each, part in same if each == rank]:
            tier = _cut(tier, part.xs[0]) + [part]
        parts = _cut(tier, parts[0].xs[0]) + parts if parts else tier
    return Curve(metric, x_kind, parts) if parts else None


def _cut(parts: list[Part], x: float) -> list[Part]:
    """Return `parts` without what stands at `x` or later."""
    kept = []
    for part in parts:
        keep = bisect_left(part.xs, x)
        if keep:
            breaks = [each for each in part.breaks if each < x]
            kept.append(
                part._replace(xs=part.xs[:keep], ys=part.ys[:keep], ats=part.ats[:keep], breaks=breaks)
            )
    return kept


def _ratios(offers: Sequence[Offer]) -> dict[str, float]:
    """Return run → steps per epoch, where a ``trainer_state.json`` says it: transformers' console has only epochs."""
    found: dict[str, float] = {}
    for offer in offers:
        series = offer.series.get(("", "epoch", "step")) if offer.kind == "hf_trainer" else None
        if series is not None and series.xs and series.ys[-1] > 0:
            found[offer.run] = series.xs[-1] / series.ys[-1]
    return found


def _by_step(each: tuple[int, str, Part], ratio: float) -> tuple[int, str, Part]:
    """Put points of transformers' console that stand at an epoch at their step."""
    rank, kind, part = each
    if kind != "epoch" or part.kind not in ("console:hf", "console:llamafactory"):
        return each
    move: Callable[[float], float] = lambda x: float(round(x * ratio))  # noqa: E731
    points = {move(x): (y, at) for x, y, at in zip(part.xs, part.ys, part.ats)}  # noqa: B905 (3.10)
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


class News:
    """What of a curve its reader does not have yet.

    Attributes:
        keep: How many of the points that were sent stay; the later ones are overtaken.
        points: What comes after them.
        resumes: True when a segment begins at the first of `points` (a restart, another source); False when points
            are only appended, or the last one was corrected.
    """

    __slots__ = ("keep", "points", "resumes")

    def __init__(self, sent: Sequence[tuple[float, float]], curve: Curve) -> None:
        points = curve.points()
        keep = 0
        for (x, y), (now, value, _) in zip(sent, points):  # noqa: B905 (3.10)
            if x != now or (y != value and (y == y or value == value)):
                break
            keep += 1
        self.keep, self.points = keep, points[keep:]
        self.resumes = keep > 0 and bool(self.points) and self.points[0][0] in curve.breaks()


def in_order(curves: Mapping[tuple[str, str], Curve]) -> list[tuple[str, Curve]]:
    """Return (run, curve) pairs, by run and by the order of the canonical metrics."""
    keys = sorted(curves, key=lambda key: (key[0], METRICS.index(key[1])))
    return [(key[0], curves[key]) for key in keys]
