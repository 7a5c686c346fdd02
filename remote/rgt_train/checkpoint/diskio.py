"""Durable file I/O: whole-file writes with fsync, patient reads, and appends that never fail.

A file is damaged if it is missing, is not a file, or has another length or checksum. Any other
error (EIO of a bad sector or a lost volume, ESTALE, EACCES, EMFILE, ENOMEM, …) gives no information
about the bytes. Such an error is retried for a short time; if it persists, the launch ends and
nothing on the disk changes.

Measured for 500 MB on ext4: O_DIRECT takes 160 to 260 ms until it is durable, buffered writing with
an fsync 235 to 1,500 ms, and O_DIRECT has no outliers. If the file system has no O_DIRECT (tmpfs,
some FUSE), the data is written in pieces that are flushed and dropped from the cache, so that they
do not push out the training's own pages.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import time
from collections import deque
from contextlib import suppress
from typing import Callable, Sequence, TypeVar, Union

from rgt_train.exits import UsageError

StrPath = Union[str, "os.PathLike[str]"]


def fsync_dir(path: StrPath) -> None:
    """Make the names inside the directory `path` durable.

    Raises:
        OSError: The directory could not be synced. File systems that cannot sync a directory at all
            (EINVAL, ENOTSUP) are accepted, because nothing better exists there.
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
    """Make the directory `path` and its missing parents, durably.

    The name of the last one is synced even if it exists: the process that made it may have been
    killed before that.

    Raises:
        OSError: It is missing and cannot be made.
    """
    target = os.path.abspath(path)
    parent = os.path.dirname(target)
    if not os.path.isdir(target):
        if parent != target:
            make_dirs(parent)
        os.makedirs(target, exist_ok=True)
    with suppress(OSError):  # a parent that we may not read: it is not ours to make durable
        fsync_dir(parent)


def write_all(fd: int, data: bytes | memoryview, path: StrPath) -> None:
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
    """Create `path` with `data` and fsync it; the name is durable after `fsync_dir` of its parent.

    Raises:
        OSError: Also if `path` exists: a published file is never rewritten.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        write_all(fd, data, path)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: StrPath, data: bytes) -> None:
    """Replace `path` by `data`; a reader, or a crash, sees only the old or the new content.

    Raises:
        OSError: The old file is unchanged and no temporary file is left.
    """
    target = os.fspath(path)
    # In the same directory: a rename across file systems is not atomic.
    temporary = os.path.join(os.path.dirname(target), f".tmp-{os.path.basename(target)}")
    remove_path(temporary)
    try:
        write_file(temporary, data)
        os.replace(temporary, target)
    except OSError:
        remove_path(temporary)
        raise
    # The rename itself is durable only now.
    fsync_dir(os.path.dirname(target) or ".")


def remove_path(path: StrPath) -> None:
    """Remove a file or a tree if it exists; a failed removal is left for the next start."""
    # A link to a directory is unlinked: rmtree refuses it, and its target is not ours.
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        return


T = TypeVar("T")
PAUSES: Sequence[float] = (0.1, 0.5, 2.0)
"""Seconds between the attempts to read something."""
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)
"""Errors that mean the file does not exist: nothing of that name, or not a file."""


class Unreadable(UsageError):
    """A path that exists, as known so far, but cannot be read; its integrity is unknown.

    Args:
        path: The path that cannot be read.
        error: Why.
        else_move: Advice on what to move away if it cannot be repaired, and the consequence.
    """

    def __init__(self, path: str, error: OSError, else_move: str = "") -> None:
        self.path = path
        self.error = error
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        super().__init__(
            f"{path} cannot be read: {name} ({error.strerror or error}). Nothing was deleted: mend "
            f"what keeps it from being read and launch again{else_move}"
        )

    def of_checkpoint(self, directory: str) -> "Unreadable":
        """Return the same error for a file of the checkpoint in `directory`."""
        moved = f". If that cannot be mended, move {directory} away: a launch then does without it"
        return Unreadable(self.path, self.error, moved)


def retry_reading(path: str, work: Callable[[], T], pauses: Sequence[float] | None = None) -> T:
    """Return ``work()``, which reads `path`; an error that may pass is retried.

    Args:
        path: For the message.
        work: Reads; called again after an error.
        pauses: Seconds to wait after each failure but the last; None for `PAUSES`.

    Raises:
        OSError: There is no such file (see `ABSENT`).
        Unreadable: The content stays unknown.
    """
    waits = list(PAUSES if pauses is None else pauses)
    while True:
        try:
            return work()
        except OSError as error:
            # Certain, so not worth a retry.
            if error.errno in ABSENT:
                raise
            if not waits:
                raise Unreadable(path, error) from error
        time.sleep(waits.pop(0))


def list_names(path: str, pauses: Sequence[float] | None = None) -> list[str]:
    """Return the names in the directory `path`; empty if there is no such directory.

    Raises:
        Unreadable: It cannot be listed, which does not mean that it is empty.
    """
    try:
        return retry_reading(path, lambda: os.listdir(path), pauses)
    except OSError:
        return []


def is_dir(path: str) -> bool:
    """Return whether `path` is a directory.

    Raises:
        Unreadable: The answer is unknown.
    """
    try:
        return stat.S_ISDIR(retry_reading(path, lambda: os.stat(path)).st_mode)
    except OSError:
        return False


def open_file(path: str) -> int:
    """Open a regular file for reading and return its descriptor.

    Raises:
        OSError: It is missing, or not a regular file (always EISDIR).
    """
    fd = os.open(
        path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    )  # a pipe must not keep us waiting
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, "not a regular file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_into(fd: int, offset: int, target: memoryview) -> int:
    """Fill `target` from the file at `offset`; return the bytes read: fewer at the end of the file.

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


