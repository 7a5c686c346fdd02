"""Reading what must not be mistaken: a disk that does not answer is not a damaged file, nor an empty directory.

Damage is what the bytes say: a file that is not there, is no file, has another length or another checksum. Any other
error (EIO of a bad sector or a lost volume, ESTALE, EACCES, EMFILE, ENOMEM, …) says nothing about the bytes. Such an
error is waited for a little; where it stays, the launch ends and everything stays as it is.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import Callable, List, Optional, Sequence, TypeVar

from rgt_train.exits import UsageError

T = TypeVar("T")
PAUSES: Sequence[float] = (0.1, 0.5, 2.0)
"""Seconds between the attempts to read something."""
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)
"""What says that there is no such file: nothing of that name, or something that is no file."""


class Unreadable(UsageError):
    """Something is there, as far as known, and the disk does not give it; nobody can say whether it is whole.

    Args:
        path: What cannot be read.
        error: Why.
        else_move: What may be moved away where it cannot be mended, and what follows from that.
    """

    def __init__(self, path: str, error: OSError, else_move: str = "") -> None:
        self.path, self.error = path, error
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        super().__init__(
            f"{path} cannot be read: {name} ({error.strerror or error}). Nothing was deleted: mend what keeps it from "
            f"being read and launch again{else_move}"
        )

    def of_checkpoint(self, directory: str) -> "Unreadable":
        """Return the same, of a file of the checkpoint in `directory`."""
        moved = f". If that cannot be mended, move {directory} away: a launch then does without it"
        return Unreadable(self.path, self.error, moved)


def patiently(path: str, work: Callable[[], T], pauses: Optional[Sequence[float]] = None) -> T:
    """Return ``work()``, which reads `path`; an error that may pass is waited for.

    Args:
        path: For the message.
        work: Reads; called again after an error.
        pauses: Seconds to wait after each failure but the last; None for `PAUSES`.

    Raises:
        OSError: There is no such file (see `ABSENT`).
        Unreadable: It stays unknown what is there.
    """
    waits = list(PAUSES if pauses is None else pauses)
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno in ABSENT:
                raise
            if not waits:
                raise Unreadable(path, error) from error
        time.sleep(waits.pop(0))


def listing(path: str, pauses: Optional[Sequence[float]] = None) -> List[str]:
    """Return the names in the directory `path`; none where there is no such directory.

    Raises:
        Unreadable: It cannot be listed; that is not an empty one.
    """
    try:
        return patiently(path, lambda: os.listdir(path), pauses)
    except OSError:
        return []


def is_dir(path: str) -> bool:
    """Say whether `path` is a directory.

    Raises:
        Unreadable: Nobody can say.
    """
    try:
        return stat.S_ISDIR(patiently(path, lambda: os.stat(path)).st_mode)
    except OSError:
        return False


def open_file(path: str) -> int:
    """Open a regular file for reading and return its descriptor.

    Raises:
        OSError: It is not there, or no regular file (EISDIR, whatever it is).
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not keep us waiting
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, "not a regular file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_into(fd: int, offset: int, target: memoryview) -> int:
    """Fill `target` with what the file has from `offset` on; return how many bytes that were: fewer at its end.

    Raises:
        OSError: It cannot be read.
    """
    done = 0
    while done < len(target):
        if hasattr(os, "preadv"):
            count = os.preadv(fd, [target[done:]], offset + done)
        else:
            piece = os.pread(fd, len(target) - done, offset + done)
            count = len(piece)
            target[done : done + count] = piece
        if not count:
            break
        done += count
    return done


def content(path: str, pauses: Optional[Sequence[float]] = None) -> bytes:
    """Return the content of a small file.

    Raises:
        OSError: It is not there, or no regular file.
        Unreadable: It cannot be read.
    """

    def read() -> bytes:
        with os.fdopen(open_file(path), "rb") as file:
            return file.read()

    return patiently(path, read, pauses)
