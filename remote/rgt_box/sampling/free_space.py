"""Free space at a path, asked so that a dead mount cannot hang the agent."""

from __future__ import annotations

import errno
import os

from rgt_box import background, files
from rgt_box.sampling import disks

TIMEOUT = 5.0
"""Seconds that a network mount gets to answer."""


class FreeSpace:
    """Free space at a path, which need not exist yet.

    Attributes:
        path: The nearest existing directory.
        device: ID of the file system; paths with the same ID share its space.
        mount: Its mount point.
        free_bytes: Free for an unprivileged user.
        free_inodes: None if the file system creates inodes as needed.
    """

    __slots__ = ("device", "free_bytes", "free_inodes", "mount", "path")

    def __init__(self, path: str, device: int, stat: os.statvfs_result) -> None:
        self.path = path
        self.device = device
        self.mount = disks.find_mount(os.path.realpath(path), disks.mount_table())[0]
        self.free_bytes = stat.f_bavail * (stat.f_frsize or stat.f_bsize)
        # btrfs reports 0 inodes in total, which means no limit.
        self.free_inodes = stat.f_favail if stat.f_files > 0 else None


def measure_free_space(path: str) -> tuple[FreeSpace | None, str | None]:
    """Return the free space at `path`, which need not exist yet, or why it is unknown."""
    if _is_local(path):
        try:
            return _stat_file_system(path), None
        except OSError as error:
            return None, background.error_text(error)
    work = background.Background(lambda: _stat_file_system(path), 0.0, TIMEOUT)
    found, problem = work.poll(TIMEOUT)
    return found, problem or (None if found else "no answer for %d s" % TIMEOUT)


def explain_unwritable(path: str) -> str | None:
    """Return why `path`, which need not exist yet, cannot be written; None if it can.

    A directory is created in the nearest existing one and removed: permission bits say too little
    about root, network mounts and read-only file systems. A full disk counts as writable.
    """
    if _is_local(path):
        return _try_directory(path)
    work = background.Background(lambda: _try_directory(path) or "", 0.0, TIMEOUT)
    found, problem = work.poll(TIMEOUT)
    if found is None:
        return problem or "no answer for %d s" % TIMEOUT
    return found or None


def _try_directory(path: str) -> str | None:
    # A link whose target is not mounted exists: nothing can be created below it.
    existing = _nearest_existing(path, links=True)
    trial = os.path.join(existing, ".rgt-write-%s" % files.unique_suffix())
    try:
        os.mkdir(trial, 0o700)
        os.rmdir(trial)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None
        return "%s: %s" % (existing, os.strerror(error.errno or 0))
    return None


def _is_local(path: str) -> bool:
    table = disks.mount_table()
    # A link may lead to a network mount, so its target decides.
    target = disks.resolve_links(os.path.abspath(path), table)
    return disks.find_mount(target, table)[1] in disks.LOCAL


def _nearest_existing(path: str, links: bool = False) -> str:
    existing = os.path.abspath(path)
    exists = os.path.exists
    if links:
        exists = os.path.lexists
    while not exists(existing) and existing != "/":
        existing = os.path.dirname(existing)
    return existing


def _stat_file_system(path: str) -> FreeSpace:
    # The run's directory does not exist yet; statvfs needs one that does.
    existing = _nearest_existing(path)
    return FreeSpace(existing, os.stat(existing).st_dev, os.statvfs(existing))
