"""Pure functions that apply a frame to a box's state."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from typing import Any, TypeVar

import msgspec

from rgt_tui.fleet.history.past import (
    EARLIEST,
    HISTORY_GRID,
    Values,
    from_history,
    kept_percentages,
    merge_history,
    round_to_tenth,
)
from rgt_tui.language import translate
from rgt_tui.model import (
    EPOCH,
    PLACES,
    TIME,
    BoxEvent,
    BoxSpec,
    BoxState,
    Checkpoints,
    FileCursor,
    FoundRun,
    FoundRuns,
    Frame,
    FrozenStruct,
    Hello,
    LinkState,
    LogLines,
    LogView,
    Pong,
    QueueState,
    RecordedHistory,
    RowSparklines,
    RunResume,
    RunState,
    Sample,
    Scalars,
    Series,
    StreamCounters,
    TrainingPause,
    training_of,
)


class BoxLimits(FrozenStruct):
    """How much of one box is kept in memory."""

    log_lines: int = 2000
    """Lines of each log."""
    line_characters: int = 20_000
    """Characters kept of a line; the agent truncates lines earlier, and marks that."""
    series: int = 10_000
    """Curves of one run; points of further curves are only counted, because thousands of names
    cannot be metrics."""
    samples: int = 120
    """Values of each small graph."""
    events: int = 100
    counted: int = 1 << 62
    """Upper limit of sums of a box's counts: the history stores 64 bits."""
    runs: int = 4000
    """Here, and for queues and logs, the longest silent entry is replaced beyond the limit, because
    trainings come and go as long as rgt runs."""
    event_characters: int = 4096
    """Characters kept of an event; the agent truncates at the same length."""
    found_runs: int = 1000
    queues: int = 256
    logs: int = 256


BOX_LIMITS = BoxLimits()


def written_at(frame: LogLines, now: float) -> float | None:
    """Return when the newest lines were written (client clock).

    None = the box does not report it, or the value is impossible.
    """
    age = frame.age
    if age is not None and age >= 0.0 and now - age > EARLIEST:
        return now - age
    return None


def extend_log(
    old: LogView | None, frame: LogLines, now: float, most: int = BOX_LIMITS.log_lines
) -> LogView:
    """Return the log after `frame`.

    Args:
        old: The log so far; None when this is its first frame.
        frame: New lines, including the unfinished one.
        now: Client clock.
        most: How many lines are kept; earlier lines count as dropped.
    """
    kept = old if not frame.reset else None
    if kept is not None:
        before = kept.complete_lines
    else:
        before = ()
    dropped = add_counts(kept.dropped if kept is not None else 0, frame.skipped)
    lines = before + tuple(line[: BOX_LIMITS.line_characters] for line in frame.lines)
    if frame.partial is not None:
        lines += (frame.partial[: BOX_LIMITS.line_characters],)
    if len(lines) > most:
        dropped += len(lines) - most
        lines = lines[-most:]
    if kept is not None:
        counted = kept.counted
    else:
        # Only from the file's first line on are row numbers those of the file.
        counted = frame.start == 0
    if kept is None:
        written = None
    else:
        written = kept.written
    if frame.lines:
        # The agent sends an age only for a file that it has just opened; later lines are new.
        if frame.age is None and kept is not None:
            written = now
        else:
            written = written_at(frame, now)
    return LogView(
        path=frame.path,
        lines=lines,
        dropped=dropped,
        at=now,
        counted=counted,
        written=written,
        is_open=frame.partial is not None,
    )


_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LATEST = (
    ("loss", "loss"),
    ("lr", "lr"),
    ("grad_norm", "grad_norm"),
    ("throughput", "tok_s"),
    ("throughput", "img_s"),
    ("throughput", "sample_s"),
)
LOSS = "loss"
"""The curve whose points set time and epoch, if a run's curves come from separate sources."""
BEST_OF = "val_loss"
"""The metric whose lowest finite value is a run's best."""
TOTAL = "total_steps"
"""Not a curve: the planned number of steps of the run, sent when it changes; 0 = no longer
known."""


