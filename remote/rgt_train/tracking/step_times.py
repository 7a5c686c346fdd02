"""Where a step's time goes: waiting for data, computing, and communication, as far as it can be told apart.

The phases come from the heartbeat. What DDP exchanges while the backward pass computes costs nothing; what is left over
is told by its own statistics, which it takes in its first ten iterations and in every hundredth. Sharded models tell
nothing of the kind, and the host cannot measure it: FSDP2 lets the card's computing stream wait for its all-gathers and
reduce-scatters, not the host. There computing and communication are one number.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, Mapping, Optional

import torch

from rgt_train.ranks.heartbeat import ASIDE, COLLECTIVE, DATA, PHASES, Heartbeat

AGAIN_S = 10.0
"""Seconds between two looks at what DDP tells: one takes some 100 µs."""
_IN_STEP = [phase for phase in range(len(PHASES)) if phase not in ASIDE]


class StepTimes:
    """Splits the steps of one rank.

    Args:
        beat: Its phases.
        models: Its models; one that is wrapped by ``DistributedDataParallel`` tells of its communication.
        world: Number of ranks.
        backward: Backward passes of a step.
    """

    def __init__(
        self, beat: Heartbeat, models: Iterable[torch.nn.Module], world: int, backward: int = 1
    ) -> None:
        self._beat, self._world = beat, world
        wrapped = [model for model in models if hasattr(model, "_get_ddp_logging_data")]
        self._wrapped: Any = wrapped[0] if len(wrapped) == 1 and backward == 1 else None
        self._exposed: Optional[float] = None
        self._looked = float("-inf")

    def of_steps(self, count: int) -> Dict[str, float]:
        """Return the seconds that a step took since this was last asked, in the mean of `count` of them.

        Returns:
            ``step_time``, without saves and evaluations; where the loader is known to the run, ``data_time`` of it, and
            the rest: ``compute_time``, with several ranks ``comm_time`` as well, or ``compute_comm_time`` for both.
        """
        spent = self._beat.taken()
        step = sum(spent[phase] for phase in _IN_STEP) / count
        told = {"step_time": step}
        if self._beat.loads:
            data = told["data_time"] = spent[DATA] / count
            rest = max(0.0, step - data)
            gradients = self._of_gradients() if self._world > 1 else None
            if self._world == 1:
                told["compute_time"] = rest
            elif gradients is None:
                told["compute_comm_time"] = rest
            else:
                told["comm_time"] = min(rest, spent[COLLECTIVE] / count + gradients)
                told["compute_time"] = rest - told["comm_time"]
        return {name: round(seconds, 6) for name, seconds in told.items()}

    def _of_gradients(self) -> Optional[float]:
        """Return the seconds that a step waits for its gradients to be exchanged; None = nobody tells."""
        now = time.monotonic()
        if self._wrapped is not None and now - self._looked >= AGAIN_S:
            self._looked, self._exposed = now, exposed(self._wrapped)
        return self._exposed


def exposed(wrapped: Any) -> Optional[float]:
    """Return what DDP says of its last measured iteration: seconds of communication beyond the backward pass."""
    try:
        told: Mapping[str, Any] = wrapped._get_ddp_logging_data()
        whole, hidden = told["backward_comm_time"], told["backward_compute_comm_overlap_time"]
    except (AttributeError, KeyError, RuntimeError):  # not yet, or another torch
        return None
    return max(0.0, (int(whole) - int(hidden)) / 1e9)
