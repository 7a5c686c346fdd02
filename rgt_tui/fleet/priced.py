"""The meter of a box whose price a person wrote down, where no provider can be asked. Pure.

It says only what was seen: while the box reports, it costs what the file says; once it does not, nobody knows whether
the provider still charges, and *unknown* is never free.
"""

from __future__ import annotations

from rgt_tui.model.box import BoxSpec, BoxState, Link
from rgt_tui.model.money import Lifecycle, Meter, MeterKind
from rgt_tui.profiles.readings import stale_after

SOURCE = "fleet file"
LONGEST_SECONDS = 300.0
"""Of a longer time between two readings nobody saw what the box did."""


def is_priced(spec: BoxSpec) -> bool:
    """Say whether a box's meter is that of the fleet file."""
    return spec.provider is None and spec.per_hour is not None


def metered(box: BoxState, now: float) -> Meter:
    """Return the meter of a box whose price the fleet file tells.

    Args:
        box: Its state, the meter so far included.
        now: Client clock.
    """
    spec, old = box.spec, box.meter
    if old.source != SOURCE:
        old = Meter(source=SOURCE)
    seen = box.sample_at
    reports = box.link is Link.LIVE and seen is not None and now - seen <= stale_after(box)
    # The box was there when its newest sample was taken, also where the line is dead by now.
    until = now if reports else seen
    spent, since = old.spent, old.spent_since
    if until is not None and old.kind is MeterKind.COMPUTE_AND_STORAGE and old.at is not None:
        passed = until - old.at
        if 0.0 < passed <= LONGEST_SECONDS and old.per_hour is not None:
            spent = (spent or 0.0) + old.per_hour * passed / 3600.0
    if not reports:
        if old.kind is MeterKind.UNKNOWN and old.at is not None:
            return old
        return Meter(
            per_hour=spec.per_hour,
            spent=spent,
            spent_since=since,
            currency=spec.currency,
            at=until if until is not None else now,
            source=SOURCE,
        )
    return Meter(
        kind=MeterKind.COMPUTE_AND_STORAGE,
        lifecycle=Lifecycle.RUNNING,
        per_hour=spec.per_hour,
        spent=spent if spent is not None else 0.0,
        spent_since=since if since is not None else now,
        currency=spec.currency,
        at=now,
        source=SOURCE,
    )
