"""The ranks of a run over torch.distributed: set up from the launcher's variables, agreeing on the CPU.

Agreements go over a gloo group of their own, whatever the gradients use: they wait for no device, their time-out is not
that of a gradient, and a rank that is missing is named.

Before each collective a rank writes down, where the ranks have found each other, how many it has come to (some 10 µs:
the answer is not waited for). When one of them fails, those that have come to fewer are the ones that are waited for.

A gloo thread frees its last piece of work a moment after that was done, and needs the interpreter for it. When the main
thread has begun to end by then, CPython ends that thread in the middle of C++ code and the process aborts: "terminate
called without an active exception", exit code -6, and torchrun calls a finished run failed. Seen in 4 of 46 ends of a
plain loop on 2 busy cores, with and without `destroy_process_group` (torch 2.13, CPython 3.11; see
https://github.com/pytorch/pytorch/issues/190489).

A rank whose data have ended takes part in the others' reductions, but not in their optimizer steps. At the end ``Join``
gives it the weights of the rank that went on longest; its moments would still be the old ones, and the replicas would
part at the next step. So the state of the optimizers comes from the same rank.
"""

from __future__ import annotations

import copy
import ctypes
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Iterator, List, Mapping, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.rendezvous import rendezvous

from rgt_train.checkpoint.state import Stateful
from rgt_train.exits import RanksError, UsageError
from rgt_train.ranks import launch
from rgt_train.ranks.heartbeat import Heartbeat

PATIENCE_S = 1.0
"""Seconds for the slower ranks: a connection that breaks is noticed before they have come."""
ANSWER_S = 5.0
"""Seconds after which a store that does not answer is left alone: its machine may be gone."""
_POLL_S = 0.05


class RollCall:
    """Counts the collectives of one group of ranks.

    Args:
        store: A ``torch.distributed.Store`` that all ranks reach.
        name: Tells this group from others, and this attempt of a launcher from the one before.
        rank: Number of this rank.
        world: How many there are.
    """

    def __init__(self, store: Any, name: str, rank: int, world: int) -> None:
        self._store, self._name, self._rank, self._world = store, name, rank, world
        self._count = 0

    def came(self) -> None:
        """Note that this rank comes to the next collective.

        Raises:
            RuntimeError: The store is gone.
        """
        self._count += 1
        self._store.set(self._key(self._rank), str(self._count))

    def absent(self, patience_s: float = PATIENCE_S) -> Optional[List[int]]:
        """Return the ranks that have not come to where this one is; None where the store does not answer."""
        found: List[List[int]] = []
        asking = threading.Thread(
            target=self._ask, args=(found, time.monotonic() + patience_s), daemon=True
        )
        asking.start()
        asking.join(patience_s + ANSWER_S)
        if found:
            return found[-1]
        return None

    def _ask(self, found: List[List[int]], deadline: float) -> None:
        with suppress(RuntimeError):
            while True:
                found.append(
                    [rank for rank in range(self._world) if self._count_of(rank) < self._count]
                )
                if not found[-1] or time.monotonic() >= deadline:
                    return
                time.sleep(_POLL_S)

    def _count_of(self, rank: int) -> int:
        key = self._key(rank)
        if self._store.check([key]):
            return int(self._store.get(key))
        return 0

    def _key(self, rank: int) -> str:
        return f"rgt-came/{self._name}/{rank}"


def in_words(absent: Optional[Sequence[int]], timeout_s: float) -> str:
    """Say what `RollCall.absent` has found."""
    if absent is None:
        return "nobody answers where the ranks found each other: that machine may be gone"
    if not absent:
        return "all had come, but one has ended since, or the connection to it broke"
    *others, last = (str(rank) for rank in absent)
    who = f"ranks {', '.join(others)} and {last} have" if others else f"rank {last} has"
    return f"{who} not come: ended, or busy with something else for more than {timeout_s:.0f} s"


QUIET_S = 0.1
"""So long the interpreter is free for others at least: a thread that is about to ask for it has asked by then."""
LIMIT_S = 1.0
"""Threads that keep their hold on Python for good (those of autograd on a GPU do) are not waited for longer."""
_TICK_S = 0.01


def let_threads_end(quiet_s: float = QUIET_S, limit_s: float = LIMIT_S) -> None:
    """Wait until no thread that Python does not know has anything to do with it; for the very end of a process.

    Args:
        quiet_s: Seconds that are always waited.
        limit_s: Seconds after which it is given up.
    """
    begun = time.monotonic()
    while True:
        time.sleep(_TICK_S)  # which lets go of the interpreter
        passed = time.monotonic() - begun
        if passed >= limit_s or (passed >= quiet_s and strangers() == 0):
            return


