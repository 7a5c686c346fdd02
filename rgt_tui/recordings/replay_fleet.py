"""A recording played back as a fleet: the same reducers and texts, with a clock of its own."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rgt_tui.fleet import (
    ClockJump,
    FleetAlerting,
    FleetObserver,
    FrameIntake,
    RecordedFleet,
    profile_of,
)
from rgt_tui.fleet.kept_lines import KeptLines
from rgt_tui.fleet.reducers import replace
from rgt_tui.model import BoxState, FleetState, format_duration
from rgt_tui.recordings import recording_lines
from rgt_tui.recordings.recording_lines import (
    BATCH,
    LinePlace,
    RecordingEntry,
    RecordingError,
    RecordingReader,
    SkippedLine,
)
from rgt_tui.ssh.channel import read_frame

FULL = math.inf
"""The speed without any waiting."""


class PlaybackClock:
    """Maps real time to the recording's time.

    Args:
        start: The recording's time at the beginning.
        speed: Seconds of the recording per real second.
        real: A monotonic clock in seconds.
    """

    def __init__(
        self, start: float, speed: float, real: Callable[[], float] = time.monotonic
    ) -> None:
        self._real = real
        self._speed = speed
        self._held = False
        self._ceiling = start
        self._anchor = (real(), start)
        self._changed = asyncio.Event()

    @property
    def speed(self) -> float:
        """Seconds of the recording per real second."""
        return self._speed

    @property
    def is_paused(self) -> bool:
        """Whether the clock is paused."""
        return self._held

    def now(self) -> float:
        """The recording's time, at most that of the next entry to be shown."""
        real, then = self._anchor
        if self._held or self._speed == FULL:
            return then
        return min(self._ceiling, then + (self._real() - real) * self._speed)

    def set_speed(self, speed: float) -> None:
        """Continue at another speed.

        Raises:
            ValueError: it is not above 0.
        """
        if not speed > 0:
            raise ValueError("a speed must be above 0; hold the clock instead")
        self._set_anchor(self.now())
        self._speed = speed
        self._changed.set()

    def set_paused(self, held: bool) -> None:
        """Pause or resume the clock."""
        self._set_anchor(self.now())
        self._held = held
        self._changed.set()

    def jump_to(self, to: float) -> None:
        """Change to another time at once."""
        self._ceiling = to
        self._set_anchor(to)

    async def wait_until(self, at: float) -> None:
        """Wait until the recording's time is `at`; return at once if that is past."""
        self._ceiling = max(self._ceiling, at)
        while self._held or self.now() < at:
            if not self._held and self._speed == FULL:
                self._set_anchor(at)
                return
            self._changed.clear()
            if self._held:
                left = None
            else:
                left = (at - self.now()) / self._speed
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                if not self._held:
                    self._set_anchor(at)
                    return

    def _set_anchor(self, at: float) -> None:
        self._anchor = (self._real(), at)


SHOW_SECONDS = 0.1
"""Minimum real seconds between two displayed states."""


class ReplayedBox:
    """One box of a recording: applies its entries to its state, like a session does with frames."""

    def __init__(self, state: BoxState, intake: FrameIntake) -> None:
        self.state = state
        self.intake = intake

    def apply_entry(self, entry: RecordingEntry) -> None:
        """Apply an entry."""
        if entry.set is not None:
            self.state = recording_lines.apply_change(self.state, entry.set)
        line = recording_lines.wire_of(entry)
        if line is None:
            return
        try:
            frame = read_frame(line)
        except (ValueError, RecursionError):  # it was invalid when it was received
            counters = self.state.counters
            self.state = replace(
                self.state, counters=replace(counters, bad_frames=counters.bad_frames + 1)
            )
            return
        try:
            self.state = self.intake.apply_frame(self.state, frame, entry.at)
        except Exception:  # as in a session: it is left out and counted
            self.state = self.intake.give_up(self.state, frame)

    def apply_received(self, until: float) -> bool:
        """Return False: entries are applied one at a time, so no data is left."""
        return False


class ReplayKeyframe(NamedTuple):
    """Everything that a replay needs to continue from a position."""

    position: float
    """Seconds since the beginning of the recording."""
    place: LinePlace
    state: FleetState
    intakes: Mapping[str, FrameIntake]
    alerting: FleetAlerting
    skipped: int
    """Number of lines left out so far."""


