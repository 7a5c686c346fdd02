"""One rank leads, the others follow: a run whose decisions are all made in one place.

Whatever depends on what only the writer knows (how long a save took, whether the disk took it, which checkpoint is
whole) is decided by the writer alone. Where that may need all ranks, every rank calls `Coordinator.do` from the same
place. The leader runs the work and gives *orders* for its collective parts; the others wait for them, carry each out
and return what the leader returned, or raise what it raised. So there is no collective that some ranks call and
others do not, whatever the leader decides.

What one rank alone finds wrong (a damaged byte, a state that cannot be stored, a file it cannot read) must not leave
the others waiting in the next collective. So each rank tells how its part went, and all of them go on, or raise, alike.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from rgt_train import exits
from rgt_train.checkpoint.manifest import Damaged
from rgt_train.exits import RanksError
from rgt_train.ranks.launch import STOP, Ranks

T = TypeVar("T")
_RETURN, _RAISE = "return", "raise"


class Coordinator:
    """The ranks of a run at work on something that one of them leads.

    Args:
        ranks: The processes; alone, everything is a plain call.
        heard: Called on a rank that is led, for each order.
        asked: Says whether this rank was asked to stop.

    Attributes:
        orders: Name → what every rank does when the leader orders it.
    """

    def __init__(
        self,
        ranks: Ranks,
        heard: Callable[[], None] = lambda: None,
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ranks, self.heard, self.asked = ranks, heard, asked
        self._leading = False
        self.orders: Dict[str, Callable[..., Any]] = {"alive": self._alive}

    def do(self, work: Callable[[], T]) -> T:
        """Let the leader do `work`. Collective; returns the leader's result, a plain value, on every rank.

        Raises:
            UsageError: The leader raised it; likewise `Stop`.
            RanksError: The leader failed in another way, or the ranks have lost each other.
        """
        if self._ranks.world == 1 or self._leading:
            return work()
        if not self._ranks.is_writer:
            result: T = self._follow()
            return result
        self._leading = True
        try:
            result = work()
        except BaseException as error:
            if not is_everywhere(error):
                self._ranks.share((_RAISE, _described(error)))
            raise
        finally:
            self._leading = False
        self._ranks.share((_RETURN, (result,)))
        return result

    def order(self, name: str, *values: Any) -> Any:
        """Do `orders[name]` on every rank now; return this rank's result. For the leader, inside of `do`."""
        if self._ranks.world > 1:
            assert self._leading, f"order {name} outside of Coordinator.do"
            self._ranks.share((name, values))
        return self.orders[name](*values)

    @property
    def leading(self) -> bool:
        """Whether the others wait for orders of this rank now."""
        return self._leading and self._ranks.world > 1

    def alive(self) -> bool:
        """Let the others hear that this rank still works; say whether any rank was asked to stop.

        To be called now and then in a long wait inside of `do`: ranks that hear nothing for the time-out of the
        agreements take this one for dead, and a signal to one of them would not be obeyed before its end.
        """
        self.heard()
        return bool(self.order("alive")) if self.leading else self.asked()

    def blame(self, error: BaseException) -> str:
        """Say which ranks are missing where an error comes from that; empty for every other error."""
        return self._ranks.blame(error)

    def _alive(self) -> bool:
        return bool(self._ranks.agree(STOP if self.asked() else 0) & STOP)

    def _follow(self) -> Any:
        while True:
            name, values = self._ranks.share(None)
            self.heard()
            if name == _RETURN:
                return values[0]
            if name == _RAISE:
                raise _again(*values)
            self.orders[name](*values)


def everywhere(error: BaseException) -> BaseException:
    """Mark an error that every rank raises by itself, so that the leader need not tell the others."""
    error.everywhere = True  # type: ignore[attr-defined]
    return error


def is_everywhere(error: BaseException) -> bool:
    """Say whether every rank raises this error by itself, or can no longer be told about it."""
    return isinstance(error, RanksError) or bool(getattr(error, "everywhere", False))


def _described(error: BaseException) -> "tuple[str, str, Optional[int]]":
    if isinstance(error, exits.Stop):
        return "stop", error.cause, int(error.code or 0)
    if isinstance(error, exits.UsageError):
        return "usage", str(error), None
    return "other", f"{type(error).__name__}: {error}", None


def _again(kind: str, text: str, code: Optional[int]) -> BaseException:
    if kind == "stop":
        return exits.Stop(code or 0, text)
    if kind == "usage":
        return exits.UsageError(text)
    return RanksError(f"rank 0 failed: {text}")


Complaint = Optional[Tuple[str, str]]
"""What went wrong on a rank: its kind (a key of `_KINDS`, or ``other``), and the text."""


class NotTaken(exits.UsageError):
    """Some rank's state cannot be saved now. Every rank is told; the writer decides what follows."""


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


class StandIn:
    """What a rank that is led has in place of lock, log and saver: the writer's are there for all, its own do nothing.

    Args:
        **values: What it has all the same.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: None
