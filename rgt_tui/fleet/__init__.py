"""The fleet: one session per box, merged into the states that screens and commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_tui import imported_later

if TYPE_CHECKING:
    from rgt_tui.fleet.alerting import Alerting
    from rgt_tui.fleet.box_session import BoxSession, Intake
    from rgt_tui.fleet.check_runs import NotRunnable
    from rgt_tui.fleet.connector import Backoff, ConnectLimit
    from rgt_tui.fleet.engine import BaseFleet, Fleet
    from rgt_tui.fleet.errands import connected, push_trainer, reached
    from rgt_tui.fleet.event_loop import new_loop
    from rgt_tui.fleet.fleet_source import (
        Account,
        Beginnings,
        Chronicle,
        FirstSteps,
        FleetSource,
        GateClosed,
        Given,
        NoControlPlane,
        NothingToDo,
        Observer,
        Pulled,
        Tap,
    )
    from rgt_tui.fleet.history.history_keeper import Memory
    from rgt_tui.fleet.meters import Meters
    from rgt_tui.fleet.open_actions import OpenActions
    from rgt_tui.fleet.transfer_diary import TransferNote

__all__ = [
    "Account",
    "Alerting",
    "Backoff",
    "BaseFleet",
    "Beginnings",
    "BoxSession",
    "Chronicle",
    "ConnectLimit",
    "FirstSteps",
    "Fleet",
    "FleetSource",
    "GateClosed",
    "Given",
    "Intake",
    "Memory",
    "Meters",
    "NoControlPlane",
    "NotRunnable",
    "NothingToDo",
    "Observer",
    "OpenActions",
    "Pulled",
    "Tap",
    "TransferNote",
    "connected",
    "new_loop",
    "push_trainer",
    "reached",
]

# A command that connects to nothing does not load the SSH library.
__getattr__ = imported_later(
    __name__,
    {
        "alerting": "Alerting",
        "box_session": "BoxSession Intake",
        "check_runs": "NotRunnable",
        "connector": "Backoff ConnectLimit",
        "engine": "BaseFleet Fleet",
        "errands": "connected push_trainer reached",
        "event_loop": "new_loop",
        "fleet_source": (
            "Account Beginnings Chronicle FirstSteps FleetSource GateClosed Given "
            "NoControlPlane NothingToDo Observer Pulled Tap"
        ),
        "history.history_keeper": "Memory",
        "meters": "Meters",
        "open_actions": "OpenActions",
        "transfer_diary": "TransferNote",
    },
)
