"""A NaN must not reach the weights, and a loss that jumps must not go unnoticed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, List, Sequence, Tuple

from rgt_train import exits, rollback, spike
from rgt_train.progress import Progress
from rgt_train.report import Report

SPIKE_ACTIONS = ("ignore", "warn", "skip", "rollback")
NEW_LEVEL = 8
"""Spikes in a row after which the losses are taken to have a new level rather than a spike."""


@dataclass(frozen=True)
class Rules:
    """What the guard lets pass.

    Attributes:
        max_bad_steps: NaN or infinite steps in a row after which the run ends.
        spike: What a loss spike leads to, one of `SPIKE_ACTIONS`.
        spike_factor: Spreads above the median from which on a loss is a spike.
        spike_window: Steps that a rollback leaves out, the spike being the last.
        max_rollbacks: Rollbacks after which a further spike ends the run.
    """

    max_bad_steps: int = 5
    spike: str = "warn"
    spike_factor: float = 10.0
    spike_window: int = 1
    max_rollbacks: int = 3

    def check(self) -> None:
        """See that the rules make sense.

        Raises:
            UsageError: `spike` is no action.
        """
        if self.spike not in SPIKE_ACTIONS:
            raise exits.UsageError(f"spike is {self.spike!r}: use {', '.join(SPIKE_ACTIONS)}")


class Guard:
    """Judges a step before it is applied.

    Everything it remembers is in `progress`, so that a resume judges as the uninterrupted run would.

    Args:
        report: Where a bad step is told.
        progress: The counters that are saved.
        rules: What to let pass.
        culprit: Says which gradient or weight is not finite, in words.
    """

    def __init__(
        self,
        report: Report,
        progress: Progress,
        rules: Rules,
        culprit: Callable[[], str] = lambda: "",
    ) -> None:
        rules.check()
        self._report, self._progress, self._rules, self._culprit = report, progress, rules, culprit
        self.go_back: Callable[[int, int], bool] = lambda first, last: False
        """Notes that the steps from `first` to `last` are left out; False where there is no way back."""

    def healthy(self, loss: float, grad_norm: float) -> bool:
        """Say whether the step may be applied; count it as skipped where it may not.

        Raises:
            Stop: Too many steps in a row were not finite, or too many rollbacks (exit code 1).
            Rollback: The run goes back to before a spike (exit code 75).
        """
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            self._nonfinite(loss, grad_norm)
            return False
        self._progress.bad_row = 0
        return self._spiked(loss)

    def _nonfinite(self, loss: float, grad_norm: float) -> None:
        p = self._progress
        p.bad_row += 1
        p.bad_total += 1
        step, where, culprit = p.step + 1, self._where(), self._culprit()
        self._report.say(
            f"step {step} skipped: loss {loss}, gradient norm {grad_norm} "
            f"({where}; {p.bad_row} in a row, {p.bad_total} in all)" + (f"; {culprit}" if culprit else "")
        )
        self._report.event(
            "nonfinite", step, loss=loss, grad_norm=grad_norm, row=p.bad_row, total=p.bad_total, where=culprit
        )
        if p.bad_row >= self._rules.max_bad_steps:
            self._report.say(
                f"stopping: {p.bad_row} steps in a row were not finite, the last is step {step} ({where})"
                + (f"; {culprit}" if culprit else "")
            )
            raise exits.Stop(exits.FAILED, "nonfinite")

    def _spiked(self, loss: float) -> bool:
        p, rules = self._progress, self._rules
        if rules.spike == "ignore":
            return True
        found = spike.find(p.recent, loss, rules.spike_factor)
        if found is None:
            p.spike_row = 0
            self._remember(loss)
            return True
        step, where, action = p.step + 1, self._where(), rules.spike
        p.spike_row += 1
        if p.spike_row >= NEW_LEVEL:
            self._report.say(
                f"step {step}: {found} ({where}), {p.spike_row} in a row: taken as the new level"
            )
            self._report.event("spike", step, loss=loss, median=found.median, action="accepted")
            p.recent, p.spike_row = [loss], 0
            return True
        if action == "rollback":
            action = self._back(step, found, where)
        self._report.say(f"step {step}: {found} ({where}); {_DONE[action]}")
        self._report.event("spike", step, loss=loss, median=found.median, spread=found.spread, action=action)
        if action == "warn":
            self._remember(loss)
            return True
        return False

    def _back(self, step: int, found: spike.Spike, where: str) -> str:
        p, rules = self._progress, self._rules
        if len(p.left_out) >= rules.max_rollbacks:
            self._report.say(
                f"stopping: step {step}: {found} ({where}), after {len(p.left_out)} rollbacks; look at the data there, "
                "lower the learning rate, or set spike to skip"
            )
            raise exits.Stop(exits.FAILED, "spike")
        first = max(1, step - rules.spike_window + 1)
        if not self.go_back(first, step):
            return "skip"
        self._report.say(f"step {step}: {found} ({where}); going back, leaving out steps {first} to {step}")
        self._report.event(
            "spike", step, loss=found.loss, median=found.median, action="rollback", first=first
        )
        raise rollback.Rollback(first, step)

    def _remember(self, loss: float) -> None:
        self._progress.recent = [*self._progress.recent, loss][-spike.HISTORY :]

    def _where(self) -> str:
        p = self._progress
        return f"epoch {p.epoch + 1}, step {p.done_steps + 1} of it"


_DONE = {"warn": "applied all the same", "skip": "skipped"}


def is_left_out(step: int, ranges: Sequence[Sequence[int]]) -> bool:
    """Say whether optimizer step `step` (from 1) is in one of the `ranges`, first and last of each included."""
    return any(first <= step <= last for first, last in ranges)


def merged(*lists: Sequence[Sequence[int]]) -> List[List[int]]:
    """Return the ranges of all `lists` once, ascending."""
    every: List[Tuple[int, int]] = sorted({(int(a), int(b)) for ranges in lists for a, b in ranges})
    return [[first, last] for first, last in every]
