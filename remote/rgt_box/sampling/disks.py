"""Bytes and inodes of every mount that matters, and the directories that hold the inodes when one runs short."""

from __future__ import annotations

import os

from rgt_box import background, jsonline, procstat
from rgt_box.sampling import hogs
from rgt_box.sampling.cgroup import unescape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay", "zfs", "f2fs", "devtmpfs")
)
"""File systems whose statvfs answers from memory; all others (NFS, FUSE, Lustre, …) may hang."""

PERIOD, TIMEOUT = 2.0, 5.0
"""Seconds between two statvfs of a mount that may hang, and when it counts as hung."""

RESCAN = 120.0
"""Seconds between two looks for hogs: one takes up to two seconds of a core."""

SCAN_AT = 0.90
"""Use of bytes or inodes from which on the hogs are looked for."""


class DiskSampler:
    """Samples a changing set of paths."""

    def __init__(self, statvfs: Callable[[str], os.statvfs_result] = os.statvfs) -> None:
        self._statvfs = statvfs
        self._mounts: list[Mount] = []

    def configure(self, configured: list[str], written: list[str]) -> None:
        """Choose what to sample.

        Args:
            configured: Mount points (or any directories) that the client asked for.
            written: Directories that runs write to; their mounts are added where not yet named.
        """
        table = mount_table()
        wanted = ["/"] + [path for path in configured if path.startswith("/")]
        wanted += [mount_of(path, table)[0] for path in written]
        unique = list(dict.fromkeys(os.path.normpath(path) for path in wanted))
        known = {mount.path: mount for mount in self._mounts}
        self._mounts = [
            known.get(path) or Mount(path, mount_of(path, table)[1] in LOCAL, self._statvfs)
            for path in unique
        ]

    def read(self, wait: float = 0.0) -> list[dict[str, Any]]:
        """Return the ``disks`` list of a sample; a mount that does not answer has an error."""
        return [mount.read(wait) for mount in self._mounts]


class Mount:
    """One sampled path.

    Args:
        path: Where statvfs is asked.
        local: True where it cannot hang, so that no thread is needed.
        statvfs: The system call.
    """

    def __init__(self, path: str, local: bool, statvfs: Callable[[str], os.statvfs_result]) -> None:
        self.path = path
        self._stat = statvfs
        self._remote = None if local else background.Background(lambda: statvfs(path), PERIOD, TIMEOUT)
        self._scan: background.Background | None = None

    def read(self, wait: float) -> dict[str, Any]:
        """Return one ``Disk``."""
        error: str | None = None
        result: os.statvfs_result | None = None
        if self._remote is None:
            try:
                result = self._stat(self.path)
            except OSError as problem:
                error = background.describe(problem)
        else:
            result, error = self._remote.poll(wait or 0.02)
        fields = fields_of(result) if result is not None and error is None else {}
        found, by_bytes = self._hogs(fields, wait)
        if by_bytes:
            found = sorted(found, key=lambda hog: -hog["bytes"])
        return jsonline.compact(dict(fields, mount=self.path, hogs=found, error=error))

    def _hogs(self, fields: dict[str, Any], wait: float) -> tuple[list[dict[str, Any]], bool]:
        inodes = ratio(fields.get("inodes_used"), fields.get("inodes_total"))
        used = ratio(fields.get("bytes_used"), fields.get("bytes_total"))
        if max(inodes, used) < SCAN_AT:
            self._scan = None
            return [], False
        if self._scan is None:
            self._scan = background.Background(lambda: hogs.scan(self.path), RESCAN, 30.0)
        return self._scan.poll(wait)[0] or [], inodes < SCAN_AT


def ratio(part: int | None, whole: int | None) -> float:
    """Return part/whole, 0 where either is unknown."""
    return part / whole if part is not None and whole else 0.0


def fields_of(stat: os.statvfs_result) -> dict[str, Any]:
    """Return the byte and inode figures of a statvfs result."""
    size = stat.f_frsize or stat.f_bsize
    fixed = stat.f_files > 0  # btrfs and some network file systems make inodes as they go
    return {
        "bytes_total": stat.f_blocks * size,
        "bytes_used": (stat.f_blocks - stat.f_bfree) * size,
        "bytes_free": stat.f_bavail * size,
        "inodes_total": stat.f_files if fixed else None,
        "inodes_used": stat.f_files - stat.f_ffree if fixed else None,
        "read_only": bool(stat.f_flag & getattr(os, "ST_RDONLY", 1)),
    }


def mount_table() -> list[tuple[str, str]]:
    """Return (mount point, type) of every mount, later ones (which cover earlier ones) last."""
    text = (procstat.read_bytes("/proc/self/mounts", 1 << 20) or b"").decode("utf-8", "replace")
    rows = [row.split() for row in text.splitlines()]
    return [(unescape(row[1]), row[2]) for row in rows if len(row) >= 3]


def mount_of(path: str, table: list[tuple[str, str]]) -> tuple[str, str]:
    """Return (mount point, type) of the mount that holds `path`, by its name alone: nothing here can hang."""
    best = ("/", "")
    wanted = os.path.normpath(path)
    for mount, kind in table:
        inside = mount == "/" or wanted == mount or wanted.startswith(mount + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best
