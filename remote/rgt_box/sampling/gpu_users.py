"""Who uses a GPU: the driver's list, and the processes here that have its device open.

The driver may number processes by another pid namespace than ours (most rented containers). A number is only
ever called ours when that is proven; otherwise it is shown as it came, unmapped.
"""

from __future__ import annotations

import os

from rgt_box import masking, procstat
from rgt_box.sampling.words import AGENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INITIAL_NAMESPACE = 0xEFFFFFFC
"""Inode of the host's own pid namespace: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""

TOOLS = frozenset(
    (
        "Xorg", "dcgm-exporter", "dcgmi", "gpustat", "nv-fabricmanager", "nv-hostengine", "nvidia-persistenced",
        "nvidia-powerd", "nvidia-smi", "nvitop", "nvtop",
    )
)  # fmt: skip
"""Programs that hold a device open to look at it, without memory of their own on it."""


def prefix() -> str:
    """Return what the paths of the cards' device files begin with; ``RGT_NVIDIA_DEVICES`` replaces it in tests."""
    return os.environ.get("RGT_NVIDIA_DEVICES") or "/dev/nvidia"


def in_initial_namespace() -> bool:
    """Tell whether the pids that we see are the host's."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_NAMESPACE
    except OSError:
        return False


def open_cards(pid: int, start: str) -> set[int]:
    """Return the minor numbers of the cards that a process has open; empty where we may not look."""
    folder = "/proc/%d/fd" % pid
    found: set[int] = set()
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(folder + "/" + name)
        except OSError:
            continue
        rest = target[len(start) :]
        if target.startswith(start) and rest.isdigit():
            found.add(int(rest))
    return found


def holders(start: str) -> dict[int, set[int]]:
    """Return pid → minor numbers of the cards it has open, for all processes that we may look into (not our own)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            cards = open_cards(int(name), start)
            if cards:
                found[int(name)] = cards
    return found


def is_onlooker(words: list[str]) -> bool:
    """Tell whether a command line is a tool or agent that only watches GPUs."""
    program = os.path.basename(words[0]).split(":")[0] if words else ""
    return program in TOOLS or any(AGENT.search(word) for word in words[:5])


def map_pids(gpus: list[dict[str, Any]], start: str, initial: bool) -> bool | None:
    """Mark the driver's pids that are proven to be of our namespace.

    On the host every live pid is. In a container one number that is no holder of its card proves that the driver
    counts otherwise; then none is mapped, not even one that happens to hit a process here.

    Args:
        gpus: Readings with ``procs``; each entry gets ``mapped`` where it holds.
        start: What the paths of the device files begin with.
        initial: Whether we are in the host's own namespace.

    Returns:
        Whether the driver's lists can be compared with the processes here; None where they are empty, which in
        a container may mean "none" as well as "none that I would tell you".
    """
    listed = [(gpu, user) for gpu in gpus for user in gpu.get("procs") or []]
    if initial:
        for _, user in listed:
            _mark(user, os.path.exists("/proc/%d" % user["pid"]))
        return all(gpu.get("listed") for gpu in gpus) or None
    if not listed:
        return None
    proven = all(gpu.get("minor", gpu["index"]) in open_cards(user["pid"], start) for gpu, user in listed)
    for _, user in listed:
        _mark(user, proven)
    return proven


def _mark(user: dict[str, Any], mapped: bool) -> None:
    user.pop("mapped", None)  # false is the reader's default
    if mapped:
        user["mapped"] = True


def unexplained(gpu: dict[str, Any]) -> int:
    """Return the used memory of a card that no listed process accounts for; 0 where a process's share is unknown."""
    users = gpu.get("procs") or []
    if any(user.get("bytes") is None for user in users):
        return 0
    return max(0, int(gpu.get("vram_used") or 0) - sum(int(user["bytes"]) for user in users))


def describe(pid: int, boot: float) -> dict[str, Any] | None:
    """Return ``pid``, ``started``, ``cmd`` of a live process; None when it has ended."""
    ticks = procstat.start_ticks(pid)
    if ticks is None:
        return None
    words = procstat.cmdline(pid)
    return {
        "pid": pid,
        "started": round(boot + ticks / procstat.CLOCK_TICKS, 2),
        "cmd": " ".join(masking.masked(words))[:300],
    }


def orphans(gpus: list[dict[str, Any]], held: dict[int, set[int]]) -> dict[int, list[int]]:
    """Return index → pids that have the card open and that the driver does not list on any card.

    Args:
        gpus: Readings whose pids are mapped (`map_pids` was true).
        held: What `holders` found.
    """
    known = {user["pid"] for gpu in gpus for user in gpu.get("procs") or []}
    unknown = [pid for pid in sorted(held) if pid not in known and not is_onlooker(procstat.cmdline(pid))]
    return {
        gpu["index"]: [pid for pid in unknown if gpu.get("minor", gpu["index"]) in held[pid]] for gpu in gpus
    }
