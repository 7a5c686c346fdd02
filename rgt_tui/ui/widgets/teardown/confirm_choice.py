"""What a person accepts by name in the teardown dialog, and for how long that counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rgt_tui.model.evidence import EvidenceItem, Forfeit, Review

CLOCK_S = 2.0
"""Seconds by which the age of the same file may seem to move, since two clocks are compared."""


def _named(item: EvidenceItem) -> Forfeit:
    return Forfeit(
        key=item.key, fact=item.fact or item.text, text=item.text, bytes=item.bytes, newest=item.newest
    )


@dataclass(frozen=True)
class Choice:
    """What is given up, what is no result, and what was typed to lift ``protected``."""

    forfeits: tuple[Forfeit, ...] = ()
    """As they were when the person gave them up."""
    ignored: tuple[Forfeit, ...] = ()
    """Files that nobody owns, as they were when the person said that they are no result."""
    unprotect: str = ""

    @property
    def forfeit_keys(self) -> frozenset[str]:
        """For `rgt_tui.fleet.FleetSource.review`."""
        return frozenset(one.key for one in self.forfeits)

    @property
    def ignored_keys(self) -> frozenset[str]:
        """For `rgt_tui.fleet.FleetSource.review`."""
        return frozenset(one.key for one in self.ignored)

    def give_up(self, item: EvidenceItem) -> tuple[Choice, str]:
        """Give an item up, or take that back; return what is to be said besides, empty where the row says it."""
        if item.key in self.forfeit_keys:
            return replace(self, forfeits=_without(self.forfeits, item.key)), ""
        if item.ok:
            return self, f"{item.kind} holds: there is nothing to give up"
        if not item.forfeitable:
            return self, f"{item.kind} cannot be given up"
        ignored = _without(self.ignored, item.key)
        return replace(self, forfeits=(*self.forfeits, _named(item)), ignored=ignored), ""

    def ignore(self, item: EvidenceItem) -> tuple[Choice, str]:
        """Say that an item's files are no result, or take that back."""
        if item.key in self.ignored_keys:
            return replace(self, ignored=_without(self.ignored, item.key)), ""
        if not item.ignorable:
            return self, f"{item.kind}: only files that nobody owns can be ignored"
        if item.ok:
            return self, f"{item.kind} holds already: these files are no result"
        forfeits = _without(self.forfeits, item.key)
        return replace(self, ignored=(*self.ignored, _named(item)), forfeits=forfeits), ""

    def still_meant(self, review: Review) -> tuple[Choice, tuple[str, ...]]:
        """Drop what is another thing now than the person gave up; return what was dropped, a line each."""
        items = {item.key: item for item in review.items}
        dropped: list[str] = []
        forfeits, ignored = [], []
        for one in self.forfeits:
            item = items.get(one.key)
            if item is None:
                dropped.append(f"no longer given up, it is not there any more: {one.text}")
            elif item.ok:
                dropped.append(f"no longer given up, it holds now: {item.text}")
            elif (item.fact or item.text) != one.fact:
                dropped.append(f"no longer given up, it has changed: {item.text}")
            else:
                forfeits.append(one)
        for one in self.ignored:
            item = items.get(one.key)
            if item is not None and _other_files(one, item):
                dropped.append(f"no longer ignored, it has changed: {item.text}")
            else:
                ignored.append(one)
        if not dropped:
            return self, ()
        return replace(self, forfeits=tuple(forfeits), ignored=tuple(ignored)), tuple(dropped)


NOTHING = Choice()
"""Nothing is given up."""


def _without(several: tuple[Forfeit, ...], key: str) -> tuple[Forfeit, ...]:
    return tuple(one for one in several if one.key != key)


def _other_files(one: Forfeit, item: EvidenceItem) -> bool:
    """Tell whether files came since; what the gate says of an item that is ignored may differ in its words."""
    if item.bytes is not None and one.bytes is not None and item.bytes != one.bytes:
        return True
    return item.newest is not None and one.newest is not None and item.newest > one.newest + CLOCK_S
