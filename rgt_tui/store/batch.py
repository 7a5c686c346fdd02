"""What one process hands to the file at a time."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rgt_tui.model.box import BoxState
from rgt_tui.model.fleet import FleetEvent
from rgt_tui.store.means import Mean
from rgt_tui.store.spend import Minute

MOST_ROWS = 50_000
"""Means, minutes and events that are held back while the disk refuses; the oldest then go."""


class Batch(msgspec.Struct, frozen=True):
    """A few seconds of a fleet; all of it is immutable, so that another thread may read it."""

    boxes: dict[str, BoxState] = {}
    """Newest states of the boxes whose last values are to be saved."""
    runs: dict[str, BoxState] = {}
    """Newest states of the boxes whose runs are to be saved."""
    means: tuple[Mean, ...] = ()
    minutes: tuple[tuple[str, Minute], ...] = ()
    events: tuple[FleetEvent, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.boxes or self.runs or self.means or self.minutes or self.events)

    def without(self, box: str, part: str) -> Batch:
        """Return the batch but for one of its fields of one box."""
        kept: dict[str, object] = {
            "boxes": {name: state for name, state in self.boxes.items() if name != box},
            "runs": {name: state for name, state in self.runs.items() if name != box},
            "means": tuple(mean for mean in self.means if mean.box != box),
            "minutes": tuple(minute for minute in self.minutes if minute[0] != box),
            "events": tuple(event for event in self.events if event.box != box),
        }
        return msgspec.structs.replace(self, **{part: kept[part]})


def joined(batches: Iterable[Batch]) -> Batch:
    """Return several batches, in their order, as one: of a state only the newest counts."""
    boxes: dict[str, BoxState] = {}
    runs: dict[str, BoxState] = {}
    means: list[Mean] = []
    minutes: list[tuple[str, Minute]] = []
    events: list[FleetEvent] = []
    for batch in batches:
        boxes.update(batch.boxes)
        runs.update(batch.runs)
        means += batch.means
        minutes += batch.minutes
        events += batch.events
    return Batch(
        boxes, runs, tuple(means[-MOST_ROWS:]), tuple(minutes[-MOST_ROWS:]), tuple(events[-MOST_ROWS:])
    )
