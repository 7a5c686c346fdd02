"""History that outlives the client: a ring on disk, the recorder that fills it, the readers that resume.

control starts, finds and stops the recorder from other processes, daemon is what runs in it; ring_history writes and
reads, ring is the form on the disk, state_files the small files beside it, the list of launched jobs among them.
"""

from __future__ import annotations

__all__ = ["control", "record_command", "ring", "ring_history", "state_files"]
"""Modules that other packages may use."""
