"""Which boxes one account pays for: what is said of the account is said once, on the first of them."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.health.alert_state import Book
from rgt_tui.model.box import BoxSpec

BALANCE = "balance"
"""The one kind of alert that is about an account, not about a box."""
_TOLD = frozenset((BALANCE,))
_NOTHING: frozenset[str] = frozenset()

Account = tuple[str, str | None, str | None]


class Accounts:
    """Keeps which boxes have an alert about their account.

    Args:
        specs: The boxes, in the order of the fleet.
    """

    def __init__(self, specs: Sequence[BoxSpec] = ()) -> None:
        self._places: dict[str, tuple[Account, int]] = {
            spec.name: ((spec.provider.kind, spec.provider.base_url, spec.provider.key_env), place)
            for place, spec in enumerate(specs)
            if spec.provider is not None
        }
        self._told: set[tuple[Account, int]] = set()

    def note(self, box: str, book: Book) -> None:
        """Take note of what holds on a box now."""
        place = self._places.get(box)
        if place is None:
            return
        machine = book.machines.get(BALANCE, {}).get("")
        if machine is not None and machine.alert is not None:
            self._told.add(place)
        else:
            self._told.discard(place)

    def told_elsewhere(self, box: str) -> frozenset[str]:
        """Return the ids of alerts that an earlier box of the same account tells."""
        mine = self._places.get(box)
        if mine is None or not self._told:
            return _NOTHING
        account, own = mine
        return _TOLD if any(one == account and place < own for one, place in self._told) else _NOTHING
