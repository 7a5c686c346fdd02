"""Follow a run's curves: its own ``metrics.jsonl`` row by row, or its framework's files, merged.

A curve's cursor counts the points that were sent; its ``inode`` is a checksum of all of them, so
that a client whose points were replaced or corrected while it was away gets the curve from its
start.
"""

from __future__ import annotations

import os
import time
import zlib
from array import array
from bisect import bisect_right
from itertools import chain, islice

from rgt_box import jsonline
from rgt_box.metrics.discover import MetricSource, SourceFinder
from rgt_box.metrics.formats import (
    COUNTED_RANK,
    candidates,
    identify_kind,
    open_source,
    preference,
)
from rgt_box.metrics.jsonl import RunMetrics
from rgt_box.metrics.merging import (
    MAX_SERIES,
    Curve,
    CurveUpdate,
    SeriesStore,
    SourceSeries,
    merge_curves,
)
from rgt_box.metrics.metric_names import METRICS, may_be_metric
from rgt_box.metrics.reader_base import ROW, TOTAL
from rgt_box.metrics.rows import json_number
from rgt_box.metrics.scalars_command import tensorboard_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Protocol, Sequence

    from rgt_wire import JsonObject

    class SourceScan(Protocol):
        """The part of a finder that `FoundScalars` needs."""

        def scan(self) -> list[MetricSource]:
            """Return the sources that exist now."""
            ...

    from rgt_box.metrics.reader_base import MetricPoint, ReadBatch


MOST_POINTS = 3_000_000
"""Maximum number of points kept of all files of other programs, some 100 bytes each: the box's
memory is for the training.
"""
BEHIND = 64
"""Points at the end of a curve that are checksummed again each time."""
PATIENCE = 200.0
"""Curves are merged again at most after this many times the duration of a merge."""
OURS = ("rgt", "console:rgt")
"""Our own trainer's console output is ignored: it has less than the ``metrics.jsonl`` that it will
write.
"""
NAMES = {"eval_loss": "val_loss"}
RATES = (("tok", "tok_s"), ("img", "img_s"), ("image", "img_s"))
"""Part of a throughput's tag → its name in frames; all others are ``sample_s``."""


class FoundSource:
    """One source file, read incrementally.

    Args:
        source: The source as the finder returned it.
    """

    total = 0
    """Number of points that all instances keep together."""

    def __init__(self, source: MetricSource) -> None:
        self.source = source
        self._reader = open_source(source.kind, source.path)
        self._store = SeriesStore(may_be_metric)
        self._cursor: Any = None
        self._size = 0
        self.events: list[JsonObject] = []
        """Events of a tracker's own, which the caller takes."""

    def read_batch(self) -> tuple[bool, bool]:
        """Read a batch; return whether it had anything new, and whether there is more to read."""
        if FoundSource.total > MOST_POINTS:
            return False, False
        batch = self._reader.read(self._cursor)
        self._store.apply_batch(batch)
        self._cursor = batch.cursor
        self.events += batch.events
        changed = bool(batch.points or batch.starts or batch.reset)
        if changed:
            self._count_points(sum(len(series.xs) for series in self._store.series.values()))
        return changed, batch.more

    def _count_points(self, size: int) -> None:
        # Counted over all runs: a sweep of hundreds shares one limit.
        FoundSource.total += size - self._size
        self._size = size

    def __del__(self) -> None:
        self._count_points(0)

    @property
    def unread(self) -> int:
        """Number of lines since the last point that look like progress but are not understood."""
        return int((self._cursor or {}).get("unread", 0))

    @property
    def is_cut(self) -> bool:
        """Whether it has more series than are kept of one file."""
        return self._store.dropped > 0

    def source_series(self, since: float | None = None) -> SourceSeries:
        """Return its series for merging.

        Args:
            since: Leave out a database's runs whose newest point is older.
        """
        source = self.source
        rank = preference(source.kind)
        series = self._store.series
        if since is not None:
            new = {
                group
                for (group, _, _), one in series.items()
                # A database keeps the runs of all trainings that ever wrote to it.
                if not group or (one.ats and (one.ats[-1] or since) >= since)
            }
            series = {key: one for key, one in series.items() if key[0] in new}
        kind = self._reader.source
        if rank == COUNTED_RANK:
            kind = source.kind
        return SourceSeries(
            source.path,
            kind,
            source.run,
            rank,
            series,
            tensorboard_directory(source),
        )


