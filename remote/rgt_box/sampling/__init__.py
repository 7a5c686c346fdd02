"""Samplers: each reads one thing, fails alone, and never stalls the rest.

sampler puts one sample together: of gpu (gpu_nvml, gpu_without_nvml), cgroup, disks, processes and xid.
"""

from __future__ import annotations

__all__ = ["cgroup", "disks", "gpu", "processes", "quiet_signs", "rank_waits", "sampler", "xid"]
"""Modules that other packages may use."""