def parse_point_value(value: float | str | None) -> float | None:
    """Return a point's value as a float; words are NaN and infinities, others give None."""
    if isinstance(value, str):
        return _WORDS.get(value.lower())
    if value is None:
        return None
    return float(value)


def rewind_run(run: RunState, frame: Scalars, known: FileCursor | None) -> RunState:
    """Return `run` without the points that `frame` is about to repeat.

    A source ``DIR#METRIC`` is one curve that the agent found and merged: its frame replaces the
    points from its `start` on. Any other source is a complete metrics file of a run: if that file
    was replaced, its curves start from the beginning. They also do when the run's metrics come from
    another file or directory than before.

    Args:
        run: The run so far.
        frame: The new frame.
        known: The previous cursor; None for a new source.
    """
    if known is None:
        # Sources of one directory are adjacent in the dict, the newest at the end.
        here = source_path(frame.source)
        moved = bool(run.cursors) and not any(
            source_path(source) == here for source in reversed(run.cursors)
        )
        # The run was started again in another directory: its points do not continue the old ones.
        if moved:
            return _reset_run(run)
        return run
    # With #, the agent has merged the curve from its files: another inode is no new run.
    if frame.start >= known.offset and (frame.inode == known.inode or "#" in frame.source):
        return run
    _, found, metric = frame.source.rpartition("#")
    # The file was truncated or replaced: all of its points are of an earlier run.
    if not found:
        return _reset_run(run)
    # The source has the metric's canonical name, but its points have the name used in the frame.
    names = {name for point in frame.points for name in point.values} or {metric}
    names |= {*PLACES} if _places_here(frame) else set()
    trimmed = {
        name: run.series[name].first_points(frame.start) for name in names if name in run.series
    }
    series = {**run.series, **trimmed}
    kept = tuple(resume for resume in run.resumes if resume.index <= len(series.get("loss", ())))
    return msgspec.structs.replace(run, series=series, resumes=kept)


def source_path(source: str) -> str:
    """Return the file or directory of a metric source."""
    return source.rpartition("#")[0] or source


def _reset_run(run: RunState) -> RunState:
    return msgspec.structs.replace(
        run, series={}, resumes=(), best=None, total_steps=None, wait=None, held_s=0.0
    )


def fold_points(run: RunState, frame: Scalars, now: float, skew: float) -> RunState:
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
    many_steps = 1e15
    for point in frame.points:
        for name, raw in point.values.items():
            value = parse_point_value(raw)
            if name in PLACES:
                continue
            if name == TOTAL:
                if value is not None and 0 < value < many_steps:
                    total = int(value)
                else:
                    total = None
            elif value is not None:
                new.setdefault(name, []).append((point.step, value))
                latest[name] = value
    axis = run.axis
    if frame.points and not frame.source.endswith(f"#{TOTAL}"):
        axis = frame.axis
    if axis == "row":
        total = None  # planned steps are no number of rows
    series = dict(run.series)
    surplus = run.surplus
    for name, points in new.items():
        if len(series) >= BOX_LIMITS.series and name not in series:
            surplus += len(points)
            continue
        series[name] = _find_curve(series, name).with_points(points)
    if _places_here(frame) and new:
        series |= {
            name: _find_curve(series, name).with_points(told)
            for name, told in _point_places(frame, skew).items()
        }
    changes: dict[str, float] = {field: latest[name] for field, name in _LATEST if name in latest}
    return msgspec.structs.replace(
        run,
        series=series,
        surplus=surplus,
        resumes=run.resumes + _build_resumes(run, frame),
        best=_best_loss(run.best, new.get(BEST_OF, ())),
        total_steps=total,
        cursors=_update_cursors(run.cursors, frame),
        wait=_update_wait(run, frame),
        held_s=_held_seconds(run, frame, now + skew),
        axis=axis,
        unread_at=_find_unread_time(run, frame, now, skew),
        **changes,
        **_progress_changes(run, frame, now, skew),
    )


def _find_curve(series: Mapping[str, Series], name: str) -> Series:
    known = series.get(name)
    if known is not None:
        return known
    return Series()


