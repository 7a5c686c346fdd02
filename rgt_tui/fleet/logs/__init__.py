"""Logs of a box: the lines that are kept, older ones read and searched there, a file copied byte by byte."""

__all__ = ["box_logs", "kept_lines"]
"""Modules that other packages may use."""
