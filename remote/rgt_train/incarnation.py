"""Telling processes apart for certain: a process id alone is soon another process."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Mapping, Optional

_POLL_S = 0.005
_PF_EXITING = 0x4
"""Flag of a process that is on its way out (Linux, include/linux/sched.h)."""


def boot_id() -> str:
    """Return what changes when the machine starts anew; empty where it cannot be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def started(pid: int) -> Optional[int]:
    """Return when process `pid` started, in clock ticks since boot; None where there is none (or a dead one)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def describe(pid: int) -> Dict[str, Any]:
    """Return what tells process `pid` from any other that may get its number."""
    return {"pid": pid, "start": started(pid), "boot": boot_id()}


def alive(facts: Mapping[str, Any]) -> bool:
    """Say whether the process that `describe` described still runs on this machine."""
    known = facts.get("start")
    return known is not None and facts.get("boot") == boot_id() and started(int(facts["pid"])) == known


def dying(facts: Mapping[str, Any]) -> bool:
    """Say whether the process that `describe` described was killed but is not gone yet: it gives its memory back."""
    if not alive(facts):
        return False
    try:
        place = f"/proc/{int(facts['pid'])}"
        with open(f"{place}/stat", "rb") as stat, open(f"{place}/status", "rb") as status:
            return is_dying(stat.read(), status.read())
    except OSError:
        return False


def is_dying(stat: bytes, status: bytes) -> bool:
    """Say whether a process is on its way out, or has a SIGKILL that it could not obey yet.

    Args:
        stat: Its ``/proc/PID/stat``.
        status: Its ``/proc/PID/status``.
    """
    flags = int(stat.rpartition(b")")[2].split()[6])
    lines = [line.split() for line in status.splitlines() if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    killed = any(int(mask, 16) & 1 << (signal.SIGKILL - 1) for _, mask in lines)
    return killed or bool(flags & _PF_EXITING)


def end(processes: List[Mapping[str, Any]], seconds: float) -> List[int]:
    """Kill those that are still alive and wait until they are gone; return their process ids."""
    ended = []
    for facts in processes:
        if alive(facts):
            try:
                os.kill(int(facts["pid"]), signal.SIGKILL)
            except OSError:
                continue
            ended.append(int(facts["pid"]))
    deadline = time.monotonic() + seconds
    while any(alive(facts) for facts in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return ended
