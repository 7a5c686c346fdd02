"""A rank's heartbeat, readable from outside: its step, phase and start of the phase.

It also measures how long each phase takes. It is a page of anonymous memory of the process
(memfd_create(2)) that the agent reads via ``/proc/PID/fd``: no directory can be full, wiped, slow
or read-only, other machines and pid namespaces do not matter, and it ends with the process. The
page cannot be truncated, so writing to it never fails. Phase and time are one aligned word of 64
bits, stored at once. A step has about ten changes of phase, of a third of a microsecond each.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar

import torch

from rgt_train.checkpoint.snapshot import outside_compile

T = TypeVar("T")

PHASES = (
    "loop", "data", "forward", "backward", "collective", "optimizer", "checkpoint", "evaluation",
    "start", "end",
)  # fmt: skip
"""``loop`` is the code of the loop without finer information: forward, backward, or its own
loading. The page stores the indices of these names: append only.
"""
LOOP, DATA, FORWARD, BACKWARD, COLLECTIVE, OPTIMIZER, CHECKPOINT, EVALUATION, START, END = range(
    len(PHASES)
)
ASIDE = frozenset((CHECKPOINT, EVALUATION, START, END))
"""Phases outside of steps: waiting for another rank in them counts as that phase."""

MAGIC = int.from_bytes(b"rgtbeat1", "little")
NAME = "rgt-heartbeat"
WORDS = 8
"""Words of 64 bits: `MAGIC`; rank (32) and number of ranks (32); start of the phase, in nanoseconds
of CLOCK_MONOTONIC, whose last four bits are the phase; steps done; end of the last of them;
nanoseconds of a usual step and of the slowest; steps of this process.
"""
_F_ADD_SEALS, _SHRINK_AND_GROW = 1033, 2 | 4
"""linux/fcntl.h"""
_in_step = itemgetter(*(phase for phase in range(len(PHASES)) if phase not in ASIDE))


class Heartbeat:
    """The phases of this process.

    Attributes:
        shown: Whether others can read them.
        loads: Whether the wait for data is measured.
    """

    __slots__ = (
        "_aside", "_page", "_phase", "_since", "_slowest", "_spent", "_stepped", "_steps", "_usual",
        "loads", "shown",
    )  # fmt: skip

    def __init__(self) -> None:
        self._since = self._stepped = time.monotonic_ns()
        self._phase = START
        self._spent = [0] * len(PHASES)
        self._steps = self._usual = self._slowest = self._aside = 0
        self._page: Any = [0] * WORDS
        self.shown = self.loads = False

    def share_page(self, rank: int, world: int) -> None:
        """Make it visible to others on this machine, if the system has such memory."""
        with suppress(OSError, AttributeError, ValueError):  # not Linux, or forbidden
            fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, 8 * WORDS)
            # A reader that maps the page must not get SIGBUS because it is truncated.
            fcntl.fcntl(fd, _F_ADD_SEALS, _SHRINK_AND_GROW)
            page = memoryview(mmap.mmap(fd, 8 * WORDS)).cast(
                "Q"
            )  # the descriptor stays open: readers find the page by it
            page[1], page[4] = rank << 32 | world, self._stepped
            self._page = page
            self.shown = True
            self.enter_phase(self._phase)
            # Last: a reader that sees it may trust the other words.
            page[0] = MAGIC

    def enter_phase(self, phase: int) -> int:
        """Switch to another phase; return the previous one."""
        now = time.monotonic_ns()
        before = self._phase
        self._spent[before] += now - self._since
        self._phase = phase
        self._since = now
        # Time and phase in one word, so that a reader never sees one without the other.
        self._page[2] = now & -16 | phase
        return before

    def enter_step_phase(self, phase: int) -> None:
        """Enter a phase of a step; ignored during an evaluation or a save."""
        if self._phase not in ASIDE:
            self.enter_phase(phase)

    def enter_collective(self) -> int:
        """Switch to a collective; return the previous phase.

        Time between two steps is not counted.
        """
        before = self._phase
        if before not in ASIDE:
            return self.enter_phase(COLLECTIVE)
        self._page[2] = time.monotonic_ns() & -16 | COLLECTIVE
        return before

    @contextmanager
    def within_phase(self, phase: int) -> Iterator[None]:
        """Be in a phase inside the block."""
        before = self.enter_phase(phase)
        try:
            yield
        finally:
            self.enter_phase(before)

    def timed_batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the `batches`; waiting for one is the phase ``data``."""
        source = iter(batches)
        self.loads = self.loads or self._phase not in ASIDE
        while True:
            self.enter_step_phase(DATA)
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self.enter_step_phase(LOOP)
            yield batch

    def record_step(self, step: int) -> None:
        """Record the number of optimizer steps done; the next phase is ``loop``."""
        self.enter_phase(LOOP)
        now = self._since
        spent = self._spent
        aside = spent[CHECKPOINT] + spent[EVALUATION] + spent[START] + spent[END]
        took = now - self._stepped - aside + self._aside
        self._stepped = now
        self._aside = aside
        self._steps += 1
        if self._steps > 2:
            # An exponential mean over about eight steps, in integers: it runs at every step.
            self._usual += (took - self._usual) >> 3
            self._slowest = max(self._slowest, took)
        elif self._steps == 2:  # the first one compiles, and fills caches
            self._usual = self._slowest = max(0, took)
        page = self._page
        page[3] = step
        page[4] = now
        page[5] = self._usual
        page[6] = self._slowest
        page[7] = self._steps

    def take_phase_times(self) -> list[int]:
        """Return the nanoseconds of each phase since the last call."""
        self.enter_phase(self._phase)
        spent = self._spent
        self._spent = [0] * len(PHASES)
        self._aside = 0
        return spent


