"""rgt_train: training that can be killed at any instant and continues bit for bit.

Importing the package does not import torch; `Run` and its friends do, when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rgt_train.data.sampler import sample_seed
    from rgt_train.exits import NotStarted, StopRequest, UsageError
    from rgt_train.options import Options
    from rgt_train.ranks.choose import distributed, of_accelerate, of_deepspeed
    from rgt_train.rollback import until_done
    from rgt_train.run import Run

__all__ = [
    "NotStarted",
    "Options",
    "Run",
    "StopRequest",
    "UsageError",
    "distributed",
    "of_accelerate",
    "of_deepspeed",
    "sample_seed",
    "until_done",
]

_HOMES = {
    "NotStarted": "rgt_train.exits",
    "Options": "rgt_train.options",
    "Run": "rgt_train.run",
    "StopRequest": "rgt_train.exits",
    "UsageError": "rgt_train.exits",
    "distributed": "rgt_train.ranks.choose",
    "of_accelerate": "rgt_train.ranks.choose",
    "of_deepspeed": "rgt_train.ranks.choose",
    "sample_seed": "rgt_train.data.sampler",
    "until_done": "rgt_train.rollback",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
