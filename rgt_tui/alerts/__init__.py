"""What deserves a look: pure rules over a box's state, its clocks, and hysteresis."""

from rgt_tui.alerts.assess import assess
from rgt_tui.alerts.assessment import Alert, Assessment
from rgt_tui.alerts.clock import ClockReading, danger_clock, pending_clock
from rgt_tui.alerts.hysteresis import Hysteresis

__all__ = [
    "Alert",
    "Assessment",
    "ClockReading",
    "Hysteresis",
    "assess",
    "danger_clock",
    "pending_clock",
]
