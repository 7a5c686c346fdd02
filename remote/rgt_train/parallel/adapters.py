"""What `Run` takes from loops that others wrap: state in, state out, nothing imported.

Both give the keyword arguments ``model``, ``optimizer`` and so on::

    run = Run("run", samples=…, batch_size=…, epochs=…, **of_accelerate(accelerator, model, optimizer, scheduler))
"""

from __future__ import annotations

from typing import Any, Dict

from rgt_train.exits import UsageError


def of_accelerate(
    accelerator: Any, model: Any, optimizer: Any = None, scheduler: Any = None
) -> Dict[str, Any]:
    """Return the parts of a loop that ``accelerator.prepare`` has wrapped, for DDP, FSDP2 or one process.

    The data loader stays unprepared (``DataLoader(data, batch_sampler=run.batches())``): Accelerate would share the
    batches among the ranks a second time.

    Args:
        accelerator: The ``Accelerator``.
        model: What `prepare` returned; likewise `optimizer` and `scheduler`.
        optimizer: See `model`.
        scheduler: See `model`.
    """
    found = {
        "model": accelerator.unwrap_model(model),
        "optimizer": getattr(optimizer, "optimizer", optimizer),
        "scheduler": getattr(scheduler, "scheduler", scheduler),
        "scaler": getattr(accelerator, "scaler", None),
    }
    return {name: part for name, part in found.items() if part is not None}


def of_deepspeed(engine: Any) -> Dict[str, Any]:
    """Return the parts of a DeepSpeed engine that does not partition its state (ZeRO stage 0).

    Raises:
        UsageError: The engine partitions it: only ``engine.save_checkpoint`` can save that.
    """
    stage = int(engine.zero_optimization_stage())
    if stage:
        raise UsageError(
            f"DeepSpeed ZeRO stage {stage} keeps state of its own form on each rank: save it by "
            "engine.save_checkpoint, or shard with torch's fully_shard, whose state this run can save and move"
        )
    found = {"model": engine.module, "optimizer": engine.optimizer, "scheduler": engine.lr_scheduler}
    return {name: part for name, part in found.items() if part is not None}
