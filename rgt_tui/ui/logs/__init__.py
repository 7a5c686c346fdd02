"""Reading a log: what is looked for in its lines, which of them are shown, and when they were written."""

__all__ = [
    "beyond_kept",
    "error_lines",
    "line_finder",
    "line_index",
    "line_times",
    "log_rows",
    "slow_patterns",
]
"""Modules that other packages may use."""
