"""The watch channel: samples, followers of files with cursors, the bounded output, and the loop between them.

watch is the loop, pipes its two ends, config what the client may ask; sample_source tells of the box, follows of files
(log_follower, job_files, curve_followers), trainings of what nobody named.
"""

from __future__ import annotations

__all__ = ["follows", "job_files", "job_looks", "log_follower", "watch"]
"""Modules that other packages may use."""
