"""SHA-256 of files that may be changing, and copies that are read back."""

from __future__ import annotations

import os

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

CHUNK = 1 << 20


class Changed(Exception):
    """The file was written to while it was read, twice in a row."""


def hasher() -> Any:
    """Return a new SHA-256."""
    import hashlib  # here: it brings libcrypto, which a verb that hashes nothing need not carry

    return hashlib.sha256()


def digest(fd: int, into: int | None = None) -> tuple[str, int]:
    """Return (SHA-256 in hex, bytes) of an open file, from its beginning.

    Args:
        fd: The file.
        into: A descriptor that everything is also written to.

    Raises:
        OSError: as reading and writing do.
    """
    found, total = hasher(), 0
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    os.lseek(fd, 0, os.SEEK_SET)
    while True:
        count = os.readv(fd, [buffer])
        if not count:
            return str(found.hexdigest()), total
        found.update(view[:count])
        total += count
        part = view[:count]
        while into is not None and part:
            part = part[os.write(into, part) :]


def identity(stat: os.stat_result) -> tuple[int, int, int, int, int]:
    """Return what changes whenever a file's content may have."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def steady(opened: Callable[[], int]) -> tuple[str, os.stat_result]:
    """Hash a file that was the same before and after it was read.

    Args:
        opened: Opens it; called once more after a change.

    Returns:
        (SHA-256 in hex, its stat).

    Raises:
        Changed: when it changed both times.
        OSError: when it cannot be read.
    """
    for _ in range(2):
        fd = opened()
        try:
            before = os.fstat(fd)
            found, total = digest(fd)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if identity(before) == identity(after) and total == after.st_size:
            return found, after
    raise Changed("changed while it was read")


def flush(fd: int) -> None:
    """Bring a written file to the disk, and out of the page cache: reading it back must ask the storage."""
    os.fsync(fd)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def of_path(path: str | bytes) -> str:
    """Return the SHA-256 of a regular file.

    Raises:
        OSError: when it cannot be read.
    """
    fd = files.open_regular(os.fsdecode(path))
    try:
        return digest(fd)[0]
    finally:
        os.close(fd)


def sync_folder(folder: str | bytes) -> None:
    """Bring a directory's entries to the disk, where the file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems cannot; the files themselves were flushed
    finally:
        os.close(fd)
