"""Publish the fleet: a few times a second, one immutable state and what changed since the last."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from typing import Protocol

import msgspec

from rgt_tui.fleet.alerting import FleetAlerting
from rgt_tui.fleet.attention import settings_for_size
from rgt_tui.fleet.changes import events_between
from rgt_tui.fleet.event_loop import FaultReporter
from rgt_tui.fleet.fleet_source import AccountingObserver, FleetObserver
from rgt_tui.fleet.reducers import replace
from rgt_tui.health import diagnose_box, facts_of
from rgt_tui.model import (
    AccountBill,
    BoxQuestion,
    BoxState,
    FleetEvent,
    FleetState,
    FrozenStruct,
    clean_text,
)


class JudgePace:
    """Rate-limits how often a box is judged. Urgent changes skip the limit.

    A skipped box is always judged later.

    Args:
        seconds: The least time between two judgements of a box.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looked: dict[str, float] = {}
        """Time of the last judgement by box, oldest first."""
        self._behind: set[str] = set()

    def is_due(self, old: BoxState, new: BoxState, now: float, *, at_once: bool = False) -> bool:
        """Return whether to judge a box now; a skipped box is remembered.

        Args:
            old: Its published state.
            new: Its current state.
            now: A monotonic clock.
            at_once: Skip the limit.
        """
        name = new.spec.name
        last = self._looked.get(name)
        if (
            not at_once
            and last is not None
            and now - last < self._seconds
            and not is_urgent(old, new)
        ):
            self._behind.add(name)
            return False
        self._looked.pop(name, None)
        self._looked[name] = now
        self._behind.discard(name)
        return True

    def forget_others(self, names: Container[str]) -> None:
        """Forget all other boxes."""
        self._looked = {name: at for name, at in self._looked.items() if name in names}
        self._behind = {name for name in self._behind if name in names}

    def overdue_boxes(self, now: float) -> set[str]:
        """Return the skipped boxes whose waiting time is over."""
        found = set()
        for name, at in self._looked.items():
            if now - at < self._seconds:
                break
            if name in self._behind:
                found.add(name)
        return found


def is_urgent(old: BoxState, new: BoxState) -> bool:
    """Return whether a change must be published without delay."""
    return (
        old.link is not new.link
        or old.queues is not new.queues
        or old.meter is not new.meter
        or old.account is not new.account
        or old.open_action != new.open_action
        or old.self_stop is not new.self_stop
    )


