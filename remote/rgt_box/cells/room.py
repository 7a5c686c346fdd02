"""How much room a file system has: bytes and inodes, asked so that a dead mount cannot hang the queue."""

from __future__ import annotations

import os

from rgt_box import background
from rgt_box.sampling import disks

TIMEOUT = 5.0
"""Seconds that a network mount gets to answer."""


class Room:
    """What is free where a path is, or will be.

    Attributes:
        path: What was asked about.
        device: Identifies the file system; paths with the same one share its room.
        mount: Its mount point.
        free_bytes: Free to an unprivileged user.
        free_inodes: None where the file system makes inodes as it goes.
    """

    __slots__ = ("device", "free_bytes", "free_inodes", "mount", "path")

    def __init__(self, path: str, device: int, stat: os.statvfs_result) -> None:
        self.path, self.device = path, device
        self.mount = disks.mount_of(os.path.realpath(path), disks.mount_table())[0]
        self.free_bytes = stat.f_bavail * (stat.f_frsize or stat.f_bsize)
        self.free_inodes = stat.f_favail if stat.f_files > 0 else None


def ask(path: str) -> tuple[Room | None, str | None]:
    """Return the room at `path`, which need not exist yet, or why it cannot be told."""
    table = disks.mount_table()
    # A link may lead to a network mount: where it ends counts.
    if disks.mount_of(disks.resolve(os.path.abspath(path), table), table)[1] in disks.LOCAL:
        try:
            return _ask(path), None
        except OSError as error:
            return None, background.describe(error)
    work = background.Background(lambda: _ask(path), 0.0, TIMEOUT)
    found, problem = work.poll(TIMEOUT)
    return found, problem or (None if found else "no answer for %d s" % TIMEOUT)


def _ask(path: str) -> Room:
    existing = os.path.abspath(path)
    while not os.path.exists(existing) and existing != "/":
        existing = os.path.dirname(existing)
    return Room(existing, os.stat(existing).st_dev, os.statvfs(existing))


def size(number: int) -> str:
    """Return bytes in the largest binary unit that leaves a whole part."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return "%.1f %s" % (number / factor, unit)
    return "%d bytes" % number
