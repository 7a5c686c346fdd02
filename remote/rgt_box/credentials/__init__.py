"""Secrets on this box, kept where no other machine and no later tenant can read them."""

from __future__ import annotations

__all__ = ["secret_command", "secret_store"]
"""Modules that other packages may use."""
