"""Diagnoses: from log lines and readings to a named cause, what proves it, and the way out."""

from rgt_tui.triage.diagnose import diagnose
from rgt_tui.triage.handbook import HANDBOOK

__all__ = ["HANDBOOK", "diagnose"]
