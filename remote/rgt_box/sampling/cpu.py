"""CPU granted to the container, how often it was throttled, and the host's load."""

from __future__ import annotations

import os

from rgt_box import jsonline
from rgt_box.sampling import cgroup
from rgt_box.sampling.kept import KeptFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


QUOTA_FILES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
"""By the kernel's ``scheduler/sched-bwc.rst`` and ``admin-guide/cgroup-v2.rst``."""

THROTTLED_TIME = (("throttled_usec", 1e-6), ("throttled_time", 1e-9))
"""Field of ``cpu.stat`` in version 2 and 1, and its unit in seconds."""


class CpuSampler:
    """Keeps the throttling counters of the last reading, because only their growth means anything."""

    def __init__(self, place: cgroup.Place | None, loadavg: str = "/proc/loadavg") -> None:
        self._loadavg = KeptFile(loadavg)
        self._version = place.version if place else None
        self._levels = place.levels if place else []
        names = QUOTA_FILES[self._version or 2]
        self._files = [[KeptFile(os.path.join(level, name)) for name in names] for level in self._levels]
        self._stat = KeptFile(os.path.join(self._levels[0], "cpu.stat")) if self._levels else None
        self._last: tuple[int, int] | None = None

    def read(self) -> dict[str, Any]:
        """Return the ``cpu`` object of a sample."""
        load = (self._loadavg.read() or b"").split()
        quotas = [quota for quota in map(self._quota, self._files) if quota is not None]
        quota, cores = min(quotas) if quotas else None, _cores()
        granted = [value for value in (quota, cores) if value]
        fields = self._stat.fields() if self._stat else {}
        return jsonline.compact(
            {
                "quota": quota,
                "cores": cores,
                "usable": min(granted) if granted else None,
                "load1": float(load[0]) if load else None,
                "throttled_pct": self._throttled(fields),
                "throttled_s": throttled_s(fields),
            }
        )

    def _quota(self, files: list[KeptFile]) -> float | None:
        if self._version == 2:
            return parse_max(files[0].read() or b"")
        quota, period = files[0].number(), files[1].number()
        return round(quota / period, 3) if quota and period and quota > 0 else None

    def _throttled(self, fields: dict[str, int]) -> float | None:
        if "nr_periods" not in fields:
            return None
        now = (fields["nr_periods"], fields.get("nr_throttled", 0))
        before, self._last = self._last, now
        return throttled_pct(before, now)


def parse_max(data: bytes) -> float | None:
    """Return the cores of a version 2 ``cpu.max`` ("200000 100000" → 2.0); None for "max" or nonsense."""
    words = data.split()
    try:
        return round(int(words[0]) / int(words[1]), 3)
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def throttled_pct(before: tuple[int, int] | None, now: tuple[int, int]) -> float | None:
    """Return the share of scheduler periods, since the last reading, in which the quota ran out."""
    if before is None or now[0] <= before[0]:
        return None
    return round(100.0 * max(0, now[1] - before[1]) / (now[0] - before[0]), 1)


def throttled_s(fields: dict[str, int]) -> float | None:
    """Return the time that the quota took from all threads together, from the fields of ``cpu.stat``."""
    for name, unit in THROTTLED_TIME:
        if name in fields:
            return round(fields[name] * unit, 3)
    return None


def _cores() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except (OSError, AttributeError):
        return os.cpu_count()
