"""Reading a log: searching its lines, choosing which are shown, and dating them."""

__all__ = [
    "box_search",
    "error_lines",
    "line_finder",
    "line_times",
    "log_rows",
]
"""Modules that other packages may use."""
