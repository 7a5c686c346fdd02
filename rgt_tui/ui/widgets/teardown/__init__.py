"""The dialog that stops a meter: what is asked, its evidence, its words."""

__all__ = ["confirm", "confirm_choice", "confirm_state", "confirm_view", "evidence_list"]
"""Modules that other packages may use."""
