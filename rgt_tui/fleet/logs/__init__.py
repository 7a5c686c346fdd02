"""The log that somebody is reading: its lines kept compactly, older ones fetched from the box and searched there."""

__all__ = ["box_logs", "kept_lines"]
"""Modules that other packages may use."""
