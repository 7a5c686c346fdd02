"""Memory of the container (cgroup) and, apart from it, of the host."""

from __future__ import annotations

import os

from rgt_box import jsonline
from rgt_box.sampling import cgroup
from rgt_box.sampling.kept import KeptFile, parse_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page; nobody rents an exbibyte."""

FILES = {
    1: {
        "used": "memory.usage_in_bytes",
        "limit": "memory.limit_in_bytes",
        "peak": "memory.max_usage_in_bytes",
        "stat": "memory.stat",
        "events": "memory.oom_control",
        "swap": "memory.memsw.usage_in_bytes",
        "swap_limit": "memory.memsw.limit_in_bytes",
    },
    2: {
        "used": "memory.current",
        "limit": "memory.max",
        "peak": "memory.peak",
        "stat": "memory.stat",
        "events": "memory.events",
        "swap": "memory.swap.current",
        "swap_limit": "memory.swap.max",
    },
}
"""What is read, by the kernel's ``admin-guide/cgroup-v1/memory.rst`` and ``admin-guide/cgroup-v2.rst``.

The ``memsw`` files of version 1 count memory *and* swap; they are there only with swap accounting.
"""
CACHE_FIELD = {1: "total_inactive_file", 2: "inactive_file"}


class MemorySampler:
    """Reads the level of the cgroup tree whose limit is the tightest: that is where the kernel will kill.

    Args:
        place: Where the memory controller is; None = nowhere.
        meminfo: The host's figures.
    """

    def __init__(self, place: cgroup.Place | None, meminfo: str = "/proc/meminfo") -> None:
        self._meminfo = KeptFile(meminfo)
        self._version: int | None = None
        self._files: dict[str, KeptFile] = {}
        self._below: list[KeptFile] = []
        if place is None:
            return
        names = FILES[place.version]
        usable = [level for level in place.levels if os.path.exists(os.path.join(level, names["used"]))]
        if usable:
            self._version = place.version
            level = min(
                usable, key=lambda path: _limit(KeptFile(os.path.join(path, names["limit"]))) or NO_LIMIT
            )
            self._files = {key: KeptFile(os.path.join(level, name)) for key, name in names.items()}
            # Version 1 counts a kill in the victim's own group alone, version 2 in all groups above it, too.
            below = usable[: usable.index(level)] if place.version == 1 else []
            self._below = [KeptFile(os.path.join(path, names["events"])) for path in below]

    def read(self) -> dict[str, Any]:
        """Return the ``mem`` object of a sample."""
        host = parse_fields(self._meminfo.read() or b"")
        total, free = host.get("MemTotal"), host.get("MemAvailable", host.get("MemFree"))
        found: dict[str, Any] = {"cgroup": self._version}
        if total is not None:
            found["host_total"] = total * 1024
            found["host_used"] = None if free is None else (total - free) * 1024
        swap = host.get("SwapTotal")
        if swap:
            found["host_swap_total"] = swap * 1024
            found["host_swap_used"] = (swap - host.get("SwapFree", swap)) * 1024
        if self._version is not None:
            stat = self._files["stat"].fields()
            used, limit = self._files["used"].number(), _limit(self._files["limit"])
            found.update(
                used=used,
                limit=limit,
                peak=self._files["peak"].number(),
                cache=stat.get(CACHE_FIELD[self._version]),
                oom_kills=self._kills(),
            )
            found.update(self._swap(used, limit))
        return jsonline.compact(found)

    def _kills(self) -> int | None:
        counts = [file.fields().get("oom_kill") for file in [self._files["events"], *self._below]]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def _swap(self, used: int | None, limit: int | None) -> dict[str, int | None]:
        swap, most = self._files["swap"].number(), _limit(self._files["swap_limit"])
        if self._version == 1 and swap is not None:
            swap = max(0, swap - (used or 0))  # read at two moments: the difference may fall below 0
            most = None if most is None or limit is None else max(0, most - limit)
        return {"swap_used": swap, "swap_limit": most}


def _limit(file: KeptFile) -> int | None:
    number = file.number()
    return None if number is None or number >= NO_LIMIT else number


def oom_event(before: int | None, mem: dict[str, Any]) -> str | None:
    """Return the words of an ``oom-kill`` event when the counter went up since `before`."""
    now = mem.get("oom_kills")
    if now is None or before is None or now <= before:
        return None
    limit = mem.get("limit")
    where = "the container's limit of %.1f GiB" % (limit / 2**30) if limit else "the memory of the host"
    return "the kernel killed %d process%s: out of memory at %s" % (
        now - before,
        "es" * (now - before > 1),
        where,
    )
