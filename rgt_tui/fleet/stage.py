"""What a replay shows: the states of its boxes as one, made as the fleet's board makes it, by the recording's clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from rgt_tui.fleet.alerting import Alerting
from rgt_tui.fleet.changes import between
from rgt_tui.fleet.guarded import Faults
from rgt_tui.fleet.observe import Observer
from rgt_tui.fleet.reduce import replace
from rgt_tui.fleet.replayed import ReplayedBox
from rgt_tui.fleet.waking import shifted
from rgt_tui.health import diagnose
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxState
from rgt_tui.model.fleet import FleetEvent, FleetState

SHOW_SECONDS = 0.1
"""Of our time: more states are not shown."""
EVENTS = 200


class Stage:
    """Publishes. A fault in what looks at the states is said, and ends nothing.

    Args:
        clock: The recording's.
        observers: Told of every state and every event.

    Attributes:
        state: The newest state.
        boxes: By name; what has come is put into them.
        faults: Faults of rgt, in words.
    """

    def __init__(self, clock: Callable[[], float], observers: Sequence[Observer]) -> None:
        self.state = FleetState()
        self.boxes: dict[str, ReplayedBox] = {}
        self.faults: list[str] = []
        self._clock = clock
        self._observers = tuple(observers)
        self._fault = Faults(self._failed).tell
        self._news: list[FleetEvent] = []
        self._shown_at = 0.0
        self._subscribers: list[Callable[[FleetState], None]] = []

    def begin(self, boxes: dict[str, ReplayedBox], at: float) -> None:
        """Begin with these boxes; nobody is told of the alerts that were."""
        self.boxes = boxes
        self._alerting = Alerting(AlertSettings(), clock=self._clock)
        self.state = FleetState(boxes=tuple(box.published for box in boxes.values()), at=at)

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with what is shown; return the way to stop."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    def say(self, text: str, at: float, level: str = "warn") -> None:
        """Say something that concerns no single box, with the next state."""
        self._news.append(FleetEvent(at=at, box="", text=text, level=level))

    def fail(self, doing: str, error: Exception) -> None:
        """Say a fault of rgt."""
        self._fault(doing, error)

    def _failed(self, text: str, level: str) -> None:
        self.faults.append(text)
        self.say(text, self._clock(), level)

    def shift(self, seconds: float) -> None:
        """The recording's clock was set, and no line of a box says so: ages stay what they were."""
        for box in self.boxes.values():
            box.state = shifted(box.state, seconds)

    def publish(self, now: float, *, show: bool = False) -> None:
        """Look at what has changed and tell the observers; show it, unless something was shown just now."""
        events, self._news = self._news, []
        changed: list[tuple[BoxState, BoxState]] = []
        late = self._alerting.late(now)
        for name, box in self.boxes.items():
            if box.state is box.published and name not in late:
                continue
            told = self._judged(box, now)
            if box.state is not box.published:
                events += [*between(box.published, box.state, now), *told]
                changed.append((box.published, box.state))
                box.published = box.state
        self.state = FleetState(
            boxes=tuple(box.published for box in self.boxes.values()),
            events=(*self.state.events, *events)[-EVENTS:],
            at=now,
        )
        for observer in self._observers:
            try:
                observer.published(self.state, tuple(changed))
                if events:
                    observer.happened(tuple(events))
            except Exception as error:
                self._fault(type(observer).__name__, error)
        if show or time.monotonic() - self._shown_at >= SHOW_SECONDS:
            self.show()

    def _judged(self, box: ReplayedBox, now: float) -> list[FleetEvent]:
        """Bring a box's findings and alerts up to date; return what began or ended, in words."""
        try:
            if box.state is not box.published:
                findings = diagnose(box.state, now, box.published.findings)
                if findings != box.state.findings:
                    box.state = replace(box.state, findings=findings)
            box.state, told = self._alerting.judged(box.state, now)
            return told
        except Exception as error:
            self._fault(f"looking at {box.state.spec.name}", error)
            return []

    def finish(self, now: float) -> None:
        """Publish and show the last state, and what was said in doing so."""
        self.publish(now, show=True)
        if self._news:
            self.publish(now, show=True)

    def show(self) -> None:
        """Show the newest state."""
        self._shown_at = time.monotonic()
        for callback in list(self._subscribers):
            with contextlib.suppress(Exception):
                callback(self.state)
