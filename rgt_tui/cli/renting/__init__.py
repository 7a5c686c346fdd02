"""Commands that take machines in: rented, found in an account, tried before money runs."""

__all__ = ["account_import", "box_check", "up"]
"""Modules that other packages may use."""
