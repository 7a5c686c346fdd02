"""The fleet: one session a box, put together into states that screens and commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_tui import imported_later

if TYPE_CHECKING:
    from rgt_tui.fleet.alerting import Alerting
    from rgt_tui.fleet.check_runs import NotRunnable
    from rgt_tui.fleet.engine import BaseFleet, Fleet
    from rgt_tui.fleet.errands import push_trainer
    from rgt_tui.fleet.event_loop import new_loop
    from rgt_tui.fleet.fleet_source import (
        Bygone,
        CheckDesk,
        Chronicle,
        FleetSource,
        GateClosed,
        Given,
        LogKeeper,
        LogReader,
        NoControlPlane,
        NothingToDo,
        Observer,
        Playback,
        Pulled,
        Recorded,
        Tap,
        TransferKeeper,
    )
    from rgt_tui.fleet.history.history_keeper import Memory
    from rgt_tui.fleet.transfer_diary import TransferNote

__all__ = [
    "Alerting",
    "BaseFleet",
    "Bygone",
    "CheckDesk",
    "Chronicle",
    "Fleet",
    "FleetSource",
    "GateClosed",
    "Given",
    "LogKeeper",
    "LogReader",
    "Memory",
    "NoControlPlane",
    "NotRunnable",
    "NothingToDo",
    "Observer",
    "Playback",
    "Pulled",
    "Recorded",
    "Tap",
    "TransferKeeper",
    "TransferNote",
    "new_loop",
    "push_trainer",
]

# A command that connects to nothing does not load the SSH library.
__getattr__ = imported_later(
    __name__,
    {
        "alerting": "Alerting",
        "check_runs": "NotRunnable",
        "engine": "BaseFleet Fleet",
        "errands": "push_trainer",
        "event_loop": "new_loop",
        "fleet_source": (
            "Bygone CheckDesk Chronicle FleetSource GateClosed Given LogKeeper LogReader NoControlPlane "
            "NothingToDo Observer Playback Pulled Recorded Tap TransferKeeper"
        ),
        "history.history_keeper": "Memory",
        "transfer_diary": "TransferNote",
    },
)
