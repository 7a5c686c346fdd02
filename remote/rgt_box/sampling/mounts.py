"""The mount table: which file system holds a path, found without touching one that may hang."""

from __future__ import annotations

import os
import select

from rgt_box import procstat
from rgt_box.sampling.cgroup import unescape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    Table = List[Tuple[str, str]]

LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay", "zfs", "f2fs", "devtmpfs")
)
"""File systems whose statvfs answers from memory; all others (NFS, FUSE, Lustre, …) may hang."""

LINKS = 40
"""Symbolic links followed in one path, as many as the kernel follows."""


def table() -> Table:
    """Return (mount point, type) of every mount, later ones (which cover earlier ones) last."""
    text = (procstat.read_bytes("/proc/self/mounts", 1 << 20) or b"").decode("utf-8", "replace")
    rows = [row.split() for row in text.splitlines()]
    return [(unescape(row[1]), row[2]) for row in rows if len(row) >= 3]


def of(path: str, mounts: Table) -> tuple[str, str]:
    """Return (mount point, type) of the mount that holds `path`, by its name alone: nothing here can hang."""
    best = ("/", "")
    wanted = os.path.normpath(path)
    for mount, kind in mounts:
        inside = mount == "/" or wanted == mount or wanted.startswith(mount + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best


def resolve(path: str, mounts: Table) -> str:
    """Follow the symbolic links of `path` as long as they lie on file systems that cannot hang.

    A link to a dead network mount must not be taken for a local directory. From the first part on that lies on
    a file system that may hang, the rest is left as it is.
    """
    todo = [part for part in os.path.normpath(path).split("/") if part]
    done = "/"
    followed = 0
    while todo:
        part = todo.pop(0)
        if part == "..":
            done = os.path.dirname(done)
            continue
        step = os.path.join(done, part)
        if of(step, mounts)[1] not in LOCAL:
            return os.path.join(step, *todo)
        try:
            target = os.readlink(step)
        except OSError:  # no link, or not there
            done = step
            continue
        followed += 1
        if followed > LINKS:
            return path
        if target.startswith("/"):
            done = "/"
        todo = [piece for piece in target.split("/") if piece not in ("", ".")] + todo
    return done


class Changes:
    """Tells when anything was mounted or unmounted, at one system call: the kernel marks the table's descriptor.

    Source: proc(5), ``/proc/PID/mounts``: "poll ... POLLERR | POLLPRI".
    """

    def __init__(self, path: str = "/proc/self/mounts") -> None:
        self._poll = select.poll()
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._poll.register(self._fd, select.POLLPRI)
        except OSError:
            pass  # then only `configure` looks again

    def any(self) -> bool:
        """Return True once for the changes since the last call."""
        return self._fd >= 0 and bool(self._poll.poll(0))

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
