"""Telling processes apart for certain: a process id alone is soon another process."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Mapping, Optional

_POLL_S = 0.005


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