class SentCurve:
    """One curve as the client has it.

    Args:
        cursor: ``(inode, offset)`` that the client sent.
    """

    def __init__(self, cursor: tuple[int, int] | None) -> None:
        self._cursor = cursor
        self._xs: list[float] = []
        self._ys: list[float] = []
        self._followed: tuple[Sequence[float], int] | None = None
        self._counted, self._sum = (
            0,
            0,
        )  # excludes the newest points, which may be corrected

    def new_points(self, curve: Curve) -> tuple[int, list[tuple[float, float, float | None]], bool]:
        """Return (points kept, points that follow, whether a segment begins at the first one)."""
        part = curve.growing_part
        keep = len(self._xs)
        followed = self._followed
        self._followed = None
        if len(curve.parts) == 1:
            self._followed = part.xs, part.segment
        if (
            followed is not None
            and followed[0] is part.xs
            and self._followed == followed
            and 0 < keep <= len(part.xs)
            and (part.ys[keep - 1] == self._ys[-1] or part.ys[keep - 1] is self._ys[-1])
        ):  # nearly always: points were only added to the only source
            self._xs += part.xs[keep:]
            self._ys += part.ys[keep:]
            return keep, list(zip(part.xs[keep:], part.ys[keep:], part.ats[keep:])), False
        xs, ys, ats = curve.point_columns()
        if self._cursor is not None:
            known, count = self._cursor
            self._cursor = None
            # The client has exactly these points, so only later ones are sent.
            if count <= len(xs) and known == 1 + _points_checksum(0, xs[:count], ys[:count]):
                self._xs, self._ys = xs[:count], ys[:count]
        keep = len(self._xs)
        if xs[:keep] == self._xs and ys[:keep] == self._ys:
            points = list(zip(xs[keep:], ys[keep:], ats[keep:]))
            resumes = 0 < keep < len(xs) and xs[keep] in curve.segment_starts()
        else:
            found = CurveUpdate(list(zip(self._xs, self._ys)), curve)
            keep = found.keep
            points = found.points
            resumes = found.resumes
        self._xs = xs
        self._ys = ys
        # The curve was corrected further back than the checksum reaches.
        if keep < self._counted:
            self._counted = 0
            self._sum = 0
        return keep, points, resumes

    def prefix_checksum(self, end: int) -> int:
        """Return a checksum of the first `end` points.

        After `new_points`, call it with increasing values only.
        """
        at = self._counted
        to = max(self._counted, end - BEHIND)
        self._counted = to
        self._sum = _points_checksum(self._sum, self._xs[at:to], self._ys[at:to])
        return 1 + _points_checksum(self._sum, self._xs[to:end], self._ys[to:end])


def _points_checksum(before: int, xs: list[float], ys: list[float]) -> int:
    return zlib.crc32(array("d", [value for point in zip(xs, ys) for value in point]), before)


