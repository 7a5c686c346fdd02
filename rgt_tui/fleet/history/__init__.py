"""The fleet's past: keeping the history, going back to an earlier moment, and the report of a night."""

__all__ = ["history_keeper", "moment_fleet", "morning_report", "past", "spoken_times"]
"""Modules that other packages may use."""
