"""Commands that set up a fleet: the first file, boxes in it, trusting it, and checking it all."""

__all__ = [
    "adding", "box_files", "bringing_arguments", "doctor", "first_fleet", "push_to_box",
    "secrets_and_mirrors",
    "set_up_arguments", "trust",
]  # fmt: skip
"""Modules that other packages may use."""