class FoundScalars:
    """All metrics below one directory.

    Args:
        name: The run's name.
        root: Its directory.
        console: Its log, if it is elsewhere.
        cursors: The client's cursors, by source; used ones are removed.
        finder: Finds the sources; by default all files below `root`.
        since: A database's runs written before this time (epoch seconds) belong to another
            training.
    """

    def __init__(
        self,
        name: str,
        root: str,
        console: str | None,
        cursors: dict[str, tuple[int, int]],
        finder: SourceScan | None = None,
        since: float | None = None,
    ) -> None:
        self.name = name
        self.root = root
        self._console = console
        self._finder = SourceFinder(root) if finder is None else finder
        self._since = since
        self._sources: dict[tuple[str, str], FoundSource] = {}
        self._curves: dict[tuple[str, str], SentCurve] = {}
        self._by_count: dict[str, bool] = {}
        self._leads: dict[str, tuple[str, JsonObject]] = {}
        self._unread: dict[str, int] = {}
        self._cursors = cursors
        self._scanned = float("-inf")
        self._due = 0.0
        self._changed = False
        self._cost = 0.0
        self._told = self._told_names = self._read_all = False
        self.is_caught_up = False
        """Whether everything that existed at the last check has been read and sent."""
        self._waiting: Iterator[JsonObject] = iter(())
        self.is_read_exactly = False
        """Whether its leading curve comes from a metrics file, not from console output."""
        self.has_loss = False
        """Whether its curves have a loss: a file with nothing but evaluations is not all."""
        self.has_total = False
        """Whether something says how many steps are planned."""
        self.takes_only_totals = False
        """Of console output, only the planned steps are used: metrics files have the rest."""
        self._printed: dict[str, float] = {}

    def poll(self, budget: int = 1000, look: bool = True) -> list[JsonObject]:
        """Return ``scalar`` frames for new points.

        Args:
            budget: Maximum number of frames; the others come with the next call.
            look: Read more once all frames of the last read have been sent.
        """
        frames = list(islice(self._waiting, budget))
        if not frames and look:
            self._waiting = self._poll_sources()
            frames = list(islice(self._waiting, budget))
        self.is_caught_up = self._read_all and len(frames) < budget
        return frames

    def rescan_soon(self) -> None:
        """Search for sources at the next poll, even if it is not due yet."""
        self._scanned = float("-inf")

    def _poll_sources(self) -> Iterator[JsonObject]:
        if FoundSource.total > MOST_POINTS and not self._told:
            self._told = self._read_all = True
            text = (
                "%s: the curves of this box have more than %d points: new points are not shown"
                % (
                    self.name,
                    MOST_POINTS,
                )
            )
            return iter([{"t": "event", "kind": "curves-cut", "level": "warn", "text": text}])
        now = time.monotonic()
        scan_every = 5.0
        if now - self._scanned >= scan_every:
            self._scanned = now
            self._update_sources()
        # Maximum reads per poll, each of some thousand points; longer files are read over several
        # polls.
        batches = 8
        left = batches
        notes: list[JsonObject] = []
        for source in self._sources.values():
            more = True
            while more and left > 0:
                changed, more = source.read_batch()
                self._changed = self._changed or changed
                left -= more
            for event in source.events:
                # A database keeps the alerts of all trainings that ever wrote to it.
                if self._since is None or (event["at"] or 0.0) >= self._since:
                    notes.append({"t": "event", **event})
            source.events = []
            if source.is_cut and not self._told_names:
                self._told_names = True
                text = "%s: %s has more than %d curves: the others are not read" % (
                    self.name,
                    source.source.path,
                    MAX_SERIES,
                )
                notes.append({"t": "event", "kind": "curves-cut", "level": "warn", "text": text})
        self._read_all = left > 0 and (not self._changed or now >= self._due)
        notes += self._unread_frames()
        if not self._changed or now < self._due:
            return iter(notes)
        self._changed = False
        began = time.monotonic()
        runs = self._merge_curves()
        cost = self._cost
        self._cost = time.monotonic() - began
        self._due = now + PATIENCE * min(
            cost, self._cost
        )  # the smaller of the last two: the first merge also loads modules
        return chain(notes, self._iterate_frames(runs))

    def _unread_frames(self) -> list[JsonObject]:
        """Return a frame for each run whose log still grows, but is no longer understood."""
        frames = []
        # Lines without a point after which a log counts as not understood.
        least_lines = 3
        by_path = {source.source.path: source.unread for source in self._sources.values()}
        for path, head in self._leads.values():
            count = by_path.get(path, 0)
            if count >= least_lines and count > self._unread.get(path, 0):
                frames.append({**head, "points": [], "unread": _write_time(path)})
            self._unread[path] = count
        return frames

    def _update_sources(self) -> None:
        found = self._finder.scan()
        if self._console is not None and not any(source.path == self._console for source in found):
            found += self._console_source(self._console)
        kept = {(source.path, source.kind): source for source in found}
        for gone in [key for key in self._sources if key not in kept]:
            del self._sources[gone]
            self._changed = True
        for key, source in kept.items():
            if key not in self._sources:
                self._sources[key] = FoundSource(source)
            elif self._sources[key].source.run != source.run:
                # The next job of a sweep has the training's name now.
                self._sources[key].source = source
                self._changed = True

    @staticmethod
    def _console_source(path: str) -> list[MetricSource]:
        try:
            kind = identify_kind(path, candidates(path))
            if kind is None:
                return []
            return [MetricSource(path, kind, "", os.stat(path).st_mtime)]
        except OSError:
            return []

    def _merge_curves(self) -> dict[str, dict[str, Curve]]:
        base = os.path.basename(os.path.realpath(self.root))
        offers = [
            offer
            for offer in [each.source_series(self._since) for each in self._sources.values()]
            if offer.kind not in OURS
        ]
        if self.takes_only_totals:
            offers = [
                self._only_total(offer) if offer.kind.startswith("console") else offer
                for offer in offers
            ]
        for place, offer in enumerate(offers):
            if offer.run == base:
                offers[place] = offer._replace(run="")
        runs: dict[str, dict[str, Curve]] = {}
        for (run, metric), curve in merge_curves(offers).items():
            runs.setdefault("" if run == base else run, {})[metric] = curve
        return runs

    def _only_total(self, offer: SourceSeries) -> SourceSeries:
        """Return what a console's output says of the planned steps; notes its newest positions."""
        for (_, _, kind), one in offer.series.items():
            if one.xs:
                self._printed[kind] = max(one.xs[-1], self._printed.get(kind, 0.0))
        totals = {key: one for key, one in offer.series.items() if key[1] == TOTAL}
        return offer._replace(series=totals)

    def _is_same_count(self, total: Curve, lead: Curve) -> bool:
        """Return whether the planned steps of a console are those that a metrics file counts.

        A bar may count batches where the file counts updates.
        """
        if total.x_kind != lead.x_kind:
            return False
        if not self.takes_only_totals or not total.growing_part.kind.startswith("console"):
            return True
        step, most = lead.growing_part.xs[-1], total.growing_part.ys[-1]
        # Share by which the two may be apart: both are written now and then.
        apart = 0.1
        printed = self._printed.get(lead.x_kind, 0.0)
        return step <= most and abs(printed - step) <= apart * max(step, 10.0)

    def _iterate_frames(self, runs: dict[str, dict[str, Curve]]) -> Iterator[JsonObject]:
        for run, curves in sorted(runs.items()):
            # One axis per run: a step of one curve must not be mixed with an epoch of another.
            leads = [metric for metric in WIRED if metric in curves and metric != "total_steps"]
            # Without a loss, the figure that comes first: a reward, a score.
            leads += [metric for metric in curves if metric not in METRICS]
            if not leads:
                continue
            lead = leads[0]
            if not run:
                self.has_loss = "loss" in curves
                self.is_read_exactly = preference(curves[lead].growing_part.kind) < preference(
                    "console"
                )
            lead_xs: list[float] = []
            if curves[lead].x_kind == "epoch":
                lead_xs = curves[lead].point_columns()[0]
            by_count = not all(map(float.is_integer, lead_xs))
            if self._by_count.setdefault(run, by_count) != by_count:
                # The first fraction of an epoch: every point gets another step.
                self._by_count[run] = by_count
                for known in [key for key in self._curves if key[0] == run]:
                    self._curves[known] = SentCurve(None)
            axis = RunAxis(curves[lead].x_kind, lead_xs if by_count else None)
            total = curves.get("total_steps")
            # Points at fractions of epochs are counted, which no planned epochs are.
            if total is not None and (by_count or not self._is_same_count(total, curves[lead])):
                del curves["total_steps"]
            self.has_total = self.has_total or "total_steps" in curves
            for metric in (*WIRED, *sorted(set(curves) - set(METRICS))):
                if metric in curves and curves[metric].x_kind == axis.kind:
                    yield from self._frames_of(run, metric, curves[metric], metric == lead, axis)

    def _frames_of(
        self, run: str, metric: str, curve: Curve, lead: bool, axis: RunAxis
    ) -> Iterator[JsonObject]:
        source = f"{os.path.join(self.root, run) if run else self.root}#{metric}"
        if (run, metric) not in self._curves:
            self._curves[run, metric] = SentCurve(self._cursors.pop(source, None))
        sent = self._curves[run, metric]
        start, points, resumes = sent.new_points(curve)
        name = wire_name(metric, curve)
        path = curve.growing_part.path
        written = _write_time(path)
        points_limit = 500
        for at in range(0, len(points), points_limit):
            part = points[at : at + points_limit]
            head: JsonObject = {
                "t": "scalar",
                "run": f"{self.name}/{run}" if run else self.name,
            }
            end = start + at + len(part)
            head.update(source=source, inode=sent.prefix_checksum(end), start=start + at, end=end)
            if axis.kind != "step":
                head["axis"] = axis.kind
            frame = dict(head)
            if written is not None and points[-1][2] is None:
                frame["written"] = written
            frame["points"] = [axis.frame_point(each, name) for each in part]
            if resumes and lead and at == 0 and axis.kind != ROW:
                frame["resumes"] = [[frame["points"][0][0], "started again"]]
            if lead:
                self._leads[run] = path, dict(head, start=end)
            yield frame


