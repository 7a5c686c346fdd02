"""The detached queue: cells of a job run one after the other, or side by side in lanes, on one box or a cluster.

queue_command and detach are its verbs, runner its loop; queue_file is what a person writes, queue_state what the runner
writes.
"""

from __future__ import annotations

__all__ = ["detach", "disk_budget", "durable_copy", "queue_command", "queue_file", "queue_state"]
"""Modules that other packages may use."""
