"""Applies the frames of one box to its state: cursors of its logs and metrics, and limits of memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial

from rgt_tui.fleet.attention import (
    FleetSizeSettings,
    MemoryBudget,
    cut_to_budget,
    estimate_bytes,
    settings_for_size,
)
from rgt_tui.fleet.errands import durable_dirs
from rgt_tui.fleet.history.past import (
    HISTORY_GRID,
    Stretches,
    append_slot,
    build_history_request,
    kept_percentages,
    merge_history,
    without_cards,
)
from rgt_tui.fleet.kept_lines import KeptLines, keep_from_view
from rgt_tui.fleet.reducers import (
    BOX_LIMITS,
    apply_frame,
    count_frame,
    replace,
    with_history,
    with_log,
    with_samples,
)
from rgt_tui.model import (
    DEFAULT_PATTERN,
    BoxEvent,
    BoxSpec,
    BoxState,
    FileCursor,
    Frame,
    JobHooks,
    LogLines,
    Profile,
    RecordedHistory,
    Sample,
    SampleCursor,
    Scalars,
    WatchConfig,
)
from rgt_tui.profiles import watched_mounts

MOST_CURSORS = 1024
"""Log cursors kept; beyond, only those of displayed logs. The newest lines of the others are then
sent again."""


class FrameIntake:
    """Keeps the cursors and limits of one box.

    Args:
        spec: The box.
        profile: Its platform.
        boxes: Number of boxes in the fleet; the more, the less is kept of each.
        budget: Memory limits, however much the box sends; None = defaults.
    """

    def __init__(
        self, spec: BoxSpec, profile: Profile, boxes: int = 1, budget: MemoryBudget | None = None
    ) -> None:
        self.focused = False
        """The box is focused on screen: all lines of its logs are kept."""
        self._spec = spec
        self._mounts = watched_mounts(spec.mounts, profile)
        self._notices = profile.interruption.notices
        self._job_env = dict(profile.overrides.env)
        self._durable = durable_dirs(spec, profile)
        own = profile.overrides
        self._job_hooks = JobHooks(env=own.env_hook, proxy=own.proxy_hook, no_proxy=own.no_proxy)
        self._size: FleetSizeSettings = settings_for_size(boxes)
        self._budget = budget or MemoryBudget()
        self._came = 0
        """About how many bytes were received since the last check of the budget."""
        self._more: tuple[str, ...] = ()
        self._logs: dict[str, FileCursor] = {}
        self._kept: dict[str, tuple[KeptLines, int]] = {}
        """Logs that are buffered completely, and their number of readers."""
        self._beyond: dict[str, FileCursor] = {}
        """Metric sources with a frame that failed to apply: they continue after it."""
        self._stretches = Stretches()

    def follow_log(self, path: str) -> bool:
        """Request one more log from now on; return whether it is new."""
        if path in self._more:
            return False
        self._more += (path,)
        return True

    def keep_log(self, state: BoxState, path: str) -> KeptLines | None:
        """Buffer all lines of a log from now on; None = no such log is known."""
        kept, readers = self._kept.get(path, (None, 0))
        if kept is None:
            view = next((view for view in state.logs if view.path == path), None)
            if view is None:
                return None
            cursor = self._logs.get(path)
            kept = keep_from_view(
                view, *((None, 0) if cursor is None else (cursor.inode, cursor.offset))
            )
        self._kept[path] = kept, readers + 1
        return kept

    def leave_log(self, path: str) -> None:
        """Drop the older lines of a log once its last reader has left."""
        if path in self._kept:
            kept, readers = self._kept.pop(path)
            if readers > 1:
                self._kept[path] = kept, readers - 1

    def make_copy(self) -> FrameIntake:
        """Return an independent copy without log readers."""
        made = copy.copy(self)
        made._logs, made._beyond, made._kept = dict(self._logs), dict(self._beyond), {}
        made._stretches = copy.deepcopy(self._stretches)
        return made

    def adopt_log_readers(self, other: FrameIntake, state: BoxState) -> None:
        """Adopt the log readers of another intake of the box; they begin with the lines of `state`."""
        self._kept.update(other._kept)
        for kept, _ in other._kept.values():
            kept.reset_lines()
            for view in state.logs:
                kept.append_view(view)

    @property
    def stretches(self) -> int:
        """Number of slots kept of the history."""
        return self._size.stretches

    @property
    def followed_logs(self) -> tuple[str, ...]:
        """Logs requested in addition to those in the description."""
        return self._more

    def apply_frame(self, state: BoxState, frame: Frame, now: float) -> BoxState:
        """Return the state after `frame`, received at `now` (client clock), within the budget."""
        self._came += estimate_bytes(frame)
        state = self._apply_by_kind(state, frame, now)
        if self._came < self._budget.every:
            return state
        self._came = 0
        if len(self._logs) > MOST_CURSORS:
            shown = {view.path for view in state.logs}
            self._logs = {path: cursor for path, cursor in self._logs.items() if path in shown}
        return cut_to_budget(state, self._budget)

    def _apply_by_kind(self, state: BoxState, frame: Frame, now: float) -> BoxState:
        if isinstance(frame, Sample):
            return self.apply_samples(state, (frame,), now)
        if isinstance(frame, LogLines):
            if frame.path not in self._logs and any(view.path == frame.path for view in state.logs):
                # An earlier rgt saved lines of this log: the box sends its newest lines again.
                state = replace(
                    state, logs=tuple(view for view in state.logs if view.path != frame.path)
                )
                if frame.path in self._kept:
                    self._kept[frame.path][0].reset_lines()
            self._logs[frame.path] = FileCursor(inode=frame.inode, offset=frame.end)
            if frame.path in self._kept:
                self._kept[frame.path][0].append_frame(frame, now)
            most = self._size.lines
            if self.focused:
                most = BOX_LIMITS.log_lines
            return with_log(state, frame, now, most=most)
        if isinstance(frame, RecordedHistory):
            if not self._size.cards:
                frame = without_cards(frame)
            return with_history(state, frame, stretches=self._size.stretches)
        return apply_frame(state, frame, now)

    def apply_samples(self, state: BoxState, frames: Sequence[Sample], now: float) -> BoxState:
        """Return the state after several consecutive samples, such as a box's history."""
        if self.focused:
            most = BOX_LIMITS.samples
        else:
            most = self._size.ring
        read = partial(kept_percentages, cards=bool(self._size.cards))
        state, fresh = with_samples(state, frames, now, read, most=most)
        for at, found in fresh:
            fine, done = self._stretches.add_sample(at, found, state.past.width)
            if fine is not None:
                most = self._size.stretches // HISTORY_GRID.recent_part
                state = replace(state, recent=append_slot(state.recent, fine, most))
            if done is not None:
                state = replace(state, past=merge_history(state.past, done, self._size.stretches))
        return state

    def give_up(self, state: BoxState, frame: Frame) -> BoxState:
        """Return the state with its cursors after a frame that failed to apply.

        Otherwise the box would send the frame again.
        """
        if isinstance(frame, Scalars):
            self._beyond[frame.source] = FileCursor(inode=frame.inode, offset=frame.end)
        if isinstance(frame, LogLines):
            self._logs[frame.path] = FileCursor(inode=frame.inode, offset=frame.end)
        counters = state.counters
        if isinstance(frame, Sample | BoxEvent) and frame.seq:
            # The frame counts as received: otherwise the box would send it again, with the same
            # result.
            counters = count_frame(
                counters, frame.boot, frame.seq, frame.skipped if isinstance(frame, Sample) else 0
            )
        return replace(state, counters=replace(counters, bad_frames=counters.bad_frames + 1))

    def build_config(self, state: BoxState, interval: float, now: float) -> WatchConfig:
        """Return the request to the box on connecting: everything after the known cursors."""
        spec, counters = self._spec, state.counters
        sources: dict[str, FileCursor] = {}
        twice = set()
        for run in state.runs:
            for source, cursor in run.cursors.items():
                # A cell may briefly share its metrics with a found training: the cell comes first.
                if sources.setdefault(source, cursor) != cursor:
                    twice.add(source)
        cells: set[str] = set()
        if twice:
            cells = {cell.name for queue in state.queues for cell in queue.cells}
        for source in twice:
            if cells.isdisjoint(run.name for run in state.runs if source in run.cursors):
                # Two runs read one file, each with its own cursor. Starting at the cursor of one,
                # the other would restart and lose its history, so both restart from the beginning.
                del sources[source]
        after = None
        if counters.boot:
            after = SampleCursor(boot=counters.boot, seq=counters.seq)
        return WatchConfig(
            interval=interval,
            mounts=self._mounts,
            jobs=spec.jobs,
            notices=self._notices,
            logs=spec.logs + self._more,
            runs=spec.runs,
            pattern=spec.pattern or DEFAULT_PATTERN,
            find=True,
            gpu_trace=spec.gpu_trace,
            tail=self._size.tail,
            samples_after=after,
            log_cursors=dict(self._logs),
            scalar_cursors={**sources, **self._beyond},
            packed_lines=True,
            history=build_history_request(
                state.sample_at if counters.boot else None, now, self._size.stretches
            ),
            job_env=self._job_env,
            job_hooks=self._job_hooks,
            durable=self._durable,
        )
