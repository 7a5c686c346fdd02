"""A recording as a fleet: the same reducers, the same words, another clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rgt_tui.fleet.alerting import Alerting
from rgt_tui.fleet.changes import between
from rgt_tui.fleet.observe import Observer
from rgt_tui.fleet.playback import PlaybackClock
from rgt_tui.fleet.reduce import replace
from rgt_tui.fleet.replayed import ReplayedBox, profile_of
from rgt_tui.fleet.source import GateClosed
from rgt_tui.fleet.tape import Skipped, Tape
from rgt_tui.lifecycle import evaluate
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import CheckResult, Review, StopProgress, Verb
from rgt_tui.model.fleet import FleetEvent, FleetState
from rgt_tui.model.profile import Profile
from rgt_tui.triage import diagnose

PUBLISH_SECONDS = 0.1
"""Of the recording's time: what happened within it is one state, as it was for who watched."""
SHOW_SECONDS = 0.1
"""Of our time: more states are not shown."""
EVENTS = 200
NO_ACTION = "this is a replay: nothing can be done to its boxes"


class ReplayFleet:
    """A `FleetSource` over a recording; every time in its states is the recording's, and so is `now`.

    Args:
        path: The file.
        speed: Seconds of the recording per second; `playback.FULL` waits for nothing.
        skip: Seconds of the recording that are taken in at once, without being shown.
        loop: Begin again at the end.
        observers: Told of every state and every event, as a running fleet's are; closed by `stop`.

    Raises:
        RecordingError: it cannot be read, or is no recording.
    """

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 1.0,
        skip: float = 0.0,
        loop: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.path = path
        self._observers = tuple(observers)
        self.over = asyncio.Event()
        """Set at the end of the recording; never while it loops."""
        self.skipped: list[Skipped] = []
        """Lines that could not be used, of this round."""
        self._tape = Tape(path)
        self._skip = skip
        self._loop = loop
        started = self._tape.header.started
        self._clock = PlaybackClock(started, speed)
        self._profiles = {spec.name: profile_of(spec) for spec in self._tape.header.boxes}
        self._boxes: dict[str, ReplayedBox] = {}
        self._news: list[FleetEvent] = []
        self._alerting = Alerting(AlertSettings(), clock=self._clock.now)
        self._state = FleetState()
        self._begin()
        self._shown_at = 0.0
        self._subscribers: list[Callable[[FleetState], None]] = []
        self._task: asyncio.Task[None] | None = None

    # What a front end may ask.

    @property
    def state(self) -> FleetState:
        """The newest state."""
        return self._state

    def now(self) -> float:
        """The recording's clock."""
        return self._clock.now()

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return the way to stop."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def profile(self, box: str) -> Profile:
        """The profile of a box."""
        return self._profiles[box]

    def checks(self, box: str) -> tuple[CheckResult, ...]:
        """The lifecycle checks of a box, as they stood then."""
        return evaluate(self._boxes[box].published, self._profiles[box], self.now())

    def focus(self, box: str | None) -> None:
        """Nothing: what was recorded was."""

    def look(self, looking: bool) -> None:
        """Nothing is sampled here."""

    def follow(self, box: str, path: str) -> None:
        """Nothing."""

    def pause(self, box: str, paused: bool) -> None:
        """Nothing; the whole replay is held by `hold`."""

    def retry(self, box: str) -> None:
        """Nothing."""

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Nothing."""

    def mute(self, box: str, alert: str, seconds: float | None) -> None:
        """Nothing."""

    def answer(self, question: int, text: str | None) -> None:
        """Nothing: a replay asks no questions."""

    async def review(self, box: str, verb: Verb) -> Review:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((NO_ACTION,))

    async def execute(self, box: str, verb: Verb, typed: str) -> AsyncIterator[StopProgress]:
        """Refuse.

        Raises:
            GateClosed: always.
        """
        raise GateClosed((NO_ACTION,))
        yield  # pragma: no cover - makes it the iterator that it is said to be

    # How it is played.

    @property
    def started(self) -> float:
        """The recording's time at its beginning."""
        return self._tape.header.started

    @property
    def position(self) -> float:
        """Seconds since its beginning."""
        return self.now() - self.started

    @property
    def speed(self) -> float:
        """Seconds of the recording per second."""
        return self._clock.speed

    @property
    def held(self) -> bool:
        """True while it stands still."""
        return self._clock.held

    def hold(self, held: bool) -> None:
        """Stand still, or go on."""
        self._clock.hold(held)

    def set_speed(self, speed: float) -> None:
        """Go on with another speed.

        Raises:
            ValueError: it is not above 0.
        """
        self._clock.set_speed(speed)

    async def start(self) -> None:
        """Begin to play."""
        self._task = asyncio.create_task(self._play(), name="replay")

    async def stop(self) -> None:
        """End."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tape.close()
        for observer in self._observers:
            await observer.close()

    async def _play(self) -> None:
        while True:
            await self._once()
            if not self._loop:
                self.over.set()
                return
            await asyncio.sleep(SHOW_SECONDS)  # an empty recording must not spin
            self._tape.close()
            self._tape = await asyncio.to_thread(Tape, self.path)
            self._begin()

    def _begin(self) -> None:
        header = self._tape.header
        self.skipped = []
        self._alerting = Alerting(AlertSettings(), clock=self._clock.now)  # nobody is told of what was
        self._boxes = {
            spec.name: ReplayedBox(spec, self._profiles[spec.name], header.started) for spec in header.boxes
        }
        self._clock.jump(header.started)
        self._state = FleetState(boxes=tuple(b.published for b in self._boxes.values()), at=header.started)

    async def _once(self) -> None:
        shown_from = self.started + self._skip
        group = last = self.started
        dirty = False
        while items := await asyncio.to_thread(self._tape.read):
            for item in items:
                if isinstance(item, Skipped):
                    self._leave_out(item)
                    continue
                later = item.at > group + PUBLISH_SECONDS
                if dirty and (later or (item.set is not None and item.set.link is not None)):
                    self._publish(last)  # a link that comes and goes was seen to come
                    dirty = False
                if later:
                    if item.at < shown_from:
                        self._clock.jump(max(item.at, self._clock.now()))
                    else:
                        if self._waits(item.at):
                            self._show()
                        await self._clock.reach(item.at)
                    group = max(group, item.at)
                self._boxes[item.box].take(item)
                last, dirty = max(last, item.at), True
            await asyncio.sleep(0)
        self._clock.jump(max(last, self._clock.now()))
        self._publish(self._clock.now(), show=True)

    def _leave_out(self, item: Skipped) -> None:
        self.skipped.append(item)
        text = f"{self.path.name}: {item}"
        self._news.append(FleetEvent(at=self.now(), box="", text=text, level="warn"))

    def _publish(self, now: float, *, show: bool = False) -> None:
        events, self._news = self._news, []
        changed: list[tuple[BoxState, BoxState]] = []
        late = self._alerting.late(now)
        for name, box in self._boxes.items():
            if box.state is box.published and name not in late:
                continue
            if box.state is not box.published:
                findings = diagnose(box.state, now, box.published.findings)
                if findings != box.state.findings:
                    box.state = replace(box.state, findings=findings)
            box.state, told = self._alerting.judged(box.state, now)
            if box.state is not box.published:
                events += [*between(box.published, box.state, now), *told]
                changed.append((box.published, box.state))
                box.published = box.state
        self._state = FleetState(
            boxes=tuple(box.published for box in self._boxes.values()),
            events=(*self._state.events, *events)[-EVENTS:],
            at=now,
        )
        for observer in self._observers:
            observer.published(self._state, tuple(changed))
            if events:
                observer.happened(tuple(events))
        if show or time.monotonic() - self._shown_at >= SHOW_SECONDS:
            self._show()

    def _waits(self, until: float) -> bool:
        """Tell whether nothing will be shown for a while: then what was published last must be seen."""
        return self._clock.held or (until - self._clock.now()) / self._clock.speed > SHOW_SECONDS

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        for callback in list(self._subscribers):
            with contextlib.suppress(Exception):
                callback(self._state)
