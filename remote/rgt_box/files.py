"""Files shared with other processes: safe opening, atomic replacement, tolerant reads, locks."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time

from rgt_wire import size_text

from rgt_box import jsonline

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject

# O_NONBLOCK and O_NOCTTY: a pipe or a terminal may take the file's place before the open.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# O_PATH opens nothing: devices, pipes and unreadable directories are safe to walk through.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
KEPT_SECONDS = 1.0
"""Seconds after which the path to a directory is resolved again: another one may have taken its
name.
"""
_ROOT = re.compile(r"/proc/\d+/root(?=/)")
_DESCRIPTOR = re.compile(r"/proc/(?:\d+|self)/fd/\d+")
"""Kernel links that lead directly to the directory or file that a process has."""


def open_regular(path: str, follow_links: bool = False) -> int:
    """Open a regular file for reading, without blocking. A pipe or a device is not opened at all.

    Args:
        path: The file.
        follow_links: Follow every symbolic link in the path. Use False if another user may have
            chosen the path or may write to a directory in it: then only links of root, of this user
            and of the file's own owner are followed, so that no user can pass off another's file as
            their own.

    Raises:
        OSError: It cannot be opened, is not a regular file, or has such a link in its path
            (``ELOOP``).
    """
    if not follow_links:
        if _DESCRIPTOR.fullmatch(path):
            return _reopen_by_descriptor(path)
        return _walk_to(path)
    # Check before opening: opening and closing a pipe ends its writer; opening a device may do
    # anything.
    return _open_if_regular(path, path, None, os.stat(path), _FLAGS)


def _reopen_by_descriptor(path: str) -> int:
    """Open the file of a process's descriptor.

    It is pinned first, because the process may put a device at that number at any moment.
    """
    # The entries of /proc/PID/fd are links, so this one must be followed.
    held = os.open(path, _LOOK & ~os.O_NOFOLLOW)
    try:
        return _open_if_regular("/proc/self/fd/%d" % held, path, None, os.fstat(held), _FLAGS)
    finally:
        os.close(held)


def _open_if_regular(
    name: str, path: str, folder: int | None, seen: os.stat_result, flags: int
) -> int:
    if stat.S_ISREG(seen.st_mode):
        fd = os.open(name, flags, dir_fd=folder)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", path)


def _walk_to(path: str) -> int:
    """Open the file at the end of a path, as `open_regular` describes."""
    inside = _ROOT.match(path)
    if inside:
        start = inside.group() + "/"
    elif path.startswith("/"):
        start = "/"
    else:
        start = "."
    parts = path[inside.end() if inside else 0 :].split("/")[::-1]
    made_by: set[int] = set()
    links = 0
    at = os.open(start, _LOOK & ~os.O_NOFOLLOW)
    try:
        # Maximum number of links in one path, the same as the kernel's.
        most_links = 40
        while parts:
            name = parts.pop()
            # ".." at the root of a container's files would lead out of it to ours.
            if name in ("", ".") or (name == ".." and _is_same(at, start)):
                continue
            fd = os.open(name, _LOOK, dir_fd=at)
            try:
                seen = os.fstat(fd)
                if stat.S_ISLNK(seen.st_mode):
                    # Only the owner of a link can choose its target.
                    made_by.add(seen.st_uid)
                    links += 1
                    # Of the opened link, not of the path: that may be another link by now.
                    target = os.readlink("", dir_fd=fd)
                    parts += target.split("/")[::-1]
                    if links > most_links:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if target.startswith("/"):
                        at = _close_and_return(
                            at, os.open(start if inside else "/", _LOOK & ~os.O_NOFOLLOW)
                        )
                elif stat.S_ISDIR(seen.st_mode) and any(parts):
                    at, fd = fd, at
                # Checked at the end, when the owner of the file is known.
                elif made_by - {0, os.geteuid(), seen.st_uid}:
                    raise OSError(errno.ELOOP, "another user's symbolic link is in its path", path)
                elif any(parts):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                else:
                    return _open_if_regular(name, path, at, seen, _FLAGS | os.O_NOFOLLOW)
            finally:
                os.close(fd)
    finally:
        os.close(at)
    raise OSError(errno.EINVAL, "not a regular file", path)


def open_folder(path: str, flags: int = _LOOK) -> int:
    """Open a directory by its resolved path; fail if a part of it was replaced by a symbolic link.

    Args:
        path: Absolute, as returned by `os.path.realpath`.
        flags: Flags for the directory itself; by default it can be entered, but not listed.

    Raises:
        OSError: It cannot be opened, is not a directory, or has a link in its path (``ELOOP``).
    """
    names = [name for name in path.split("/") if name]
    at = os.open("/", (_LOOK if names else flags) & ~os.O_NOFOLLOW | os.O_DIRECTORY)
    # Step by step: O_NOFOLLOW guards only the last part of a path.
    for number, name in enumerate(names, 1):
        try:
            below = os.open(
                name, (flags if number == len(names) else _LOOK) | os.O_DIRECTORY, dir_fd=at
            )
        except OSError as error:
            if _is_link(name, at):
                raise _replaced_by_link_error(path) from error
            # With the full path; the error names only one part of it.
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            os.close(at)
        at = below
    return at


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _replaced_by_link_error(path: str) -> OSError:
    return OSError(
        errno.ELOOP, "it, or a directory in its path, was replaced by a symbolic link", path
    )


class CachedOpener:
    """Opens many files by their resolved paths without following links; caches the directory."""

    def __init__(self) -> None:
        self._folder = ""
        self._fd = -1
        self._until = 0.0

    def open_file(self, path: str) -> int:
        """Open a regular file for reading.

        Args:
            path: Absolute, as listed, with all links in its path resolved.

        Raises:
            OSError: It cannot be opened, is not a regular file, or has a link in its path
                (``ELOOP``).
        """
        folder, _, name = path.rpartition("/")
        if not path.startswith("/"):
            raise OSError(errno.EINVAL, "not an absolute path", path)
        if self._fd >= 0 and folder == self._folder and time.monotonic() < self._until:
            try:
                return self._open_in_folder(name, path)
            except OSError:
                pass  # another directory may have taken this one's name
        self.close()
        self._fd = open_folder(folder)
        self._folder, self._until = folder, time.monotonic() + KEPT_SECONDS
        return self._open_in_folder(name, path)

    def _open_in_folder(self, name: str, path: str) -> int:
        seen = os.stat(name or ".", dir_fd=self._fd, follow_symlinks=False)
        if stat.S_ISLNK(seen.st_mode):
            raise _replaced_by_link_error(path)
        if stat.S_ISDIR(seen.st_mode):
            text = "it is now a directory, not the listed file; pull again to fetch its files"
            raise OSError(errno.EISDIR, text, path)
        return _open_if_regular(name, path, self._fd, seen, _FLAGS | os.O_NOFOLLOW)

    def close(self) -> None:
        """Close the directory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_same(folder: int, path: str) -> bool:
    """Return whether `folder` is the directory at `path`, which ``..`` must not leave."""
    return os.path.samestat(os.fstat(folder), os.stat(path))


