"""The processes of a run: the launcher's variables for each, and their common operations.

A run calls these at the same points on every rank, in the same order: at step boundaries, at a
save, and at the start. Nothing here may be called by some ranks only.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar

from rgt_train import exits
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.exits import RanksError, UsageError
from rgt_train.ranks.heartbeat import Heartbeat

STOP = 1
"""Wish of a rank that was asked to stop."""
SAVE = 2
"""Wish of the writer when its cadence makes a save due."""
HOLD = 4
"""Wish of the writer that all wait until a save succeeds."""
MIDSTEP = 8
"""Wish of a rank whose optimizer has changed weights since the last step boundary: no save now."""
T = TypeVar("T")
_RETURN, _RAISE = "return", "raise"


class Ranks(Protocol):
    """The processes of a run, from the view of one of them.

    Attributes:
        rank: Number of this process, from 0.
        world: Number of processes.
        nodes: Number of their machines (which divides the mean time between failures).
        beat: The phase of this process.
    """

    rank: int
    world: int
    nodes: int
    beat: Heartbeat

    @property
    def is_writer(self) -> bool:
        """Whether this rank owns the run directory: lock, run log, log, manifests and renames."""

    def agree_on_flags(self, wishes: int) -> int:
        """Return the wishes (an OR of the flags above) of all ranks, the same value on each.

        Called at every step boundary and between two validation batches. An implementation may
        return the wishes of the previous boundary, so that no rank waits here for another; all must
        act on the same step.
        """

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Return the means of the ranks' numbers, the same bits on every rank."""

    def gather_on_writer(self, value: Any) -> list[Any] | None:
        """Return the plain values of all ranks, by rank, on the writer; None elsewhere."""

    def all_gather(self, value: Any) -> list[Any]:
        """Return the plain values of all ranks, by rank, on every rank."""

    def share_from_writer(self, value: Any) -> Any:
        """Return the writer's plain `value` on every rank."""

    def name_missing_ranks(self, error: BaseException) -> str:
        """Return which ranks are missing if an error comes from communication; otherwise empty."""

    def close(self) -> None:
        """Release the resources of the communication."""


class SingleRank:
    """A run of one process."""

    rank = 0
    world = 1
    nodes = 1
    is_writer = True

    def __init__(self) -> None:
        self.beat = Heartbeat()

    def agree_on_flags(self, wishes: int) -> int:
        """Return `wishes`."""
        return wishes

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Return `values`."""
        return list(values)

    def gather_on_writer(self, value: Any) -> list[Any] | None:
        """Return a list of `value`."""
        return [value]

    def all_gather(self, value: Any) -> list[Any]:
        """Return a list of `value`."""
        return [value]

    def share_from_writer(self, value: Any) -> Any:
        """Return `value`."""
        return value

    def name_missing_ranks(self, error: BaseException) -> str:
        """Return an empty string: there are no other ranks."""
        return ""

    def close(self) -> None:
        """Do nothing: nothing is open."""


TORCHRUN, GROUP = "torchrun", "group"


@dataclass(frozen=True)
class LaunchedProcess:
    """This process among those of the run.

    Attributes:
        rank: Its number, from 0, over all machines.
        world: Number of processes.
        local_rank: Its number on this machine: the device it takes.
        nodes: Number of machines.
        address: Host of rank 0.
        port: Port on which the processes find each other.
        restarts: How often the launcher has restarted this group (``torchrun --max-restarts``); 0
            where each attempt has a store of its own.
        launcher: ``torchrun``, ``slurm``, ``alone``, or ``group`` if only the process group is
            known (then its machines and the device of this process are unknown).
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    nodes: int = 1
    address: str = "127.0.0.1"
    port: int = 0
    restarts: int = 0
    launcher: str = "alone"


