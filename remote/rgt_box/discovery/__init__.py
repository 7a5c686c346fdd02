"""Trainings that nobody told rgt about, found by their processes, and where they write.

finder looks and remembers; training_commands, process_tree and open_files tell what trains; found_run is what is kept
of one, and run_sources are its files of metrics.
"""

from __future__ import annotations

__all__ = ["finder", "found_run", "run_sources", "training_commands"]
"""Modules that other packages may use."""
