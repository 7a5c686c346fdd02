"""Whether a provider's books and rgt's own count (price × time) agree, and if not, by how much and since when."""

from __future__ import annotations

import msgspec

from rgt_tui.model.money import Meter, MeterKind

LONGEST_SECONDS = 300.0
"""Of a longer time between two readings nobody saw what the box cost: the comparison begins anew."""
LEAST_SECONDS = 1800.0
"""Before so much was compared nothing is said: what is booked late would weigh too much."""
LAG_SECONDS = 600.0
"""The books may lag by so much: RunPod's billing runs every 5 minutes, and a reading may be a minute old."""
STORAGE_LAG_SECONDS = 3600.0
"""So much for storage: a network volume is booked by the hour (https://docs.runpod.io/pods/pricing)."""
SHARE = 0.02
"""Of the own count: what rounding, and a price that moved between two readings, may make."""
CENT = 0.01


class BookCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison so far."""

    since: float
    """Client clock of its beginning."""
    base: float
    """What the books said then."""
    currency: str
    own: float = 0.0
    """Counted by rgt since."""
    slack: float = 0.0
    """The most that the books may lag behind, by the highest prices seen."""
    last: Meter
    """The newest reading, up to which `own` counts."""
    differ: float | None = None
    """The books less `own` at their last reading, if that is more than lag and rounding explain."""


def checked(before: BookCheck | None, meter: Meter) -> tuple[BookCheck | None, Meter]:
    """Return the comparison with one more reading, and the reading with what came of it.

    Nothing is compared while the price is a lower bound, or the state is not known: then the own count says nothing.
    """
    if meter.error is not None:
        return before, meter
    if (
        meter.booked is None
        or meter.at is None
        or meter.per_hour is None
        or meter.at_least
        or meter.kind is MeterKind.UNKNOWN
    ):
        return None, meter
    if before is None or not _goes_on(before, meter):
        fresh = BookCheck(since=meter.at, base=meter.booked, currency=meter.currency, last=meter)
        return msgspec.structs.replace(fresh, slack=_slack(meter)), meter
    passed = meter.at - (before.last.at or 0.0)
    now = msgspec.structs.replace(
        before,
        own=before.own + (before.last.per_hour or 0.0) * passed / 3600.0,
        slack=max(before.slack, _slack(meter)),
        last=meter,
    )
    if meter.booked_at != before.last.booked_at and meter.at - now.since >= LEAST_SECONDS:
        now = msgspec.structs.replace(now, differ=_difference(now, meter.booked))
    if now.differ is None:
        return now, meter
    return now, msgspec.structs.replace(meter, books_differ=now.differ, books_differ_since=now.since)


def _goes_on(before: BookCheck, meter: Meter) -> bool:
    passed = (meter.at or 0.0) - (before.last.at or 0.0)
    shrunk = (meter.booked or 0.0) < (before.last.booked or 0.0) - CENT
    return 0.0 <= passed <= LONGEST_SECONDS and meter.currency == before.currency and not shrunk


def _slack(meter: Meter) -> float:
    storage = meter.storage_per_hour or 0.0
    return ((meter.per_hour or 0.0) * LAG_SECONDS + storage * STORAGE_LAG_SECONDS) / 3600.0


def _difference(check: BookCheck, booked: float) -> float | None:
    differ = booked - check.base - check.own
    return differ if abs(differ) > check.slack + SHARE * check.own + CENT else None