def strangers() -> int:
    """Return how many threads hold a state of the interpreter that `threading` does not know, waiting ones too."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Main.restype = ctypes.c_void_p
    api.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p
    api.PyThreadState_Next.restype = ctypes.c_void_p
    found, state = (
        0,
        api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Main())),
    )
    while state:
        found += 1
        state = api.PyThreadState_Next(ctypes.c_void_p(state))
    return max(0, found - len(threading.enumerate()))


TIMEOUT_S = 600.0
"""A rank that has not come to an agreement for this long is taken for dead. It must be longer than the slowest thing
that one rank does alone: the first batch, a compilation, an evaluation that only rank 0 makes."""
JOIN_S = 300.0
"""Time for all ranks to find each other."""
PR_SET_PDEATHSIG = 1
_ERRORS_OF_TORCH: "tuple[type[BaseException], ...]" = (
    (dist.DistError,) if hasattr(dist, "DistError") else ()
)
_PLACE = re.compile(r"^\[/[^\]]*\] *")


class TorchRanks:
    """The processes of a run, as one of them sees them; see `rgt_train.ranks.launch.Ranks`.

    Attributes:
        device: Where this rank computes.
        beat: What it is at.

    Args:
        how: What the launcher said; None reads the environment.
        timeout_s: Seconds after which a rank that does not answer is taken for dead.

    Raises:
        UsageError: The launcher's variables make no sense, or there are fewer GPUs than ranks.
        RanksError: The other ranks did not come.
    """

    def __init__(
        self, how: Optional[launch.Launch] = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._joined = not dist.is_initialized()
        if how is None:
            how = (
                launch.read()
                if self._joined
                else launch.of_group(dist.get_rank(), dist.get_world_size())
            )
        self.launch = how
        self.rank, self.world, self.nodes = how.rank, how.world, how.nodes
        self.device = bind(how.local_rank) if how.launcher != launch.GROUP else here()
        self._timeout = timedelta(seconds=timeout_s)
        self.beat = Heartbeat()
        self.beat.show(how.rank, how.world)
        die_with_parent()
        if self._joined:
            self._join()
        self._group: Any = dist.new_group(backend="gloo", timeout=self._timeout)
        self._roll = self._roll_call("run")
        self._wish = torch.zeros(1, dtype=torch.int32)
        self._background: Any = None
        if how.launcher == launch.GROUP:
            self.nodes = len(set(self.all_gather(socket.gethostname())))

    @property
    def is_writer(self) -> bool:
        """Rank 0 owns the run directory."""
        return self.rank == 0

    def agree(self, wishes: int) -> int:
        """Return the wishes of all ranks, the same on each: an OR of small flags.

        Raises:
            RanksError: A rank did not come within the time-out, or its process has ended; the message names it.
        """
        self._wish[0] = wishes
        self._call(lambda: dist.all_reduce(self._wish, op=dist.ReduceOp.BOR, group=self._group))
        return int(self._wish[0])

    def mean(self, values: Sequence[float]) -> List[float]:
        """Return the means of the ranks' numbers, added in the order of the ranks: the same bits on every rank.

        Raises:
            RanksError: See `agree`.
        """
        mine = torch.tensor(list(values), dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(self.world)]
        self._call(lambda: dist.all_gather(found, mine, group=self._group))
        return [sum(column) / self.world for column in zip(*(each.tolist() for each in found))]

    def gather(self, value: Any) -> Optional[List[Any]]:
        """Return the values of all ranks, by rank, on the writer; None elsewhere."""
        into: Optional[List[Any]] = [None] * self.world if self.is_writer else None
        self._call(lambda: dist.gather_object(value, into, dst=0, group=self._group))
        return into

    def share(self, value: Any) -> Any:
        """Return the writer's value on every rank."""
        held = [value if self.is_writer else None]
        self._call(lambda: dist.broadcast_object_list(held, src=0, group=self._group))
        return held[0]

    def all_gather(self, value: Any) -> List[Any]:
        """Return the values of all ranks, by rank, on every rank."""
        found: List[Any] = [None] * self.world
        self._call(lambda: dist.all_gather_object(found, value, group=self._group))
        return found

    def blame(self, error: BaseException) -> str:
        """Say which ranks are missing where a collective of the training itself has failed; empty for other errors.

        The ranks that are left fail in it one after the other, and meet here.
        """
        lost = isinstance(error, _ERRORS_OF_TORCH) or (
            isinstance(error, RuntimeError) and "/gloo/" in str(error)
        )
        if not lost or isinstance(error, RanksError):
            return ""
        with suppress(RuntimeError):
            self._roll.came()
        missing = in_words(self._roll.absent(), self._timeout.total_seconds())
        return f"rank {self.rank} of {self.world}: {missing}: {_first_line(error)}"

    @property
    def group(self) -> Any:
        """The gloo group of the agreements, for collectives on the CPU such as a sharded save."""
        return self._group

    def background(self) -> "TorchRanks":
        """Return the same ranks with a gloo group of their own, for a thread. Collective the first time."""
        if self._background is None:
            other = copy.copy(self)
            other._group = dist.new_group(backend="gloo", timeout=self._timeout)
            other._roll = self._roll_call("saves")
            other._joined, other._wish = False, torch.zeros(1, dtype=torch.int32)
            other.beat = Heartbeat()  # of its own thread, which nobody asks for
            self._background = other
        found: TorchRanks = self._background
        return found

    def close(self) -> None:
        """Leave the group that this object has joined; one that was there before stays."""
        if dist.is_initialized() and self._joined:
            dist.destroy_process_group()

    def leave(self) -> None:
        """End: from here on nothing is left to be saved, a launcher that is in a hurry must not spoil the exit code."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(RuntimeError):
            self.close()
        let_threads_end()

    def _join(self) -> None:
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        how = self.launch
        timeout = timedelta(seconds=max(JOIN_S, self._timeout.total_seconds()))
        try:
            dist.init_process_group(
                backend,
                store=_store(how, timeout),
                rank=how.rank,
                world_size=how.world,
                timeout=timeout,
            )
        except (RuntimeError, ValueError) as error:
            where = f"{how.address}:{how.port}"
            raise RanksError(
                f"rank {how.rank} of {how.world} did not find the others at {where}: {_first_line(error)}"
            ) from error

    def _call(self, collective: Any) -> None:
        before = self.beat.meet()
        try:
            self._roll.came()
            collective()
        except RuntimeError as error:
            missing = in_words(self._roll.absent(), self._timeout.total_seconds())
            raise RanksError(
                f"rank {self.rank} of {self.world}: {missing}: {_first_line(error)}"
            ) from error
        finally:
            self.beat.enter(before)

    def _roll_call(self, name: str) -> RollCall:
        store: Any = dist.distributed_c10d._get_default_store()
        return RollCall(store, f"{self.launch.restarts}/{name}", self.rank, self.world)


def _store(how: launch.Launch, timeout: timedelta) -> Any:
    """Return where the ranks of this attempt find each other.

    torchrun keeps one store for all its attempts (torch 2.13, elastic/rendezvous/dynamic_rendezvous.py), and torch puts
    the addresses of every attempt under the same names: after a restart a rank may read the address of a dead one, and
    all of them fail with "Connection refused". Names of our own for each attempt avoid that.
    """
    url = "env://" if how.launcher == "torchrun" else f"tcp://{how.address}:{how.port}"
    store, _, _ = next(iter(rendezvous(url, how.rank, how.world, timeout=timeout)))
    store_of_attempt: Any = dist.PrefixStore  # type: ignore[attr-defined]
    return store_of_attempt(f"rgt-attempt-{how.restarts}", store)


def bind(local_rank: int) -> torch.device:
    """Take the GPU of this rank's own number, or the CPU where the machine has none.

    Raises:
        UsageError: There are GPUs, but not one for each rank: two ranks on one GPU would wait for each other.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise UsageError(
            f"LOCAL_RANK is {local_rank}, but this machine has {count} GPUs; launch {count} processes here"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def here() -> torch.device:
    """Return where a process computes that has chosen its GPU by itself, as one that made the process group has."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def die_with_parent() -> None:
    """Let the kernel end this process when its launcher dies, even by SIGKILL: an orphan would hold its GPU."""
    if not sys.platform.startswith("linux"):
        return
    before = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != before:  # it died in between
        os.kill(os.getpid(), signal.SIGTERM)


def _first_line(error: BaseException) -> str:
    """Return the first line without the place in torch's sources that some begin with."""
    rows = _PLACE.sub("", str(error).strip()).splitlines()
    if rows:
        return rows[0]
    return type(error).__name__


class _Level(Joinable):
    def __init__(self, model: Any, parts: Mapping[str, Stateful]) -> None:
        super().__init__()
        self._model, self.parts = model, parts

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _Hook(self)

    @property
    def join_device(self) -> torch.device:
        found: torch.device = self._model.join_device
        return found

    @property
    def join_process_group(self) -> Any:
        return self._model.join_process_group


class _Hook(JoinHook):
    def __init__(self, level: _Level) -> None:
        self._level = level

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the states of the highest rank among those that went on longest: `Join` took its weights."""
        group, parts = self._level.join_process_group, self._level.parts
        rank = dist.get_rank(group)
        root = torch.tensor(rank if is_last_joiner else -1, device=self._level.join_device)
        dist.all_reduce(root, op=dist.ReduceOp.MAX, group=group)
        held = [
            {name: part.state_dict() for name, part in parts.items()} if rank == int(root) else None
        ]
        source = dist.get_global_rank(group, int(root))
        dist.broadcast_object_list(held, src=source, group=group, device=self._level.join_device)
        if rank != int(root):
            for name, state in (held[0] or {}).items():
                parts[name].load_state_dict(state)


@contextmanager
def joined(model: Any, parts: Mapping[str, Stateful]) -> Iterator[None]:
    """Let the ranks make different numbers of steps.

    Args:
        model: The ``DistributedDataParallel`` model.
        parts: Optimizers and schedulers, by name, that step with it.
    """
    with Join([model, _Level(model, parts)]):
        yield
