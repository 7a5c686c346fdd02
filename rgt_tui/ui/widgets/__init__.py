"""Widgets that draw line by line, and the pure functions that make their lines."""

__all__ = [
    "bars",
    "box_context",
    "box_past",
    "checklist",
    "curve",
    "curve_legend",
    "day_strip",
    "fixed_lines",
    "gpu_cards",
    "lines",
    "log_pane",
    "metric_grid",
    "panes",
    "platform_lines",
    "queue_lines",
    "selectable_list",
    "spans",
    "vitals",
    "why",
]
"""Modules that other packages may use."""
