"""The processes of a run: what the launcher tells each of them, and what they do together.

A run calls these from the same places on every rank, in the same order: at step boundaries, at a save, and at the
start. Nothing here may be called by some ranks only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Protocol, Sequence

from rgt_train.exits import UsageError
from rgt_train.ranks.heartbeat import Heartbeat

STOP = 1
"""Wish of a rank that was asked to stop."""
SAVE = 2
"""Wish of the writer whose cadence says that a save is due."""
HOLD = 4
"""Wish of the writer that nothing may go on before a save succeeds."""
MIDSTEP = 8
"""Word of a rank that an optimizer has changed its weights since the last step boundary: not a moment to save."""


class Ranks(Protocol):
    """The processes of a run, as one of them sees them.

    Attributes:
        rank: Number of this process, from 0.
        world: How many there are.
        nodes: Machines they run on (what divides the mean time between failures).
        beat: What this process is at.
    """

    rank: int
    world: int
    nodes: int
    beat: Heartbeat

    @property
    def is_writer(self) -> bool:
        """Whether this rank owns the run directory: lock, run log, log, manifests and renames."""

    def agree(self, wishes: int) -> int:
        """Return the wishes (an OR of the flags above) of all ranks, the same value on each of them.

        Called at every step boundary and between two validation batches. An implementation may answer with the
        wishes of the boundary before, so that no rank waits here for another; what counts is that all act on the
        same step.
        """

    def mean(self, values: Sequence[float]) -> List[float]:
        """Return the means of the ranks' numbers, the same bits on every rank."""

    def gather(self, value: Any) -> Optional[List[Any]]:
        """Return the plain values of all ranks, by rank, on the writer; None elsewhere."""

    def all_gather(self, value: Any) -> List[Any]:
        """Return the plain values of all ranks, by rank, on every rank."""

    def share(self, value: Any) -> Any:
        """Return the writer's plain `value` on every rank."""

    def blame(self, error: BaseException) -> str:
        """Say which ranks are missing where an error is one of the communication; empty for every other error."""

    def close(self) -> None:
        """Release what was opened for the communication."""


class Alone:
    """A run of one process."""

    rank = 0
    world = 1
    nodes = 1
    is_writer = True

    def __init__(self) -> None:
        self.beat = Heartbeat()

    def agree(self, wishes: int) -> int:
        """Return `wishes`."""
        return wishes

    def mean(self, values: Sequence[float]) -> List[float]:
        """Return `values`."""
        return list(values)

    def gather(self, value: Any) -> Optional[List[Any]]:
        """Return a list of `value`."""
        return [value]

    def all_gather(self, value: Any) -> List[Any]:
        """Return a list of `value`."""
        return [value]

    def share(self, value: Any) -> Any:
        """Return `value`."""
        return value

    def blame(self, error: BaseException) -> str:
        """Return nothing: there are no other ranks."""
        return ""

    def close(self) -> None:
        """Nothing is open."""


TORCHRUN, GROUP = "torchrun", "group"
_NO_STEP = 0xFFFFFFF0


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
        launcher: ``torchrun``, ``slurm``, ``alone``, or ``group`` where only the process group tells (its machines and
            the device of this process are not known then).
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
    TORCHELASTIC_RESTART_COUNT. ``srun`` sets SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NNODES and SLURM_STEP_ID;
    there MASTER_ADDR and MASTER_PORT are the job script's to set.

    Args:
        env: The environment; None = this process's.

    Raises:
        UsageError: Variables contradict each other or are no numbers; the message names them.
    """
    launch = _told(os.environ if env is None else env)
    if not 0 <= launch.rank < launch.world:
        raise UsageError(
            f"the launcher says rank {launch.rank} of {launch.world}; unset RANK and WORLD_SIZE, or use it whole"
        )
    if launch.world > 1 and not launch.port:
        raise UsageError(
            "MASTER_PORT is not set: launch with torchrun, or export MASTER_ADDR and MASTER_PORT in the job script"
        )
    return launch


def of_group(rank: int, world: int, env: Optional[Mapping[str, str]] = None) -> Launch:
    """Return what is known of a process in a process group that a program has made by itself.

    The group says who this is: its gradients go there. Programs that start their processes themselves
    (``torch.multiprocessing.spawn``) often set no variables, or use them for the number of machines.

    Args:
        rank: What the group says.
        world: Likewise.
        env: The environment; None = this process's.

    Raises:
        UsageError: The launcher has started more ranks than are in the group: some train for themselves.
    """
    told = _told(os.environ if env is None else env)
    if (told.rank, told.world) == (rank, world):
        return told
    if told.launcher == TORCHRUN and told.world > world:
        raise UsageError(
            f"RANK and WORLD_SIZE say rank {told.rank} of {told.world}, the process group that was made says rank "
            f"{rank} of {world}: make the group of all ranks, or let distributed() make it"
        )
    return Launch(rank, world, launcher=GROUP)


def by_torchrun(env: Optional[Mapping[str, str]] = None) -> bool:
    """Say whether the variables of torchrun are set."""
    found = os.environ if env is None else env
    return "RANK" in found or "WORLD_SIZE" in found


def _told(env: Mapping[str, str]) -> Launch:
    if by_torchrun(env):
        world, local = _number(env, "WORLD_SIZE", 1), _number(env, "LOCAL_WORLD_SIZE", 1)
        return Launch(
            _number(env, "RANK", 0), world, _number(env, "LOCAL_RANK", 0), max(1, world // max(1, local)),
            env.get("MASTER_ADDR", "127.0.0.1"), _number(env, "MASTER_PORT", 0),
            _number(env, "TORCHELASTIC_RESTART_COUNT", 0), TORCHRUN,
        )  # fmt: skip
    if _in_step(env) and _number(env, "SLURM_NTASKS", 1) > 1:
        return Launch(
            _number(env, "SLURM_PROCID", 0), _number(env, "SLURM_NTASKS", 1), _number(env, "SLURM_LOCALID", 0),
            _number(env, "SLURM_NNODES", 1), env.get("MASTER_ADDR", "127.0.0.1"), _number(env, "MASTER_PORT", 0),
            _number(env, "SLURM_RESTART_COUNT", 0), "slurm",
        )  # fmt: skip
    return Launch()


def _in_step(env: Mapping[str, str]) -> bool:
    """Say whether ``srun`` has started this process.

    The script of ``sbatch --ntasks=4`` has SLURM_NTASKS and SLURM_PROCID, too, and is one process all the same. It has
    no SLURM_STEP_ID, or one of the last numbers of the range, which stand for no step (slurm.h: SLURM_BATCH_SCRIPT).
    """
    step = env.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < _NO_STEP and "SLURM_PROCID" in env


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, not a number; it is the launcher's to set") from None
