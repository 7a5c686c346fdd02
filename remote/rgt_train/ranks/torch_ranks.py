"""The ranks of a run over torch.distributed, set up from the launcher's variables.

Agreements use a separate gloo group on the CPU, for any backend of the gradients: they wait for no
device, their time-out differs from that of a gradient, and a missing rank is named.

Before each collective a rank writes its count of collectives to the ranks' store (about 10 µs: it
does not wait for the answer). When one of them fails, the ranks with a lower count are the missing
ones.

A gloo thread frees its last piece of work a moment after its end, and needs the interpreter for it.
If the main thread is already shutting down then, CPython ends that thread in the middle of C++ code
and the process aborts: "terminate called without an active exception", exit code -6, and torchrun
reports a finished run as failed. Seen in 4 of 46 ends of a plain loop on 2 busy cores, with and
without `destroy_process_group` (torch 2.13, CPython 3.11; see
https://github.com/pytorch/pytorch/issues/190489).

A rank that has used up its data takes part in the others' reductions, but not in their optimizer
steps. At the end ``Join`` gives it the weights of the rank that trained longest; its moments would
still be the old ones, and the replicas would diverge at the next step. So the state of the
optimizers comes from the same rank.
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
from typing import Any, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.rendezvous import rendezvous

from rgt_train.checkpoint.state import Stateful
from rgt_train.exits import RanksError, UsageError
from rgt_train.ranks import launch
from rgt_train.ranks.heartbeat import Heartbeat

PATIENCE_S = 1.0
"""Seconds to wait for slower ranks: a broken connection is noticed before they arrive."""


class CollectiveCounter:
    """Counts the collectives of one group of ranks.

    Args:
        store: A ``torch.distributed.Store`` that all ranks reach.
        name: Distinguishes this group from others, and this attempt of a launcher from the
            previous one.
        rank: Number of this rank.
        world: Number of ranks.
    """

    def __init__(self, store: Any, name: str, rank: int, world: int) -> None:
        self._store = store
        self._name = name
        self._rank = rank
        self._world = world
        self._count = 0

    def record_arrival(self) -> None:
        """Record that this rank has reached the next collective.

        Raises:
            RuntimeError: The store is gone.
        """
        self._count += 1
        self._store.set(self._store_key(self._rank), str(self._count))

    def find_absent(self, patience_s: float = PATIENCE_S) -> list[int] | None:
        """Return the ranks that have not reached this rank's count.

        None if the store does not answer.
        """
        found: list[list[int]] = []
        asking = threading.Thread(
            target=self._poll_counts, args=(found, time.monotonic() + patience_s), daemon=True
        )
        # In a thread: a store on a dead machine may answer only after minutes.
        asking.start()
        # Seconds after which a store that does not answer is abandoned: its machine may be gone.
        answer_s = 5.0
        asking.join(patience_s + answer_s)
        if found:
            return found[-1]
        return None

    def _poll_counts(self, found: list[list[int]], deadline: float) -> None:
        with suppress(RuntimeError):
            poll_s = 0.05
            while True:
                found.append(
                    [rank for rank in range(self._world) if self._count_of(rank) < self._count]
                )
                if not found[-1] or time.monotonic() >= deadline:
                    return
                time.sleep(poll_s)

    def _count_of(self, rank: int) -> int:
        key = self._store_key(rank)
        # get() would wait for a key that does not exist.
        if self._store.check([key]):
            return int(self._store.get(key))
        return 0

    def _store_key(self, rank: int) -> str:
        return f"rgt-came/{self._name}/{rank}"


def absent_ranks_text(absent: Sequence[int] | None, timeout_s: float) -> str:
    """Describe the result of `CollectiveCounter.find_absent`."""
    if absent is None:
        return "nobody answers where the ranks found each other: that machine may be gone"
    if not absent:
        return "all had come, but one has ended since, or the connection to it broke"
    *others, last = (str(rank) for rank in absent)
    if others:
        who = f"ranks {', '.join(others)} and {last} have"
    else:
        who = f"rank {last} has"
    return f"{who} not come: ended, or busy with something else for more than {timeout_s:.0f} s"


QUIET_S = 0.1
"""Minimum seconds without the interpreter lock: a thread that needs it has requested it by then."""
LIMIT_S = 1.0
"""Maximum seconds of that wait: some threads keep their thread state for good (autograd on a GPU).
"""


def wait_for_foreign_threads(quiet_s: float = QUIET_S, limit_s: float = LIMIT_S) -> None:
    """Wait until no foreign thread has a Python thread state; for the very end of a process.

    Args:
        quiet_s: Seconds that are always waited.
        limit_s: Seconds after which the wait ends anyway.
    """
    begun = time.monotonic()
    tick_s = 0.01
    while True:
        time.sleep(tick_s)  # which releases the interpreter lock
        passed = time.monotonic() - begun
        if passed >= limit_s or (passed >= quiet_s and count_foreign_threads() == 0):
            return


def count_foreign_threads() -> int:
    """Return how many threads with a Python thread state `threading` does not know."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Main.restype = ctypes.c_void_p
    api.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p
    api.PyThreadState_Next.restype = ctypes.c_void_p
    found = 0
    state = api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Main()))
    while state:
        found += 1
        state = api.PyThreadState_Next(ctypes.c_void_p(state))
    return max(0, found - len(threading.enumerate()))


