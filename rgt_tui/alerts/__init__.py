"""What deserves a look: a table of rules over a box's state, a state machine per alert, clocks, and sinks."""

from rgt_tui.alerts.assess import assess
from rgt_tui.alerts.assessment import Alert, Assessment
from rgt_tui.alerts.clock import ClockReading, danger_clock, pending_clock
from rgt_tui.alerts.summary import advice, escalate, summary

__all__ = [
    "Alert",
    "Assessment",
    "ClockReading",
    "advice",
    "assess",
    "danger_clock",
    "escalate",
    "pending_clock",
    "summary",
]
