"""More threads than cores: a training that thinks it has the host's cores, and waits for itself most of the time."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PER_CORE, AT_LEAST = 4.0, 8
"""Threads per usable core from which on there are too many; a few sleeping ones in any program are normal."""

THROTTLED_PCT, BUSY_PCT = 20.0, 90.0
"""What shows that they are in each other's way: the quota runs out, or (without a quota) all cores are full."""

LASTING = 10.0
"""Seconds that it must last to be told: the start of a program is always crowded."""

CALM = 60.0
"""Seconds without it, after which it may be told again."""


def oversubscribed(procs: list[dict[str, Any]], cpu: dict[str, Any]) -> bool:
    """Tell whether the training has far more threads than cores, and suffers from it."""
    usable = cpu.get("usable")
    threads = sum(proc.get("threads") or 0 for proc in procs)
    if not usable or threads <= max(AT_LEAST, PER_CORE * usable):
        return False
    if cpu.get("quota") is not None and cpu.get("throttled_pct") is not None:
        return float(cpu["throttled_pct"]) >= THROTTLED_PCT
    return sum(proc.get("cpu_pct") or 0.0 for proc in procs) >= BUSY_PCT * float(usable)


class ThreadWatch:
    """Turns the flag into one event per episode."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = float("-inf")
        self._told = False

    def poll(self, procs: list[dict[str, Any]], cpu: dict[str, Any], now: float | None = None) -> str | None:
        """Return the text of an event when it is due.

        Args:
            procs: Training processes of the sample.
            cpu: The ``cpu`` object of the sample, with its flag.
            now: Monotonic time.
        """
        now = time.monotonic() if now is None else now
        if not cpu.get("oversubscribed"):
            self._since = None
            if now - self._last >= CALM:
                self._told = False
            return None
        self._last = now
        self._since = now if self._since is None else self._since
        if self._told or now - self._since < LASTING:
            return None
        self._told = True
        threads = sum(proc.get("threads") or 0 for proc in procs)
        return "the training has %d threads for %g usable cores, and they hold each other up" % (
            threads,
            cpu["usable"],
        )
