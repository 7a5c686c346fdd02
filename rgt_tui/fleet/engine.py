"""The fleet: all sessions together, as one immutable state that is published a few times a second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from rgt_tui.fleet.alerting import Alerting
from rgt_tui.fleet.changes import between
from rgt_tui.fleet.meters import Meters
from rgt_tui.fleet.observe import Keeper, Observer, Remember, Tap
from rgt_tui.fleet.questions import Questions
from rgt_tui.fleet.reduce import replace
from rgt_tui.fleet.session import BoxSession
from rgt_tui.fleet.teardown import Teardown
from rgt_tui.fleet.turns import Turns
from rgt_tui.lifecycle import evaluate
from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.evidence import CheckResult, Review, StopProgress, Verb
from rgt_tui.model.fleet import FleetEvent, FleetState
from rgt_tui.model.profile import Profile
from rgt_tui.profiles import load_profile
from rgt_tui.ssh.bundle import build_agent
from rgt_tui.ssh.hostkeys.policy import Policy
from rgt_tui.ssh.login.answers import Answers
from rgt_tui.triage import diagnose

PUBLISH_SECONDS = 0.1
EVENTS = 200
METER_SECONDS = 20.0
RECALL_SECONDS = 3.0
"""The past is waited for no longer than this."""
SLOW_FACTOR = 5
"""Boxes that are not on the screen are sampled this much more slowly, in a fleet of more than `FEW_BOXES`."""
FEW_BOXES = 12
LOOK_SECONDS = 1.0
"""So often it is asked which boxes have to be judged again although nothing came from them."""


class Fleet:
    """A running fleet; see `rgt_tui.fleet.source.FleetSource` for what each method promises."""

    def __init__(
        self,
        specs: Sequence[BoxSpec],
        *,
        audit: Path,
        clock: Callable[[], float] = time.time,
        env: Mapping[str, str] | None = None,
        meter_seconds: float = METER_SECONDS,
        remember: Remember | None = None,
        observers: Sequence[Observer] = (),
        tap: Tap | None = None,
        asks: bool = False,
        policy: Policy = Policy.ASK,
        alerting: Alerting | None = None,
    ) -> None:
        """Describe the fleet; nothing connects before `start`.

        Args:
            specs: The boxes; names are unique.
            audit: Where billing actions are written down.
            clock: Epoch seconds.
            env: Where the providers' keys are looked for; None = the process's environment.
            meter_seconds: Pause between two readings of the meters.
            remember: Where the boxes' states of an earlier rgt come from, so that they are shown at once.
            observers: Told of every published state and every event; closed by `stop`. A `Keeper` is also asked.
            tap: Given every raw line of every box.
            asks: Somebody answers `FleetState.questions`; otherwise each is refused at once, with the reason.
            policy: What becomes of host keys that nobody has seen before.
            alerting: Keeps the alerts, and tells the sinks; None = as built in, kept in memory, nobody is told.

        Raises:
            ProfileError: a box names a profile that does not exist.
        """
        self._clock = clock
        self._profiles = {spec.name: load_profile(spec.profile) for spec in specs}
        bundle = build_agent()
        turns = Turns()
        answers = Answers()
        self._questions = Questions(clock, self._wake, attended=asks)
        self._remember = remember
        self._alerting = alerting if alerting is not None else Alerting(clock=clock)
        self._observers = tuple(observers)
        self._keepers = tuple(item for item in self._observers if isinstance(item, Keeper))
        self._sessions = {
            spec.name: BoxSession(
                spec,
                self._profiles[spec.name],
                bundle,
                turns,
                clock,
                self._touched,
                ask=self._questions.ask if asks else None,
                tap=tap,
                answers=answers,
                policy=policy,
                boxes=len(specs),
            )
            for spec in specs
        }
        self._meters = Meters(self._sessions, seconds=meter_seconds, clock=clock, env=env)
        self._teardown = Teardown(self._sessions, self._profiles, self._meters, audit, clock)
        self._published = {name: session.state for name, session in self._sessions.items()}
        self._state = FleetState(boxes=tuple(self._published.values()), at=clock())
        self._subscribers: list[Callable[[FleetState], None]] = []
        self._dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> FleetState:
        """The newest published state."""
        return self._state

    def now(self) -> float:
        """The client clock."""
        return self._clock()

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return the way to stop."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def profile(self, box: str) -> Profile:
        """The profile of a box."""
        return self._profiles[box]

    def checks(self, box: str) -> tuple[CheckResult, ...]:
        """The lifecycle checks of a box, evaluated now."""
        return evaluate(self._sessions[box].state, self._profiles[box], self._clock())

    def focus(self, box: str | None) -> None:
        """Sample the box on screen fast, and, in a large fleet, the others slowly."""
        for name, session in self._sessions.items():
            slow = box is not None and name != box and len(self._sessions) > FEW_BOXES
            session.set_interval(session.state.spec.interval * (SLOW_FACTOR if slow else 1))

    def follow(self, box: str, path: str) -> None:
        """Follow one more log file of a box."""
        self._sessions[box].follow(path)

    def pause(self, box: str, paused: bool) -> None:
        """Disconnect from a box and leave it alone, or connect again."""
        self._sessions[box].pause(paused)

    def retry(self, box: str) -> None:
        """Connect now."""
        self._sessions[box].retry_now()

    def set_interval(self, box: str, seconds: float | None) -> None:
        """Sample a box every so many seconds from now on; None = as its description says."""
        session = self._sessions[box]
        session.set_interval(seconds if seconds is not None else session.state.spec.interval)

    def mute(self, box: str, alert: str, seconds: float | None) -> None:
        """Be quiet about an alert, or speak of it again."""
        if box in self._sessions:
            self._alerting.mute(box, alert, seconds)

    def answer(self, question: int, text: str | None) -> None:
        """Answer a question."""
        self._questions.answer(question, text)

    async def review(self, box: str, verb: Verb) -> Review:
        """Gather what a person must see before a billing action."""
        return await self._teardown.review(box, verb)

    def execute(self, box: str, verb: Verb, typed: str) -> AsyncIterator[StopProgress]:
        """Carry out a billing action, if the gate allows it."""
        return self._alerting.watching(box, verb, self._teardown.execute(box, verb, typed))

    async def start(self) -> None:
        """Show what an earlier rgt knew, and begin to connect."""
        await self._recall()
        await self._alerting.open([session.state.spec for session in self._sessions.values()], self._wake)
        for session in self._sessions.values():
            self._tasks.append(asyncio.create_task(session.run(), name=f"box:{session.state.spec.name}"))
        self._tasks.append(asyncio.create_task(self._meters.run(), name="meters"))
        self._tasks.append(asyncio.create_task(self._publish(), name="publish"))

    async def _recall(self) -> None:
        """Take over what is remembered. A disk that does not answer, or answers nonsense, holds nothing up."""
        if self._remember is None:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(RECALL_SECONDS):
                known = await self._remember([session.state.spec for session in self._sessions.values()])
            for name, state in known.items():
                self._sessions[name].recall(state)
                self._published[name] = state
            self.publish()

    async def stop(self) -> None:
        """Disconnect. What runs on the boxes goes on."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._meters.close()
        self._questions.close()
        await self._alerting.close()
        for observer in self._observers:
            await observer.close()

    def _wake(self) -> None:
        self._dirty.set()

    def _touched(self, box: str) -> None:
        self._dirty.set()

    async def _publish(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._dirty.wait()
            if not self._dirty.is_set() and not self._alerting.waits(self._clock()):
                continue
            self._dirty.clear()
            self.publish()
            await asyncio.sleep(PUBLISH_SECONDS)

    def publish(self) -> None:
        """Diagnose what changed and hand the new state to everyone."""
        now = self._clock()
        events: list[FleetEvent] = []
        changed: list[tuple[BoxState, BoxState]] = []
        for keeper in self._keepers:
            events += keeper.news()
        events += self._alerting.news()
        late = self._alerting.late(now)
        for name, session in self._sessions.items():
            old = self._published[name]
            if session.state is old and name not in late:
                continue
            seen = old if session.state is old else self._diagnosed(session, old, now)
            new, told = self._alerting.judged(seen, now)
            if new is old:
                continue
            session.state = new
            events += [*between(old, new, now), *told]
            changed.append((old, new))
            self._published[name] = new
        self._state = FleetState(
            boxes=tuple(self._published.values()),
            events=(*self._state.events, *events)[-EVENTS:],
            at=now,
            questions=self._questions.open,
            alerts=self._alerting.alerts,
            spend=next((keeper.spend for keeper in self._keepers), None),
        )
        for observer in self._observers:
            observer.published(self._state, tuple(changed))
            if events:
                observer.happened(tuple(events))
        for callback in list(self._subscribers):
            with contextlib.suppress(Exception):
                callback(self._state)

    def _diagnosed(self, session: BoxSession, old: BoxState, now: float) -> BoxState:
        findings = diagnose(session.state, now, old.findings)
        if findings != session.state.findings:
            session.state = replace(session.state, findings=findings)
        return session.state
