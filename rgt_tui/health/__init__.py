"""What deserves a look: one judge of a box's state for alerts, findings, the checklist and the gate."""

from rgt_tui.health.assessment import PHASES, Assessment, advice, assess, calls, calls_once, evaluate
from rgt_tui.health.conditions import CHECKS
from rgt_tui.health.conditions_money import ClockReading, danger_clock, pending_clock
from rgt_tui.health.diagnosis import diagnose
from rgt_tui.health.handbook import HANDBOOK

__all__ = [
    "CHECKS",
    "HANDBOOK",
    "PHASES",
    "Assessment",
    "ClockReading",
    "advice",
    "assess",
    "calls",
    "calls_once",
    "danger_clock",
    "diagnose",
    "evaluate",
    "pending_clock",
]
