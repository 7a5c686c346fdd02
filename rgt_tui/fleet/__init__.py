"""The fleet: one session a box, put together into states that screens and commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_tui import imported_later

if TYPE_CHECKING:
    from rgt_tui.fleet.alerting import Alerting
    from rgt_tui.fleet.engine import BaseFleet, Fleet
    from rgt_tui.fleet.errands import push_trainer
    from rgt_tui.fleet.event_loop import new_loop
    from rgt_tui.fleet.fleet_source import FleetSource, GateClosed, Given, Observer, Playback, Pulled, Tap
    from rgt_tui.fleet.history_keeper import Memory

__all__ = [
    "Alerting",
    "BaseFleet",
    "Fleet",
    "FleetSource",
    "GateClosed",
    "Given",
    "Memory",
    "Observer",
    "Playback",
    "Pulled",
    "Tap",
    "new_loop",
    "push_trainer",
]

# A command that connects to nothing does not load the SSH library.
__getattr__ = imported_later(
    __name__,
    {
        "alerting": "Alerting",
        "engine": "BaseFleet Fleet",
        "errands": "push_trainer",
        "event_loop": "new_loop",
        "fleet_source": "FleetSource GateClosed Given Observer Playback Pulled Tap",
        "history_keeper": "Memory",
    },
)