def _places_here(frame: Scalars) -> bool:
    """Return whether a frame sets time and epoch of its run's steps.

    Of curves from separate sources, only the loss does.
    """
    _, found, metric = frame.source.rpartition("#")
    return not found or metric == LOSS


def _point_places(frame: Scalars, skew: float) -> dict[str, list[tuple[int, float]]]:
    """Return times and epochs of the points: one value for each point, or no list at all."""
    told = {
        TIME: [math.nan if point.at is None else point.at - skew for point in frame.points],
        EPOCH: [math.nan if point.epoch is None else point.epoch for point in frame.points],
    }
    steps = [point.step for point in frame.points]
    return {
        name: list(zip(steps, values, strict=True))
        for name, values in told.items()
        if not all(map(math.isnan, values))
    }


def _update_cursors(known: dict[str, FileCursor], frame: Scalars) -> dict[str, FileCursor]:
    """Return the updated cursors; above the limit, the oldest source is dropped.

    After a reconnect the agent sends a dropped source from the beginning.
    """
    cursors = {**known, frame.source: FileCursor(inode=frame.inode, offset=frame.end)}
    most_sources = 10_000
    if len(cursors) > most_sources:
        # The oldest: a source that grew again would only be read once more.
        del cursors[next(iter(cursors))]
    return cursors


def _best_loss(best: float | None, points: Iterable[tuple[int, float]]) -> float | None:
    finite = [value for _, value in points if math.isfinite(value)]
    return min(finite if best is None else [best, *finite], default=None)


def _build_resumes(run: RunState, frame: Scalars) -> tuple[RunResume, ...]:
    # The agent splits frames at every resume, so it applies to the first point of this frame.
    have = len(run.series.get("loss", ()))
    return tuple(
        RunResume(step=step, reason=reason, index=have, reached=run.step)
        for step, reason in frame.resumes
    )


def _update_wait(run: RunState, frame: Scalars) -> TrainingPause | None:
    if frame.wait is not None:
        if frame.wait.what:
            return frame.wait
        return None
    # A new point is the end of a wait, even if nothing said so.
    if frame.points:
        return None
    return run.wait


def _held_seconds(run: RunState, frame: Scalars, box_now: float) -> float:
    """Return the total seconds that the current attempt waited for space, without an open wait."""
    if frame.resumes:
        return 0.0
    before, after = run.wait, _update_wait(run, frame)
    if before is None or before.at is None or (after is not None and after.at == before.at):
        return run.held_s
    # The first point after the wait shows when it ended; without one, now is the best guess.
    ended = next((point.at for point in frame.points if point.at is not None), box_now)
    return run.held_s + max(0.0, ended - before.at)


def _find_unread_time(run: RunState, frame: Scalars, now: float, skew: float) -> float | None:
    if frame.unread is not None:
        return min(now, frame.unread - skew)
    if frame.points and not frame.source.endswith(f"#{TOTAL}"):
        return None
    return run.unread_at


def _progress_changes(run: RunState, frame: Scalars, now: float, skew: float) -> dict[str, float]:
    if not frame.points or frame.source.endswith(f"#{TOTAL}"):
        return {}  # the planned number of steps is not progress
    last = frame.points[-1]
    _, found, metric = frame.source.rpartition("#")
    if found and metric != LOSS and not frame.resumes and last.step < (run.step or 0):
        return {}  # a curve with fewer points, such as that of an evaluation
    changes: dict[str, float] = {"step": last.step}
    if last.epoch is not None:
        changes["epoch"] = last.epoch
    written = frame.written
    if last.at is not None:
        written = last.at
    if written is not None:
        changes["last_at"] = written
    known = run.cursors.get(frame.source)
    # Another value at the same step: an abbreviated step (1K) stays the same for many lines.
    is_corrected = bool(found) and known is not None and frame.start < known.offset
    if last.step != run.step or is_corrected:
        # Never back: a clock change on the box must not make a running training look stalled.
        if written is None:
            moved = now
        else:
            moved = min(now, written - skew)
        if run.progressed_at is None:
            changes["progressed_at"] = moved
        else:
            changes["progressed_at"] = max(moved, run.progressed_at)
    return changes


replace = msgspec.structs.replace

