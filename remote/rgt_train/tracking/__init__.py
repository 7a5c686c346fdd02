"""Logs of a run: lines, metrics, its run log, TensorBoard."""

from __future__ import annotations

__all__ = ["dynamics", "report", "run_log"]
"""Modules that other packages may use."""
