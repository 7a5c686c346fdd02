"""A NaN must not reach the weights."""

from __future__ import annotations

import math

from rgt_train import exits
from rgt_train.progress import Progress
from rgt_train.report import Report


class Guard:
    """Judges a step before it is applied.

    Args:
        report: Where a bad step is told.
        progress: Its counters are saved, so that a resume judges as the uninterrupted run would.
        limit: Bad steps in a row after which the run ends.
    """

    def __init__(self, report: Report, progress: Progress, limit: int) -> None:
        self._report, self._progress, self._limit = report, progress, limit

    def healthy(self, loss: float, grad_norm: float) -> bool:
        """Say whether loss and gradient are finite; count the step as skipped where they are not.

        Raises:
            Stop: The limit is reached (exit code 1).
        """
        p = self._progress
        if math.isfinite(loss) and math.isfinite(grad_norm):
            p.bad_row = 0
            return True
        p.bad_row += 1
        p.bad_total += 1
        step = p.step + 1
        where = f"epoch {p.epoch + 1}, step {p.done_steps + 1} of it"
        self._report.say(
            f"step {step} skipped: loss {loss}, gradient norm {grad_norm} "
            f"({where}; {p.bad_row} in a row, {p.bad_total} in all)"
        )
        self._report.event(
            "nonfinite", step, loss=loss, grad_norm=grad_norm, row=p.bad_row, total=p.bad_total
        )
        if p.bad_row >= self._limit:
            self._report.say(
                f"stopping: {p.bad_row} steps in a row were not finite, the last is step {step} ({where})"
            )
            raise exits.Stop(exits.FAILED, "nonfinite")
        return False
