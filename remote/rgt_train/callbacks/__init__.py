"""Two lines for trainers of others: they keep their loops and their checkpoints, we write the same metrics.

``RgtCallback`` is for the Trainer of transformers, ``RgtLightningCallback`` for Lightning. Neither library is imported
before its callback is asked for.
"""

from __future__ import annotations

from typing import Any

_HOMES = {
    "RgtCallback": "rgt_train.callbacks.huggingface",
    "RgtLightningCallback": "rgt_train.callbacks.lightning",
}

__all__ = ["RgtCallback", "RgtLightningCallback"]


def __getattr__(name: str) -> Any:
    """Import a callback on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
