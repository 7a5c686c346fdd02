"""Bytes and inodes of every mount that matters, and the directories that hold the inodes when one runs short."""

from __future__ import annotations

import os

from rgt_box import background, jsonline
from rgt_box.sampling import hogs, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

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
        self._wanted: tuple[list[str], list[str]] = ([], [])
        self._changes = mounts.Changes()

    def configure(self, configured: list[str], written: list[str]) -> None:
        """Choose what to sample.

        Args:
            configured: Mount points (or any directories) that the client asked for.
            written: Directories that runs write to; their mounts are added where not yet named.
        """
        self._wanted = (configured, written)
        self._changes.any()  # what changed until now is read here
        table = mounts.table()
        wanted = ["/"] + [path for path in configured if path.startswith("/")]
        wanted += [mounts.of(mounts.resolve(path, table), table)[0] for path in written]
        unique = list(dict.fromkeys(os.path.normpath(path) for path in wanted))
        known = {(mount.path, mount.kind): mount for mount in self._mounts}
        kinds = [(path, mounts.of(mounts.resolve(path, table), table)[1]) for path in unique]
        self._mounts = [known.get(pair) or Mount(*pair, self._statvfs) for pair in kinds]

    def read(self, wait: float = 0.0) -> list[dict[str, Any]]:
        """Return the ``disks`` list of a sample; a mount that does not answer has an error."""
        if self._changes.any():  # what was local a moment ago may now be covered by a mount that hangs
            self.configure(*self._wanted)
        return [mount.read(wait) for mount in self._mounts]


class Mount:
    """One sampled path.

    Args:
        path: Where statvfs is asked.
        kind: Type of its file system; one that cannot hang needs no thread.
        statvfs: The system call.
    """

    def __init__(self, path: str, kind: str, statvfs: Callable[[str], os.statvfs_result]) -> None:
        self.path, self.kind = path, kind
        self._stat = statvfs
        self._remote: background.Background | None = None
        if kind not in mounts.LOCAL:
            self._remote = background.Background(lambda: statvfs(path), PERIOD, TIMEOUT)
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
        return jsonline.compact(
            dict(fields, mount=self.path, kind=self.kind or None, hogs=found, error=error)
        )

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
