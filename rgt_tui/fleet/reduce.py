"""Frames into states: pure functions, one per kind of frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from rgt_tui.fleet.logs import LOG_LINES as LOG_LINES
from rgt_tui.fleet.logs import extended
from rgt_tui.fleet.past import EARLIEST, STRETCHES, from_history, merged, tenths, utilisation, vram
from rgt_tui.fleet.scalars import fold, rewound
from rgt_tui.model.box import BoxState, Counters, Link, Rings
from rgt_tui.model.plain import clean
from rgt_tui.model.protocol import (
    Checkpoints,
    Event,
    Found,
    FoundRun,
    Frame,
    Hello,
    History,
    LogLines,
    Pong,
    QueueState,
    Sample,
    Scalars,
)
from rgt_tui.model.run import RunState, training_of
from rgt_tui.profiles.readings import memory_pct

RING = 120
EVENTS = 100
MOST_RUNS = 4000
LONGEST = 4096
"""Characters of an event; the agent cuts it there, too."""
MOST_FOUND = 1000
MOST_QUEUES = 256
MOST_LOGS = 256
"""Of one box; then the one gives way that was silent for longest: trainings come and go for as long as rgt runs."""

replace = msgspec.structs.replace

T = TypeVar("T")


def apply(state: BoxState, frame: Frame, now: float) -> BoxState:
    """Return the state after `frame`, which arrived at `now` (client clock, epoch seconds)."""
    reduce = _REDUCERS.get(type(frame))
    return state if reduce is None else reduce(state, frame, now)


def _hello(state: BoxState, frame: Hello, now: float) -> BoxState:
    return replace(
        state,
        hello=frame,
        link=Link.LIVE,
        reason=f"ssh: connected to {state.spec.endpoint}, agent {frame.agent[:8]}",
        since=now if state.link is not Link.LIVE else state.since,
        clock_skew=frame.at - now,
        retry_at=None,
        looked=False,
        counters=replace(state.counters, connects=state.counters.connects + 1),
    )


def _sample(state: BoxState, frame: Sample, now: float) -> BoxState:
    return with_sample(state, frame, now)


def with_sample(state: BoxState, frame: Sample, now: float, *, most: int = RING) -> BoxState:
    """Return the state after a sample, with the last `most` values in its rings."""
    counted = count(state.counters, frame.boot, frame.seq, frame.skipped)
    if counted.duplicates > state.counters.duplicates:
        return replace(state, counters=counted)
    counted = replace(counted, samples=counted.samples + 1, skipped=counted.skipped + frame.skipped)
    at = frame.at - (state.clock_skew or 0.0)
    return replace(
        state,
        sample=frame,
        sample_at=at if EARLIEST < at < now else now,
        counters=counted,
        rings=_rings(state.rings, frame, most),
        remembered_at=None,
    )


def count(counters: Counters, boot: str, seq: int, skipped: int) -> Counters:
    """Account for one member of the shared sequence of samples and events."""
    if boot != counters.boot:
        return replace(counters, boot=boot, seq=seq)
    if seq <= counters.seq:
        return replace(counters, duplicates=counters.duplicates + 1)
    missing = max(0, seq - counters.seq - 1 - skipped)
    return replace(counters, seq=seq, gaps=counters.gaps + missing)


def _rings(rings: Rings, sample: Sample, most: int) -> Rings:
    return Rings(
        gpu_util=_push(rings.gpu_util, utilisation(sample), most),
        vram_pct=_push(rings.vram_pct, vram(sample), most),
        cgroup_pct=_push(rings.cgroup_pct, memory_pct(sample.mem), most),
    )


def _push(ring: tuple[float | None, ...], value: float | None, most: int) -> tuple[float | None, ...]:
    return (*ring[-(most - 1) :], tenths(value))


def _log(state: BoxState, frame: LogLines, now: float) -> BoxState:
    return with_log(state, frame, now)


def with_log(state: BoxState, frame: LogLines, now: float, *, most: int = LOG_LINES) -> BoxState:
    """Return the state with a log's new lines, and the newest `most` kept of it."""
    old = next((view for view in state.logs if view.path == frame.path), None)
    view = extended(old, frame, now, most)
    logs, _ = _put(state.logs, view, lambda item: item.path, MOST_LOGS, lambda item: item.at)
    return replace(state, logs=logs)


def _scalars(state: BoxState, frame: Scalars, now: float) -> BoxState:
    known = next((run for run in state.runs if run.name == frame.run), None)
    run = known if known is not None else _standing((RunState(name=frame.run),), state.found)[0]
    run = rewound(run, frame, run.cursors.get(frame.source))
    folded = fold(run, frame, now, state.clock_skew or 0.0)
    if known is not None:
        return replace(state, runs=tuple(folded if run is known else run for run in state.runs))
    runs = _newest(state.runs, (folded,))
    state = replace(state, left_out=state.left_out.plus(runs=len(state.runs) + 1 - len(runs)))
    queued = any(cell.name == frame.run for queue in state.queues for cell in queue.cells)
    return replace(state, runs=_in_queue_order(state, runs) if queued else runs)