class Questions:
    """Passes questions to the front end, and each answer back to the code that asked.

    Args:
        clock: Epoch seconds.
        wake: Called when the open questions change.
        attended: A person can answer; otherwise every question is refused at once.
    """

    def __init__(
        self, clock: Callable[[], float], wake: Callable[[], None], *, attended: bool
    ) -> None:
        self.open: tuple[BoxQuestion, ...] = ()
        self._clock = clock
        self._wake = wake
        self._attended = attended
        self._number = 0
        self._waiting: dict[int, asyncio.Future[str | None]] = {}

    async def publish_question(self, question: BoxQuestion) -> str | None:
        """Publish a question and wait for the answer; `BoxQuestion.id` is filled in here."""
        if not self._attended:
            return None
        self._number += 1
        numbered = msgspec.structs.replace(question, id=self._number)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[numbered.id] = answer
        self.open = (*self.open, numbered)
        self._wake()
        try:
            return await answer
        finally:
            self._waiting.pop(numbered.id, None)
            self.open = tuple(item for item in self.open if item.id != numbered.id)
            self._wake()

    def answer_question(self, number: int, text: str | None) -> None:
        """Answer an open question; any other number is ignored."""
        waiting = self._waiting.get(number)
        # It may have been answered on another screen, or its login has timed out.
        if waiting is not None and not waiting.done():
            waiting.set_result(text)

    def close(self) -> None:
        """Refuse all open questions."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)


class PublisherPaces(FrozenStruct):
    """How often states are published, in seconds."""

    publish_s: float = 0.1
    """Seconds between two publications."""
    slice_s: float = 0.004
    """Longest time that incoming data blocks the event loop, for instance when a hundred boxes send
    their history."""
    held_s: float = 0.1
    """Incoming data is delayed at most this long between two slices while keys are pressed."""


PUBLISH_PACES = PublisherPaces()


class PublishedSession(Protocol):
    """One box, live or replayed."""

    state: BoxState

    def apply_received(self, until: float) -> bool:
        """Process received data until `until` (monotonic clock); return whether some is left."""
        ...


class Publisher:
    """Publishes the states of all sessions. A fault in an observer is reported and stops nothing.

    Args:
        clock: Epoch seconds; for a replay, the recording's clock.
        questions: The open questions to a person.
        alerting: Keeps the alerts.
        observers: Notified of every state and every event.

    Attributes:
        state: The newest published state.
        sessions: Box → session, in the order of the fleet file; set before anything is published.
        faults: Messages about faults of rgt.
        busy: Returns whether a key press is not painted yet; box data is processed after it.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        questions: Questions,
        alerting: FleetAlerting,
        observers: Sequence[FleetObserver],
    ) -> None:
        self.state = FleetState(at=clock())
        self.sessions: Mapping[str, PublishedSession] = {}
        self.faults: list[str] = []
        self.busy: Callable[[], bool] = lambda: False
        self._accounts: tuple[AccountBill, ...] = ()
        self._under_way: Generator[None] | None = None
        self._clock = clock
        self._questions = questions
        self._alerting = alerting
        self._observers = tuple(observers)
        self._keepers = tuple(
            item for item in self._observers if isinstance(item, AccountingObserver)
        )
        self._subscribers: list[Callable[[FleetState], None]] = []
        self._published: dict[str, BoxState] = {}
        self._order: dict[str, int] = {}
        self._pace = JudgePace(settings_for_size(1).look)
        self._changed: dict[str, None] = {}
        """Boxes with new data, the longest waiting first."""
        self._ready: set[str] = set()
        """Boxes whose data has been processed but that are not published yet."""
        self._events: list[FleetEvent] = []
        """Events to publish with the next state."""
        self._fault = FaultReporter(self._add_fault).report_fault
        self._dirty = asyncio.Event()

    def set_boxes(
        self,
        sessions: Mapping[str, PublishedSession],
        *,
        look: float | None = None,
        alerting: FleetAlerting | None = None,
        state: FleetState | None = None,
    ) -> None:
        """Begin with these boxes.

        Args:
            sessions: By name.
            look: Seconds between two judgements of a box (findings and alerts); None = by their
                number.
            alerting: Keeps the alerts from now on; None = unchanged.
            state: Published before, to continue from, without pending events; None = a new one.
        """
        self.sessions = sessions
        self._order = {name: place for place, name in enumerate(sessions)}
        self._pace = JudgePace(settings_for_size(len(sessions)).look if look is None else look)
        self._alerting = alerting or self._alerting
        self._changed.clear()
        self._ready.clear()
        self.reset_published()
        if state is not None:
            self.state, self._events = state, []

    def replace_boxes(self, sessions: Mapping[str, PublishedSession]) -> None:
        """Publish these boxes from now on, keeping the published states of boxes that remain."""
        self.sessions = sessions
        self._order = {name: place for place, name in enumerate(sessions)}
        self._pace.forget_others(sessions)
        # A box that left may have data that was never applied.
        self._changed = {name: None for name in self._changed if name in sessions}
        self._ready &= sessions.keys()
        # A box of the same name with a different description is a new box: its old state is
        # dropped.
        self._published = {
            name: known if known is not None and known.spec == session.state.spec else session.state
            for name, session in sessions.items()
            for known in (self._published.get(name),)
        }
        self._dirty.set()

    def reset_published(self) -> None:
        """Treat the boxes as already published: states left by an earlier rgt raise no events."""
        self._published = {name: session.state for name, session in self.sessions.items()}
        self.state = FleetState(boxes=tuple(self._published.values()), at=self._clock())

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state; return the unsubscriber."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def publish_soon(self) -> None:
        """Publish soon, although no box changed."""
        self._dirty.set()

    def mark_changed(self, box: str) -> None:
        """Mark a box as changed. Boxes no longer published are ignored."""
        if box in self.sessions:
            self._changed[box] = None
            self._dirty.set()

    def publish_message(
        self,
        text: str,
        level: str = "info",
        at: float | None = None,
        box: str = "",
        about: str = "",
    ) -> None:
        """Publish a message, of a box if one is named; `at` is the client clock."""
        self._events.append(
            FleetEvent(
                at=self._clock() if at is None else at,
                box=box,
                text=clean_text(text),
                level=level,
                about=about,
            )
        )
        self._dirty.set()

    def show_accounts(self, accounts: tuple[AccountBill, ...]) -> None:
        """Publish the billed items of the accounts that belong to no box."""
        self._accounts = accounts
        self._dirty.set()

    def publish_fault(self, doing: str, error: Exception) -> None:
        """Publish a message about a fault of rgt."""
        self._fault(doing, error)

    def _add_fault(self, text: str, level: str) -> None:
        self.faults.append(text)
        self.publish_message(text, level)

    async def run(self) -> None:
        """Publish until cancelled."""
        # Seconds between two checks for boxes that must be judged although they sent nothing.
        look_seconds = 1.0
        while True:
            if not self._changed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_seconds):
                        await self._dirty.wait()
            until = time.monotonic() + PUBLISH_PACES.publish_s
            while self._changed and time.monotonic() < until:
                self._apply_received(PUBLISH_PACES.slice_s)
                # Between two slices keys and other tasks get their turn, even if hundreds of boxes
                # send.
                if self._changed or self.busy():
                    await self._yield_to_keys()
            try:
                if self._dirty.is_set() or self._ready or self._has_due_boxes():
                    # Kept, so that a cancelled run can complete it: a half published state would
                    # lose its events.
                    self._under_way = self._publishing(self._clock())
                    for _ in self._under_way:
                        await self._yield_to_keys()
            except Exception as error:
                self._fault("publishing", error)
            finally:
                self._finish_publication()  # also when cancelled: publish the pending events
            if not self._changed:
                # Not with boxes waiting: then the slices above have taken this time already.
                await asyncio.sleep(PUBLISH_PACES.publish_s)

    def _finish_publication(self) -> None:
        """Complete a publication that was interrupted between two slices."""
        for _ in self._under_way or ():
            pass

    async def _yield_to_keys(self) -> None:
        """Yield the event loop, until pending key presses are painted."""
        latest = time.monotonic() + PUBLISH_PACES.held_s
        # Seconds of sleep between two slices.
        behind_seconds = 0.002
        await asyncio.sleep(behind_seconds)
        while self.busy() and time.monotonic() < latest:  # noqa: ASYNC110  (nothing tells when a key is painted)
            await asyncio.sleep(behind_seconds)

    def _has_due_boxes(self) -> bool:
        return self._alerting.has_pending_boxes(self._clock()) or bool(
            self._pace.overdue_boxes(time.monotonic())
        )

    def publish_all(self, now: float | None = None, *, show: bool = True) -> None:
        """Process all received data, find the changes, and pass the new state to everyone.

        Args:
            now: Client clock; None = the current time.
            show: Also notify the subscribers, not only the observers.
        """
        # No time limit: the caller wants everything that was received until now.
        self._apply_received(float("inf"))
        self._finish_publication()
        for _ in self._publishing(self._clock() if now is None else now, show=show):
            pass

    def _publishing(self, now: float, *, show: bool = True) -> Generator[None]:
        """Publish; yields between two slices of the work, so that other tasks can run."""
        # First: what changes while this runs needs another publication.
        self._dirty.clear()
        # They stay in the list until all is ready, so that a fault below loses none.
        sources: tuple[AccountingObserver | FleetAlerting, ...] = (*self._keepers, self._alerting)
        for source in sources:
            try:
                self._events += source.take_events()
            except Exception as error:
                self._fault(type(source).__name__, error)
        changed = yield from self._update_published(now)
        self._under_way = None  # no yield from here on
        events, self._events = self._events, []
        loud = tuple(event for event in events if not event.muted)
        events_limit = 200
        self.state = FleetState(
            boxes=tuple(self._published.values()),
            events=(*self.state.events, *loud)[-events_limit:],
            at=now,
            questions=self._questions.open,
            alerts=self._alerting.alerts,
            accounts=self._accounts,
            spend=next((keeper.spend for keeper in self._keepers), None),
        )
        for observer in self._observers:
            told = tuple(events) if observer in self._keepers else loud
            # Separately: an observer that fails at the state still gets the events.
            try:
                observer.published(self.state, changed)
            except Exception as error:
                self._fault(type(observer).__name__, error)
            try:
                if told:
                    observer.receive_events(told)
            except Exception as error:
                self._fault(type(observer).__name__, error)
        if show:
            self.notify_subscribers()

    def notify_subscribers(self) -> None:
        """Pass the newest state to the subscribers."""
        # A copy: a callback may unsubscribe.
        for callback in list(self._subscribers):
            try:
                callback(self.state)
            except Exception as error:
                self._fault("showing the fleet", error)

    def _apply_received(self, seconds: float) -> None:
        """Process box data for at most `seconds`.

        A box with more pending data goes to the back of the line.
        """
        until = time.monotonic() + seconds
        for name in tuple(self._changed):
            waits = self.sessions[name].apply_received(until)
            # Deleted and added again, so that a box with much data goes to the end of the
            # dictionary.
            del self._changed[name]
            if waits:
                self._changed[name] = None
            self._ready.add(name)
            if time.monotonic() > until:
                break

    def _update_published(
        self, now: float
    ) -> Generator[None, None, tuple[tuple[BoxState, BoxState], ...]]:
        """Update the published states and add their events; return the changes as pairs (old, new)."""
        tick = time.monotonic()
        until = tick + PUBLISH_PACES.slice_s
        late = self._alerting.boxes_to_judge(now) | self._pace.overdue_boxes(tick)
        changed = []
        # In the order of the fleet file, so that events of one moment have a steady order.
        for name in sorted((self._ready | late) & self._order.keys(), key=self._order.__getitem__):
            if time.monotonic() > until:
                yield
                until = time.monotonic() + PUBLISH_PACES.slice_s
            self._ready.discard(name)
            session, old = self.sessions.get(name), self._published.get(name)
            if session is None or old is None:
                continue  # it was removed during a yield
            told: list[FleetEvent] = []
            if self._pace.is_due(old, session.state, tick, at_once=name in late):
                session.state, told = self._judge_box(session.state, old, now)
            # Identity: a changed state is always a new object, and comparing all fields would be
            # slow.
            if session.state is not old:
                self._events += [*self._list_changes(old, session.state, now), *told]
                changed.append((old, session.state))
                self._published[name] = session.state
        return tuple(changed)

    def _list_changes(self, old: BoxState, new: BoxState, now: float) -> list[FleetEvent]:
        try:
            return events_between(old, new, now)
        except Exception as error:
            self._fault(f"comparing {new.spec.name}", error)
            return []

    def _judge_box(
        self, box: BoxState, old: BoxState, now: float
    ) -> tuple[BoxState, list[FleetEvent]]:
        """Return a box with its findings and alerts, and events for their changes."""
        try:
            seen = facts_of(box, now)
            findings = diagnose_box(box, now, old.findings, seen)
            if findings != box.findings:
                box = replace(box, findings=findings)
            return self._alerting.judge_box(box, now, seen)
        except Exception as error:
            self._fault(f"looking at {box.spec.name}", error)
            return box, []
