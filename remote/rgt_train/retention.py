"""Which checkpoints stay. Pure: a table of rules, each names what it protects; what nobody names may go.

``OUT/best`` is not in the table: it is a directory of its own and is only ever replaced by a better one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, FrozenSet, List, Sequence, Tuple


@dataclass(frozen=True, order=True)
class Item:
    """A published checkpoint.

    Attributes:
        step: Optimizer steps done.
        attempt: The incarnation that wrote it.
        serial: Counts what one incarnation wrote at one step.
        name: Its directory's name.
        at: When it was written, seconds since the epoch.
    """

    step: int
    attempt: int
    serial: int
    name: str
    at: float


@dataclass(frozen=True)
class Policy:
    """What stays.

    Attributes:
        last: How many of the newest, at least one.
        hours: One more for each stretch of so many hours; 0 for none.
    """

    last: int = 2
    hours: float = 0.0


Rule = Callable[[Sequence[Item], Policy], FrozenSet[str]]


def _anchor(items: Sequence[Item], policy: Policy) -> FrozenSet[str]:
    """The newest: what the next launch resumes from. While a save is in flight it is the one before."""
    return frozenset(item.name for item in items[-1:])


def _last(items: Sequence[Item], policy: Policy) -> FrozenSet[str]:
    return frozenset(item.name for item in items[-max(1, policy.last) :])


def _hourly(items: Sequence[Item], policy: Policy) -> FrozenSet[str]:
    """The first of each stretch: once it is kept it stays the one that is kept."""
    if policy.hours <= 0:
        return frozenset()
    first: "dict[int, str]" = {}
    for item in sorted(items, key=lambda item: (item.at, item)):
        first.setdefault(int(item.at // (3600 * policy.hours)), item.name)
    return frozenset(first.values())


RULES: Tuple[Tuple[str, Rule], ...] = (("anchor", _anchor), ("last", _last), ("hourly", _hourly))
"""In the order of their weight: what only a later rule protects is worth less."""


def doomed(items: Sequence[Item], policy: Policy, anchor: str = "") -> List[Item]:
    """Return what no rule protects, oldest first.

    Args:
        items: What is there.
        policy: What stays.
        anchor: Name of one that stays in any case.
    """
    items = sorted(items)
    protected = frozenset((anchor,)).union(*(rule(items, policy) for _, rule in RULES))
    return [item for item in items if item.name not in protected]


def by_value(items: Sequence[Item], policy: Policy, anchor: str = "") -> List[Item]:
    """Return what may be given up to make room on a full disk, the least valuable first; never the newest.

    Args:
        items: What is there.
        policy: What stays where there is room.
        anchor: Name of one that stays in any case.
    """
    items = sorted(items)
    kept: "set[str]" = set()
    ranked: List[Item] = []
    for _, rule in RULES:
        chosen = [item for item in items if item.name in rule(items, policy) and item.name not in kept]
        kept.update(item.name for item in chosen)
        if rule is not _anchor:
            ranked = [item for item in chosen if item not in ranked] + ranked
    rest = [item for item in items if item.name not in kept]
    return [item for item in rest + ranked if item.name != anchor]
