"""The commands that bring results home, stop a meter, and say what was done and what it can still cost."""

__all__ = ["auditing", "down", "money_parsers", "platforms", "pull", "verifying"]
"""Modules that other packages may use."""
