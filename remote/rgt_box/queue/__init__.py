"""The detached queue: runs a job's cells one after another or in lanes, on one box or a cluster.

The verbs are in queue_command, detach and launch; runner is the main loop. job_making and
queue_edit make and change jobs for a user. queue_file reads what the user writes, queue_state what
the runner writes.
"""

from __future__ import annotations

__all__ = [
    "cell_command",
    "cell_process",
    "detach",
    "durable_copy",
    "job_making",
    "launch",
    "queue_command",
    "queue_file",
    "queue_state",
]
"""Modules that other packages may use."""