T = TypeVar("T")


def apply_frame(state: BoxState, frame: Frame, now: float) -> BoxState:
    """Return the state after `frame`, received at `now` (client clock, epoch seconds)."""
    reduce = _REDUCERS.get(type(frame))
    if reduce is None:
        return state
    return reduce(state, frame, now)


def _apply_hello(state: BoxState, frame: Hello, now: float) -> BoxState:
    return replace(
        state,
        hello=frame,
        link=LinkState.LIVE,
        reason=translate(
            "{transport}: connected to {endpoint}, agent {agent}",
            transport=state.spec.transport,
            endpoint=state.spec.endpoint,
            agent=frame.agent[:8],
        ),
        since=now if state.link is not LinkState.LIVE else state.since,
        clock_skew=frame.at - now,
        retry_at=None,
        looked=False,
        counters=replace(state.counters, connects=state.counters.connects + 1),
    )


def _apply_sample(state: BoxState, frame: Sample, now: float) -> BoxState:
    return with_samples(state, (frame,), now, kept_percentages)[0]


def with_samples(
    state: BoxState,
    frames: Iterable[Sample],
    now: float,
    read: Callable[[Sample], Values],
    *,
    most: int = BOX_LIMITS.samples,
) -> tuple[BoxState, list[tuple[float, Values]]]:
    """Return the state after several samples, the same as if applied one at a time.

    Args:
        state: The state so far.
        frames: In the order received.
        now: Client clock.
        read: Returns the `kept_percentages` of a sample.
        most: Maximum number of values in its rings.

    Returns:
        The state, and for each new sample its time (client clock) and figures.
    """
    counters, skew, skipped = state.counters, state.clock_skew or 0.0, 0
    fresh: list[tuple[float, Values]] = []
    for frame in frames:
        counted = count_frame(counters, frame.boot, frame.seq, frame.skipped)
        if counted.duplicates == counters.duplicates:
            at = frame.at - skew
            # A box's clock may be wrong; no sample can be from the future.
            fresh.append((at if EARLIEST < at < now else now, read(frame)))
            newest, skipped = frame, skipped + frame.skipped
        counters = counted
    if not fresh:
        return replace(state, counters=counters), fresh
    made = replace(
        state,
        sample=newest,
        sample_at=fresh[-1][0],
        counters=replace(
            counters,
            samples=counters.samples + len(fresh),
            skipped=add_counts(counters.skipped, skipped),
        ),
        rings=_extend_rings(state.rings, fresh, most),
        remembered_at=None,
    )
    return made, fresh


def add_counts(total: int, more: int) -> int:
    """Return the sum of two counts, limited to `BoxLimits.counted`.

    A box can send any number: a negative one counts as 0.
    """
    return min(BOX_LIMITS.counted, total + max(0, more))


def count_frame(counters: StreamCounters, boot: str, seq: int, skipped: int) -> StreamCounters:
    """Account for one member of the shared sequence of samples and events."""
    # Numbers begin again with each boot, so nothing is missing.
    if boot != counters.boot:
        return replace(counters, boot=boot, seq=seq)
    # The agent sends again what may have been lost with a connection.
    if seq <= counters.seq:
        return replace(counters, duplicates=counters.duplicates + 1)
    missing = max(0, seq - counters.seq - 1 - skipped)
    return replace(counters, seq=seq, gaps=add_counts(counters.gaps, missing))


def _extend_rings(
    rings: RowSparklines, fresh: list[tuple[float, Values]], most: int
) -> RowSparklines:
    first = len(fresh) - most
    if first >= 0:  # the new values fill the rings completely
        rings, fresh, first = RowSparklines(), fresh[first:], 0
    return RowSparklines(
        gpu_util=rings.gpu_util[first:]
        + tuple([round_to_tenth(figures["util"]) for _, figures in fresh]),
        vram_pct=rings.vram_pct[first:]
        + tuple([round_to_tenth(figures["vram"]) for _, figures in fresh]),
        cgroup_pct=rings.cgroup_pct[first:]
        + tuple([round_to_tenth(figures["cgroup"]) for _, figures in fresh]),
    )


