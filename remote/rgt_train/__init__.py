"""rgt_train: training that can be killed at any instant and continues bit for bit.

Importing the package does not import torch; `Run` and the other names import it on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_train.batch_size import estimate_batch
    from rgt_train.cadence import Options
    from rgt_train.data.sampler import sample_seed
    from rgt_train.exits import NotStarted, StopRequest, UsageError
    from rgt_train.guards import until_done
    from rgt_train.ranks.choose import distributed, of_accelerate, of_deepspeed
    from rgt_train.run import Run

__all__ = [
    "NotStarted",
    "Options",
    "Run",
    "StopRequest",
    "UsageError",
    "distributed",
    "estimate_batch",
    "of_accelerate",
    "of_deepspeed",
    "sample_seed",
    "until_done",
]

__getattr__ = imported_later(
    __name__,
    {
        "batch_size": "estimate_batch",
        "cadence": "Options",
        "data.sampler": "sample_seed",
        "exits": "NotStarted StopRequest UsageError",
        "guards": "until_done",
        "ranks.choose": "distributed of_accelerate of_deepspeed",
        "run": "Run",
    },
)
