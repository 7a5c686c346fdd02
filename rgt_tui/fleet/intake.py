"""One box's frames into its state, and what to ask the box for after a reconnect."""

from __future__ import annotations

from rgt_tui.fleet.attention import Size, size
from rgt_tui.fleet.budget import Budget, weight, within
from rgt_tui.fleet.logs import LOG_LINES
from rgt_tui.fleet.past import Stretch, figures, merged, wanted
from rgt_tui.fleet.reduce import RING, apply, count, replace, with_history, with_log, with_sample
from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import (
    DEFAULT_PATTERN,
    Cursor,
    Event,
    Frame,
    History,
    LogLines,
    Sample,
    SampleCursor,
    Scalars,
    WatchConfig,
)

MOST_CURSORS = 1024
"""Logs whose place is remembered; of more, those that are shown. The others' newest lines then come anew."""


class Intake:
    """Keeps the cursors of one box.

    Args:
        spec: The box.
        profile: Its platform.
        boxes: How many the fleet has: of many less is kept of each.
        budget: What is kept of it at most, however much it tells; None = as built in.
    """

    __slots__ = (
        "_beyond",
        "_budget",
        "_came",
        "_logs",
        "_more",
        "_mounts",
        "_size",
        "_spec",
        "_stretch",
        "focused",
    )

    def __init__(self, spec: BoxSpec, profile: Profile, boxes: int = 1, budget: Budget | None = None) -> None:
        self.focused = False
        """The box is the one on the screen: all of its logs is kept."""
        self._spec = spec
        self._mounts = tuple(
            dict.fromkeys(spec.mounts or (mount for tier in profile.tiers for mount in tier.mounts))
        )
        self._size: Size = size(boxes)
        self._budget = budget or Budget()
        self._came = 0
        """About how many bytes since the budget was looked at."""
        self._more: tuple[str, ...] = ()
        self._logs: dict[str, Cursor] = {}
        self._beyond: dict[str, Cursor] = {}
        """Metric sources of which a frame could not be taken in: they go on behind it."""
        self._stretch = Stretch()

    def follow(self, path: str) -> bool:
        """Ask for one more log from now on; return whether it is new."""
        if path in self._more:
            return False
        self._more += (path,)
        return True

    @property
    def stretches(self) -> int:
        """How much of the past is kept."""
        return self._size.stretches

    @property
    def followed(self) -> tuple[str, ...]:
        """Logs that were asked for beside those of the description."""
        return self._more

    def take(self, state: BoxState, frame: Frame, now: float) -> BoxState:
        """Return the state after `frame`, which arrived at `now` (client clock), within the box's budget."""
        self._came += weight(frame)
        state = self._taken(state, frame, now)
        if self._came < self._budget.every:
            return state
        self._came = 0
        if len(self._logs) > MOST_CURSORS:
            shown = {view.path for view in state.logs}
            self._logs = {path: cursor for path, cursor in self._logs.items() if path in shown}
        return within(state, self._budget)

    def _taken(self, state: BoxState, frame: Frame, now: float) -> BoxState:
        if isinstance(frame, Sample):
            most = RING if self.focused else self._size.ring
            return self._sample(with_sample(state, frame, now, most=most), frame)
        if isinstance(frame, LogLines):
            if frame.path not in self._logs and any(view.path == frame.path for view in state.logs):
                # What an earlier rgt left of this log: the box tells its newest lines anew.
                state = replace(state, logs=tuple(view for view in state.logs if view.path != frame.path))
            self._logs[frame.path] = Cursor(inode=frame.inode, offset=frame.end)
            most = LOG_LINES if self.focused else self._size.lines
            return with_log(state, frame, now, most=most)
        if isinstance(frame, History):
            return with_history(state, frame, stretches=self._size.stretches)
        return apply(state, frame, now)

    def _sample(self, state: BoxState, frame: Sample) -> BoxState:
        if state.sample is not frame or state.sample_at is None:
            return state
        done = self._stretch.add(state.sample_at, figures(frame), state.past.width)
        return state if done is None else replace(state, past=merged(state.past, done, self._size.stretches))

    def give_up(self, state: BoxState, frame: Frame) -> BoxState:
        """Return the state with its cursors behind a frame that cannot be taken in, so that it does not come again."""
        if isinstance(frame, Scalars):
            self._beyond[frame.source] = Cursor(inode=frame.inode, offset=frame.end)
        if isinstance(frame, LogLines):
            self._logs[frame.path] = Cursor(inode=frame.inode, offset=frame.end)
        counters = state.counters
        if isinstance(frame, Sample | Event) and frame.seq:
            counters = count(
                counters, frame.boot, frame.seq, frame.skipped if isinstance(frame, Sample) else 0
            )
        return replace(state, counters=replace(counters, bad_frames=counters.bad_frames + 1))

    def config(self, state: BoxState, interval: float, now: float) -> WatchConfig:
        """Return what to ask the box for on connecting: everything behind what is known."""
        spec, counters = self._spec, state.counters
        sources: dict[str, Cursor] = {}
        for run in state.runs:
            for source, cursor in run.cursors.items():
                # A cell's metrics may for a moment be those of a found training, too: the cell stands first.
                sources.setdefault(source, cursor)
        return WatchConfig(
            interval=interval,
            mounts=self._mounts,
            jobs=spec.jobs,
            logs=spec.logs + self._more,
            runs=spec.runs,
            pattern=spec.pattern or DEFAULT_PATTERN,
            find=True,
            gpu_trace=spec.gpu_trace,
            tail=self._size.tail,
            samples_after=SampleCursor(boot=counters.boot, seq=counters.seq) if counters.boot else None,
            log_cursors=dict(self._logs),
            scalar_cursors={**sources, **self._beyond},
            zlib=True,
            history=wanted(state.sample_at if counters.boot else None, now, self._size.stretches),
        )
