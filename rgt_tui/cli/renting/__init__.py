"""Commands that take machines in: rent them, find them in an account, try them before paying for long."""

__all__ = ["account_import", "bid", "box_check", "up"]
"""Modules that other packages may use."""