def _close_and_return(old: int, new: int) -> int:
    os.close(old)
    return new


def open_appending(path: str, mode: int = 0o600) -> int:
    """Open a regular file for appending, or create it. A pipe without a reader does not block.

    Raises:
        OSError: It cannot be opened or is not a regular file.
    """
    try:
        # Before the open: opening a pipe for writing would already wake its reader.
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        regular = True  # it is created, or the target of a link is
    if regular:
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, mode
        )
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", path)


def is_torn(path: str) -> bool:
    """Return whether the last line of a file has no newline.

    Raises:
        OSError: It cannot be opened or read.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        return size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, with as many writes as needed."""
    view = memoryview(data)
    while view:
        # A write may be short, for example near a quota or after a signal.
        view = view[os.write(fd, view) :]


def replace_file(path: str, data: bytes, sync: bool = False, mode: int = 0o600) -> None:
    """Write `data` to `path` through a temporary file and a rename.

    Args:
        path: The file to replace.
        data: Its complete new content.
        sync: Also flush to the disk before the rename.
        mode: Permissions of the new file.

    Raises:
        OSError: It cannot be written; `path` is then unchanged and no temporary file is left.
    """
    temporary = "%s.tmp-%s" % (path, unique_suffix())
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            write_all(fd, data)
            if sync:
                # Before the rename: after a crash the name must not lead to an empty file.
                os.fsync(fd)
        finally:
            os.close(fd)
        # In the same directory, so that the rename is atomic.
        os.rename(temporary, path)
    except OSError:
        unlink_if_exists(temporary)
        raise


