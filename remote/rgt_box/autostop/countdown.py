"""When an armed box stops: never before it was warned of for long enough, never while somebody has put it off. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    class Step(NamedTuple):
        """What is due now."""

        action: str
        """warn, withdraw, stop, or "" for nothing."""
        stops_in: "float | None"
        """Seconds until the stop, as far as can be told; None = it is not in sight."""
else:
    from collections import namedtuple

    Step = namedtuple("Step", "action stops_in")

RETRY = 600.0
"""Seconds after which a lease that could not be ended is ended anew."""


def due_when_idle(plan: Mapping[str, Any], idle_since: float | None, inspected: bool) -> float | None:
    """Return when an idle box stops, by the clock of its boot; None while it is not idle.

    Args:
        plan: What was armed.
        idle_since: As `IdleClock` has it.
        inspected: A cell has failed, for which the box is held a while longer.
    """
    if idle_since is None:
        return None
    return max(idle_since + idle_limit(plan, inspected), float(plan.get("kept_until_boot") or 0.0))


def idle_limit(plan: Mapping[str, Any], inspected: bool) -> float:
    """Return the seconds of idleness after which the box stops."""
    return float(plan["idle_s"]) + (float(plan.get("inspect_s") or 0.0) if inspected else 0.0)


def due_by_lease(plan: Mapping[str, Any]) -> float:
    """Return when a lease ends, by the clock of the boot."""
    ends = float(plan["armed_boot"]) + float(plan["lease_s"])
    return max(ends, float(plan.get("kept_until_boot") or 0.0))


class Countdown:
    """What has been said of one armed stop.

    Attributes:
        warned_at: When it was warned of, by the clock of the boot; None = it was not.
        not_before: No stop before this instant: the last one failed, or was withdrawn.
    """

    def __init__(self) -> None:
        self.warned_at: float | None = None
        self.not_before = 0.0

    def step(self, at: float, due: float | None, warn: float) -> Step:
        """Return what is due.

        Args:
            at: Now, by the clock of the boot.
            due: When it is to stop; None = that is not in sight.
            warn: Seconds before that to warn, and for which a warning must have stood.
        """
        if due is not None:
            due = max(due, self.not_before)
        if due is None or (self.warned_at is not None and due - warn > max(at, self.warned_at)):
            if self.warned_at is None:
                return Step("", None if due is None else max(0.0, due - at))
            self.warned_at = None
            return Step("withdraw", None if due is None else due - at)
        if self.warned_at is None:
            if at < due - warn:
                return Step("", due - at)
            self.warned_at = at
            return Step("warn", max(due, at + warn) - at)
        stop = max(due, self.warned_at + warn)
        return Step("stop" if at >= stop else "", max(0.0, stop - at))