TIMEOUT_S = 600.0
"""A rank that misses an agreement for this long is assumed dead. It must be longer than the slowest
work of a single rank: the first batch, a compilation, an evaluation that only rank 0 runs.
"""
PR_SET_PDEATHSIG = 1
_ERRORS_OF_TORCH: "tuple[type[BaseException], ...]" = (
    (dist.DistError,) if hasattr(dist, "DistError") else ()
)
_PLACE = re.compile(r"^\[/[^\]]*\] *")


class TorchRanks:
    """The processes of a run, from the view of one of them; see `rgt_train.ranks.launch.Ranks`.

    Attributes:
        device: The device of this rank.
        beat: Its heartbeat.

    Args:
        how: The launcher's facts; None reads the environment.
        timeout_s: Seconds after which a rank that does not answer is assumed dead.

    Raises:
        UsageError: The launcher's variables are invalid, or there are fewer GPUs than ranks.
        RanksError: The other ranks did not join.
    """

    def __init__(
        self, how: launch.LaunchedProcess | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._joined = not dist.is_initialized()
        if how is None:
            if self._joined:
                how = launch.read_launch()
            else:
                how = launch.launch_of_group(dist.get_rank(), dist.get_world_size())
        self.launch = how
        self.rank = how.rank
        self.world = how.world
        self.nodes = how.nodes
        if how.launcher != launch.GROUP:
            self.device = bind_device(how.local_rank)
        else:
            self.device = chosen_device()
        self._timeout = timedelta(seconds=timeout_s)
        self.beat = Heartbeat()
        self.beat.share_page(how.rank, how.world)
        die_with_parent()
        if self._joined:
            self._join_group()
        self._group: Any = dist.new_group(backend="gloo", timeout=self._timeout)
        self._roll = self._collective_counter("run")
        self._wish = torch.zeros(1, dtype=torch.int32, device="cpu")
        self._background: Any = None
        if how.launcher == launch.GROUP:
            self.nodes = len(set(self.all_gather(socket.gethostname())))

    @property
    def is_writer(self) -> bool:
        """Rank 0 owns the run directory."""
        return self.rank == 0

    def agree_on_flags(self, wishes: int) -> int:
        """Return the wishes of all ranks, the same on each: an OR of small flags.

        Raises:
            RanksError: A rank did not answer within the time-out, or its process has ended; the
                message names it.
        """
        self._wish[0] = wishes
        self._run_collective(
            lambda: dist.all_reduce(self._wish, op=dist.ReduceOp.BOR, group=self._group)
        )
        return int(self._wish[0])

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Return the means of the ranks' numbers, the same bits on every rank.

        They are added in the order of the ranks.

        Raises:
            RanksError: See `agree_on_flags`.
        """
        mine = torch.tensor(list(values), dtype=torch.float64, device="cpu")
        found = [torch.empty_like(mine) for _ in range(self.world)]
        self._run_collective(lambda: dist.all_gather(found, mine, group=self._group))
        # Not all_reduce: its order of additions depends on the algorithm, so bits could differ.
        rows = [each.tolist() for each in found]
        return [sum(column) / self.world for column in zip(*rows)]

    def gather_on_writer(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks, by rank, on the writer; None elsewhere."""
        into: list[Any] | None
        if self.is_writer:
            into = [None] * self.world
        else:
            into = None
        self._run_collective(lambda: dist.gather_object(value, into, dst=0, group=self._group))
        return into

    def share_from_writer(self, value: Any) -> Any:
        """Return the writer's value on every rank."""
        held = [value if self.is_writer else None]
        self._run_collective(lambda: dist.broadcast_object_list(held, src=0, group=self._group))
        return held[0]

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, on every rank."""
        found: list[Any] = [None] * self.world
        self._run_collective(lambda: dist.all_gather_object(found, value, group=self._group))
        return found

    def name_missing_ranks(self, error: BaseException) -> str:
        """Return which ranks are missing if a collective of the training failed; otherwise empty.

        The remaining ranks fail in it one after the other, and meet here.
        """
        # Older releases of torch raise a RuntimeError that only names gloo's source file.
        lost = isinstance(error, _ERRORS_OF_TORCH) or (
            isinstance(error, RuntimeError) and "/gloo/" in str(error)
        )
        if not lost or isinstance(error, RanksError):
            return ""
        with suppress(RuntimeError):
            self._roll.record_arrival()
        missing = absent_ranks_text(self._roll.find_absent(), self._timeout.total_seconds())
        return f"rank {self.rank} of {self.world}: {missing}: {_first_line(error)}"

    @property
    def group(self) -> Any:
        """The gloo group of the agreements, for collectives on the CPU such as a sharded save."""
        return self._group

    def background(self) -> "TorchRanks":
        """Return the same ranks with a separate gloo group, for a thread.

        Collective the first time.
        """
        if self._background is None:
            other = copy.copy(self)
            other._group = dist.new_group(backend="gloo", timeout=self._timeout)
            other._roll = self._collective_counter("saves")
            # Its own tensor: the thread and the training agree at the same time.
            other._joined, other._wish = False, torch.zeros(1, dtype=torch.int32)
            other.beat = Heartbeat()  # of the thread, and not read by others
            self._background = other
        found: TorchRanks = self._background
        return found

    def close(self) -> None:
        """Leave the group if this object has joined it; an earlier group stays."""
        if dist.is_initialized() and self._joined:
            dist.destroy_process_group()

    def exit_process(self) -> None:
        """End: nothing is left to save, and a launcher's signal must not spoil the exit code."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(RuntimeError):
            self.close()
        wait_for_foreign_threads()

    def _join_group(self) -> None:
        if self.device.type == "cuda":
            # NCCL has no collectives on the CPU, and the agreements must not wait for the GPU.
            backend = "cpu:gloo,cuda:nccl"
        else:
            backend = "gloo"
        how = self.launch
        # Time for all ranks to find each other.
        join_s = 300.0
        timeout = timedelta(seconds=max(join_s, self._timeout.total_seconds()))
        try:
            dist.init_process_group(
                backend,
                store=_rendezvous_store(how, timeout),
                rank=how.rank,
                world_size=how.world,
                timeout=timeout,
            )
        except (RuntimeError, ValueError) as error:
            where = f"{how.address}:{how.port}"
            raise RanksError(
                f"rank {how.rank} of {how.world} did not find the others at {where}: "
                f"{_first_line(error)}"
            ) from error

    def _run_collective(self, collective: Any) -> None:
        before = self.beat.enter_collective()
        try:
            self._roll.record_arrival()
            collective()
        except RuntimeError as error:
            missing = absent_ranks_text(self._roll.find_absent(), self._timeout.total_seconds())
            raise RanksError(
                f"rank {self.rank} of {self.world}: {missing}: {_first_line(error)}"
            ) from error
        finally:
            self.beat.enter_phase(before)

    def _collective_counter(self, name: str) -> CollectiveCounter:
        store: Any = dist.distributed_c10d._get_default_store()
        return CollectiveCounter(store, f"{self.launch.restarts}/{name}", self.rank, self.world)


def _rendezvous_store(how: launch.LaunchedProcess, timeout: timedelta) -> Any:
    """Return the store in which the ranks of this attempt find each other.

    torchrun keeps one store for all its attempts (torch 2.13,
    elastic/rendezvous/dynamic_rendezvous.py), and torch stores the addresses of every attempt under
    the same names: after a restart a rank may read the address of a dead one, and all of them fail
    with "Connection refused". Separate names for each attempt avoid that.
    """
    if how.launcher == "torchrun":
        url = "env://"
    else:
        url = f"tcp://{how.address}:{how.port}"
    store, _, _ = next(iter(rendezvous(url, how.rank, how.world, timeout=timeout)))
    store_of_attempt: Any = dist.PrefixStore  # type: ignore[attr-defined]
    return store_of_attempt(f"rgt-attempt-{how.restarts}", store)


def bind_device(local_rank: int) -> torch.device:
    """Bind the GPU with this rank's local number, or use the CPU if the machine has none.

    Raises:
        UsageError: There are GPUs, but not one for each rank: two ranks on one GPU would wait for
            each other.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise UsageError(
            f"LOCAL_RANK is {local_rank}, but this machine has {count} GPUs; launch {count} "
            "processes here"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def chosen_device() -> torch.device:
    """Return the device of a process that has chosen its GPU itself, with its own process group."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def die_with_parent() -> None:
    """Make the kernel end this process when its launcher dies: an orphan would hold its GPU."""
    if not sys.platform.startswith("linux"):
        return
    before = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != before:  # it died in between
        os.kill(os.getpid(), signal.SIGTERM)


def _first_line(error: BaseException) -> str:
    """Return the first line without the source position that some torch errors begin with."""
    rows = _PLACE.sub("", str(error).strip()).splitlines()
    if rows:
        return rows[0]
    return type(error).__name__


class _UnevenSteps(Joinable):
    def __init__(self, model: Any, parts: Mapping[str, Stateful]) -> None:
        super().__init__()
        self._model = model
        self.parts = parts

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _LastModelHook(self)

    @property
    def join_device(self) -> torch.device:
        found: torch.device = self._model.join_device
        return found

    @property
    def join_process_group(self) -> Any:
        return self._model.join_process_group


class _LastModelHook(JoinHook):
    def __init__(self, level: _UnevenSteps) -> None:
        self._level = level

    def post_hook(self, is_last_joiner: bool) -> None:
        """Copy the states of the highest rank among those that trained longest.

        `Join` uses its weights.
        """
        group = self._level.join_process_group
        parts = self._level.parts
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
def uneven_steps(model: Any, parts: Mapping[str, Stateful]) -> Iterator[None]:
    """Let the ranks make different numbers of steps.

    Args:
        model: The ``DistributedDataParallel`` model.
        parts: Optimizers and schedulers, by name, that step with it.
    """
    with Join([model, _UnevenSteps(model, parts)]):
        yield
