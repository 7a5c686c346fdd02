"""Fold new points of a metric file into the state of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from rgt_tui.model.plain import clean
from rgt_tui.model.protocol import Cursor, Scalars
from rgt_tui.model.run import Resume, RunState, Series

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LATEST = (
    ("loss", "loss"),
    ("lr", "lr"),
    ("grad_norm", "grad_norm"),
    ("throughput", "tok_s"),
    ("throughput", "img_s"),
    ("throughput", "sample_s"),
)
BEST_OF = "val_loss"
"""The metric whose lowest finite value is a run's best."""
TOTAL = "total_steps"
"""Not a curve: how many steps the run will have, said when it changes; 0 = it is not known any more."""
MANY_STEPS = 1e15
MOST_SERIES = 10_000
"""Curves of one run; more names are no metrics."""
MOST_SOURCES = 10_000


def number(value: float | str | None) -> float | None:
    """Return a value of a point as a float; words are NaN and infinities, anything else is None."""
    if isinstance(value, str):
        return _WORDS.get(value.lower())
    return None if value is None else float(value)


def rewound(run: RunState, frame: Scalars, known: Cursor | None) -> RunState:
    """Return `run` without what `frame` is about to tell anew.

    A source ``DIR#METRIC`` is one curve that the agent found and merged: its frame replaces the points from its
    `start` on. Any other source is a run's whole metrics file: when that was replaced, its curves begin anew. So
    they do when the run's metrics come from another place than before.

    Args:
        run: The run so far.
        frame: The new frame.
        known: Where this source stood; None = never seen.
    """
    if known is None:
        # The sources of one place stand together, the newest at the end.
        here = place(frame.source)
        moved = bool(run.cursors) and not any(place(source) == here for source in reversed(run.cursors))
        return _anew(run) if moved else run
    if frame.start >= known.offset and (frame.inode == known.inode or "#" in frame.source):
        return run
    _, found, metric = frame.source.rpartition("#")
    if not found:
        return _anew(run)
    # The source is called by the metric's canonical name, its points by the name on the wire.
    names = {name for point in frame.points for name in point.values} or {metric}
    trimmed = {name: run.series[name].until(frame.start) for name in names if name in run.series}
    series = {**run.series, **trimmed}
    kept = tuple(resume for resume in run.resumes if resume.index <= len(series.get("loss", ())))
    return msgspec.structs.replace(run, series=series, resumes=kept)


def place(source: str) -> str:
    """Return the file or directory that a metric source is of."""
    return source.rpartition("#")[0] or source


def _anew(run: RunState) -> RunState:
    return msgspec.structs.replace(run, series={}, resumes=(), best=None, total_steps=None)


def fold(run: RunState, frame: Scalars, now: float, skew: float) -> RunState:
    """Return `run` with the points and resumes of `frame`.

    Args:
        run: The run so far.
        frame: New points, in file order.
        now: Client clock.
        skew: Box clock minus client clock, seconds.
    """
    new: dict[str, list[tuple[int, float]]] = {}
    latest: dict[str, float] = {}
    total = run.total_steps
    for point in frame.points:
        for name, raw in point.values.items():
            value = number(raw)
            if name == TOTAL:
                total = int(value) if value is not None and 0 < value < MANY_STEPS else None
            elif value is not None:
                new.setdefault(name, []).append((point.step, value))
                latest[name] = value
    series = dict(run.series)
    for name, points in new.items():
        if len(series) >= MOST_SERIES and name not in series:
            continue
        series[name] = series.get(name, Series()).extended(points)
    changes: dict[str, float] = {field: latest[name] for field, name in _LATEST if name in latest}
    return msgspec.structs.replace(
        run,
        series=series,
        resumes=run.resumes + _resumes(run, frame),
        best=_best(run.best, new.get(BEST_OF, ())),
        total_steps=total,
        cursors=_cursors(run.cursors, frame),
        **changes,
        **_progress(run, frame, now, skew),
    )


def _cursors(known: dict[str, Cursor], frame: Scalars) -> dict[str, Cursor]:
    """Return how far the sources are; of too many the oldest is forgotten, and comes anew after a reconnect."""
    cursors = {**known, frame.source: Cursor(inode=frame.inode, offset=frame.end)}
    if len(cursors) > MOST_SOURCES:
        del cursors[next(iter(cursors))]
    return cursors


def _best(best: float | None, points: Iterable[tuple[int, float]]) -> float | None:
    finite = [value for _, value in points if math.isfinite(value)]
    return min(finite if best is None else [best, *finite], default=None)


def _resumes(run: RunState, frame: Scalars) -> tuple[Resume, ...]:
    # The agent cuts a frame at every resume, so the first point after it is the first of this frame.
    have = len(run.series.get("loss", ()))
    return tuple(Resume(step=step, reason=clean(reason), index=have) for step, reason in frame.resumes)


def _progress(run: RunState, frame: Scalars, now: float, skew: float) -> dict[str, float]:
    if not frame.points or frame.source.endswith(f"#{TOTAL}"):
        return {}  # how many steps there will be is told where that was said, and moves nothing
    last = frame.points[-1]
    changes: dict[str, float] = {"step": last.step}
    if last.epoch is not None:
        changes["epoch"] = last.epoch
    if last.at is not None:
        changes["last_at"] = last.at
    if last.step != run.step:
        # Never back: a clock that was set on the box must not make a run that goes on look stalled.
        at = frame.written if last.at is None else last.at
        moved = now if at is None else min(now, at - skew)
        changes["progressed_at"] = moved if run.progressed_at is None else max(moved, run.progressed_at)
    return changes
