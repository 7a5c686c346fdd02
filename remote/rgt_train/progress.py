"""A run's progress: the numbers in a checkpoint besides tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from rgt_train.exits import UsageError


@dataclass
class Progress:
    """Counters of a run.

    Attributes:
        step: Optimizer steps done, skipped ones included.
        epoch: The current epoch, from 0.
        done_steps: Steps done in it. At its end the epoch is still current: a resume repeats the
            work after the last step (the validation).
        micro: Batches of the next step that are done: their gradients are accumulated.
        micro_loss: Sum of their losses, if the loop keeps it here.
        offset: Samples of the epoch that an earlier launch used in batches of another size, before
            those of `done_steps` (or batches, of a sampler that makes them).
        loss: The last loss that was logged.
        loss_sum: Sum of the finite losses of the epoch's steps.
        loss_count: Number of them.
        best: The best value of the validation metric so far, already published.
        best_step: Its step.
        bad_row: Steps skipped in a row because of a NaN or infinity.
        bad_total: Steps skipped in all.
        recent: The last losses that were not spikes.
        spike_row: Loss spikes in a row.
        left_out: Ranges of steps that are not trained on, first and last of each, from 1.
    """

    step: int = 0
    epoch: int = 0
    done_steps: int = 0
    micro: int = 0
    micro_loss: float = 0.0
    offset: int = 0
    loss: Optional[float] = None
    loss_sum: float = 0.0
    loss_count: int = 0
    best: Optional[float] = None
    best_step: Optional[int] = None
    bad_row: int = 0
    bad_total: int = 0
    recent: List[float] = field(default_factory=list)
    spike_row: int = 0
    left_out: List[List[int]] = field(default_factory=list)

    def advance(self) -> None:
        """Count one step."""
        self.step += 1
        self.done_steps += 1
        self.micro, self.micro_loss = 0, 0.0

    def add_loss(self, loss: float) -> None:
        """Add the loss of a step to the epoch's mean."""
        if math.isfinite(loss):
            self.loss_sum += loss
            self.loss_count += 1

    def next_epoch(self) -> None:
        """Leave the epoch."""
        self.epoch += 1
        self.done_steps = self.micro = self.offset = self.loss_count = 0
        self.micro_loss = self.loss_sum = 0.0

    def state(self) -> Dict[str, Any]:
        """Return the counters as plain values."""
        return asdict(self)

    def load(self, state: Mapping[str, Any]) -> None:
        """Set the counters that `state` returned; a missing key keeps its default."""
        for known in fields(self):
            if known.name in state:
                setattr(self, known.name, state[known.name])


def is_better(value: float, best: Optional[float], mode: str) -> bool:
    """Return whether `value` beats the `best` so far (None for none), by `mode` ``min`` or ``max``.

    Raises:
        UsageError: The mode is another.
    """
    if mode not in ("min", "max"):
        raise UsageError(
            f'mode is {mode!r}: give "min" where lower is better, "max" where higher is'
        )
    if best is None:
        return not math.isnan(value)
    if mode == "min":
        return value < best
    return value > best


def is_left_out(step: int, ranges: Sequence[Sequence[int]]) -> bool:
    """Return whether step `step` (from 1) is in one of the `ranges`, first and last included."""
    return any(first <= step <= last for first, last in ranges)


def merged(*lists: Sequence[Sequence[int]]) -> List[List[int]]:
    """Return the ranges of all `lists` once, ascending."""
    every: List[Tuple[int, int]] = sorted({(int(a), int(b)) for ranges in lists for a, b in ranges})
    return [[first, last] for first, last in every]
