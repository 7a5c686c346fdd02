"""What the ranks of one run do together. One process is the special case that needs no communication.

A run calls these from the same places on every rank, in the same order: at step boundaries, at a save, and at the
start. Nothing here may be called by some ranks only.
"""

from __future__ import annotations

from typing import Any, List, Optional, Protocol, Sequence

STOP = 1
"""Wish of a rank that was asked to stop."""
SAVE = 2
"""Wish of the writer whose cadence says that a save is due."""
HOLD = 4
"""Wish of the writer that nothing may go on before a save succeeds."""
MIDSTEP = 8
"""Word of a rank that an optimizer has changed its weights since the last step boundary: not a moment to save."""


class RanksError(RuntimeError):
    """The ranks have lost each other, or are no longer in step; the message names which."""


class Ranks(Protocol):
    """The processes of a run, as one of them sees them.

    Attributes:
        rank: Number of this process, from 0.
        world: How many there are.
        nodes: Machines they run on (what divides the mean time between failures).
    """

    rank: int
    world: int
    nodes: int

    @property
    def is_writer(self) -> bool:
        """Whether this rank owns the run directory: lock, ledger, log, manifests and renames."""

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
        """Let go of what was opened for the communication."""


class Alone:
    """A run of one process."""

    rank = 0
    world = 1
    nodes = 1
    is_writer = True

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
        """Return nothing: there is nobody else."""
        return ""

    def close(self) -> None:
        """Nothing is open."""
