"""Commands that acquire machines: rent them, import them from an account, test them."""

__all__ = ["account_import", "bid", "box_check", "up"]
"""Modules that other packages may use."""