def optimizer_hooks(beat: Heartbeat, optimizers: Iterable[Any]) -> Callable[[], None]:
    """Make the steps of some optimizers the phase ``optimizer``.

    Return a function that removes it.
    """

    def enter_optimizer(*_: Any) -> None:
        beat.enter_phase(OPTIMIZER)

    def leave_optimizer(*_: Any) -> None:
        beat.enter_phase(LOOP)

    handles: list[Any] = []
    for optimizer in optimizers:
        if hasattr(optimizer, "register_step_pre_hook") and hasattr(
            optimizer, "register_step_post_hook"
        ):
            handles += [
                optimizer.register_step_pre_hook(outside_compile(enter_optimizer)),
                optimizer.register_step_post_hook(outside_compile(leave_optimizer)),
            ]

    def remove_hooks() -> None:
        while handles:
            handles.pop().remove()

    return remove_hooks


# How a step's time is spent: waiting for data, computing, and communication, as far as they can be
# separated.
#
# The phases come from the heartbeat. DDP's communication during the backward pass costs nothing;
# its own statistics, taken in its first ten iterations and in every hundredth, give the rest.
# Sharded models have no such statistics, and the host cannot measure it: FSDP2 makes the GPU's
# computing stream wait for its all-gathers and reduce-scatters, not the host. There computing and
# communication are one number.


TakenTimes = Tuple[int, List[int], Optional[float]]
"""Number of steps, the nanoseconds of each phase in them, and the seconds that a step waits for its
gradient exchange, if known.
"""


class StepTimes:
    """Splits the steps of one rank.

    Args:
        beat: Its phases.
        models: Its models; one wrapped by ``DistributedDataParallel`` measures its communication.
        world: Number of ranks.
        backward: Backward passes of a step.
    """

    def __init__(
        self, beat: Heartbeat, models: Iterable[torch.nn.Module], world: int, backward: int = 1
    ) -> None:
        self._beat = beat
        self._world = world
        wrapped = [model for model in models if hasattr(model, "_get_ddp_logging_data")]
        self._wrapped: Any = wrapped[0] if len(wrapped) == 1 and backward == 1 else None
        self._exposed: float | None = None
        self._looked = float("-inf")

    def take_times(self, count: int) -> TakenTimes:
        """Return the times of `count` steps since the last call, for `mean_times`."""
        exposed = None
        if self._wrapped is not None:
            exposed = self._gradient_exchange_s()  # here: `mean_times` may run on another thread
        return count, self._beat.take_phase_times(), exposed

    def mean_times(self, times: TakenTimes) -> dict[str, float]:
        """Return the mean seconds of the steps of `times`.

        Returns:
            ``step_time``, without saves and evaluations; its ``data_time`` if the run knows the
            loader, and the rest: ``compute_time``, with several ranks ``comm_time`` as well, or
            ``compute_comm_time`` for both.
        """
        count, spent, gradients = times
        steps_ns = count * 1e9
        step = sum(_in_step(spent)) / steps_ns
        told = {"step_time": round(step, 6)}
        if not self._beat.loads:
            return told
        data = spent[DATA] / steps_ns
        told["data_time"], rest = round(data, 6), max(0.0, step - data)
        if self._world == 1:
            told["compute_time"] = round(rest, 6)
            return told
        if gradients is None:
            told["compute_comm_time"] = round(rest, 6)
        else:
            waited = min(rest, spent[COLLECTIVE] / steps_ns + gradients)
            told["comm_time"], told["compute_time"] = round(waited, 6), round(rest - waited, 6)
        return told

    def _gradient_exchange_s(self) -> float | None:
        """Return the seconds that a step waits for its gradient exchange; None if unknown."""
        now = time.monotonic()
        # Seconds between two reads of DDP's statistics: one takes about 100 µs.
        again_s = 10.0
        if now - self._looked >= again_s:
            self._looked, self._exposed = now, exposed_communication_s(self._wrapped)
        return self._exposed


def exposed_communication_s(wrapped: Any) -> float | None:
    """Return DDP's last measured seconds of communication beyond the backward pass."""
    try:
        told: Mapping[str, Any] = wrapped._get_ddp_logging_data()
        whole, hidden = told["backward_comm_time"], told["backward_compute_comm_overlap_time"]
    except (AttributeError, KeyError, RuntimeError):  # not yet, or another torch
        return None
    return max(0.0, (int(whole) - int(hidden)) / 1e9)
