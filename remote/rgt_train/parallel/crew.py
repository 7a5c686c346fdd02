"""One rank leads, the others follow: a run whose decisions are all made in one place.

Whatever depends on what only the writer knows (how long a save took, whether the disk took it, which checkpoint is
whole) is decided by the writer alone. Where that may need all ranks, every rank calls `Crew.do` from the same place.
The leader runs the work and gives *orders* for its collective parts; the others wait for orders, carry each out, and
return what the leader returned, or raise what it raised. So there is no collective that some ranks call and others do
not, whatever the leader decides.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, TypeVar

from rgt_train import exits
from rgt_train.ranks import STOP, Ranks, RanksError

T = TypeVar("T")
_RETURN, _RAISE = "return", "raise"


class Crew:
    """The ranks of a run at work on something that one of them leads.

    Args:
        ranks: The processes; alone, everything is a plain call.

    Attributes:
        orders: Name → what every rank does when the leader orders it.
        heard: Called on a rank that is led, for each order.
        asked: Says whether this rank was asked to stop.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._leading = False
        self.heard: Callable[[], None] = lambda: None
        self.asked: Callable[[], bool] = lambda: False
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
            assert self._leading, f"order {name} outside of Crew.do"
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
    """Say whether every rank raises this error by itself, or can no longer be told of it."""
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
