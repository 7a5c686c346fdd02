"""Commands that bring results home, stop billing, and show what was done and still costs."""

__all__ = ["auditing", "down", "money_arguments", "platforms", "pull", "verifying"]
"""Modules that other packages may use."""
