"""Money: work that is over and bills on, a provider that cannot be read, clocks that run down, an empty account."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rgt_tui.alerts.clock import danger_clock
from rgt_tui.alerts.kind import Reading
from rgt_tui.alerts.rules_link import NOTHING
from rgt_tui.health.facts import Facts
from rgt_tui.model.money import Lifecycle, MeterKind
from rgt_tui.profiles import load_profile
from rgt_tui.profiles.readings import age, money

BETWEEN_S = 120.0
"""So long nothing may train on a box without a queue: a script starts its next training."""
SHORT_S = 60.0
"""Below this, no sum is worth the words."""


def read_done_billing(view: Facts) -> Sequence[Reading] | None:
    """The work is over, nothing trains, and the provider says that the GPU still bills.

    The work: every queue; where there is none, the trainings that were found.
    """
    meter = view.box.meter
    if meter.lifecycle is not Lifecycle.RUNNING or meter.kind is not MeterKind.COMPUTE_AND_STORAGE:
        return None if meter.lifecycle is Lifecycle.UNKNOWN else NOTHING
    if not _is_over(view) or view.trains:
        return NOTHING
    if view.blind:
        return None
    ended = [cell.ended for queue in view.box.queues for cell in queue.cells if cell.ended is not None]
    if not view.box.queues:
        ended = [run.ended for run in view.box.found if run.ended is not None]
        if ended and view.box_now - max(ended) < BETWEEN_S:
            return None
    return (Reading("", 1.0, age_s=max(0.0, view.box_now - max(ended)) if ended else None),)


def _is_over(view: Facts) -> bool:
    if view.box.queues:
        return view.queue_done
    return bool(view.box.found) and not any(run.alive for run in view.box.found)


def say_done_billing(view: Facts, reading: Reading, since: float) -> str:
    """Say what it costs an hour, and what it has cost for nothing."""
    meter = view.box.meter
    rate = money(meter.per_hour, meter.currency)
    waited = max(0.0, view.now - since)
    what = "queue done" if view.box.queues else "no training alive"
    if waited < SHORT_S:
        return f"{what}, still billing {rate}/h ({meter.source})"
    wasted = None if meter.per_hour is None else meter.per_hour * waited / 3600.0
    spent = f": {money(wasted, meter.currency)} for nothing" if wasted is not None else ""
    length = f"{age(waited)} ago" if view.box.queues else f"for {age(waited)}"
    return f"{what} {length}, still billing {rate}/h{spent} ({meter.source})"


def read_meter(view: Facts) -> Sequence[Reading] | None:
    """Seconds since the provider was last read, while it cannot be."""
    meter = view.box.meter
    if meter.error is None:
        return None if view.meter_unread else NOTHING
    return (Reading("", math.inf if meter.at is None else view.now - meter.at),)


def say_meter(view: Facts, reading: Reading, since: float) -> str:
    """Say how old the last reading is, and why there is no newer one."""
    meter = view.box.meter
    last = "never read" if meter.at is None else f"last read {age(view.now - meter.at)} ago"
    return f"meter unknown, {last}: {meter.error}"


def read_clock(view: Facts) -> Sequence[Reading] | None:
    """Hours left on the danger clock that counts now."""
    if view.box.meter.lifecycle is not Lifecycle.STOPPED:
        return None if view.meter_unread else NOTHING
    profile = load_profile(view.box.spec.profile)
    found = danger_clock(profile, view.box, view.now, stopped_at=view.memory.past.stopped_at)
    if found is None or (found.seconds_left is None and found.whole_s is None):
        return NOTHING  # a charge runs without an end
    if found.seconds_left is None:
        return (Reading("", 0.0, found, level="warn"),)
    return (Reading("", found.seconds_left / 3600.0, found),)


def say_clock(view: Facts, reading: Reading, since: float) -> str:
    """Say what happens, and when."""
    clock = reading.about
    about = "about " if clock.approx else ""
    if clock.seconds_left is None:
        most = f"{about}{age(clock.whole_s)}"
        return f"at most {most} left, when it stopped is not known: {clock.what}: {clock.consequence}"
    return f"{about}{age(clock.seconds_left)} left: {clock.what}: {clock.consequence}"


def read_balance(view: Facts) -> Sequence[Reading] | None:
    """Hours for which the account's balance lasts at what it costs now."""
    meter = view.box.meter
    if view.off and meter.lifecycle is Lifecycle.GONE:
        return NOTHING
    if meter.balance is None or meter.burn_per_hour is None:
        # A provider that was read and does not tell it (any more): an older word of it proves nothing.
        return None if meter.at is None or meter.error is not None else NOTHING
    if meter.burn_per_hour <= 0:
        return NOTHING
    return (Reading("", max(0.0, meter.balance) / meter.burn_per_hour),)


def say_balance(view: Facts, reading: Reading, since: float) -> str:
    """Say what is left, and what it is spent on."""
    meter = view.box.meter
    left = money(meter.balance, meter.currency)
    burn = money(meter.burn_per_hour, meter.currency)
    return f"the account has {left} left, {age((reading.value or 0.0) * 3600.0)} at {burn}/h ({meter.source})"