def read_launch(env: Mapping[str, str] | None = None) -> LaunchedProcess:
    """Read the launcher's variables.

    ``torchrun`` sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
    TORCHELASTIC_RESTART_COUNT. ``srun`` sets SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID,
    SLURM_NNODES and SLURM_STEP_ID; there the job script must set MASTER_ADDR and MASTER_PORT.

    Args:
        env: The environment; None = this process's.

    Raises:
        UsageError: Variables contradict each other or are not numbers; the message names them.
    """
    launch = _parse_environment(os.environ if env is None else env)
    if not 0 <= launch.rank < launch.world:
        raise UsageError(
            f"the launcher says rank {launch.rank} of {launch.world}; unset RANK and WORLD_SIZE, "
            "or use it whole"
        )
    if launch.world > 1 and not launch.port:
        raise UsageError(
            "MASTER_PORT is not set: launch with torchrun, or export MASTER_ADDR and MASTER_PORT "
            "in the job script"
        )
    return launch


def launch_of_group(rank: int, world: int, env: Mapping[str, str] | None = None) -> LaunchedProcess:
    """Return the known facts of a process in a process group that a program has made itself.

    The group determines the rank: gradients are exchanged in it. Programs that start their
    processes themselves (``torch.multiprocessing.spawn``) often set no variables, or use them for
    the number of machines.

    Args:
        rank: The rank in the group.
        world: The size of the group.
        env: The environment; None = this process's.

    Raises:
        UsageError: The launcher has started more ranks than are in the group: some train
            independently.
    """
    told = _parse_environment(os.environ if env is None else env)
    if (told.rank, told.world) == (rank, world):
        return told
    if told.launcher == TORCHRUN and told.world > world:
        raise UsageError(
            f"RANK and WORLD_SIZE say rank {told.rank} of {told.world}, the process group that was "
            f"made says rank {rank} of {world}: make the group of all ranks, or let distributed() "
            "make it"
        )
    return LaunchedProcess(rank, world, launcher=GROUP)


def is_torchrun(env: Mapping[str, str] | None = None) -> bool:
    """Return whether the variables of torchrun are set."""
    if env is None:
        env = os.environ
    return "RANK" in env or "WORLD_SIZE" in env


