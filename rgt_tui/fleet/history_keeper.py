"""What rgt remembers of its boxes from one start to the next: the fleet's observer that keeps the history."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping, Sequence

from rgt_tui.fleet.event_loop import Faults, guarded
from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetEvent, FleetState, Spend
from rgt_tui.store import Batch, History, HistoryError, Mean, Means, Metering, Told

BATCH_SECONDS = 4.0
"""Between two batches. With each, the boxes whose writer has ended are taken over."""
STATE_SECONDS = 60.0
"""A box's last values are saved this often at most, and so are its curves: what came since, the box tells again."""


class Memory:
    """A `Keeper`, and the `Remember` of a `Fleet`.

    Args:
        history: Where it is kept; closed with this.
        clock: Epoch seconds, the fleet's.
        seconds: Between two batches.
    """

    def __init__(
        self, history: History, *, clock: Callable[[], float] = time.time, seconds: float = BATCH_SECONDS
    ) -> None:
        self._history = history
        self._clock = clock
        self._seconds = seconds
        self._means = Means()
        self._metering = Metering()
        self._newest: dict[str, BoxState] = {}
        self._changed: dict[str, float] = {}
        """Box → when its oldest change that is not saved came."""
        self._events: list[FleetEvent] = []
        self._news: list[FleetEvent] = []
        self._fault = Faults(self._say).tell
        self._timer: asyncio.Task[None] | None = None
        self._closed = False

    async def remember(self, specs: Sequence[BoxSpec]) -> Mapping[str, BoxState]:
        """Return what an earlier rgt knew of `specs`; nothing where the history cannot be read."""
        try:
            return await self._history.recall(specs)
        except HistoryError:
            return {}

    @property
    def spend(self) -> Spend | None:
        """What the fleet has cost since local midnight; None until that is known."""
        return self._history.spend

    def news(self) -> tuple[FleetEvent, ...]:
        """Return, once, what there is to say of the history."""
        news, self._news = self._news, []
        return (*self._history.news(), *news)

    def _say(self, text: str, level: str) -> None:
        self._news.append(FleetEvent(at=self._clock(), box="", text=text, level=level))

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Take in a new fleet state."""
        if self._closed:
            return
        for box in state.boxes:
            self._newest[box.spec.name] = box
        if self._timer is None:
            self._history.adopt([box.spec for box in state.boxes])
            keeping = guarded("keeping the history", self._run, self._say)
            self._timer = asyncio.get_running_loop().create_task(keeping, name="history")
        for old, new in changed:
            self._changed.setdefault(new.spec.name, state.at)
            if new.sample is not old.sample:
                try:
                    self._means.take(new)
                except Exception as error:  # what one box says must not cost the others their history
                    self._fault(f"adding up what {new.spec.name} reads", error)

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Take in what happened. What the history says of itself is not kept in it."""
        self._events += [event for event in events if event.box]

    async def close(self) -> None:
        """Save everything and close the history, once: a fleet may be stopped by more than one who leaves."""
        if self._closed:
            return
        self._closed = True
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)
        try:
            self._look(self._clock())
            self._history.put(self._batch(None))
        finally:
            await self._history.close()

    async def _run(self) -> None:
        while True:
            now = self._clock()
            self._look(now)
            self._history.put(self._batch(now))
            await asyncio.sleep(self._seconds)

    def _look(self, now: float) -> None:
        for name, error in self._metering.look(tuple(self._newest.values()), now):
            self._fault(f"counting what {name} costs", error)

    def _batch(self, now: float | None) -> Batch:
        """Return what is due; everything when `now` is None."""
        due = [name for name, since in self._changed.items() if now is None or _is_due(name, since, now)]
        for name in due:
            del self._changed[name]
        states = {name: self._newest[name] for name in (self._newest if now is None else due)}
        means: dict[str, list[Mean]] = {}
        for mean in self._means.closed(now):
            means.setdefault(mean.box, []).append(mean)
        events: dict[str, list[FleetEvent]] = {}
        for event in self._events:
            events.setdefault(event.box, []).append(event)
        self._events = []
        costs, sums = self._metering.taken()
        return {
            name: Told(
                state=states[name] if name in states and states[name].remembered_at is None else None,
                runs=states[name] if name in states and states[name].runs else None,
                means=tuple(means.get(name, ())),
                costs=costs.get(name, ()),
                sums=sums.get(name, ()),
                events=tuple(events.get(name, ())),
            )
            for name in {*states, *means, *events, *costs, *sums}
        }


def _is_due(name: str, since: float, now: float) -> bool:
    """Tell whether a change is to be saved. Every box has its own second of the minute, or all would have the same."""
    phase = zlib.crc32(name.encode()) % STATE_SECONDS
    return (since + phase) // STATE_SECONDS != (now + phase) // STATE_SECONDS