def _write_time(path: str) -> float | None:
    """Return when a source was last written: its points without a time are not newer."""
    try:
        return round(os.stat(path).st_mtime, 3)
    except OSError:
        return None


WIRED = ("loss", "eval_loss", "lr", "grad_norm", "throughput", "total_steps")


def wire_name(metric: str, curve: Curve) -> str:
    """Return a metric's name in frames, as in our own trainer; other figures keep their name."""
    if metric != "throughput":
        return NAMES.get(metric, metric)
    tag = curve.growing_part.tag.lower()
    return next((name for part, name in RATES if part in tag), "sample_s")


class RunAxis:
    """The x axis of a run, the same for all of its curves.

    Args:
        kind: ``step``, ``epoch``, ``samples`` or ``row``.
        counted: The positions of the leading curve, if some are fractions of epochs: a step is then
            the number of its points so far. Otherwise a position is its own step.
    """

    def __init__(self, kind: str, counted: list[float] | None) -> None:
        self.kind = kind
        self._counted = counted

    def frame_point(self, each: tuple[float, float, float | None], name: str) -> list[Any]:
        """Return a point of a frame."""
        x, y, at = each
        if self._counted is None:
            step = int(x)
        else:
            step = bisect_right(self._counted, x)
        return [step, at, x if self.kind == "epoch" else None, {name: json_number(y)}]