def _queue(state: BoxState, frame: QueueState, now: float) -> BoxState:
    queues, gone = _put(state.queues, frame, lambda item: item.path, MOST_QUEUES, lambda item: item.at)
    changed = replace(state, queues=queues, left_out=state.left_out.plus(queues=gone))
    return replace(changed, runs=_in_queue_order(changed, changed.runs))


def _in_queue_order(state: BoxState, runs: tuple[RunState, ...]) -> tuple[RunState, ...]:
    names = [cell.name for queue in state.queues for cell in queue.cells]
    place = {name: index for index, name in enumerate(names)}
    return tuple(sorted(runs, key=lambda run: place.get(run.name, len(place))))


def _checkpoints(state: BoxState, frame: Checkpoints, now: float) -> BoxState:
    listed, gone = _put(state.checkpoints, frame, lambda item: item.run, MOST_RUNS, lambda item: item.at)
    return replace(state, checkpoints=listed, left_out=state.left_out.plus(checkpoints=gone))


def _event(state: BoxState, frame: Event, now: float) -> BoxState:
    # An event without a number comes from a file that has a cursor of its own, such as the metrics.
    counted = count(state.counters, frame.boot, frame.seq, 0) if frame.seq else state.counters
    if counted.duplicates > state.counters.duplicates:
        return replace(state, counters=counted)
    event = replace(frame, text=clean(frame.text[:LONGEST]), kind=clean(frame.kind[:LONGEST]))
    return replace(state, counters=counted, events=(*state.events[-(EVENTS - 1) :], event))


def _found(state: BoxState, frame: Found, now: float) -> BoxState:
    found = tuple(_plain(run) for run in frame.runs[-MOST_FOUND:])
    names = {run.name for run in state.runs}
    new = tuple(RunState(name=name) for name in dict.fromkeys(run.name for run in found) if name not in names)
    kept = _newest(state.runs, new)
    left = state.left_out.plus(runs=len(state.runs) + len(new) - len(kept))
    left = left.plus(found=len(frame.runs) - len(found) - left.found)
    runs = _in_queue_order(state, _standing(kept, found))
    return replace(state, found=found, runs=runs, left_out=left)


def _newest(runs: tuple[RunState, ...], new: tuple[RunState, ...]) -> tuple[RunState, ...]:
    """Return the runs with new ones behind them; of too many, those go that were silent for longest."""
    over = len(runs) + len(new) - MOST_RUNS
    if over > 0:
        silent = sorted(range(len(runs)), key=lambda place: runs[place].last_at or 0.0)[:over]
        kept = set(range(len(runs))).difference(silent)
        runs = tuple(run for place, run in enumerate(runs) if place in kept)
    return (*runs, *new)[-MOST_RUNS:]


def _plain(run: FoundRun) -> FoundRun:
    """Take control characters out of what is only shown; paths and names stay what other frames call them."""
    return replace(
        run,
        command=clean(run.command),
        why=clean(run.why),
        user=None if run.user is None else clean(run.user),
        place=None if run.place is None else clean(run.place),
        outcome=None if run.outcome is None else clean(run.outcome),
        notes=tuple(clean(note) for note in run.notes),
    )


def _standing(runs: tuple[RunState, ...], found: tuple[FoundRun, ...]) -> tuple[RunState, ...]:
    """Say of runs whether their processes live; ``NAME/SUB`` are several runs of one training."""
    told = {run.name: run for run in reversed(found)}
    return tuple(_stands(run, told) for run in runs)


def _stands(run: RunState, told: Mapping[str, FoundRun]) -> RunState:
    name = training_of(run.name, told)
    if name is None or (run.alive, run.ended) == (told[name].alive, told[name].ended):
        return run
    return replace(run, alive=told[name].alive, ended=told[name].ended)


def _pong(state: BoxState, frame: Pong, now: float) -> BoxState:
    # Asked for or not (number 0: the box's clock has been set), ages are counted by its difference to ours.
    return replace(state, clock_skew=frame.at - now, looked=state.looked or frame.looked)


def _history(state: BoxState, frame: History, now: float) -> BoxState:
    return with_history(state, frame)


def with_history(state: BoxState, frame: History, *, stretches: int = STRETCHES) -> BoxState:
    """Return the state with what the recorder saw while nobody watched, in so many stretches at most."""
    seen = from_history(frame, state.clock_skew or 0.0)
    return replace(state, past=merged(state.past, seen, stretches))


def _put(
    items: tuple[T, ...], new: T, key: Callable[[T], str], most: int, at: Callable[[T], float | None]
) -> tuple[tuple[T, ...], int]:
    """Return the items with `new` in the place of its predecessor, or behind them; and how many gave way to it."""
    wanted = key(new)
    if any(key(item) == wanted for item in items):
        return tuple(new if key(item) == wanted else item for item in items), 0
    if len(items) < most:
        return (*items, new), 0
    oldest = min(items, key=lambda item: at(item) or 0.0)
    return (*(item for item in items if item is not oldest), new), 1


_REDUCERS: dict[type, Callable[[BoxState, Any, float], BoxState]] = {
    Hello: _hello,
    Sample: _sample,
    LogLines: _log,
    Scalars: _scalars,
    QueueState: _queue,
    Checkpoints: _checkpoints,
    Event: _event,
    Pong: _pong,
    History: _history,
    Found: _found,
}
