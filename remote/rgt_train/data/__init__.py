"""Data whose order, position and randomness survive a kill."""

from __future__ import annotations

__all__ = ["position", "rng", "sampler"]
"""Modules that other packages may use."""
