"""The watch channel: samples, file followers with cursors, the bounded output, and its main loop.

watch is the main loop, pipes its two ends. sample_source provides samples of the box, follows the
content of files (with log_follower, job_files, curve_followers), trainings the discovered
trainings.
"""

from __future__ import annotations

__all__ = ["follows", "job_files", "job_looks", "log_follower", "watch"]
"""Modules that other packages may use."""
