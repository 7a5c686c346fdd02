"""The six phases of renting a box to train, as checks that are proved from its live state."""

from rgt_tui.lifecycle.evaluate import evaluate
from rgt_tui.lifecycle.phases import PHASES, PhaseSummary, summary
from rgt_tui.lifecycle.table import CHECKS

__all__ = ["CHECKS", "PHASES", "PhaseSummary", "evaluate", "summary"]
