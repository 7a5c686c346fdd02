"""What a launcher tells a rank by its environment: torchrun, srun, or nobody (a run of one process)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Mapping, Optional

from rgt_train.exits import UsageError


@dataclass(frozen=True)
class Launch:
    """This process among those of the run.

    Attributes:
        rank: Its number, from 0, over all machines.
        world: How many processes there are.
        local_rank: Its number on this machine: the device it takes.
        nodes: How many machines there are.
        address: Host of rank 0.
        port: Port on which the processes find each other.
        restarts: How often the launcher has started this group anew (``torchrun --max-restarts``).
        launcher: ``torchrun``, ``slurm`` or ``alone``.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    nodes: int = 1
    address: str = "127.0.0.1"
    port: int = 0
    restarts: int = 0
    launcher: str = "alone"


def read(env: Optional[Mapping[str, str]] = None) -> Launch:
    """Read the launcher's variables.

    ``torchrun`` sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
    TORCHELASTIC_RESTART_COUNT. ``srun`` sets SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID and SLURM_NNODES; there
    MASTER_ADDR and MASTER_PORT are the job script's to set.

    Args:
        env: The environment; None = this process's.

    Raises:
        UsageError: Variables contradict each other or are no numbers; the message names them.
    """
    found = os.environ if env is None else env
    if "RANK" in found or "WORLD_SIZE" in found:
        world, local = _number(found, "WORLD_SIZE", 1), _number(found, "LOCAL_WORLD_SIZE", 1)
        launch = Launch(
            _number(found, "RANK", 0), world, _number(found, "LOCAL_RANK", 0), max(1, world // max(1, local)),
            found.get("MASTER_ADDR", "127.0.0.1"), _number(found, "MASTER_PORT", 0),
            _number(found, "TORCHELASTIC_RESTART_COUNT", 0), "torchrun",
        )  # fmt: skip
    elif _number(found, "SLURM_NTASKS", 1) > 1 and "SLURM_PROCID" in found:
        launch = Launch(
            _number(found, "SLURM_PROCID", 0), _number(found, "SLURM_NTASKS", 1), _number(found, "SLURM_LOCALID", 0),
            _number(found, "SLURM_NNODES", 1), found.get("MASTER_ADDR", "127.0.0.1"),
            _number(found, "MASTER_PORT", 0), _number(found, "SLURM_RESTART_COUNT", 0), "slurm",
        )  # fmt: skip
    else:
        return Launch()
    if not 0 <= launch.rank < launch.world:
        raise UsageError(
            f"the launcher says rank {launch.rank} of {launch.world}; unset RANK and WORLD_SIZE, or use it whole"
        )
    if launch.world > 1 and not launch.port:
        raise UsageError(
            "MASTER_PORT is not set: launch with torchrun, or export MASTER_ADDR and MASTER_PORT in the job script"
        )
    return launch


def free_port() -> int:
    """Return a port that is free now, for a group of processes on this machine alone.

    Between the answer and its use another program may take it: ``torchrun --rdzv-endpoint=localhost:0`` has no such
    gap and is what a launch of several processes should use.
    """
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, not a number; it is the launcher's to set") from None
