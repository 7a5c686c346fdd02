"""Work that every rank does for itself and that is good only where it went well on all of them.

What one rank alone finds wrong (a damaged byte, a state that cannot be stored, a file it cannot read) must not leave
the others waiting in the next collective. So each rank tells how its part went, and all of them go on, or raise, alike.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, TypeVar

from rgt_train import exits
from rgt_train.manifest import Damaged
from rgt_train.parallel.crew import everywhere
from rgt_train.ranks import Ranks, RanksError

T = TypeVar("T")
Complaint = Optional[Tuple[str, str]]
"""What went wrong on a rank: its kind (a key of `_KINDS`, or ``other``), and the text."""


class NotTaken(exits.UsageError):
    """Some rank's state cannot be saved as it is. Every rank gets to know; the writer decides what follows."""


_KINDS: "dict[str, type[Exception]]" = {
    "not taken": NotTaken,
    "usage": exits.UsageError,
    "damaged": Damaged,
}
"""What is raised for each kind of complaint."""
_TOLD = ("damaged", "not taken")
"""Kinds that do not end the run by themselves: the writer decides, the other ranks wait for its orders."""


def agreed(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do `work` on this rank, and see that it went well on all. Collective; returns this rank's own result.

    Raises:
        Damaged: A rank found a checkpoint damaged; likewise `NotTaken`. The writer goes on from here.
        UsageError: A rank says so; every rank raises it.
        RanksError: Another rank's work failed in a way that nobody expected; on that rank its own error.
    """
    mine: Optional[Exception] = None
    result: Any = None
    try:
        result = work()
    except RanksError:
        raise
    except Exception as error:
        mine = error
    found: List[Complaint] = ranks.all_gather(None if mine is None else _complaint(mine))
    worst = next(
        (each for kind in ("other", *_KINDS) for each in enumerate(found) if _is(each[1], kind)), None
    )
    if worst is not None:
        raise _error(*worst, mine) from mine
    done: T = result
    return done


def _complaint(error: Exception) -> Complaint:
    kind = next((kind for kind, each in _KINDS.items() if isinstance(error, each)), "other")
    return kind, str(error) if kind != "other" else f"{type(error).__name__}: {error}"


def _is(complaint: Complaint, kind: str) -> bool:
    return complaint is not None and complaint[0] == kind


def _error(rank: int, complaint: Complaint, mine: Optional[Exception]) -> BaseException:
    assert complaint is not None, "looked for above"
    kind, text = complaint
    if kind == "other":
        alike = mine is not None and _complaint(mine) == complaint
        return everywhere(mine) if alike and mine is not None else RanksError(f"rank {rank} failed: {text}")
    found = _KINDS[kind](text if rank == 0 else f"{text} (found by rank {rank})")
    return found if kind in _TOLD else everywhere(found)
