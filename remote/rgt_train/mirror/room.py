"""What a mirror keeps, and what it gives up where it is full: never the newest of what it has."""

from __future__ import annotations

import errno
from typing import Callable, List, Optional, Sequence, TypeVar

from rgt_train import manifest, retention
from rgt_train.exits import UsageError
from rgt_train.manifest import Damaged
from rgt_train.mirror.place import MANIFEST, Place, bests, steps
from rgt_train.retention import Item, Policy

T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT)


def prune(place: Place, policy: Policy, spare: str, keep: Sequence[int] = ()) -> None:
    """Delete what the policy does not keep: the newest ``best`` stays, and the steps that it keeps here too.

    Args:
        place: The mirror.
        policy: What stays.
        spare: Name of what was copied just now: it stays, whatever else is there.
        keep: Steps that stay, too.

    Raises:
        OSError: The place does not answer.
    """
    names = place.names()
    for item in [*retention.doomed(_dated(place, policy, names), policy), *bests(names)[:-1]]:
        if item.name != spare and item.step not in keep:
            place.drop(item.name)


def with_room(
    place: Place, policy: Policy, spare: str, says: List[str], work: Callable[[], T], keep: Sequence[int] = ()
) -> T:
    """Return ``work()``; while the place is full, give the least valuable up and do it again.

    Args:
        place: The mirror.
        policy: What stays where there is room.
        spare: Name of what `work` is about.
        says: Gets a line for each that was given up.
        work: Writes to the place.
        keep: Steps that are not given up.

    Raises:
        OSError: It failed, and not for want of room, or nothing more may go.
    """
    while True:
        try:
            return work()
        except OSError as error:
            victim = _least(place, policy, spare, keep) if error.errno in FULL else None
            if victim is None:
                raise
            place.drop(victim)
            says.append(f"no room on the mirror {place.url}: gave up {victim} there")


def _least(place: Place, policy: Policy, spare: str, keep: Sequence[int]) -> Optional[str]:
    names = place.names()
    known = _dated(place, policy, names)
    items = [*bests(names)[:-1], *retention.by_value(known, policy, spare)]
    return next((item.name for item in items if item.name != spare and item.step not in keep), None)


def _dated(place: Place, policy: Policy, names: List[str]) -> List[Item]:
    known = steps(names)
    return [_with_time(place, item) for item in known] if policy.hours else known


def _with_time(place: Place, item: Item) -> Item:
    try:
        raw = b"".join(place.read(item.name, MANIFEST))
        at = float(manifest.parse(raw, f"{place.url}/{item.name}").get("time", 0.0))
    except (Damaged, UsageError, OSError):
        at = 0.0
    return Item(item.step, item.attempt, item.serial, item.name, at)
