"""Callbacks for other trainers, which keep their loops and checkpoints and get our metrics.

Each takes two lines of code. ``RgtCallback`` is for the Trainer of transformers,
``RgtLightningCallback`` for Lightning, `resume` for both. Neither library is imported before its
callback is accessed.
"""

from __future__ import annotations

from typing import Any

from rgt_wire import imported_later

__all__ = ["RgtCallback", "RgtLightningCallback", "resume"]


def resume(trainer: Any, *arguments: Any, **named: Any) -> Any:
    """Train from the newest complete checkpoint, or from the start if there are no checkpoints.

    It calls ``trainer.train`` (transformers) or ``trainer.fit`` (Lightning) with the further
    arguments, and sets ``resume_from_checkpoint`` or ``ckpt_path`` unless they are given.

    Raises:
        NotStarted: There are checkpoints and none is good, or the mirror does not answer (exit code
            2).
        UsageError: The trainer has none of our callbacks.
    """
    for callback in getattr(trainer, "callback_handler", trainer).callbacks:
        if type(callback).__name__ in __all__ and hasattr(callback, "go_on"):
            return callback.go_on(trainer, *arguments, **named)
    from rgt_train.exits import UsageError

    raise UsageError(
        f"resume: {type(trainer).__name__} has none of RgtCallback, RgtLightningCallback among its callbacks"
    )


__getattr__ = imported_later(
    __name__, {"huggingface": "RgtCallback", "lightning": "RgtLightningCallback"}
)