class ReplayFleet(RecordedFleet):
    """A recording; all times in its states, and `now`, are the recording's.

    Args:
        path: The file.
        speed: Seconds of the recording per second; `FULL` waits for nothing.
        skip: Position to begin at; the time before is processed at once, without display.
        loop: Start again at the end.
        observers: Notified of every state and every event, like a running fleet's; closed by
            `stop`.

    Raises:
        RecordingError: it cannot be read, or is not a recording.
    """

    plays_back = keeps_logs = True

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 1.0,
        skip: float = 0.0,
        loop: bool = False,
        observers: Sequence[FleetObserver] = (),
    ) -> None:
        self.path = path
        self.over = asyncio.Event()
        """Set at the end; never while it loops."""
        self.skipped: list[SkippedLine] = []
        """Lines that could not be used, in this round."""
        with contextlib.closing(RecordingReader(path)) as file:
            header, place = file.header, file.next_place
        self.started = header.started
        """The recording's time at its beginning."""
        self._first = self._goal = skip
        self._loop = loop
        self._playback = PlaybackClock(header.started, speed)
        super().__init__(self._playback.now, observers)
        self._boxes: dict[str, ReplayedBox] = {}
        self._shown_at = 0.0
        self._length: float | None = None
        boxes = tuple(BoxState(spec=spec, since=header.started) for spec in header.boxes)
        intakes = {spec.name: FrameIntake(spec, profile_of(spec)) for spec in header.boxes}
        state = FleetState(boxes=boxes, at=header.started)
        self._keyframes = [ReplayKeyframe(0.0, place, state, intakes, self._alerting, 0)]
        """In the order of the file; the first is its beginning."""
        self._spacing = 1
        """Least number of lines between two of them."""
        self._playing: asyncio.Task[None] | None = None
        self._pause = 0.0
        """Seconds left to others between two batches of lines."""
        self._restore(skip)

    # The interface of a fleet.

    @property
    def why_nothing(self) -> str:
        """Why nothing can be changed here."""
        return "this is a replay: nothing can be done to its boxes"

    def keep_log(self, box: str, path: str) -> KeptLines | None:
        """Buffer all lines of a log from now on."""
        return self._boxes[box].intake.keep_log(self._boxes[box].state, path)

    def leave_log(self, box: str, path: str) -> None:
        """Keep only the newest lines again once the last reader has called this."""
        self._boxes[box].intake.leave_log(path)

    # Playback.

    @property
    def position(self) -> float:
        """Seconds since the beginning of the recording."""
        return self.now() - self.started - self._set_by

    @property
    def length(self) -> float | None:
        """Length of the recording in seconds; None until it has been read completely once."""
        return self._length

    @property
    def faults(self) -> tuple[str, ...]:
        """Messages about faults of rgt during the playback."""
        return tuple(self._publisher.faults)

    @property
    def speed(self) -> float:
        """Playback speed: seconds of the recording per second."""
        return self._playback.speed

    @property
    def is_playback_paused(self) -> bool:
        """Whether the playback is paused."""
        return self._playback.is_paused

    def set_playback_paused(self, held: bool) -> None:
        """Pause or resume the playback."""
        self._playback.set_paused(held)

    def set_speed(self, speed: float) -> None:
        """Continue at another speed.

        Raises:
            ValueError: it is not above 0.
        """
        self._playback.set_speed(speed)

    def seek_to(self, position: float) -> None:
        """Go to a position, from the last keyframe before it."""
        if self._playing is not None:
            self._playing.cancel()
        self.over.clear()
        self._restore(position)
        self._start_tasks({"playing the recording": self._play_recording})
        self._playing = self._tasks[-1]

    async def start(self) -> None:
        """Start the playback."""
        self.seek_to(self._first)
        self._start_tasks({"reading the recording ahead": self._read_ahead})

    async def _read_ahead(self, at_once: int = 4096) -> None:
        """Find the length; then play the recording once out of sight, so that each seek is short."""
        with contextlib.suppress(RecordingError, OSError):  # the playback reports it
            reader = await asyncio.to_thread(RecordingReader, self.path)
            with contextlib.closing(reader) as file:
                while await asyncio.to_thread(file.read, at_once):
                    pass
                self._length = file.position
            if self.speed != FULL:
                ahead = ReplayFleet(self.path, speed=FULL)
                # The keyframes are shared: what the second playback finds serves the seeks of this
                # one.
                ahead._keyframes, ahead._pause = self._keyframes, SHOW_SECONDS / 5
                await ahead._play_recording()

    async def _play_recording(self) -> None:
        try:
            await self._play_once()
            while self._loop:
                await asyncio.sleep(SHOW_SECONDS)  # an empty recording must not cause a busy loop
                self._restore(self._first)
                await self._play_once()
        except Exception as error:
            self._publisher.publish_fault("playing the recording", error)
            self._publish_last()
        self.over.set()

    def _restore(self, position: float) -> None:
        """Continue from the last keyframe before a position; the time in between passes at once."""
        self._goal = max(0.0, position)
        frame = next(each for each in reversed(self._keyframes) if each.position <= self._goal)
        del self.skipped[frame.skipped :]
        self._place, self._set_by = frame.place, frame.place.set_by
        self._playback.jump_to(frame.state.at)
        before, self._boxes = self._boxes, {}
        for state in frame.state.boxes:
            name = state.spec.name
            box = self._boxes[name] = ReplayedBox(state, frame.intakes[name].make_copy())
            if name in before:
                box.intake.adopt_log_readers(before[name].intake, state)
        # Alerts that began after the keyframe are dropped, so that their end is not reported.
        self._alerting = frame.alerting.make_copy(self._clock)
        self._publisher.set_boxes(self._boxes, look=0.0, alerting=self._alerting, state=frame.state)

    def _keep_frame(self, place: LinePlace, most: int = 128) -> None:
        """Add a keyframe, unless there is one here; of more than `most`, every second is dropped."""
        if place.line < self._keyframes[-1].place.line + self._spacing:
            return
        intakes = {name: box.intake.make_copy() for name, box in self._boxes.items()}
        self._keyframes.append(
            ReplayKeyframe(
                self.state.at - self.started - self._set_by,
                place,
                self.state,
                intakes,
                self._alerting.make_copy(self._clock),
                len(self.skipped),
            )
        )
        if len(self._keyframes) > most:
            # The first one stays: it is the beginning of the file.
            del self._keyframes[1::2]
            self._spacing = 2 * max(self._spacing, BATCH)

    def _publish_state(self, now: float, *, show: bool = False) -> None:
        """Publish; display it, unless a state was displayed just before."""
        show = show or time.monotonic() - self._shown_at >= SHOW_SECONDS
        if show:
            self._shown_at = time.monotonic()
        self._publisher.publish_all(now, show=show)

    def _publish_last(self) -> None:
        """Publish and display the last state, and faults raised by doing so."""
        faults = len(self.faults)
        self._publish_state(self.now(), show=True)
        if len(self.faults) > faults:
            self._publish_state(self.now(), show=True)

    async def _play_once(self) -> None:
        reader = await asyncio.to_thread(RecordingReader, self.path, self._place)
        with contextlib.closing(reader) as file:
            await self._play_lines(file)

    async def _play_lines(self, file: RecordingReader) -> None:
        group = last = self.now()
        dirty = False
        # In the recording's time: entries within this span become one state, as in the live fleet.
        publish_seconds = 0.1
        while items := await asyncio.to_thread(file.read):
            for item in items:
                if isinstance(item, SkippedLine):
                    self._leave_out(item)
                    continue
                entry, moved = item
                later = bool(moved) or entry.at > group + publish_seconds
                if dirty and (later or (entry.set is not None and entry.set.link is not None)):
                    self._publish_state(last)  # a link that changes twice must be shown in between
                    dirty = False
                if moved:
                    last = self._set_clock(entry, moved)
                elif later:
                    await self._wait_until(entry.at, group)
                if later:
                    group = entry.at
                self._boxes[entry.box].apply_entry(entry)
                self._publisher.mark_changed(entry.box)
                last, dirty = max(last, entry.at), True
            if len(items) == BATCH:
                self._publish_state(last)
                self._keep_frame(file.next_place)
                group, dirty = last, False
            await asyncio.sleep(self._pause)
        self._playback.jump_to(max(last, self.now()))
        self._publish_last()

    def _set_clock(self, item: RecordingEntry, moved: float) -> float:
        """Continue with the changed clock; return its time."""
        self._set_by += moved
        self._playback.jump_to(item.at)
        self._publisher.publish_message(ClockJump(moved=moved).event_text, "warn", item.at)
        return item.at

    async def _wait_until(self, at: float, before: float) -> None:
        """Let time pass up to `at`; the part up to the goal and long gaps pass at once."""
        goal = self.started + self._goal + self._set_by
        self._playback.jump_to(max(self.now(), min(at, goal)))
        if at <= goal:
            return
        if self._will_wait(at):
            self._shown_at = time.monotonic()
            self._publisher.notify_subscribers()
        # In the recording's time: longer gaps, such as while the computer slept, are skipped.
        quiet_seconds = 600.0
        if at - before > quiet_seconds:
            self._publisher.publish_message(
                f"nothing was recorded for {format_duration(at - before)}", "warn", at
            )
            self._playback.jump_to(at)
        else:
            await self._playback.wait_until(at)

    def _leave_out(self, item: SkippedLine) -> None:
        self.skipped.append(item)
        self._publisher.publish_message(f"{self.path.name}: {item}", "warn")

    def _will_wait(self, until: float) -> bool:
        """Return whether nothing will be displayed for a while.

        Then the last state must be displayed now.
        """
        return (
            self._playback.is_paused or (until - self.now()) / self._playback.speed > SHOW_SECONDS
        )
