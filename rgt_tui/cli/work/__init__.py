"""Commands that start work on a box, look after it, and open the box to a person's own programs."""

__all__ = ["box_tools", "queue_commands", "run_job", "shells", "work_arguments"]
"""Modules that other packages may use."""
