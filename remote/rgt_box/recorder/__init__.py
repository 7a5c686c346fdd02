"""History that outlives the client: a ring on disk, the recorder that fills it, and its readers.

control starts, finds and stops the recorder from other processes, daemon is its process.
ring_history writes and reads the history, ring is the format on disk, state_files the small files
next to it, including the list of launched jobs.
"""

from __future__ import annotations

__all__ = ["control", "preemption", "record_command", "ring", "ring_history", "state_files"]
"""Modules that other packages may use."""
