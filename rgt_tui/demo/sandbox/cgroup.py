"""A memory cgroup per box, so that its limit and its OOM kills are real. Cgroup v1 and v2."""

from __future__ import annotations

import contextlib
from pathlib import Path


def own_memory_cgroup() -> tuple[Path, int] | None:
    """Return the directory of this process's memory cgroup and the version (1 or 2), or None."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory" + path), 1
        if number == "0" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path("/sys/fs/cgroup" + path), 2
    return None


def create(name: str, limit_bytes: int) -> Path | None:
    """Create a memory cgroup with a limit; None where this machine does not let us.

    In v2 a cgroup with processes of its own cannot hand a controller to its children, except the root; so the
    new one stands directly below the root there.
    """
    found = own_memory_cgroup()
    if found is None:
        return None
    parent, version = found
    path = parent / name if version == 1 else Path("/sys/fs/cgroup") / name
    limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
    try:
        path.mkdir()
        (path / limit).write_text(str(limit_bytes))
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        return None
    return path