def read_content(path: str, pauses: Sequence[float] | None = None) -> bytes:
    """Return the content of a small file.

    Raises:
        OSError: It is missing, or not a regular file.
        Unreadable: It cannot be read.
    """

    def read() -> bytes:
        with os.fdopen(open_file(path), "rb") as file:
            return file.read()

    return retry_reading(path, read, pauses)


ALIGN = 4096
"""Alignment of memory, offsets and lengths that O_DIRECT accepts on every known disk."""
CHUNK = 16 << 20
_FLUSH = 64 << 20
_SMALL = 1 << 20
_O_DIRECT = getattr(os, "O_DIRECT", 0)


def round_up_to_block(size: int) -> int:
    """Return `size` rounded up to whole blocks."""
    return -(-size // ALIGN) * ALIGN


def write_region(path: StrPath, view: memoryview, size: int) -> None:
    """Create `path` with the first `size` bytes of `view`, fsynced.

    Its directory still needs an fsync.

    Args:
        path: The target; it must not exist.
        view: At least `padded(size)` bytes, page-aligned if O_DIRECT is to be used.
        size: Length of the file in bytes.

    Raises:
        OSError: With `path` as its file name. The part already written stays.
    """
    target = os.fspath(path)
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            # Small files are not worth it: each O_DIRECT write waits for the disk.
            if size >= _SMALL and len(view) >= round_up_to_block(size) and _set_direct(fd, True):
                _write_direct(fd, view[: round_up_to_block(size)])
                # O_DIRECT wrote whole blocks: cut the padding off.
                os.ftruncate(fd, size)
            else:
                _write_buffered(fd, view[:size], 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, target) from error


def _write_direct(fd: int, view: memoryview) -> None:
    done = 0
    while done < len(view):
        try:
            written = os.write(fd, view[done : done + CHUNK])
        except OSError as error:
            # Some file systems accept the flag and refuse the write.
            if error.errno != errno.EINVAL:
                raise
            written = 0
        done += written
        # an unaligned or empty write: continue through the cache
        if written % ALIGN or not written:
            _set_direct(fd, False)
            _write_buffered(fd, view[done:], done)
            return


def _write_buffered(fd: int, view: memoryview, offset: int) -> None:
    begin = done = 0
    while done < len(view):
        done += os.write(fd, view[done : done + CHUNK])
        if done - begin >= _FLUSH:
            # Only clean pages can be dropped from the cache.
            os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
            _evict_from_page_cache(fd, offset + begin, done - begin)
            begin = done


def _set_direct(fd: int, on: bool) -> bool:
    if not _O_DIRECT:
        return False
    try:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | _O_DIRECT if on else flags & ~_O_DIRECT)
    except OSError:
        return False
    return True


def _evict_from_page_cache(fd: int, offset: int, length: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)


class LineAppender:
    """Appends lines (or records) to one file, each by one `write`, and never raises.

    The descriptor is opened once: appending to an existing file needs no inode, so that events
    still arrive when no file can be created. Lines that the disk refuses wait in memory, in order,
    and are written with the next one that fits; beyond 20,000 the oldest are dropped.

    Args:
        path: The file; created if missing.
        lines: Whether it holds lines: then a line truncated by a power loss is ended before the
            first new one.
    """

    def __init__(self, path: StrPath, *, lines: bool = True) -> None:
        self.path = os.fspath(path)
        self._lines = lines
        self._fd: int | None = None
        backlog = 20_000
        self._waiting: deque[bytes] = deque(maxlen=backlog)
        self._open_file()

    def append_line(self, line: str) -> bool:
        """Append `line` (without its newline); return False if it has to wait in memory."""
        return self.append_bytes(line.encode() + b"\n")

    def append_bytes(self, data: bytes) -> bool:
        """Append `data` unchanged; return False if it has to wait in memory."""
        if self._waiting or self._fd is None:
            self._keep_waiting(data)
            return self.flush()
        if self._write_whole(self._fd, data):
            return True
        self._keep_waiting(data)
        return False

    def _keep_waiting(self, data: bytes) -> None:
        # Lines that came together are counted one by one.
        if self._lines:
            self._waiting.extend(data.splitlines(keepends=True))
        else:
            self._waiting.append(data)

    def flush(self) -> bool:
        """Write the waiting lines; return True if none are left."""
        if self._fd is None:
            self._open_file()
        while self._waiting and self._fd is not None:
            if not self._write_whole(self._fd, self._waiting[0]):
                break
            self._waiting.popleft()
        return not self._waiting

    def close(self) -> None:
        """Write as many waiting lines as possible and close."""
        self.flush()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open_file(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            size = os.fstat(self._fd).st_size
            # A power loss or a full disk truncated the last line: ours must not be appended to it.
            torn = self._lines and size and os.pread(self._fd, 1, size - 1) != b"\n"
            if torn and not self._write_whole(self._fd, b"\n"):
                self._waiting.appendleft(b"\n")
        except OSError:
            return

    @staticmethod
    def _write_whole(fd: int, data: bytes) -> bool:
        try:
            written = os.write(fd, data)
        except OSError:
            return False
        if written == len(data):
            return True
        # a disk that fills up writes half a line: remove it again, this process is the only writer
        try:
            os.ftruncate(fd, os.fstat(fd).st_size - written)
        except OSError:
            return True  # half a line stays in the file; writing it again would not repair it
        return False
