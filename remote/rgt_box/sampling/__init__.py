"""Samplers: each reads one thing, and a failure or delay of one does not affect the others.

sampler combines them into one sample: gpu (gpu_nvml, gpu_without_nvml), cgroup, disks, processes
and xid.
"""

from __future__ import annotations

__all__ = [
    "cgroup",
    "disks",
    "free_space",
    "gpu",
    "processes",
    "quiet_signs",
    "rank_waits",
    "sampler",
    "xid",
]
"""Modules that other packages may use."""
