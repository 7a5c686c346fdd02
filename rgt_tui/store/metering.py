"""From states to minutes of cost: which seconds were charged, at which price, and whether a run was alive."""

from __future__ import annotations

import math

from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.money import MeterKind
from rgt_tui.profiles.readings import stale_after
from rgt_tui.store.spend import MINUTE, Minute, masks, merged

VALID_SECONDS = 600.0
"""A provider's price is believed for this long after it was read."""
AWAKE_SECONDS = 60.0
"""A longer pause between two looks was no looking: the computer slept."""


def price(box: BoxState, now: float) -> tuple[float, str] | None:
    """Return what an hour of `box` costs at `now`, and the currency; None where nobody can say."""
    meter, spec = box.meter, box.spec
    if meter.at is None and spec.provider is None and spec.per_hour is not None:
        # A price that a person wrote down counts while the box answers: then, at least, it is there.
        return (spec.per_hour, spec.currency) if box.link is Link.LIVE and _sane(spec.per_hour) else None
    if meter.at is None or meter.per_hour is None or meter.kind is MeterKind.UNKNOWN:
        return None
    fresh = -AWAKE_SECONDS <= now - meter.at <= VALID_SECONDS
    return (meter.per_hour, meter.currency) if fresh and _sane(meter.per_hour) else None


def _sane(amount: float) -> bool:
    return math.isfinite(amount) and amount >= 0


def alive(box: BoxState, now: float) -> bool | None:
    """Tell whether a run is alive on `box`; None where nobody can say."""
    if box.link is not Link.LIVE or box.sample is None or box.sample_at is None:
        return None
    if now - box.sample_at > stale_after(box):
        return None
    if box.sample.unseen is not None:
        return True if box.sample.procs else None
    cells = (cell for queue in box.queues if queue.runner_alive for cell in queue.cells)
    return (
        bool(box.sample.procs)
        or any(cell.state == "running" for cell in cells)
        or any(run.alive for run in box.found)
    )


class Metering:
    """Turns the time that passes into minutes, per box and currency."""

    def __init__(self) -> None:
        self._looked: float | None = None
        self._minutes: dict[tuple[str, int, str], Minute] = {}
        self._readings: dict[str, float] = {}

    def look(self, boxes: tuple[BoxState, ...], now: float) -> tuple[tuple[str, Exception], ...]:
        """Count the time since the last look, by what the boxes are now.

        Returns:
            The boxes that could not be counted, and why; the others were.
        """
        last, self._looked = self._looked, now
        watched = last is not None and 0 < now - last <= AWAKE_SECONDS
        failed = []
        for box in boxes:
            try:
                if watched and last is not None:
                    self._cover(box, last, now)
                self._read(box)
            except Exception as error:
                failed.append((box.spec.name, error))
        return tuple(failed)

    def _cover(self, box: BoxState, last: float, now: float) -> None:
        found = price(box, now)
        if found is None:
            return
        living = alive(box, now)
        for minute, mask in masks(last, now):
            self._add(
                box.spec.name,
                Minute(
                    minute,
                    found[1],
                    rate=float(found[0]),
                    covered=mask,
                    idle=mask if living is False else 0,
                    busy=mask if living else 0,
                ),
            )

    def _read(self, box: BoxState) -> None:
        meter = box.meter
        if meter.at is None or meter.spent is None or not _sane(meter.spent):
            return
        if self._readings.get(box.spec.name) != meter.at:
            self._readings[box.spec.name] = meter.at
            since = None if meter.spent_since is None else float(meter.spent_since)
            minute = Minute(
                int(meter.at // MINUTE),
                meter.currency,
                spent=float(meter.spent),
                since=since,
                at=float(meter.at),
            )
            self._add(box.spec.name, minute)

    def _add(self, box: str, minute: Minute) -> None:
        key = (box, minute.minute, minute.currency)
        self._minutes[key] = merged(self._minutes.get(key), minute)

    def taken(self) -> tuple[tuple[str, Minute], ...]:
        """Return, once, the minutes that have changed, with their boxes."""
        found = tuple((box, minute) for (box, _, _), minute in self._minutes.items())
        self._minutes.clear()
        return found
