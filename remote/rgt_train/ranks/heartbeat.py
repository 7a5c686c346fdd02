"""A rank's heartbeat: its step and phase and since when, readable from outside, and how long each phase takes.

It stands in a page of anonymous memory of the process (memfd_create(2)) that the agent reads by way of
``/proc/PID/fd``: no directory can be full, wiped, slow or read-only, other machines and pid namespaces do not matter,
and it ends with the process. The page cannot be cut short, so that writing to it never fails. Phase and time are one
aligned word of 64 bits, stored at once. A step has some ten changes of phase, of a third of a microsecond each.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterable, Iterator, List, TypeVar

T = TypeVar("T")

PHASES = (
    "loop", "data", "forward", "backward", "collective", "optimizer", "checkpoint", "evaluation", "start", "end",
)  # fmt: skip
"""``loop`` is the code of the loop where nothing tells more: forward, backward, or its own loading. The numbers of
these names are what stands in the page: append only."""
LOOP, DATA, FORWARD, BACKWARD, COLLECTIVE, OPTIMIZER, CHECKPOINT, EVALUATION, START, END = range(len(PHASES))
ASIDE = frozenset((CHECKPOINT, EVALUATION, START, END))
"""Phases that belong to no step: a wait for another rank in them is theirs."""

MAGIC = int.from_bytes(b"rgtbeat1", "little")
NAME = "rgt-heartbeat"
WORDS = 8
"""Words of 64 bits: `MAGIC`; rank (32) and number of ranks (32); when the phase began, in nanoseconds of
CLOCK_MONOTONIC, whose last four bits are the phase; steps done; when the last of them ended; nanoseconds of a usual
step and of the slowest; steps of this process."""
_F_ADD_SEALS, _SHRINK_AND_GROW = 1033, 2 | 4
"""linux/fcntl.h"""


class Heartbeat:
    """The phases of this process.

    Attributes:
        shown: Whether others can read them.
        loads: Whether it is known when it waits for its data.
    """

    __slots__ = (
        "_aside", "_page", "_phase", "_since", "_slowest", "_spent", "_stepped", "_steps", "_usual", "loads", "shown",
    )  # fmt: skip

    def __init__(self) -> None:
        self._since = self._stepped = time.monotonic_ns()
        self._phase = START
        self._spent = [0] * len(PHASES)
        self._steps = self._usual = self._slowest = self._aside = 0
        self._page: Any = [0] * WORDS
        self.shown = self.loads = False

    def show(self, rank: int, world: int) -> None:
        """Make it visible to others on this machine, where the system has such memory."""
        with suppress(OSError, AttributeError, ValueError):  # not Linux, or forbidden
            fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, 8 * WORDS)
            fcntl.fcntl(fd, _F_ADD_SEALS, _SHRINK_AND_GROW)
            page = memoryview(mmap.mmap(fd, 8 * WORDS)).cast(
                "Q"
            )  # the descriptor stays: it is how it is found
            page[1], page[4] = rank << 32 | world, self._stepped
            self._page, self.shown = page, True
            self.enter(self._phase)
            page[0] = MAGIC

    def enter(self, phase: int) -> int:
        """Go over to another phase; returns the one before."""
        now, before = time.monotonic_ns(), self._phase
        self._spent[before] += now - self._since
        self._phase, self._since = phase, now
        self._page[2] = now & -16 | phase
        return before

    def go(self, phase: int) -> None:
        """Enter a phase of a step; an evaluation or a save keeps its phase, whatever is done in it."""
        if self._phase not in ASIDE:
            self.enter(phase)

    def meet(self) -> int:
        """Go over to a collective; returns the phase before. What it takes between two steps is no part of a step."""
        before = self._phase
        if before not in ASIDE:
            return self.enter(COLLECTIVE)
        self._page[2] = time.monotonic_ns() & -16 | COLLECTIVE
        return before

    @contextmanager
    def within(self, phase: int) -> Iterator[None]:
        """Be in a phase inside the block."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the `batches`; waiting for one is the phase ``data``."""
        source = iter(batches)
        self.loads = self.loads or self._phase not in ASIDE
        while True:
            self.go(DATA)
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self.go(LOOP)
            yield batch

    def stepped(self, step: int) -> None:
        """Note that so many optimizer steps are done; what comes next is the phase ``loop``."""
        self.enter(LOOP)
        now, spent = self._since, self._spent
        aside = spent[CHECKPOINT] + spent[EVALUATION] + spent[START] + spent[END]
        took = now - self._stepped - aside + self._aside
        self._stepped, self._aside = now, aside
        self._steps += 1
        if self._steps > 2:
            self._usual += (took - self._usual) >> 3
            self._slowest = max(self._slowest, took)
        elif self._steps == 2:  # the first one compiles, and fills caches
            self._usual = self._slowest = max(0, took)
        page = self._page
        page[3], page[4], page[5], page[6], page[7] = step, now, self._usual, self._slowest, self._steps

    def taken(self) -> List[float]:
        """Return the seconds of each phase since this was last asked."""
        self.enter(self._phase)
        spent, self._spent, self._aside = self._spent, [0] * len(PHASES), 0
        return [nanoseconds / 1e9 for nanoseconds in spent]


def optimizer_hooks(beat: Heartbeat, optimizers: Iterable[Any]) -> Callable[[], None]:
    """Let the steps of some optimizers be the phase ``optimizer``; returns what removes that."""

    def begin(*_: Any) -> None:
        beat.enter(OPTIMIZER)

    def end(*_: Any) -> None:
        beat.enter(LOOP)

    handles: List[Any] = []
    for optimizer in optimizers:
        if hasattr(optimizer, "register_step_pre_hook") and hasattr(optimizer, "register_step_post_hook"):
            handles += [optimizer.register_step_pre_hook(begin), optimizer.register_step_post_hook(end)]

    def remove() -> None:
        while handles:
            handles.pop().remove()

    return remove