ROWS = 500
QUIET = 30.0
"""Seconds without news after which a source is checked less often: a sweep may have thousands."""
MOST_STEP = 2.0**53
"""Larger steps cannot be distinguished in a float."""


class ScalarFollower:
    """One metric source.

    Args:
        run: The cell's name.
        source: Path of the file; it need not exist yet.
        cursor: ``(inode, offset)`` up to which the client has everything.
    """

    def __init__(self, run: str, source: str, cursor: tuple[int, int] | None) -> None:
        self.run = run
        self.source = source
        self._reader = RunMetrics(source)
        if cursor is None:
            self._cursor = None
        else:
            self._cursor = {"inode": cursor[0], "offset": cursor[1]}
        self._news = time.monotonic()

    def poll(self) -> tuple[JsonObject | None, list[JsonObject]]:
        """Return the next ``scalar`` frame (None if there is nothing new) and events of the run.

        At most `ROWS` points; call again until None to catch up. A replaced or shortened file
        starts again at offset 0, which the frame's inode and start show.
        """
        try:
            # One call per tick shows whether anything was written; usually nothing was.
            named = os.stat(self.source)
        except OSError:
            return None, []
        before = self._cursor
        if before is not None and (named.st_ino, named.st_size) == (
            before["inode"],
            before["offset"],
        ):
            return None, []
        batch = self._reader.read(before, ROWS)
        self._cursor = now = batch.cursor
        if before is None or batch.reset:
            start = 0
        else:
            start = before["offset"]
        if now is None or now["offset"] == start:
            return None, []
        self._news = time.monotonic()
        frame: JsonObject = {"t": "scalar", "run": self.run, "source": self.source}
        frame.update(inode=now["inode"], start=start, end=now["offset"])
        points = frame["points"] = [_frame_row(row) for row in _step_rows(batch)]
        if points and points[-1][1] is None:
            frame["written"] = round(named.st_mtime, 3)
        resumes = [[int(start.x), start.why] for start in batch.starts if start.x is not None]
        if resumes:
            frame["resumes"] = resumes
        if batch.wait is not None:
            frame["wait"] = jsonline.drop_empty(batch.wait)
        return frame, batch.events

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was written for `QUIET` seconds."""
        return time.monotonic() - self._news > QUIET


def _step_rows(batch: ReadBatch) -> list[list[MetricPoint]]:
    """Return the rows with an integer step, as their points."""
    ends = [*batch.rows[1:], len(batch.points)]
    rows = [batch.points[at:end] for at, end in zip(batch.rows, ends)]
    return [row for row in rows if row and row[0].x_kind == "step" and _is_whole(row[0].x)]


def _is_whole(x: float) -> bool:
    return abs(x) < MOST_STEP and x == int(x)


def _frame_row(row: list[MetricPoint]) -> list[Any]:
    values = {point.tag: json_number(point.y) for point in row}
    if TOTAL in values:
        values["total_steps"] = values.pop(TOTAL)
    epoch = values.pop("epoch", None)
    if not isinstance(epoch, float):
        epoch = None
    return [int(row[0].x), row[0].at, epoch, values]