def _apply_log(state: BoxState, frame: LogLines, now: float) -> BoxState:
    return with_log(state, frame, now)


def with_log(
    state: BoxState, frame: LogLines, now: float, *, most: int = BOX_LIMITS.log_lines
) -> BoxState:
    """Return the state with a log's new lines; only its newest `most` lines are kept."""
    old = next((view for view in state.logs if view.path == frame.path), None)
    view = extend_log(old, frame, now, most)
    logs, _ = _put_item(
        state.logs, view, lambda item: item.path, BOX_LIMITS.logs, lambda item: item.at
    )
    return replace(state, logs=logs)


def _apply_scalars(state: BoxState, frame: Scalars, now: float) -> BoxState:
    known = next((run for run in state.runs if run.name == frame.run), None)
    if known is not None:
        run = known
    else:
        run = _set_alive((RunState(name=frame.run),), state.found)[0]
    run = rewind_run(run, frame, run.cursors.get(frame.source))
    folded = fold_points(run, frame, now, state.clock_skew or 0.0)
    if folded.surplus > run.surplus:
        state = replace(
            state, left_out=state.left_out.with_added(surplus=folded.surplus - run.surplus)
        )
    if known is not None:
        return replace(state, runs=tuple(folded if run is known else run for run in state.runs))
    runs = _append_newest(state.runs, (folded,))
    state = replace(state, left_out=state.left_out.with_added(runs=len(state.runs) + 1 - len(runs)))
    if any(cell.name == frame.run for queue in state.queues for cell in queue.cells):
        return replace(state, runs=_in_queue_order(state, runs))
    pattern = _pattern_of(state.spec, frame.source)
    if pattern:
        runs = tuple(replace(run, named_by=pattern) if run is folded else run for run in runs)
    return replace(state, runs=runs)


def _pattern_of(spec: BoxSpec, source: str) -> str:
    """Return which run directory of the fleet file matches a source; empty = no match."""
    path = source_path(source)
    for pattern in spec.runs:
        if pattern.startswith("~"):
            # The box's home is not known here.
            full = pattern.rstrip("/").replace("~", "*", 1)
        else:
            full = pattern.rstrip("/")
        if any(fnmatch(one, full) for one in (path, posixpath.dirname(path))):
            return pattern
    return ""


def _apply_queue(state: BoxState, frame: QueueState, now: float) -> BoxState:
    queues, gone = _put_item(
        state.queues, frame, lambda item: item.path, BOX_LIMITS.queues, lambda item: item.at
    )
    changed = replace(state, queues=queues, left_out=state.left_out.with_added(queues=gone))
    return replace(changed, runs=_in_queue_order(changed, changed.runs))


def _in_queue_order(state: BoxState, runs: tuple[RunState, ...]) -> tuple[RunState, ...]:
    """Return the runs in the order of the queues' cells, each with the queue that names it."""
    named = {
        cell.name: queue.path for queue in reversed(state.queues) for cell in reversed(queue.cells)
    }
    order = {name: index for index, name in enumerate(reversed(named))}
    told = (
        run
        if run.named_by == named.get(run.name, run.named_by)
        else replace(run, named_by=named[run.name])
        for run in runs
    )
    return tuple(sorted(told, key=lambda run: order.get(run.name, len(order))))


def _checkpoints(state: BoxState, frame: Checkpoints, now: float) -> BoxState:
    listed, gone = _put_item(
        state.checkpoints, frame, lambda item: item.run, BOX_LIMITS.runs, lambda item: item.at
    )
    return replace(state, checkpoints=listed, left_out=state.left_out.with_added(checkpoints=gone))


def _apply_event(state: BoxState, frame: BoxEvent, now: float) -> BoxState:
    # An event without a number comes from a file with its own cursor, such as the metrics.
    if frame.seq:
        counted = count_frame(state.counters, frame.boot, frame.seq, 0)
    else:
        counted = state.counters
    if counted.duplicates > state.counters.duplicates:
        return replace(state, counters=counted)
    # What a file says is read again after a reconnect.
    if not frame.seq and any(
        (one.at, one.kind, one.text) == (frame.at, frame.kind, frame.text) for one in state.events
    ):
        return state
    event = replace(
        frame,
        text=frame.text[: BOX_LIMITS.event_characters],
        kind=frame.kind[: BOX_LIMITS.event_characters],
    )
    return replace(
        state, counters=counted, events=(*state.events[-(BOX_LIMITS.events - 1) :], event)
    )