def unique_suffix() -> str:
    """Return a suffix for temporary names that no other process uses.

    A pid alone is not enough: machines that share a directory may have the same one.
    """
    return "%d-%s" % (os.getpid(), os.urandom(4).hex())


def write_json(path: str, value: JsonObject) -> None:
    """Replace `path` with `value` as JSON."""
    replace_file(path, jsonline.encode_line(value))


def read_json(path: str, limit: int = 8 << 20) -> JsonObject | None:
    """Return the JSON object at `path`; None if it is missing, too large or broken."""
    data = read_file(path, limit)
    if data is None:
        return None
    return jsonline.loads_dict(data)


def read_file(path: str, limit: int = 8 << 20) -> bytes | None:
    """Return the content of a regular file of at most `limit` bytes; None otherwise."""
    try:
        return read_existing(path, limit)
    except OSError:
        return None


def read_existing(path: str, limit: int = 8 << 20) -> bytes | None:
    """Return the content of a regular file; None if it does not exist.

    For callers that replace the file, or report what it contains: `read_file` makes no difference
    between a missing file and one that cannot be read.

    Raises:
        OSError: It cannot be read, or is larger than `limit` bytes.
    """
    try:
        with open(open_regular(path), "rb") as file:
            # One byte more distinguishes a larger file from one of exactly `limit` bytes.
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {size_text(limit)}", path)
    return data


def read_tail(path: str, length: int, since: int = 0) -> bytes:
    """Return the last `length` bytes of a file, limited to those after byte `since`.

    Empty if it cannot be read.
    """
    try:
        with open(open_regular(path), "rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - length))
            return file.read(length)
    except OSError:
        return b""


def unlink_if_exists(path: str | bytes) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except OSError:
        pass


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a directory or below it, by name only."""
    return (path.rstrip("/") + "/").startswith(folder.rstrip("/") + "/")


def is_missing(path: str) -> bool:
    """Return whether nothing is there; unlike `os.path.exists`, an error proves nothing."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR)
    return False


def size_or_zero(path: str | bytes) -> int:
    """Return the size of a file, or 0."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def sync_path(path: str) -> None:
    """Flush a file, or a directory's entries, to the disk.

    Raises:
        OSError: The flush failed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def signature(path: str) -> tuple[int, int, int] | None:
    """Return (inode, size, mtime in ns), which changes whenever the file does.

    Return None if it is missing.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The inode as well: a replaced file may have the same size and mtime.
    return found.st_ino, found.st_size, found.st_mtime_ns


class FileLock:
    """An exclusive file lock, held until `release` or the end of the process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, wait: float = 0.5) -> bool:
        """Acquire the lock.

        Args:
            wait: Seconds to keep trying: `is_locked` holds the lock shared for an instant.

        Returns:
            False if another process holds it.

        Raises:
            OSError: The file cannot be created, is not regular, or the file system has no locks.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a device's lock is shared
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", self.path)
        deadline = time.monotonic() + wait
        while True:
            try:
                # flock instead of lockf: POSIX locks end as soon as the process closes any
                # descriptor of the file.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._fd = fd
                return True
            except OSError as error:
                # NFS maps flock to POSIX locks, which may answer EACCES.
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    os.close(fd)
                    raise
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return False
            time.sleep(0.01)

    def is_in_place(self) -> bool:
        """Return whether the locked file is still the one at its path; True if unknown."""
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def write_owner(self, value: JsonObject) -> None:
        """Write the owner into the lock file, in place because the inode has the lock."""
        if self._fd is not None:
            try:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, jsonline.encode_line(value), 0)
            except OSError:
                pass  # a full disk must not prevent the lock itself

    def release(self) -> None:
        """Release the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_locked(path: str) -> bool:
    """Return whether a process holds the lock at `path`."""
    try:
        fd = open_regular(path)
    except OSError:
        return False
    try:
        # Shared: two processes that test at once must not see each other as the holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(fd)
    return False


def lock_holder(path: str) -> JsonObject:
    """Return what the lock's owner wrote into its file; {} if it is unreadable."""
    return read_json(path, 65536) or {}
