"""How the reference loop spreads a model over the ranks; a loop of your own does it in its own lines."""

from __future__ import annotations

from typing import Any, List, Optional

import torch
from torch import nn

from rgt_train.exits import UsageError
from rgt_train.parallel import launch
from rgt_train.parallel.choose import distributed
from rgt_train.ranks import Alone, Ranks

SHARDED = ("fsdp", "hsdp")


def join(kind: str) -> Ranks:
    """Return the ranks of a launch.

    Args:
        kind: ``none``, ``ddp``, ``fsdp`` or ``hsdp``.

    Raises:
        UsageError: Several ranks were launched that would each train for themselves, or too few for `kind`.
    """
    world = launch.read().world
    if kind == "none":
        if world > 1:
            raise UsageError(
                f"{world} ranks were launched, but parallel is none: give --parallel ddp, fsdp or hsdp"
            )
        return Alone()
    if launch.read().launcher == "alone":
        raise UsageError(f"parallel is {kind}: launch it with torchrun --nproc-per-node N -m rgt_train …")
    if kind == "hsdp" and world % 2:
        raise UsageError(f"hsdp needs an even number of ranks, not {world}")
    return distributed()


def wrap(model: nn.Module, kind: str, ranks: Ranks, dtype: Optional[torch.dtype] = None) -> nn.Module:
    """Return `model` as the ranks hold it: whole on each, in parts, or in parts twice (``hsdp``).

    Args:
        model: The whole.
        kind: How.
        ranks: All ranks.
        dtype: What parts are gathered as, and computed with; gradients are summed over the ranks in 32 bits all the
            same. None leaves everything as it is.
    """
    if kind == "none":
        return model
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype and torch.float32)
    device: Any = next(model.parameters()).device.type
    if kind == "hsdp":
        mesh = init_device_mesh(device, (2, ranks.world // 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(device, (ranks.world,), mesh_dim_names=("shard",))
    for block in _blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def norm_of(model: nn.Module) -> float:
    """Return the norm of all gradients of a sharded model, which are left as they are. Collective."""
    found: Any = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    return float(found.full_tensor() if hasattr(found, "full_tensor") else found)


class ShardedAdamW(torch.optim.AdamW):
    """torch's AdamW, stepped with a learning rate like `rgt_train.tasks.adamw.AdamW`."""

    def step(self, lr: Any = None, closure: Any = None) -> None:  # type: ignore[override]
        """Apply the gradients with learning rate `lr`; torch itself calls it with ``closure=None`` before a load."""
        if lr is not None:
            for group in self.param_groups:
                group["lr"] = lr
        super().step(closure)


def _blocks(model: nn.Module) -> List[nn.Module]:
    """Return what is gathered one after the other: the layers of its lists."""
    lists = [module for module in model.modules() if isinstance(module, (nn.ModuleList, nn.Sequential))]
    return [layer for each in lists[:1] for layer in each if any(True for _ in layer.parameters())]
