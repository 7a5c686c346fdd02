"""Small files that other processes read: replaced atomically, read tolerantly."""

from __future__ import annotations

import os

from rgt_box import jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however short each write turns out."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def replace(path: str, data: bytes, sync: bool = False, mode: int = 0o600) -> None:
    """Put `data` at `path` by temporary file and rename.

    Args:
        path: The file to replace.
        data: Its whole new content.
        sync: Also flush to the disk before the rename.
        mode: Permissions of the new file.

    Raises:
        OSError: when it cannot be written; `path` is then as it was and no temporary file is left.
    """
    temporary = "%s.tmp-%d" % (path, os.getpid())
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            write_all(fd, data)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        unlink(temporary)
        raise


def write_json(path: str, value: dict[str, Any]) -> None:
    """Replace `path` by `value` as JSON."""
    replace(path, jsonline.line(value))


def read_json(path: str, limit: int = 8 << 20) -> dict[str, Any] | None:
    """Return the JSON object at `path`; None when it is missing, too large or broken."""
    data = read(path, limit)
    return None if data is None else jsonline.loads_dict(data)


def read(path: str, limit: int = 8 << 20) -> bytes | None:
    """Return the content of a regular file of at most `limit` bytes; None otherwise."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def unlink(path: str) -> None:
    """Remove a file if it is there."""
    try:
        os.unlink(path)
    except OSError:
        pass


def signature(path: str) -> tuple[int, int, int] | None:
    """Return (inode, size, mtime in ns), which changes whenever the file does; None when it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
