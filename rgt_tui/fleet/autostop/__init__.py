"""Boxes that stop themselves, seen from the client: arming one, remembering it, and finding out what became of it."""

from rgt_tui.fleet.autostop.armed_book import ARMED, ArmedBook
from rgt_tui.fleet.autostop.self_parking import against_platform
from rgt_tui.fleet.autostop.self_stops import SelfStops

__all__ = ["ARMED", "ArmedBook", "SelfStops", "against_platform"]
