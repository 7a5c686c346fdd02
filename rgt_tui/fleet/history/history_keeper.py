"""An observer of the fleet that records its history.

It stores everything that rgt needs to know about its boxes at the next start.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rgt_tui.fleet.event_loop import FaultReporter, run_guarded
from rgt_tui.fleet.fleet_source import Chronicle
from rgt_tui.fleet.history.past import unwatched
from rgt_tui.language import store_text, translate
from rgt_tui.model import (
    BoxSpec,
    BoxState,
    FleetEvent,
    FleetSpend,
    FleetState,
    FrozenStruct,
    ReducedHistory,
    how_many,
)
from rgt_tui.store import (
    FLEET,
    OWN,
    Batch,
    BoxWrites,
    CostMetering,
    FleetHistory,
    HistoryError,
    MinuteMeans,
    SlotMean,
)


class KeeperPaces(FrozenStruct):
    """How often the history is written."""

    batch_s: float = 4.0
    """Seconds between two batches. Each batch also adopts boxes whose previous writer has ended."""
    most_extra: int = 10
    """Extra moments between the regular ones, stored when events happen: up to this many in a row,
    then one per minute."""
    state_s: float = 60.0
    """Seconds between two saves of a box's curves; after a crash the box resends the missing part.
    """


KEEPER_PACES = KeeperPaces()


class HistoryRecorder:
    """A `Keeper`, and the `Remember` of a `Fleet`.

    Args:
        history: Where to store everything; closed with this object.
        clock: Epoch seconds, the fleet's.
        seconds: Between two batches.
    """

    def __init__(
        self,
        history: FleetHistory,
        *,
        clock: Callable[[], float] = time.time,
        seconds: float = KEEPER_PACES.batch_s,
    ) -> None:
        self._history = history
        self._clock = clock
        self._seconds = seconds
        self._means = MinuteMeans()
        self._metering = CostMetering()
        self._newest: dict[str, BoxState] = {}
        self._changed: dict[str, float] = {}
        """Box → client clock of its oldest unsaved change."""
        self._events: list[FleetEvent] = []
        self._news: list[FleetEvent] = []
        self._state: FleetState | None = None
        self._moments: list[FleetState] = []
        self._taken: FleetState | None = None
        """The newest state in `_moments`."""
        self._minute: int | None = None
        self._extra = KEEPER_PACES.most_extra
        self._recorded: dict[str, list[ReducedHistory]] = {}
        self._fault = FaultReporter(self._add_event).report_fault
        self._timer: asyncio.Task[None] | None = None
        self._closed = False

    async def recall_states(self, specs: Sequence[BoxSpec]) -> Mapping[str, BoxState]:
        """Return the saved states of `specs`; empty if the history cannot be read."""
        try:
            return await self._history.recall_states(specs)
        except HistoryError:
            return {}

    @property
    def spend(self) -> FleetSpend | None:
        """The fleet's costs since local midnight; None = not known yet."""
        return self._history.spend

    @property
    def chronicle(self) -> Chronicle:
        """The recorded history of the fleet."""
        return self._history

    def take_events(self) -> tuple[FleetEvent, ...]:
        """Return events about the history itself, each once."""
        news, self._news = self._news, []
        return (*self._history.take_events(), *news)

    def _add_event(self, text: str, level: str) -> None:
        self._news.append(FleetEvent(at=self._clock(), box="", text=text, level=level, about=OWN))

    def _record_event(self, text: str) -> None:
        """Record an event without showing it to anyone."""
        self._events.append(FleetEvent(at=self._clock(), box="", text=store_text(text)))

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Receive a new fleet state."""
        if self._closed:
            return
        self._state = state
        for box in state.boxes:
            self._newest[box.spec.name] = box
        # At the first state, not before: only then the boxes and a running loop are known.
        if self._timer is None:
            self._history.adopt_boxes([box.spec for box in state.boxes])
            self._record_event(
                translate(
                    "rgt began to watch {boxes}, process {pid}",
                    boxes=how_many(len(state.boxes), "box", "boxes"),
                    pid=os.getpid(),
                )
            )
            keeping = run_guarded(
                translate("keeping the history"), self._run_saving, self._add_event
            )
            self._timer = asyncio.get_running_loop().create_task(keeping, name="history")
        for old, new in changed:
            # The oldest change counts, so that a box that changes all the time is saved, too.
            self._changed.setdefault(new.spec.name, state.at)
            if new.past is not old.past:
                told = unwatched(old.past, new.past, state.at)
                if told.at:
                    self._recorded.setdefault(new.spec.name, []).append(told)
            if new.sample is not old.sample:
                try:
                    self._means.add_sample(new)
                except Exception as error:  # one faulty box must not stop the history of others
                    self._fault(translate("adding up what {name} reads", name=new.spec.name), error)

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        """Receive events. Events of the history itself are not stored in it."""
        # At once, while it is known how their texts were made.
        mine = [
            msgspec.structs.replace(event, text=store_text(event.text))
            for event in events
            if event.about != OWN
        ]
        # Without the history's own: a full disk would report itself into the full file.
        self._events += mine
        if mine and self._state is not None and self._extra > 0:
            self._extra -= 1
            self._add_moment(self._state)

    async def close(self) -> None:
        """Save everything and close the history; further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)
        # Only a recorder that began has something to end.
        if timer is not None:
            self._record_event(translate("rgt stopped watching, process {pid}", pid=os.getpid()))
        try:
            # Costs up to this moment, or the last seconds of each session would be missing.
            self._meter_boxes(self._clock())
            self._history.put_batch(self._build_batch(None))
        finally:
            await self._history.close()

    async def _run_saving(self) -> None:
        while True:
            now = self._clock()
            self._meter_boxes(now)
            self._history.put_batch(self._build_batch(now))
            await asyncio.sleep(self._seconds)

    def _meter_boxes(self, now: float) -> None:
        for name, error in self._metering.meter_boxes(tuple(self._newest.values()), now):
            self._fault(translate("counting what {name} costs", name=name), error)

    def _take_moments(self, *, last: bool) -> tuple[FleetState, ...]:
        """Return the moments to store, each once."""
        state = self._state
        # Seconds between two regular moments (snapshots of the fleet state).
        minute = 60.0
        if state is not None and (last or int(state.at // minute) != self._minute):
            self._minute = int(state.at // minute)
            self._extra = min(KEEPER_PACES.most_extra, self._extra + 1)
            self._add_moment(state)
        found, self._moments = tuple(self._moments), []
        return found

    def _add_moment(self, state: FleetState) -> None:
        # An unchanged state is stored once: the moments in between have it as well.
        if state is not self._taken:
            self._taken = state
            self._moments.append(state)

    def _build_batch(self, now: float | None) -> Batch:
        """Return the data that is due at `now`; None = everything."""
        due = [
            name
            for name, since in self._changed.items()
            if now is None or _is_due(name, since, now)
        ]
        for name in due:
            del self._changed[name]
        runs = {name: self._newest[name] for name in (self._newest if now is None else due)}
        means: dict[str, list[SlotMean]] = {}
        for mean in self._means.take_finished(now):
            means.setdefault(mean.box, []).append(mean)
        events, self._events = tuple(self._events), []
        costs, sums = self._metering.take_new_costs()
        recorded, self._recorded = self._recorded, {}
        kept = self._take_moments(last=now is None)
        # Events and moments are of all boxes, and follow below under a key of their own.
        batch = {
            name: BoxWrites(
                runs=runs.get(name),
                means=tuple(means.get(name, ())),
                costs=costs.get(name, ()),
                sums=sums.get(name, ()),
                recorded=tuple(recorded.get(name, ())),
            )
            for name in {*runs, *means, *costs, *sums, *recorded}
        }
        if kept or events:
            return {**batch, FLEET: BoxWrites(moments=kept, events=events)}
        return batch


def _is_due(name: str, since: float, now: float) -> bool:
    """Return whether a change must be saved now.

    Each box has its own phase within the minute, so that not all are saved at once.
    """
    phase = zlib.crc32(name.encode()) % KEEPER_PACES.state_s
    return (since + phase) // KEEPER_PACES.state_s != (now + phase) // KEEPER_PACES.state_s
