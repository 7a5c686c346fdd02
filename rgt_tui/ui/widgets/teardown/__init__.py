"""The dialog that stops a meter: what it asks, its evidence, its texts."""

__all__ = ["confirm", "confirm_state", "confirm_view", "evidence_list"]
"""Modules that other packages may use."""