def _apply_found(state: BoxState, frame: FoundRuns, now: float) -> BoxState:
    found = frame.runs[-BOX_LIMITS.found_runs :]
    names = {run.name for run in state.runs}
    new = tuple(
        RunState(name=name)
        for name in dict.fromkeys(run.name for run in found)
        if name not in names
    )
    kept = _append_newest(state.runs, new)
    left = state.left_out.with_added(runs=len(state.runs) + len(new) - len(kept))
    left = left.with_added(found=len(frame.runs) - len(found) - left.found)
    runs = _in_queue_order(state, _set_alive(kept, found))
    return replace(state, found=found, runs=runs, left_out=left)


def _append_newest(runs: tuple[RunState, ...], new: tuple[RunState, ...]) -> tuple[RunState, ...]:
    """Return the runs with new ones appended.

    Above the limit, the longest silent ones are dropped.
    """
    over = len(runs) + len(new) - BOX_LIMITS.runs
    if over > 0:
        silent = sorted(range(len(runs)), key=lambda place: runs[place].last_at or 0.0)[:over]
        kept = set(range(len(runs))).difference(silent)
        runs = tuple(run for place, run in enumerate(runs) if place in kept)
    return (*runs, *new)[-BOX_LIMITS.runs :]


def _set_alive(runs: tuple[RunState, ...], found: tuple[FoundRun, ...]) -> tuple[RunState, ...]:
    """Set whether the processes of the runs are alive.

    ``NAME/SUB`` are several runs of one training.
    """
    told = {run.name: run for run in reversed(found)}
    return tuple(_set_run_alive(run, told) for run in runs)


def _set_run_alive(run: RunState, told: Mapping[str, FoundRun]) -> RunState:
    name = training_of(run.name, told)
    if name is None or (run.alive, run.ended) == (told[name].alive, told[name].ended):
        return run
    return replace(run, alive=told[name].alive, ended=told[name].ended)


def _apply_pong(state: BoxState, frame: Pong, now: float) -> BoxState:
    # Ages are computed with this clock difference. The agent also sends a pong without a request
    # (number 0) when the box's clock was set.
    return replace(state, clock_skew=frame.at - now, looked=state.looked or frame.looked)


def _apply_history(state: BoxState, frame: RecordedHistory, now: float) -> BoxState:
    return with_history(state, frame)


def with_history(
    state: BoxState, frame: RecordedHistory, *, stretches: int = HISTORY_GRID.slots
) -> BoxState:
    """Return the state with the recorder's history of unwatched time merged in.

    The history has at most `stretches` slots.
    """
    seen = from_history(frame, state.clock_skew or 0.0)
    return replace(state, past=merge_history(state.past, seen, stretches))


def _put_item(
    items: tuple[T, ...],
    new: T,
    key: Callable[[T], str],
    most: int,
    at: Callable[[T], float | None],
) -> tuple[tuple[T, ...], int]:
    """Return the items with `new` replacing its predecessor or appended, and the number dropped."""
    wanted = key(new)
    if any(key(item) == wanted for item in items):
        return tuple(new if key(item) == wanted else item for item in items), 0
    if len(items) < most:
        return (*items, new), 0
    oldest = min(items, key=lambda item: at(item) or 0.0)
    return (*(item for item in items if item is not oldest), new), 1


_REDUCERS: dict[type, Callable[[BoxState, Any, float], BoxState]] = {
    Hello: _apply_hello,
    Sample: _apply_sample,
    LogLines: _apply_log,
    Scalars: _apply_scalars,
    QueueState: _apply_queue,
    Checkpoints: _checkpoints,
    BoxEvent: _apply_event,
    Pong: _apply_pong,
    RecordedHistory: _apply_history,
    FoundRuns: _apply_found,
}
