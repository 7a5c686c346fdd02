"""Files that other processes write or read: opened safely, replaced atomically, read tolerantly."""

from __future__ import annotations

import errno
import os
import stat

from rgt_box import jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(path: str, follow_links: bool = True) -> int:
    """Open a regular file for reading. A pipe or a device is not even opened, and nothing is waited for.

    Args:
        path: The file.
        follow_links: False where somebody else may have chosen the path, or may write to a directory in it: then
            no part of it may be a symbolic link. What ``/proc/PID/fd`` names has none in it.

    Raises:
        OSError: when it cannot be opened, is no regular file, or a link stands in its path (``ELOOP``).
    """
    if follow_links:
        return _open_regular(path, path, None, _FLAGS)
    folder, name = os.path.split(path)
    at = os.open("/" if path.startswith("/") else ".", _FOLDER)
    try:
        for part in folder.split("/"):
            if part in ("", "."):
                continue
            try:
                below = os.open(part, _FOLDER, dir_fd=at)
            except NotADirectoryError:
                if stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode):
                    raise _is_link(path) from None
                raise
            os.close(at)
            at = below
        return _open_regular(name, path, at, _FLAGS | os.O_NOFOLLOW)
    finally:
        os.close(at)


def _open_regular(name: str, path: str, folder: int | None, flags: int) -> int:
    follow = not flags & os.O_NOFOLLOW
    # Looked at before: to open a pipe, and leave again, ends who writes to it; to open a device may do anything.
    mode = os.stat(name, dir_fd=folder, follow_symlinks=follow).st_mode
    if stat.S_ISLNK(mode):
        raise _is_link(path)
    if stat.S_ISREG(mode):
        fd = os.open(name, flags, dir_fd=folder)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", path)


def _is_link(path: str) -> OSError:
    return OSError(errno.ELOOP, "a symbolic link stands in its path", path)


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
        with open(open_regular(path), "rb") as file:
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
