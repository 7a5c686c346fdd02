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


class Cadence:
    """Decides when the next save is due.

    Args:
        save_every: Steps between saves, or 0 to choose them from what is measured.
        mtbf_s: Mean seconds between failures, from the ledger.
    """

    def __init__(self, save_every: int, mtbf_s: float) -> None:
        self._fixed = save_every
        self._mtbf_s = mtbf_s
        self._costs: Deque[float] = deque(maxlen=5)
        self._steps: Deque[float] = deque(maxlen=50)

    def measured_step(self, seconds: float) -> None:
        """Take in the duration of one step."""
        self._steps.append(seconds)

    def measured_save(self, seconds: float) -> None:
        """Take in what one save took from the training."""
        self._costs.append(seconds)

    def due(self, step: int, last: int) -> bool:
        """Say whether to save at the end of `step` when the one before was due at step `last`."""
        if self._fixed:
            return step % self._fixed == 0  # the same steps whatever happened before: easy to predict
        return step - last >= self.choice().steps

    def choice(self) -> Choice:
        """Return the interval that holds now."""
        if self._fixed:
            return Choice(self._fixed, f"every {self._fixed} steps, as asked")
        if not self._costs or not self._steps:
            return Choice(_FIRST_STEPS, f"first after {_FIRST_STEPS} steps, to measure what a save costs")
        cost, step = max(median(self._costs), 1e-4), max(median(self._steps), 1e-6)
        optimum = daly(cost, self._mtbf_s)
        seconds = min(max(optimum, FLOOR_S), CEILING_S)
        bound = " (floor)" if seconds > optimum else " (ceiling)" if seconds < optimum else ""
        steps = max(1, round(seconds / step))
        return Choice(
            steps,
            f"every {steps} steps = {seconds:.0f} s{bound}: a save costs {1000 * cost:.0f} ms, "
            f"a failure is expected every {self._mtbf_s / 3600:.1f} h",
        )
