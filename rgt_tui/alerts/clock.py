"""Danger clocks: what will happen to the data or the money by itself, and when."""

from __future__ import annotations

import msgspec

from rgt_tui.health.facts import DANGER_ERROR_S, DANGER_WARN_S
from rgt_tui.model.box import BoxState
from rgt_tui.model.money import Lifecycle
from rgt_tui.model.profile import DangerClock, Profile


class ClockReading(msgspec.Struct, frozen=True):
    """One danger clock of a box."""

    what: str
    seconds_left: float | None
    """None = it runs without an end (a charge), or nobody saw when it began."""
    consequence: str
    level: str
    """info, warn or error."""
    approx: bool = False
    counting: bool = True
    """False = would begin with a stop."""
    whole_s: float | None = None
    """Seconds from its beginning to its end; None = it has none."""


def danger_clock(
    profile: Profile, box: BoxState, now: float, *, stopped_at: float | None = None
) -> ClockReading | None:
    """Return the clock that is running down for `box` now, or None where none counts.

    A stop is known from the provider alone. Where nobody says when it was, the last sample is taken: the box
    cannot have stopped before it, so that the time shown is never too long.

    Args:
        profile: Platform of the box.
        box: Its state.
        now: Client clock.
        stopped_at: Client clock of the stop, where it is known.
    """
    if box.meter.lifecycle is not Lifecycle.STOPPED:
        return None
    clocks = [clock for clock in profile.clocks if clock.starts == "stopped"]
    timed = [clock for clock in clocks if clock.after_s]
    if timed:
        soonest = min(timed, key=lambda clock: clock.after_s or 0.0)
        return _reading(soonest, now, stopped_at if stopped_at is not None else box.sample_at)
    return _charge(clocks[0]) if clocks else None


def pending_clock(profile: Profile) -> ClockReading | None:
    """Return the clock that a stop of a box of this platform would start, or None."""
    clocks = [clock for clock in profile.clocks if clock.starts == "stopped"]
    timed = [clock for clock in clocks if clock.after_s]
    chosen = min(timed, key=lambda clock: clock.after_s or 0.0) if timed else (clocks[0] if clocks else None)
    if chosen is None:
        return None
    return ClockReading(
        what=chosen.what,
        seconds_left=chosen.after_s or None,
        consequence=chosen.consequence,
        level="info",
        approx=chosen.approx,
        counting=False,
    )


def _reading(clock: DangerClock, now: float, since: float | None) -> ClockReading:
    left = None if since is None else max(0.0, since + (clock.after_s or 0.0) - now)
    level = "info"
    if left is None or left <= DANGER_WARN_S:
        level = "error" if left is not None and left <= DANGER_ERROR_S else "warn"
    return ClockReading(clock.what, left, clock.consequence, level, clock.approx, whole_s=clock.after_s)


def _charge(clock: DangerClock) -> ClockReading:
    return ClockReading(clock.what, None, clock.consequence, "warn", clock.approx)
