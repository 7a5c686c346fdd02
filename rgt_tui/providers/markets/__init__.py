"""Where machines are rented: one module per platform, and what they share."""

__all__ = ["paperspace_market", "rented_market", "runpod_market", "vast_market"]
"""Modules that other packages may use."""