def _parse_environment(env: Mapping[str, str]) -> LaunchedProcess:
    if is_torchrun(env):
        world = _parse_number(env, "WORLD_SIZE", 1)
        local = _parse_number(env, "LOCAL_WORLD_SIZE", 1)
        restarts = 0
        # Otherwise each attempt has a store of its own. In an elastic launch, a group that joins
        # later counts fewer restarts than the others: the number must not separate them then.
        if env.get("TORCHELASTIC_USE_AGENT_STORE") != "False":
            restarts = _parse_number(env, "TORCHELASTIC_RESTART_COUNT", 0)
        return LaunchedProcess(
            _parse_number(env, "RANK", 0), world, _parse_number(env, "LOCAL_RANK", 0),
            max(1, world // max(1, local)),
            env.get("MASTER_ADDR", "127.0.0.1"), _parse_number(env, "MASTER_PORT", 0),
            restarts, TORCHRUN,
        )  # fmt: skip
    # torchrun's variables come first: inside srun, torchrun sets the ones that count.
    if _is_in_slurm_step(env) and _parse_number(env, "SLURM_NTASKS", 1) > 1:
        return LaunchedProcess(
            _parse_number(env, "SLURM_PROCID", 0),
            _parse_number(env, "SLURM_NTASKS", 1),
            _parse_number(env, "SLURM_LOCALID", 0),
            _parse_number(env, "SLURM_NNODES", 1),
            env.get("MASTER_ADDR", "127.0.0.1"),
            _parse_number(env, "MASTER_PORT", 0),
            _parse_number(env, "SLURM_RESTART_COUNT", 0),
            "slurm",
        )
    return LaunchedProcess()


def _is_in_slurm_step(env: Mapping[str, str]) -> bool:
    """Return whether ``srun`` has started this process.

    The script of ``sbatch --ntasks=4`` also has SLURM_NTASKS and SLURM_PROCID, although it is a
    single process. It has no SLURM_STEP_ID, or one of the last numbers of the range, which mean no
    step (slurm.h: SLURM_BATCH_SCRIPT).
    """
    step = env.get("SLURM_STEP_ID", "")
    no_step = 0xFFFFFFF0
    return step.isdigit() and int(step) < no_step and "SLURM_PROCID" in env


def _parse_number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, not a number; it is the launcher's to set") from None


def read_cpu_quota(root: str = "/sys/fs/cgroup", groups: str = "/proc/self/cgroup") -> float:
    """Return the cores that the control groups of this process grant; infinite without a quota.

    Args:
        root: Where the control groups are mounted, version 2 or 1.
        groups: The file with the groups of this process.
    """
    found = [math.inf]
    for line in _read_words(groups, "\n"):
        _, _, path = line.partition("::")
        # In a container, the path is often that of the host: then the mount's top is its own group.
        while path:
            found.append(_parse_quota(_read_words(os.path.join(root, path.strip("/"), "cpu.max"))))
            path = path.rpartition("/")[0]
    v1 = [
        _read_words(os.path.join(root, "cpu", f"cpu.cfs_{name}_us")) for name in ("quota", "period")
    ]
    found.append(_parse_quota(_read_words(os.path.join(root, "cpu.max"))))
    found.append(_parse_quota([*v1[0], *v1[1]]))
    return min(found)


def _read_words(path: str, separator: str | None = None) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split(separator)
    except (OSError, UnicodeDecodeError):
        return []


def _parse_quota(words: Sequence[str]) -> float:
    try:
        quota, period = (float(word) for word in words)
        if quota > 0 and period > 0:
            return quota / period
    except ValueError:
        pass  # "max", or no such file
    return math.inf


# One rank leads, the others follow: a run whose decisions are all made in one place.
#
# Every decision based on the writer's knowledge (how long a save took, whether the disk accepted
# it, which checkpoint is complete) is made by the writer alone. If it may need all ranks, every
# rank calls `Coordinator.run_on_leader` at the same point. The leader runs the work and gives
# *orders* for its collective parts; the others wait for them, carry each out and return the
# leader's result, or raise its error. So no collective is called by only some ranks, for any
# decision of the leader.
#
# An error found by one rank alone (a damaged byte, a state that cannot be stored, a file it cannot
# read) must not leave the others waiting in the next collective. So each rank reports the result of
# its part, and all of them continue, or raise, alike.


class Coordinator:
    """The ranks of a run doing work that one of them leads.

    Args:
        ranks: The processes; with one process, everything is a plain call.
        heard: Called on a follower for each order.
        asked: Returns whether this rank was asked to stop.

    Attributes:
        orders: Name → function of every rank for that order of the leader.
    """

    def __init__(
        self,
        ranks: Ranks,
        heard: Callable[[], None] = lambda: None,
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ranks = ranks
        self.heard = heard
        self.asked = asked
        self._leading = False
        self.orders: dict[str, Callable[..., Any]] = {"alive": self._answer_alive}

    def run_on_leader(self, work: Callable[[], T]) -> T:
        """Let the leader do `work`.

        Collective; returns the leader's result, a plain value, on every rank.

        Raises:
            UsageError: The leader raised it; likewise `Stop`.
            RanksError: The leader failed in another way, or the ranks have lost each other.
        """
        if self._ranks.world == 1 or self._leading:
            return work()
        if not self._ranks.is_writer:
            result: T = self._follow_orders()
            return result
        self._leading = True
        try:
            result = work()
        except BaseException as error:
            if not is_everywhere(error):
                # Otherwise the followers would wait for the next order until their time-out.
                self._ranks.share_from_writer((_RAISE, _describe_error(error)))
            raise
        finally:
            self._leading = False
        self._ranks.share_from_writer((_RETURN, (result,)))
        return result

    def order_all(self, name: str, *values: Any) -> Any:
        """Run `orders[name]` on every rank; return this rank's result.

        For the leader, inside `run_on_leader`.
        """
        if self._ranks.world > 1:
            assert self._leading, f"order {name} outside of Coordinator.do"
            self._ranks.share_from_writer((name, values))
        return self.orders[name](*values)

    @property
    def is_leading(self) -> bool:
        """Whether the others now wait for orders of this rank."""
        return self._leading and self._ranks.world > 1

    def signal_alive(self) -> bool:
        """Signal the others that this rank still works; return whether any rank was asked to stop.

        Call it regularly in a long wait inside `run_on_leader`: ranks without a message for the
        time-out of the agreements assume that this one is dead, and a signal to one of them would
        not be handled before its end.
        """
        self.heard()
        if self.is_leading:
            return bool(self.order_all("alive"))
        return self.asked()

    def name_missing_ranks(self, error: BaseException) -> str:
        """Return which ranks are missing if that caused the error; otherwise empty."""
        return self._ranks.name_missing_ranks(error)

    def _answer_alive(self) -> bool:
        return bool(self._ranks.agree_on_flags(STOP if self.asked() else 0) & STOP)

    def _follow_orders(self) -> Any:
        while True:
            name, values = self._ranks.share_from_writer(None)
            self.heard()
            if name == _RETURN:
                return values[0]
            if name == _RAISE:
                raise _rebuild_error(*values)
            self.orders[name](*values)


def mark_everywhere(error: BaseException) -> BaseException:
    """Mark an error that every rank raises itself, so that the leader need not report it."""
    error.everywhere = True  # type: ignore[attr-defined]
    return error


def is_everywhere(error: BaseException) -> bool:
    """Return whether every rank raises this error itself, or can no longer be notified."""
    return isinstance(error, RanksError) or bool(getattr(error, "everywhere", False))


def _describe_error(error: BaseException) -> "tuple[str, str, int | None]":
    if isinstance(error, exits.TrainingStop):
        return "stop", error.cause, int(error.code or 0)
    if isinstance(error, exits.UsageError):
        return "usage", str(error), None
    return "other", f"{type(error).__name__}: {error}", None


def _rebuild_error(kind: str, text: str, code: int | None) -> BaseException:
    if kind == "stop":
        return exits.TrainingStop(code or 0, text)
    if kind == "usage":
        return exits.UsageError(text)
    return RanksError(f"rank 0 failed: {text}")


Complaint = Optional[Tuple[str, str]]
"""The error of a rank: its kind (a key of `_KINDS`, or ``other``), and the text."""


class StateNotTaken(exits.UsageError):
    """Some rank's state cannot be saved now. Every rank is notified.

    The writer decides what follows.
    """


_KINDS: "dict[str, type[Exception]]" = {
    "not taken": StateNotTaken,
    "usage": exits.UsageError,
    "damaged": CheckpointDamaged,
}
"""The exception for each kind of complaint."""
_TOLD = ("damaged", "not taken")
"""Kinds that do not end the run themselves: the writer decides, the other ranks wait for its
orders.
"""


def run_on_all_ranks(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do `work` on this rank, and check that it succeeded on all; return this rank's result.

    Collective.

    Raises:
        CheckpointDamaged: A rank found a checkpoint damaged; likewise `StateNotTaken`. The writer
            continues from here.
        UsageError: A rank raised it; every rank raises it.
        RanksError: Another rank's work failed unexpectedly; that rank raises its own error.
    """
    mine: Exception | None = None
    result: Any = None
    try:
        result = work()
    except RanksError:
        raise
    except Exception as error:
        mine = error
    # Every rank takes part, whether it failed or not: this is what keeps them in step.
    found: list[Complaint] = ranks.all_gather(None if mine is None else _complaint(mine))
    # "other" first: an unexpected error matters more than one that has a way to go on.
    for kind in ("other", *_KINDS):
        for rank, complaint in enumerate(found):
            if _is_of_kind(complaint, kind):
                raise _common_error(rank, complaint, mine) from mine
    done: T = result
    return done


def _complaint(error: Exception) -> Complaint:
    kind = next((kind for kind, each in _KINDS.items() if isinstance(error, each)), "other")
    return kind, str(error) if kind != "other" else f"{type(error).__name__}: {error}"


def _is_of_kind(complaint: Complaint, kind: str) -> bool:
    return complaint is not None and complaint[0] == kind


def _common_error(rank: int, complaint: Complaint, mine: Exception | None) -> BaseException:
    assert complaint is not None, "looked for above"
    kind, text = complaint
    if kind == "other":
        alike = mine is not None and _complaint(mine) == complaint
        if alike and mine is not None:
            return mark_everywhere(mine)
        return RanksError(f"rank {rank} failed: {text}")
    found = _KINDS[kind](text if rank == 0 else f"{text} (found by rank {rank})")
    if kind in _TOLD:
        return found
    return mark_everywhere(found)


class StandIn:
    """Replaces lock, log and saver on a follower: the writer's serve all, these do nothing.

    Args:
        **values: Attributes with a real value.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: None
