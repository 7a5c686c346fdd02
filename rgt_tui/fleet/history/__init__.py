"""What was, as the history has kept it: its keeper, an earlier moment, the report of a night."""

__all__ = ["history_keeper", "moment_fleet", "morning_report", "past", "spoken_times"]
"""Modules that other packages may use."""
