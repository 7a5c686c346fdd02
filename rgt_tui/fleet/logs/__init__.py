"""Logs that somebody reads: all of their lines kept compactly, older ones fetched from the box, found there."""

__all__ = ["box_logs", "kept_lines"]
"""Modules that other packages may use."""
