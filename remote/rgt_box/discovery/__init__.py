"""Finds training runs that rgt did not start, by their processes, and where they write.

`finder` polls and remembers; `training_commands` and `process_tree` recognise training; `found_run`
is the stored run, and `run_sources` are its metrics files.
"""

from __future__ import annotations

__all__ = ["finder", "found_run", "run_sources", "training_commands"]
"""Modules that other packages may use."""
