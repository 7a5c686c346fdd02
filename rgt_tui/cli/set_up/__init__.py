"""Commands that set a fleet up: a first file, boxes in it, trust in it, the check of all of it."""

__all__ = ["adding", "box_files", "doctor", "first_fleet", "set_up_parsers", "trust"]
"""Modules that other packages may use."""
