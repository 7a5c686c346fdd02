"""Did the kernel kill for lack of memory? Its counter, read before and after a cell, tells."""

from __future__ import annotations

import os

from rgt_box import procstat
from rgt_box.sampling import cgroup
from rgt_box.sampling.cgroup import parse_fields

FILES = {
    1: {"events": "memory.oom_control", "limit": "memory.limit_in_bytes"},
    2: {"events": "memory.events", "limit": "memory.max"},
}
NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page."""


class Memory:
    """The memory cgroup that this process, and so every cell, lives in.

    Args:
        place: Where the controller is; None = nowhere.
    """

    def __init__(self, place: cgroup.Place | None) -> None:
        self._levels = place.levels if place else []
        self._names = FILES[place.version] if place else {}

    def kills(self) -> int | None:
        """Return how many processes of this cgroup the kernel has killed; None where it does not say.

        Version 1 counts only the victims of this very level, version 2 those below it too: either way the nearest
        level that has a counter is the right one, and a level further up may count a neighbour's.
        """
        for level in self._levels:
            data = procstat.read_bytes(os.path.join(level, self._names["events"]))
            count = parse_fields(data or b"").get("oom_kill")
            if count is not None:
                return count
        return None

    def limit(self) -> int | None:
        """Return the tightest limit in bytes; None = there is none."""
        limits = [NO_LIMIT]
        for level in self._levels:
            data = procstat.read_bytes(os.path.join(level, self._names["limit"])) or b""
            if data.strip().isdigit():
                limits.append(int(data))
        return min(limits) if min(limits) < NO_LIMIT else None


class Watch:
    """Watches the counter while one cell runs."""

    def __init__(self) -> None:
        self._memory = Memory(cgroup.locate("memory"))
        self._before = self._memory.kills()

    def verdict(self) -> str | None:
        """Return why the kernel killed, "" when it did not, None when that cannot be told."""
        now = self._memory.kills()
        if now is None or self._before is None:
            return None
        if now <= self._before:
            return ""
        limit = self._memory.limit()
        where = "limit %.1f GiB" % (limit / 2**30) if limit else "no limit is set: the host itself ran out"
        return "out of memory in the container (%s)" % where
