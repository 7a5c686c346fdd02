"""Trainings that rgt has not started, found by their processes, and where they write.

finder looks and remembers; training_commands and process_tree say what trains; found_run is what is kept
of one, and run_sources are its files of metrics.
"""

from __future__ import annotations

__all__ = ["finder", "found_run", "run_sources", "training_commands"]
"""Modules that other packages may use."""
