"""What a run of several processes takes: which ranks, and which way onto the disk.

Nothing of torch.distributed is imported for a process that is alone.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

import torch

from rgt_train.exits import UsageError, starts
from rgt_train.parallel import launch
from rgt_train.parallel.agreeing import NotTaken
from rgt_train.parallel.crew import Crew, everywhere
from rgt_train.parallel.ordered import Ordered
from rgt_train.parallel.replicated import Checks, Replicated
from rgt_train.persister import Persister, Request
from rgt_train.ranks import Alone, Ranks
from rgt_train.state import RunState
from rgt_train.store import Store

if TYPE_CHECKING:
    from rgt_train.parallel.torch_ranks import TorchRanks

_SEE_S = 20.0
"""How long a network file system may take to show a new file to the other machines."""
_made: "Optional[TorchRanks]" = None


@starts
def distributed(*, timeout_s: Optional[float] = None) -> "TorchRanks":
    """Join the ranks that the launcher started, once; `device` is where this one computes.

    Call it first, before the model is built: it binds the GPU of LOCAL_RANK and makes the default process group, unless
    there is one already.

    Args:
        timeout_s: Seconds after which a rank that does not come to an agreement is taken for dead; longer than anything
            that one rank does alone. None for `torch_ranks.TIMEOUT_S`. The first call decides.

    Raises:
        NotStarted: The launcher's variables make no sense, or there are fewer GPUs than ranks (exit code 2).
        RanksError: The other ranks did not come.
    """
    global _made
    if _made is None:
        import atexit

        from rgt_train.parallel.torch_ranks import TorchRanks

        _made = TorchRanks() if timeout_s is None else TorchRanks(timeout_s=timeout_s)
        atexit.register(_made.leave)
    return _made


def ranks_of(given: Optional[Ranks]) -> Ranks:
    """Return the ranks of a run: those given, those that the process has joined, those of torchrun, or it alone."""
    if given is not None:
        return given
    dist: Any = sys.modules.get("torch.distributed")
    joined = dist is not None and dist.is_available() and dist.is_initialized()
    return distributed() if joined or (launch.by_torchrun() and launch.read().world > 1) else Alone()


def is_sharded(models: Mapping[str, torch.nn.Module]) -> bool:
    """Say whether any parameter is held in parts by several ranks (`fully_shard`)."""
    return any(type(p).__name__ == "DTensor" for model in models.values() for p in model.parameters())


def persister(
    models: Mapping[str, torch.nn.Module],
    store: Store,
    ranks: Ranks,
    crew: Crew,
    state: RunState,
    checks: Checks,
    inner: Callable[[], Persister],
    *,
    background: bool,
) -> Persister:
    """Return what puts the state of these models onto the disk.

    Args:
        models: Name → module.
        store: Where to.
        ranks: Who takes part.
        crew: Learns what the other ranks do for a save.
        state: What is saved.
        checks: The desync guard.
        inner: Makes the persister of a state that one process holds.
        background: Whether the training goes on during a save.

    Raises:
        UsageError: The models are wrapped in a way that cannot be saved here.
    """
    for model in models.values():
        if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
            raise UsageError(
                "FullyShardedDataParallel (FSDP1) is not supported: shard with torch's fully_shard"
            )
    found: Any
    if is_sharded(models):
        from rgt_train.parallel import sharded_state
        from rgt_train.parallel.sharded_persister import ShardedPersister

        sharded_state.check_part_names(state)
        found = ShardedPersister(store, ranks, checks, background=background)
    elif ranks.world == 1:
        return inner()
    else:
        found = Replicated(inner() if ranks.is_writer else None, ranks, checks)
    crew.orders["begin"] = lambda request: _begin(found, ranks, request, state)
    crew.orders["again"] = lambda give_up: found.again(give_up=give_up)
    crew.orders["load"] = lambda directory: found.load(directory, state)
    return Ordered(found, crew) if ranks.is_writer else found


def _begin(persister: Persister, ranks: Ranks, request: Request, state: RunState) -> None:
    """Begin a save; where some rank's state cannot be taken, the writer alone decides what follows."""
    try:
        persister.begin(request, state)
    except NotTaken:
        if ranks.is_writer:
            raise


def see(ranks: Ranks, path: str, content: bytes) -> None:
    """Check that every rank sees the run directory. Collective.

    Args:
        ranks: Who looks.
        path: A file that the writer has just written there.
        content: What is in it.

    Raises:
        UsageError: A rank does not: its machine has another disk there.
    """
    deadline = time.monotonic() + _SEE_S
    while not (mine := _holds(path, content)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for rank, (sees, host) in enumerate(ranks.all_gather((mine, socket.gethostname()))):
        if not sees:
            raise everywhere(
                UsageError(
                    f"rank {rank} on {host} does not see {os.path.dirname(path)} as rank 0 does: "
                    "give a directory on a file system that all machines share"
                )
            )


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == content
    except OSError:
        return False
