"""Commands that set up a fleet: the first file, boxes in it, trusting it, and checking it all."""

__all__ = ["adding", "box_files", "doctor", "first_fleet", "set_up_arguments", "trust"]
"""Modules that other packages may use."""
