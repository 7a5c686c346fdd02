"""Commands that bring results home, stop a meter, and say what was done and what can still cost."""

__all__ = ["auditing", "down", "money_arguments", "platforms", "pull", "verifying"]
"""Modules that other packages may use."""
