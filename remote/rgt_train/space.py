"""What a file system has left, and what a failed write says about it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Optional

from rgt_train.durable import StrPath, remove


@dataclass(frozen=True)
class Space:
    """One reading of the file system that holds a path.

    Attributes:
        mount: Its mount point.
        bytes_free: Bytes this process may still use.
        bytes_total: Its size in bytes.
        inodes_free: Inodes this process may still use; None where the file system does not count them.
        inodes_total: All inodes; None likewise.
    """

    mount: str
    bytes_free: int
    bytes_total: int
    inodes_free: Optional[int]
    inodes_total: Optional[int]

    def short_of(self, need_bytes: int, need_inodes: int) -> Optional[str]:
        """Return ``inodes`` or ``bytes`` where less than the need is free, else None."""
        if self.inodes_free is not None and self.inodes_free < need_inodes:
            return "inodes"
        return "bytes" if self.bytes_free < need_bytes else None


def read_space(path: StrPath) -> Space:
    """Return the space of the file system under `path`, which must exist.

    Raises:
        OSError: `path` cannot be examined.
    """
    facts = os.statvfs(path)
    # Reserved blocks are root's to use: f_bavail would call a disk full that still takes root's writes.
    root = os.geteuid() == 0
    counted = (
        facts.f_files > 0
    )  # btrfs and many network file systems report 0: not "none left" but "not counted"
    return Space(
        mount=_mount_of(os.path.realpath(path)),
        bytes_free=(facts.f_bfree if root else facts.f_bavail) * facts.f_frsize,
        bytes_total=facts.f_blocks * facts.f_frsize,
        inodes_free=(facts.f_ffree if root else facts.f_favail) if counted else None,
        inodes_total=facts.f_files if counted else None,
    )


def resource_of(error: OSError, space: Optional[Space], need_bytes: int, need_inodes: int) -> str:
    """Name what ran out: ``inodes``, ``bytes``, ``quota``, ``read-only`` or ``other``.

    The kernel says ENOSPC for blocks and inodes alike; only the counters tell them apart.
    """
    if error.errno == errno.EDQUOT:
        return "quota"
    if error.errno == errno.EROFS:
        return "read-only"
    if error.errno != errno.ENOSPC:
        return "other"
    return (space.short_of(need_bytes, need_inodes) if space else None) or "bytes"


def describe(error: OSError, space: Optional[Space], need_bytes: int, need_inodes: int) -> str:
    """Say in a few words, for a person, why a save failed and on which mount."""
    what = resource_of(error, space, need_bytes, need_inodes)
    mount = space.mount if space else "the disk"
    if what == "quota":
        return f"quota exceeded on {mount}"
    if what == "read-only":
        return f"{mount} is read-only"
    if what == "other" or space is None:
        name = errno.errorcode.get(error.errno or 0, "?")
        return f"{name} ({error.strerror}) on {mount}"
    used = _percent(space.bytes_total - space.bytes_free, space.bytes_total)
    if what == "inodes" and space.inodes_total is not None and space.inodes_free is not None:
        taken = space.inodes_total - space.inodes_free
        return f"no inodes left on {mount} ({taken:,} of {space.inodes_total:,} used; bytes {used} %)"
    inodes = ""
    if space.inodes_total is not None and space.inodes_free is not None:
        inodes = f"; inodes {_percent(space.inodes_total - space.inodes_free, space.inodes_total)} %"
    return f"no bytes left on {mount} (needs {human(need_bytes)}, {human(space.bytes_free)} free{inodes})"


def reserve(directory: StrPath, need_bytes: int) -> None:
    """Ask the kernel whether `need_bytes` fit into `directory`, without writing them.

    Used only where the counters already say no: they can be wrong (network file systems, reserved blocks), the
    kernel's own answer cannot, and it costs no half-written checkpoint.

    Raises:
        OSError: They do not fit, or not a single file does.
    """
    if not hasattr(os, "posix_fallocate"):
        return  # macOS: the write itself will tell
    path = os.path.join(directory, "reserve")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(fd, 0, max(1, need_bytes))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(fd)
        remove(path)


def human(n: float) -> str:
    """Return `n` bytes as people read them, in powers of ten: ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 999.5:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def _mount_of(path: str) -> str:
    while not os.path.ismount(path):
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    return path
