"""Rent a machine: find offers, create it with one journaled call, wait until it answers."""

from rgt_tui.fleet.renting.arrival import MachineArrival, agreement, differences, wait_for_ssh
from rgt_tui.fleet.renting.rental import (
    SEARCH_PACES,
    Candidate,
    CreationOutcome,
    CreationResult,
    MachineRental,
    OfferSearch,
    new_token,
    open_creations,
    prefer_kinds,
    search_offers,
)

__all__ = [
    "SEARCH_PACES",
    "Candidate",
    "CreationOutcome",
    "CreationResult",
    "MachineArrival",
    "MachineRental",
    "OfferSearch",
    "agreement",
    "differences",
    "new_token",
    "open_creations",
    "prefer_kinds",
    "search_offers",
    "wait_for_ssh",
]
