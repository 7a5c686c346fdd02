"""Boxes that stop themselves, seen from the client: arming, records, and outcome."""

from rgt_tui.fleet.autostop.autostop_verbs import ARMED, ArmedBook
from rgt_tui.fleet.autostop.self_stops import (
    SelfStops,
    against_platform,
    propose_hang_stop,
    propose_self_stop,
)

__all__ = [
    "ARMED",
    "ArmedBook",
    "SelfStops",
    "against_platform",
    "propose_hang_stop",
    "propose_self_stop",
]
