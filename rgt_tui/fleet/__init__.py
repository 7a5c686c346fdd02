"""The fleet: one session a box, put together into states that screens and commands read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgt_tui.fleet.alerting import Alerting
    from rgt_tui.fleet.engine import BaseFleet, Fleet
    from rgt_tui.fleet.errands import push_trainer
    from rgt_tui.fleet.event_loop import new_loop
    from rgt_tui.fleet.fleet_source import FleetSource, GateClosed, Observer, Playback, Tap
    from rgt_tui.fleet.history_keeper import Memory

__all__ = [
    "Alerting",
    "BaseFleet",
    "Fleet",
    "FleetSource",
    "GateClosed",
    "Memory",
    "Observer",
    "Playback",
    "Tap",
    "new_loop",
    "push_trainer",
]

_HOMES = {
    "Alerting": "alerting",
    "BaseFleet": "engine",
    "Fleet": "engine",
    "FleetSource": "fleet_source",
    "GateClosed": "fleet_source",
    "Memory": "history_keeper",
    "Observer": "fleet_source",
    "Playback": "fleet_source",
    "Tap": "fleet_source",
    "new_loop": "event_loop",
    "push_trainer": "errands",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: a command that connects to nothing does not load the SSH library."""
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"rgt_tui.fleet.{_HOMES[name]}"), name)
