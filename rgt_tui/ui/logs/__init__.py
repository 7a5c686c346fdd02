"""Reading a log: searching its lines, choosing which are shown, and dating them."""

__all__ = ["line_finder", "line_times", "log_rows"]
"""Modules that other packages may use."""
