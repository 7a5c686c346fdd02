"""Where this process's cgroup directories are, for version 1 and 2, inside and outside of containers."""

from __future__ import annotations

import os

from rgt_box import procstat


class Place:
    """The directory of one controller.

    Attributes:
        version: 1 or 2.
        levels: Directories from the own cgroup up to the mount's root: a limit on any of them counts.
    """

    __slots__ = ("levels", "version")

    def __init__(self, version: int, levels: list[str]) -> None:
        self.version, self.levels = version, levels


def parse_own(text: str) -> dict[str, str]:
    """Parse ``/proc/self/cgroup`` into controller → path; the key of version 2 is the empty string."""
    own = {}
    for row in text.splitlines():
        parts = row.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                own[controller] = parts[2]
    return own


def parse_mounts(text: str) -> list[tuple[str, str, str, set[str]]]:
    """Parse ``/proc/self/mountinfo`` into (root in the file system, mount point, type, super options)."""
    mounts = []
    for row in text.splitlines():
        left, separator, right = row.partition(" - ")
        head, tail = left.split(), right.split()
        if separator and len(head) >= 5 and len(tail) >= 3:
            mounts.append((unescape(head[3]), unescape(head[4]), tail[0], set(tail[2].split(","))))
    return mounts


def unescape(text: str) -> str:
    r"""Undo the octal escapes of the mount tables (``\040`` for a blank)."""
    parts = text.split("\\")
    out = parts[0]
    for part in parts[1:]:
        octal = part[:3]
        out += chr(int(octal, 8)) + part[3:] if len(octal) == 3 and octal.isdigit() else "\\" + part
    return out


def levels(root: str, mount: str, path: str) -> list[str]:
    """Return the directories from the own cgroup up to the mount point.

    Args:
        root: Which directory of the hierarchy is mounted.
        mount: Where.
        path: The own cgroup's path in the hierarchy.

    Returns:
        Only the mount point where the path is outside of what is mounted (a private cgroup namespace).
    """
    base = root.rstrip("/")
    if path.startswith("/..") or not (path == base or path.startswith(base + "/") or not base):
        return [mount]
    relative = path[len(base) :].strip("/")
    found = []
    while relative:
        found.append(os.path.join(mount, relative))
        relative = relative.rpartition("/")[0]
    return found + [mount]


def find(controller: str, own: dict[str, str], mounts: list[tuple[str, str, str, set[str]]]) -> Place | None:
    """Locate `controller` (``memory``, ``cpu``): version 1 where it is mounted there, else version 2."""
    for root, mount, kind, options in mounts:
        if kind == "cgroup" and controller in options and controller in own:
            return Place(1, _existing(levels(root, mount, own[controller]), mount))
    for root, mount, kind, _ in mounts:
        if kind == "cgroup2" and "" in own:
            return Place(2, _existing(levels(root, mount, own[""]), mount))
    return None


def _existing(candidates: list[str], mount: str) -> list[str]:
    return [path for path in candidates if os.path.isdir(path)] or [mount]


def locate(controller: str) -> Place | None:
    """Locate a controller of this process."""
    own = (procstat.read_bytes("/proc/self/cgroup") or b"").decode("utf-8", "replace")
    table = (procstat.read_bytes("/proc/self/mountinfo", 1 << 20) or b"").decode("utf-8", "replace")
    return find(controller, parse_own(own), parse_mounts(table))
