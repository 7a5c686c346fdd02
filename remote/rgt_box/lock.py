"""Advisory locks that die with their holder, so that a crash never leaves one behind."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from rgt_box import files, jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Lock:
    """An exclusive lock on a file, held until `release` or the end of the process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, wait: float = 0.5) -> bool:
        """Take the lock.

        Args:
            wait: Seconds to keep trying: who only *looks* at a lock holds it shared for an instant.

        Returns:
            False when another process holds it.

        Raises:
            OSError: when the file cannot be made, is no regular file, or the file system has no locks.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # all that lock one device wait for each other
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", self.path)
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._fd = fd
                return True
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    os.close(fd)
                    raise
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return False
            time.sleep(0.01)

    def write(self, value: dict[str, Any]) -> None:
        """Say in the lock file who holds it (in place: the inode carries the lock)."""
        if self._fd is not None:
            try:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, jsonline.line(value), 0)
            except OSError:
                pass  # a full disk must not cost the lock itself

    def release(self) -> None:
        """Give the lock back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_held(path: str) -> bool:
    """Tell whether some process holds the lock at `path`."""
    try:
        fd = files.open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(fd)
    return False


def holder(path: str) -> dict[str, Any]:
    """Return what the holder wrote into the lock file; {} where nothing legible stands."""
    return files.read_json(path, 65536) or {}
