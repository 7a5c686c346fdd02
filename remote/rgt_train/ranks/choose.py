"""Chooses how a run of several processes works: its ranks, its model's wrapper, its persister.

Nothing of torch.distributed is imported for a single process.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping

import torch
from torch import nn

from rgt_train.checkpoint.async_saver import Persister, SaveRequest
from rgt_train.checkpoint.state import RunState
from rgt_train.checkpoint.store import CheckpointStore
from rgt_train.exits import UsageError, raises_not_started
from rgt_train.ranks import launch
from rgt_train.ranks.launch import Coordinator, Ranks, SingleRank, StateNotTaken, mark_everywhere
from rgt_train.ranks.replicated import DesyncChecks, OrderedPersister, Replicated

if TYPE_CHECKING:
    from rgt_train.ranks.torch_ranks import TorchRanks

_made: "TorchRanks | None" = None


@raises_not_started
def distributed(*, timeout_s: float | None = None) -> "TorchRanks":
    """Join the ranks that the launcher started, once; `device` is this rank's device.

    Call it first, before the model is built: it binds the GPU of LOCAL_RANK and makes the default
    process group, unless there is one already.

    Args:
        timeout_s: Seconds after which a rank missing from an agreement is assumed dead; longer than
            any work of a single rank. None for `torch_ranks.TIMEOUT_S`. The first call decides.

    Raises:
        NotStarted: The launcher's variables are invalid, or there are fewer GPUs than ranks (exit
            code 2).
        RanksError: The other ranks did not join.
    """
    global _made
    if _made is None:
        import atexit

        from rgt_train.ranks.torch_ranks import TorchRanks

        if timeout_s is None:
            _made = TorchRanks()
        else:
            _made = TorchRanks(timeout_s=timeout_s)
        atexit.register(_made.exit_process)
    return _made


def choose_ranks(given: Ranks | None) -> Ranks:
    """Return the ranks of a run: given, joined by the process, of torchrun, or only this one."""
    if given is not None:
        return given
    # Not imported: that takes a second which a single process does not need.
    dist: Any = sys.modules.get("torch.distributed")
    joined = dist is not None and dist.is_available() and dist.is_initialized()
    if joined or (launch.is_torchrun() and launch.read_launch().world > 1):
        return distributed()
    return SingleRank()


def limit_threads(quota: float | None = None) -> str:
    """Let torch use no more threads than the CPU quota grants; return one line if that changes it.

    Nothing is changed where ``OMP_NUM_THREADS`` or ``torch.set_num_threads`` has chosen a number.
    On several ranks each takes its share.

    Args:
        quota: The cores; None for those of this process's control groups.
    """
    variable = "OMP_NUM_THREADS"
    if quota is None:
        quota = launch.read_cpu_quota()
    if variable in os.environ or quota == float("inf"):
        return ""
    cores = len(os.sched_getaffinity(0))
    before = torch.get_num_threads()
    if before not in (cores, cores // 2):  # a thread for each core, or each pair of hyperthreads
        return ""
    processes = max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    threads = max(1, int(quota / processes))
    if threads >= before:
        return ""
    torch.set_num_threads(threads)
    os.environ[variable] = str(threads)  # for the processes that this one starts
    return (
        f"{variable} is not set: {threads} threads in place of {before}, because the CPU quota of "
        f"this container is {quota:g} of {cores} cores"
    )


def is_sharded(models: Mapping[str, torch.nn.Module]) -> bool:
    """Return whether any parameter is sharded over several ranks (`fully_shard`)."""
    return any(
        # By name, as a single process must not import torch.distributed.tensor.
        type(p).__name__ == "DTensor"
        for model in models.values()
        for p in model.parameters()
    )


def persister(
    models: Mapping[str, torch.nn.Module],
    store: CheckpointStore,
    ranks: Ranks,
    coordinator: Coordinator,
    state: RunState,
    checks: DesyncChecks,
    inner: Callable[[], Persister],
    *,
    background: bool,
) -> Persister:
    """Return the persister for the state of these models.

    Args:
        models: Name → module.
        store: The target.
        ranks: The participants.
        coordinator: Receives the other ranks' part of a save.
        state: The state to save.
        checks: The desync guard.
        inner: Makes the persister of a state that one process holds.
        background: Whether the training continues during a save.

    Raises:
        UsageError: The models are wrapped in a way that cannot be saved here.
    """
    for model in models.values():
        # By name: importing FSDP1 for an isinstance would cost more than this check.
        if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
            raise UsageError(
                "FullyShardedDataParallel (FSDP1) is not supported: shard with torch's fully_shard"
            )
    found: Any
    if is_sharded(models):
        from rgt_train.ranks import sharded_state
        from rgt_train.ranks.sharded_saver import ShardedPersister

        sharded_state.check_part_names(state)
        found = ShardedPersister(store, ranks, checks, background=background)
    elif ranks.world == 1:
        return inner()
    else:
        found = Replicated(inner() if ranks.is_writer else None, ranks, checks)
    coordinator.orders["begin"] = lambda request: _begin_save(found, ranks, request, state)
    coordinator.orders["again"] = lambda give_up: found.write_again(give_up=give_up)
    coordinator.orders["load"] = lambda directory: found.restore_checkpoint(directory, state)
    mine: Persister = found
    if ranks.is_writer:
        mine = OrderedPersister(found, coordinator)
    return mine


def _begin_save(persister: Persister, ranks: Ranks, request: SaveRequest, state: RunState) -> None:
    """Begin a save; if a rank's state cannot be stored, the writer alone decides what follows."""
    try:
        persister.begin_save(request, state)
    except StateNotTaken:
        if ranks.is_writer:
            raise


