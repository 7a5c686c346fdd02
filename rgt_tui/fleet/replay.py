"""A recording as a fleet: the same reducers, the same words, another clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rgt_tui.fleet.observe import Observer
from rgt_tui.fleet.playback import PlaybackClock
from rgt_tui.fleet.recording import Entry
from rgt_tui.fleet.replayed import ReplayedBox, profile_of
from rgt_tui.fleet.source import GateClosed
from rgt_tui.fleet.stage import SHOW_SECONDS, Stage
from rgt_tui.fleet.tape import Skipped, Tape
from rgt_tui.fleet.waking import JUMP_SECONDS, Jump
from rgt_tui.health import evaluate
from rgt_tui.model.evidence import CheckResult, Review, StopProgress, Verb
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.profile import Profile

PUBLISH_SECONDS = 0.1
"""Of the recording's time: what happened within it is one state, as it was for who watched."""
QUIET_SECONDS = 600.0
"""Of the recording's time: where nothing came for so long, as while the computer slept, nobody is kept waiting."""
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
        """Set when there is nothing more to come; never while it loops."""
        self.skipped: list[Skipped] = []
        """Lines that could not be used, of this round."""
        self._tape = Tape(path)
        self._skip = skip
        self._loop = loop
        started = self._tape.header.started
        self._clock = PlaybackClock(started, speed)
        self._profiles = {spec.name: profile_of(spec) for spec in self._tape.header.boxes}
        self._stage = Stage(self._clock.now, observers)
        self._set_by = 0.0
        """By how much the recording's clock has been set so far."""
        self._set_at: float | None = None
        """By its new time, when that was last."""
        self._begin()
        self._task: asyncio.Task[None] | None = None

    # What a front end may ask.

    @property
    def state(self) -> FleetState:
        """The newest state."""
        return self._stage.state

    def now(self) -> float:
        """The recording's clock."""
        return self._clock.now()

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return the way to stop."""
        return self._stage.subscribe(callback)

    def profile(self, box: str) -> Profile:
        """The profile of a box."""
        return self._profiles[box]

    def checks(self, box: str) -> tuple[CheckResult, ...]:
        """The lifecycle checks of a box, as they stood then."""
        return evaluate(self._stage.boxes[box].published, self._profiles[box], self.now())

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
        return self.now() - self.started - self._set_by

    @property
    def faults(self) -> tuple[str, ...]:
        """What rgt failed at while it played, in words."""
        return tuple(self._stage.faults)

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
        try:
            await self._once()
            while self._loop:
                await asyncio.sleep(SHOW_SECONDS)  # an empty recording must not spin
                self._tape.close()
                self._tape = await asyncio.to_thread(Tape, self.path)
                self._begin()
                await self._once()
        except Exception as error:
            self._stage.fail("playing the recording", error)
            self._stage.finish(self.now())
        self.over.set()

    def _begin(self) -> None:
        header = self._tape.header
        self.skipped = []
        self._set_by, self._set_at = 0.0, None
        self._clock.jump(header.started)
        self._stage.begin(
            {
                spec.name: ReplayedBox(spec, self._profiles[spec.name], header.started)
                for spec in header.boxes
            },
            header.started,
        )

    async def _once(self) -> None:
        group = last = self.started
        dirty = False
        while items := await asyncio.to_thread(self._tape.read):
            for item in items:
                if isinstance(item, Skipped):
                    self._leave_out(item)
                    continue
                moved = self._moved(item, group)
                later = bool(moved) or item.at > group + PUBLISH_SECONDS
                if dirty and (later or (item.set is not None and item.set.link is not None)):
                    self._stage.publish(last)  # a link that comes and goes was seen to come
                    dirty = False
                if moved:
                    last = self._set_clock(item, moved)
                elif later:
                    await self._reach(item.at, group)
                if later:
                    group = item.at
                self._stage.boxes[item.box].take(item)
                last, dirty = max(last, item.at), True
            await asyncio.sleep(0)
        self._clock.jump(max(last, self._clock.now()))
        self._stage.finish(self._clock.now())

    def _moved(self, item: Entry, group: float) -> float:
        """Return by how much the clock was set right before an entry; 0 where it goes on as before.

        Every box has a line that says so, all of one time. In older recordings a time that goes back is the sign.
        """
        if item.set is not None and item.set.moved:
            return item.set.moved if item.at != self._set_at else 0.0
        return item.at - group if item.at < group - JUMP_SECONDS else 0.0

    def _set_clock(self, item: Entry, moved: float) -> float:
        """Go on by the clock as it was set; return its time."""
        self._set_by += moved
        self._set_at = item.at
        self._clock.jump(item.at)
        self._stage.say(Jump(moved=moved).words, item.at)
        if item.set is None or not item.set.moved:
            self._stage.shift(moved)
        return item.at

    async def _reach(self, at: float, before: float) -> None:
        """Let time pass up to `at`; what nobody wants to wait for passes at once."""
        if at - self._set_by < self.started + self._skip:
            self._clock.jump(max(at, self._clock.now()))
            return
        if self._waits(at):
            self._stage.show()
        if at - before > QUIET_SECONDS:
            self._stage.say(f"nothing was recorded for {at - before:.0f} s", at)
            self._clock.jump(at)
        else:
            await self._clock.reach(at)

    def _leave_out(self, item: Skipped) -> None:
        self.skipped.append(item)
        self._stage.say(f"{self.path.name}: {item}", self.now())

    def _waits(self, until: float) -> bool:
        """Tell whether nothing will be shown for a while: then what was published last must be seen."""
        return self._clock.held or (until - self._clock.now()) / self._clock.speed > SHOW_SECONDS
