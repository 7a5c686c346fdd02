"""Scalars that training programs leave on disk: one small reader per format, all with the same contract.

formats lists them, discover finds them below a directory, merging makes curves of them. A module is loaded when the
first file of its kind is read: an agent starts in milliseconds.
"""

from __future__ import annotations

__all__ = [
    "discover",
    "formats",
    "jsonl",
    "merging",
    "metric_names",
    "reader_base",
    "rows",
    "scalars_command",
]
"""Modules that other packages may use."""
