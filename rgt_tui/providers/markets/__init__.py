"""Where machines are rented: one module per platform, and what they share."""

__all__ = [
    "digitalocean_market",
    "lambda_market",
    "paperspace_market",
    "rented_market",
    "runpod_market",
    "vast_bids",
    "vast_market",
]
"""Modules that other packages may use."""
