"""File operations that hold after a power loss: write whole, fsync, rename, fsync the directory."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from typing import Union

StrPath = Union[str, "os.PathLike[str]"]


def fsync_dir(path: StrPath) -> None:
    """Make the names inside the directory `path` durable.

    Raises:
        OSError: The directory could not be synced. File systems that cannot sync a directory at all (EINVAL,
            ENOTSUP) are accepted, because nothing better exists there.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        os.close(fd)


def make_dirs(path: StrPath) -> None:
    """Make the directory `path` and those above it where they are missing, durably.

    The name of the last one is synced also where it is there already: whoever made it may have been killed before that.

    Raises:
        OSError: It is not there and cannot be made.
    """
    target = os.path.abspath(path)
    parent = os.path.dirname(target)
    if not os.path.isdir(target):
        if parent != target:
            make_dirs(parent)
        os.makedirs(target, exist_ok=True)
    with suppress(OSError):  # a parent that we may not read: it is not ours to make durable
        fsync_dir(parent)


def write_all(fd: int, data: Union[bytes, memoryview], path: StrPath) -> None:
    """Write all of `data` to `fd`.

    Raises:
        OSError: With `path` as its file name, which a bare `os.write` would not know.
    """
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_file(path: StrPath, data: bytes) -> None:
    """Create `path` with `data` and fsync it; the name itself is durable after `fsync_dir` of its parent.

    Raises:
        OSError: Also where `path` exists: a published file is never written again.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        write_all(fd, data, path)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: StrPath, data: bytes) -> None:
    """Replace `path` by `data`; a reader, or a crash, sees the old or the new content and nothing between.

    Raises:
        OSError: The old file is untouched and no temporary is left.
    """
    target = os.fspath(path)
    temporary = os.path.join(os.path.dirname(target), f".tmp-{os.path.basename(target)}")
    remove(temporary)
    try:
        write_file(temporary, data)
        os.replace(temporary, target)
    except OSError:
        remove(temporary)
        raise
    fsync_dir(os.path.dirname(target) or ".")


def remove(path: StrPath) -> None:
    """Remove a file or a tree if it is there; what cannot be removed stays for the next start."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        return
