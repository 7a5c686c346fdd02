"""Commands that name what went wrong: triage of logs, and the handbook."""

__all__ = ["failure_arguments", "handbook_command", "triage_files"]
"""Modules that other packages may use."""
