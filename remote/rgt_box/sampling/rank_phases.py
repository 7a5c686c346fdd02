"""What a rank of our own trainer is doing: its heartbeat, read from a memory page that it holds open.

The layout is ``rgt_train/ranks/heartbeat.py``'s. The page is found among the open files of the process, so that neither
a directory nor another machine takes part; asking needs what reading its environment needs.
"""

from __future__ import annotations

import os
import struct
import time

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PHASES = (
    "loop", "data", "forward", "backward", "collective", "optimizer", "checkpoint", "evaluation", "start", "end",
)  # fmt: skip
LINK = "/memfd:rgt-heartbeat (deleted)"
"""What the kernel calls it."""
MOST_OPEN = 4096
"""Open files of a process that are looked through for it."""
_PAGE = struct.Struct("<8s7Q")
_TRIES = 4
clock = time.monotonic_ns
LARGEST = (1 << 53) - 1
"""What every reader of JSON takes for a whole number."""


def find(pid: int) -> str | None:
    """Return the path of a process's heartbeat; None = it has none, or it may not be asked."""
    folder = "/proc/%d/fd" % pid
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_OPEN), entries):  # noqa: B905
                path = "%s/%s" % (folder, entry.name)
                if _leads(path):
                    return path
    except OSError:
        pass
    return None


def _leads(path: str) -> bool:
    try:
        return os.readlink(path) == LINK
    except OSError:
        return False


def read(path: str, rank: int, world: int) -> dict[str, Any] | None:
    """Return what the heartbeat at `path` tells; None where it is gone, or not that of this rank.

    Returns:
        ``phase`` and the seconds since it began (``for_s``), steps done (``step``), the seconds since the last of them
        ended (``step_s``), how long a usual one and the slowest took, and how many this process has done (``steps``).
    """
    if not _leads(path):
        return None
    try:
        fd = files.open_regular(path)  # in a mount namespace of his own anybody may call a device so
    except OSError:
        return None
    try:
        raw = b""
        for _ in range(_TRIES):  # twice the same: not read in the middle of a change
            before, raw = raw, os.pread(fd, _PAGE.size, 0)
            if raw == before:
                return _told(raw, rank, world)
    except OSError:
        pass
    finally:
        os.close(fd)
    return None


def _told(raw: bytes, rank: int, world: int) -> dict[str, Any] | None:
    if len(raw) != _PAGE.size:
        return None
    magic, who, since, step, stepped, usual, slowest, steps = _PAGE.unpack(raw)
    now = clock()
    phase = since & 15
    # Of another clock (a time namespace) nothing is known.
    if (
        magic != b"rgtbeat1"
        or who != rank << 32 | world
        or phase >= len(PHASES)
        or max(since - 15, stepped) > now
    ):
        return None
    return {
        "phase": PHASES[phase],
        "for_s": round(max(0, now - since) / 1e9, 1),
        "step": min(step, LARGEST),
        "step_s": round((now - stepped) / 1e9, 1),
        "usual_s": round(usual / 1e9, 3),
        "slowest_s": round(slowest / 1e9, 3),
        "steps": min(steps, LARGEST),
    }
