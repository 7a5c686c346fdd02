"""Rent a machine: find offers, create it with one journaled call, wait until it answers."""

from rgt_tui.fleet.renting.arrival import Arrival, agreement, differences, wait_for_ssh
from rgt_tui.fleet.renting.rental import (
    FIND_SECONDS,
    Candidate,
    Outcome,
    Rental,
    Search,
    Taken,
    new_token,
    open_creations,
    search,
)

__all__ = [
    "FIND_SECONDS",
    "Arrival",
    "Candidate",
    "Outcome",
    "Rental",
    "Search",
    "Taken",
    "agreement",
    "differences",
    "new_token",
    "open_creations",
    "search",
    "wait_for_ssh",
]
