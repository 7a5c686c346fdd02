"""The dialog that stops billing: its state, its evidence and its texts."""

__all__ = ["confirm", "confirm_state", "confirm_view", "evidence_list", "pull_line"]
"""Modules that other packages may use."""
