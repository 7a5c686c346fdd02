"""The detached queue: cells of a job run one after another, or in parallel lanes, on one box or a cluster.

queue_command, detach and launch are its verbs, runner its loop, beginning the look at how it starts, job_making and
queue_edit what is done for a person; queue_file is what a person writes, queue_state what the runner
writes.
"""

from __future__ import annotations

__all__ = [
    "cell_command",
    "cell_process",
    "detach",
    "disk_budget",
    "durable_copy",
    "job_making",
    "launch",
    "queue_command",
    "queue_file",
    "queue_state",
]
"""Modules that other packages may use."""
