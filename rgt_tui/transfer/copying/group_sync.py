"""Flushes many small files to disk at once: one `syncfs` costs less than an fsync for each.

It is used only where it says so when a write has failed: a local file system that is known here, on a Linux from 5.8 on
(https://man7.org/linux/man-pages/man2/syncfs.2.html). Everywhere else each file is synced by itself.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

SAYS_SO = 5, 8
"""From this Linux on `syncfs` reports what could not be written since its descriptor was opened."""
LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs"))
"""Not FUSE, whose server is not told; nor a network's."""
MOST = 512
"""Files that are brought to the disk, and take their names, together."""
T = TypeVar("T")


class GroupSync:
    """Brings everything that was written to one file system to the disk.

    Args:
        folder: A directory of it.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        import ctypes  # here: only a pull needs it

        self._call = ctypes.CDLL(None, use_errno=True).syncfs
        self._errno = ctypes.get_errno
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._fd).st_dev

    def covers(self, fd: int) -> bool:
        """Tell whether an open file is on this file system: another one may be mounted, or linked to, below."""
        return os.fstat(fd).st_dev == self._device

    def sync(self) -> None:
        """Wait until all is on the disk that was written before.

        Raises:
            OSError: some of it could not be written.
        """
        if self._call(self._fd):
            number = self._errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        """Close the file system's descriptor."""
        os.close(self._fd)


def group_sync(folder: Path) -> GroupSync | None:
    """Return what syncs the file system of a directory; None where each file has to be synced by itself."""
    if sys.platform != "linux" or _version(os.uname().release) < SAYS_SO:
        return None
    try:
        found = folder.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        if file_system(mounts, os.major(found), os.minor(found)) in LOCAL:
            return GroupSync(folder)
    except (OSError, AttributeError):  # no such call in this C library
        pass
    return None


def file_system(mounts: str, major: int, minor: int) -> str:
    """Return the type of the file system with these numbers, as ``/proc/self/mountinfo`` has it; "" = not known."""
    for line in mounts.splitlines():
        words = line.split()
        if words[2:3] == [f"{major}:{minor}"] and "-" in words:
            return "".join(words[words.index("-") + 1 :][:1])
    return ""


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


class Gatherer(Generic[T]):
    """A thread that does what has gathered while it did what had gathered before.

    Args:
        work: What it does with it, in its order; it raises nothing.
    """

    def __init__(self, work: Callable[[list[T]], None]) -> None:
        self._work = work
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rgt-publish", daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Add something."""
        self._queue.put(item)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            some = [item]
            with contextlib.suppress(queue.Empty):
                while len(some) < MOST:
                    item = self._queue.get_nowait()
                    if item is None:
                        self._work(some)
                        return
                    some.append(item)
            self._work(some)

    def close(self) -> None:
        """Wait until all is done, and end the thread."""
        self._queue.put(None)
        self._thread.join()