def check_shared_folder(ranks: Ranks, path: str, content: bytes) -> None:
    """Check that every rank sees the run directory. Collective.

    Args:
        ranks: The ranks that check.
        path: A file that the writer has just written there.
        content: Its content.

    Raises:
        UsageError: A rank does not: its machine has another disk there.
    """
    # Maximum seconds until a network file system shows a new file to the other machines.
    see_s = 20.0
    deadline = time.monotonic() + see_s
    while not (mine := _file_has_content(path, content)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for rank, (sees, host) in enumerate(ranks.all_gather((mine, socket.gethostname()))):
        if not sees:
            raise mark_everywhere(
                UsageError(
                    f"rank {rank} on {host} does not see {os.path.dirname(path)} as rank 0 does: "
                    "give a directory on a file system that all machines share"
                )
            )


def _file_has_content(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == content
    except OSError:
        return False


def join_ranks(kind: str) -> Ranks:
    """Return the ranks of a launch.

    Args:
        kind: ``none``, ``ddp``, ``fsdp``, ``shard_grad_op`` or ``hsdp``.

    Raises:
        UsageError: Several ranks were launched that would each train independently, or too few for
            `kind`.
    """
    world = launch.read_launch().world
    if kind == "none":
        if world > 1:
            raise UsageError(
                f"{world} ranks were launched, but parallel is none: give --parallel ddp, fsdp, "
                "shard_grad_op or hsdp"
            )
        return SingleRank()
    if launch.read_launch().launcher == "alone":
        raise UsageError(
            f"parallel is {kind}: launch it with torchrun --nproc-per-node N -m rgt_train …"
        )
    if kind == "hsdp" and world % 2:
        raise UsageError(f"hsdp needs an even number of ranks, not {world}")
    return distributed()


def wrap_model(
    model: nn.Module, kind: str, ranks: Ranks, dtype: torch.dtype | None = None
) -> nn.Module:
    """Return `model` as the ranks hold it: whole on each, sharded, or sharded twice (``hsdp``).

    With ``shard_grad_op`` the weights stay gathered from the forward to the backward pass: more
    memory, one exchange less. Between two steps they are sharded, as gradients and moments are.

    Args:
        model: The whole.
        kind: How.
        ranks: All ranks.
        dtype: The dtype in which shards are gathered and computed; gradients are still summed over
            the ranks in 32 bits. None changes nothing.
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
        mesh = init_device_mesh(
            device, (2, ranks.world // 2), mesh_dim_names=("replicate", "shard")
        )
    else:
        mesh = init_device_mesh(device, (ranks.world,), mesh_dim_names=("shard",))
    rules: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    if kind == "shard_grad_op":
        rules["reshard_after_forward"] = False
    for block in _sharding_units(model):
        fully_shard(block, **rules)
    # The root last: it takes the parameters that no block has taken.
    fully_shard(model, **rules)
    return model


def sharded_grad_norm(model: nn.Module) -> float:
    """Return the norm of all gradients of a sharded model without changing them. Collective."""
    # An infinite limit: the norm without a change of the gradients.
    found: Any = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    return float(found.full_tensor() if hasattr(found, "full_tensor") else found)


def _sharding_units(model: nn.Module) -> list[nn.Module]:
    """Return the units that are gathered one after the other: the layers of its lists."""
    lists = [
        module for module in model.modules() if isinstance(module, (nn.ModuleList, nn.Sequential))
    ]
    if not lists:
        return []
    return [layer for layer in lists[0] if any(True for _ in layer.parameters())]


def of_accelerate(
    accelerator: Any, model: Any, optimizer: Any = None, scheduler: Any = None
) -> dict[str, Any]:
    """Return the parts of a loop that ``accelerator.prepare`` has wrapped.

    For DDP, FSDP2 or one process. The data loader stays unprepared (``DataLoader(data,
    batch_sampler=run.batches())``): Accelerate would share the batches among the ranks a second
    time.

    Args:
        accelerator: The ``Accelerator``.
        model: The result of `prepare`; likewise `optimizer` and `scheduler`.
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


def of_deepspeed(engine: Any) -> dict[str, Any]:
    """Return the parts of a DeepSpeed engine that does not partition its state (ZeRO stage 0).

    Raises:
        UsageError: The engine partitions it: only ``engine.save_checkpoint`` can save that.
    """
    stage = int(engine.zero_optimization_stage())
    if stage:
        raise UsageError(
            f"DeepSpeed ZeRO stage {stage} keeps state of its own form on each rank: use "
            "rgt_train.callbacks.RgtDeepSpeed, which saves by engine.save_checkpoint, or shard "
            "with torch's fully_shard"
        )
    found = {
        "model": engine.module,
        "optimizer": engine.optimizer,
        "scheduler": engine.lr_scheduler,
    }
    return {name: part for name, part in found.items() if part is not None}
