"""The check and text functions of the condition table's rows, grouped by subject."""

__all__ = [
    "conditions_checked",
    "conditions_curves",
    "conditions_gpu",
    "conditions_link",
    "conditions_money",
    "conditions_queue",
    "conditions_runs",
    "conditions_space",
]
"""Modules that other packages may use."""
