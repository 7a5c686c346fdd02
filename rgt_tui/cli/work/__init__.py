"""Commands that start work on a box, manage it, and open the box to other programs."""

__all__ = [
    "box_tools",
    "local_smoke",
    "queue_commands",
    "run_job",
    "shells",
    "work_arguments",
]
"""Modules that other packages may use."""
