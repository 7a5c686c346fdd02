"""Callbacks for other trainers, which keep their loops and checkpoints and get our metrics.

Each takes two lines of code. ``RgtCallback`` is for the Trainer of transformers,
``RgtLightningCallback`` for Lightning, `resume` for both. Neither library is imported before its
callback is accessed. ``RgtDeepSpeed`` is for a loop of your own around a DeepSpeed engine.
`overfit_one_batch` checks either before it is launched for real.
"""

from __future__ import annotations

from typing import Any

from rgt_wire import imported_later

__all__ = ["RgtCallback", "RgtDeepSpeed", "RgtLightningCallback", "overfit_one_batch", "resume"]


def resume(trainer: Any, *arguments: Any, **named: Any) -> Any:
    """Train from the newest complete checkpoint, or from the start if there are no checkpoints.

    It calls ``trainer.train`` (transformers) or ``trainer.fit`` (Lightning) with the further
    arguments, and sets ``resume_from_checkpoint`` or ``ckpt_path`` unless they are given. With
    ``RGT_OVERFIT_ONE_BATCH=N`` in the environment, it is `overfit_one_batch` and ends the process.

    Raises:
        NotStarted: There are checkpoints and none is good, or the mirror does not answer (exit code
            2).
        UsageError: The trainer has none of our callbacks.
    """
    from rgt_train import overfit

    callback = _find_callback(trainer, "resume")
    steps = overfit.requested_steps()
    if steps is not None:
        verdict = overfit.judge_losses(callback.overfit_batch(trainer, steps, *arguments, **named))
        raise SystemExit(overfit.report_verdict(verdict))
    return callback.go_on(trainer, *arguments, **named)


def overfit_one_batch(trainer: Any, *arguments: Any, steps: int = 100, **named: Any) -> Any:
    """Train on the first batch alone, print whether its loss falls, and return the `OverfitVerdict`.

    It takes the place of ``trainer.train`` (transformers) or ``trainer.fit`` (Lightning), with the
    same further arguments. Nothing is saved; the weights are of no use afterwards.

    Raises:
        SystemExit: The loss does not fall as it should (exit code 1).
        UsageError: The trainer has none of our callbacks.
    """
    from rgt_train import overfit

    callback = _find_callback(trainer, "overfit_one_batch")
    verdict = overfit.judge_losses(callback.overfit_batch(trainer, steps, *arguments, **named))
    if overfit.report_verdict(verdict):
        raise SystemExit(1)
    return verdict


def _find_callback(trainer: Any, caller: str) -> Any:
    for callback in getattr(trainer, "callback_handler", trainer).callbacks:
        if type(callback).__name__ in __all__ and hasattr(callback, "go_on"):
            return callback
    from rgt_train.exits import UsageError

    raise UsageError(
        f"{caller}: {type(trainer).__name__} has none of RgtCallback, RgtLightningCallback among "
        "its callbacks"
    )


__getattr__ = imported_later(
    __name__,
    {
        "deepspeed": "RgtDeepSpeed",
        "huggingface": "RgtCallback",
        "lightning": "RgtLightningCallback",
    },
)
