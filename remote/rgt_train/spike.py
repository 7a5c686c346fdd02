"""When a loss is a spike: far above the running median, measured by the spread the losses had until now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional, Sequence

HISTORY = 64
"""Losses that are remembered."""
ENOUGH = 24
"""Losses needed before anything is judged."""
_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, where the losses are normally distributed."""
_LEAST_SPREAD = 0.01
"""Spread, as a share of the median, below which a calm stretch would turn every ripple into a spike."""


@dataclass(frozen=True)
class Spike:
    """A loss that is out of line.

    Attributes:
        loss: The loss.
        median: Median of the losses before.
        spread: Their spread (scaled median absolute deviation).
    """

    loss: float
    median: float
    spread: float

    def __str__(self) -> str:
        factor = (self.loss - self.median) / self.spread
        usual = f"the median {self.median:.4f} (spread {self.spread:.4f})"
        return f"loss {self.loss:.4f} is {factor:.1f} spreads above {usual}"


def find(losses: Sequence[float], loss: float, factor: float) -> Optional[Spike]:
    """Return the spike that `loss` is after `losses`, or None.

    Args:
        losses: The losses before, finite, spikes left out.
        loss: The one to judge, finite.
        factor: Spreads above the median from which on it is a spike.
    """
    if len(losses) < ENOUGH or not math.isfinite(loss):
        return None
    middle = _median(losses)
    spread = max(
        _SIGMA * _median([abs(value - middle) for value in losses]), _LEAST_SPREAD * abs(middle), 1e-12
    )
    return Spike(loss, middle, spread) if loss > middle + factor * spread else None


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
