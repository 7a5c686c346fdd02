"""The fleet screen: its table, and the panes below it."""

__all__ = [
    "fleet_cells",
    "fleet_columns",
    "fleet_filter",
    "fleet_order",
    "fleet_table",
    "loss_pane",
    "lower_half",
    "since_lines",
    "what_to_do",
]
"""Modules that other packages may use."""
