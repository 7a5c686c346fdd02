"""How often to save: Young's and Daly's optimum from what a save costs and how often things fail."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Deque

FLOOR_S = 10.0
"""Never save more often than this, in seconds: the estimate is rough, and disks and logs have other users."""
CEILING_S = 900.0
"""Never lose more than this, in seconds, however rare failures seem."""
_FIRST_STEPS = 10


def daly(cost_s: float, mtbf_s: float) -> float:
    """Return the optimal seconds of work between two checkpoints (Daly 2006, higher order).

    Args:
        cost_s: Seconds a save takes from the training.
        mtbf_s: Mean seconds between failures.

    Raises:
        ValueError: A cost or a time that is not positive.
    """
    if not (cost_s > 0 and mtbf_s > 0):
        raise ValueError(f"cost and mtbf must be positive, not {cost_s} and {mtbf_s}")
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    x = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(x) / 3 + x / 9) - cost_s


@dataclass(frozen=True)
class Choice:
    """An interval and why: `steps` between saves, and the `reason` as one line for a person."""

    steps: int
    reason: str


@dataclass(frozen=True)
class Failures:
    """How often the run is expected to fail.

    Attributes:
        mtbf_s: Mean seconds between failures of the whole job.
        source: Where that comes from, in words.
    """

    mtbf_s: float
    source: str = "expected"


class Cadence:
    """Decides when the next save is due.

    The cost of a save is what the training feels: the time it stood still for it, and the time the steps took longer
    while it was being written. How long the writing takes does not move the optimum (the work goes on meanwhile), it
    only sets a lower bound: one save at a time.

    Args:
        save_every: Steps between saves, or 0 to choose them from what is measured.
        failures: How often the run fails.
    """

    def __init__(self, save_every: int, failures: Failures) -> None:
        self._fixed = save_every
        self._failures = failures
        self._costs: Deque[float] = deque(maxlen=5)
        self._writes: Deque[float] = deque(maxlen=5)
        self._steps: Deque[float] = deque(maxlen=50)
        self._beside: Deque[float] = deque(maxlen=10_000)

    def measured_step(self, seconds: float, *, saving: bool = False) -> None:
        """Take in the duration of one step; `saving` while a save was in flight."""
        (self._beside if saving else self._steps).append(seconds)

    def measured_save(self, stall_s: float, durable_s: float = 0.0, waited_s: float = 0.0) -> None:
        """Take in what one save took.

        Args:
            stall_s: Seconds the training stood still.
            durable_s: Seconds until it was on the disk.
            waited_s: Those seconds of `stall_s` that are part of a step (which waited for the copy).
        """
        usual = median(self._steps) if self._steps else 0.0
        slower = sum(seconds - usual for seconds in self._beside) if usual else 0.0
        self._beside.clear()
        self._costs.append(stall_s - waited_s + max(waited_s, slower, 0.0))
        self._writes.append(durable_s)

    def due(self, step: int, last: int) -> bool:
        """Say whether to save at the end of `step` when the one before was due at step `last`."""
        if self._fixed:
            return step % self._fixed == 0  # the same steps whatever happened before: easy to predict
        return step - last >= self.choice().steps

    def choice(self) -> Choice:
        """Return the interval that holds now."""
        if self._fixed:
            return Choice(self._fixed, f"every {self._fixed} steps, as asked")
        known = self._steps or self._beside
        step = max(median(known), 1e-6) if known else 0.0
        if not self._costs or not known:
            steps = min(_FIRST_STEPS, max(1, int(CEILING_S / step))) if known else _FIRST_STEPS
            return Choice(steps, f"first after {steps} steps, to measure what a save costs")
        cost = max(median(self._costs), 1e-4)
        write, mtbf = median(self._writes), self._failures.mtbf_s
        optimum = daly(cost, mtbf)
        floor = max(FLOOR_S, write)
        seconds = min(max(optimum, floor), max(CEILING_S, floor))
        bound = ""
        if seconds > optimum:
            bound = " (floor)" if floor == FLOOR_S else f" (a write takes {write:.0f} s)"
        elif seconds < optimum:
            bound = " (ceiling)"
        steps = max(1, round(seconds / step))
        return Choice(
            steps,
            f"every {steps} steps = {seconds:.0f} s{bound}: a save costs {1000 * cost:.0f} ms and is on disk after "
            f"{1000 * write:.0f} ms, a failure is expected every {mtbf / 3600:.1f} h ({self._failures.source})",
        )
