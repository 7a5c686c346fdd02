"""What deserves a look: one judge of a box's state for alerts, findings, the checklist and the gate."""

from rgt_tui.health.assessment import Assessment, advice, assess, escalate
from rgt_tui.health.conditions import CHECKS
from rgt_tui.health.conditions_money import ClockReading, danger_clock, pending_clock
from rgt_tui.health.diagnosis import diagnose
from rgt_tui.health.handbook import HANDBOOK
from rgt_tui.health.phases import PHASES, PhaseSummary, evaluate, summary

__all__ = [
    "CHECKS",
    "HANDBOOK",
    "PHASES",
    "Assessment",
    "ClockReading",
    "PhaseSummary",
    "advice",
    "assess",
    "danger_clock",
    "diagnose",
    "escalate",
    "evaluate",
    "pending_clock",
    "summary",
]
