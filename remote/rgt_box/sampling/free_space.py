"""Free space at a path, asked so that a dead mount cannot hang the agent."""

from __future__ import annotations

import os

from rgt_box import background
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
    table = disks.mount_table()
    # A link may lead to a network mount, so its target decides.
    target = disks.resolve_links(os.path.abspath(path), table)
    if disks.find_mount(target, table)[1] in disks.LOCAL:
        try:
            return _stat_file_system(path), None
        except OSError as error:
            return None, background.error_text(error)
    work = background.Background(lambda: _stat_file_system(path), 0.0, TIMEOUT)
    found, problem = work.poll(TIMEOUT)
    return found, problem or (None if found else "no answer for %d s" % TIMEOUT)


def _stat_file_system(path: str) -> FreeSpace:
    existing = os.path.abspath(path)
    # The run's directory does not exist yet; statvfs needs one that does.
    while not os.path.exists(existing) and existing != "/":
        existing = os.path.dirname(existing)
    return FreeSpace(existing, os.stat(existing).st_dev, os.statvfs(existing))
