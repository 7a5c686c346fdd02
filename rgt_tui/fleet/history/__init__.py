"""The fleet's history: recording it, displaying an earlier moment, and the morning report."""

__all__ = [
    "history_keeper",
    "moment_fleet",
    "morning_report",
    "night_forecast",
    "past",
    "spoken_times",
]
"""Modules that other packages may use."""
