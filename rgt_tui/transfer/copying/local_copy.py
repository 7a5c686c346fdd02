"""Writes a box's bytes to local files: temporary file, flush, rename.

A good copy is never replaced.

A copy gets its name only when it is completely on disk. An existing file with that name is replaced
if it is a prefix of the new one. Otherwise one of the two is renamed, so that both exist
afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import queue
import re
import shlex
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.transfer.copying.box_listing import LONGEST_NAME
from rgt_tui.transfer.ledger import FileRow, FileStamp, sha256_of

FULL = (errno.ENOSPC, errno.EDQUOT)
OF_ONE = (
    errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EILSEQ,
    errno.EINVAL,
    errno.EACCES, errno.EPERM, errno.ELOOP, errno.EFBIG,
)  # fmt: skip
"""Errors that concern one file, not all later ones."""
READ_BYTES = 1 << 20
"""Block size for reading back: reusing the memory avoids page faults."""
SAYS_SO = 5, 8
"""From this Linux version on, `syncfs` reports write errors since its descriptor was opened."""
LOCAL_FILE_SYSTEMS = frozenset(("ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs"))
"""File systems where `syncfs` is complete. Not FUSE, whose server is not notified, nor network file
systems.
"""
T = TypeVar("T")


class LandingFailed(Exception):
    """This machine cannot store the data; the message has the file and the reason.

    Finished files are kept.
    """


def write_failure(path: str, needed: int, destination: Path, error: OSError) -> LandingFailed:
    """Return the error for a file of the box that could not be written."""
    if error.errno in FULL:
        return LandingFailed(
            translate(
                "the disk under {destination} is full: {path} needs {needed:,} bytes, "
                "{destination_2} are free; make room and pull again: what has arrived is kept",
                destination=destination,
                path=path,
                needed=needed,
                destination_2=free_space_text(destination),
            )
        )
    blocking = _file_in_the_path(error)
    if blocking is not None:
        aside = shlex.join(
            ["mv", "-n", blocking, version_path(blocking, sha256_of(Path(blocking))[0])]
        )
        return LandingFailed(
            translate(
                "cannot write {path}: {blocking} is a file here and a directory on the box now; it "
                "is kept. To go on, move it with `{aside}` and pull again",
                path=path,
                blocking=blocking,
                aside=aside,
            )
        )
    where = ""
    if error.filename:
        where = f" ({error.filename})"
    return LandingFailed(
        translate(
            "cannot write {path} below {destination}{where}: {strerror}",
            path=path,
            destination=destination,
            where=where,
            strerror=error.strerror or error,
        )
    )


def _file_in_the_path(error: OSError) -> str | None:
    """Return the regular file in place of a directory that must be created.

    None = another problem.
    """
    if error.errno not in (errno.ENOTDIR, errno.EEXIST) or not error.filename:
        return None
    path = Path(error.filename)
    for candidate in (path, *path.parents):
        try:
            found = candidate.lstat()
        except OSError:
            continue  # a path below a file cannot exist
        if stat.S_ISREG(found.st_mode):
            return str(candidate)
        return None
    return None


def free_space_text(folder: Path) -> str:
    """Return the free bytes as text."""
    try:
        return f"{shutil.disk_usage(folder).free:,} bytes"
    except OSError:
        return "an unknown number of bytes"


class PartFile:
    """The unfinished copy of one file. Its ranges may arrive in any order.

    Args:
        path: Where it is kept.
        size: Its final size; longer leftovers are truncated.

    Raises:
        OSError: it cannot be opened, or another pull writes to it.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise OSError(errno.EBUSY, "another rgt writes to it right now", path) from None
        except OSError:
            pass  # this file system has no locks
        self.present = os.fstat(self._fd).st_size
        if self.present > size:
            # The file on the box has become shorter since.
            os.ftruncate(self._fd, size)
            self.present = size
        self._size = size
        self._done: dict[int, int] = {}
        self._hash = hashlib.sha256()
        self._hashed = self._next = 0
        self._mark = 0, self._hash
        """The hash at the beginning of the range that is hashed from memory."""
        self._buffer = bytearray(READ_BYTES)

    def write_chunks(self, offset: int, chunks: Sequence[bytes | memoryview]) -> int:
        """Write bytes; return the offset after them."""
        for at in range(0, len(chunks), 512):  # IOV_MAX is 1024
            some = chunks[at : at + 512]
            left = sum(map(len, some))
            wrote = os.pwritev(self._fd, some, offset)
            if wrote < left:
                rest = b"".join(some)
                while wrote < left:
                    wrote += os.pwrite(self._fd, rest[wrote:], offset + wrote)
            offset += left
        return offset

    def hash_range(self, start: int, end: int) -> str:
        """Return the hash of a range written by this or an earlier pull."""
        found = hashlib.sha256()
        self._hash_from_disk(found, start, end, bytearray(READ_BYTES))
        return found.hexdigest()

    def mark_range(self, start: int, end: int) -> None:
        """Mark a range as good."""
        self._done[start] = end

    def hash_piece(self, start: int, offset: int, piece: bytes | memoryview) -> None:
        """Hash written bytes that are still in memory, if they are next in order.

        Same thread as `hash_good_ranges`.

        Args:
            start: Start of their range.
            offset: Their own offset.
            piece: The bytes.
        """
        # Ranges of several streams arrive in any order; the others are read back later.
        if offset != self._hashed:
            return
        # To return to, in case the stream breaks within this range.
        if offset == start:
            self._mark = start, self._hash.copy()
        self._hash.update(piece)
        self._hashed += len(piece)

    def undo_hashing(self, start: int) -> None:
        """Undo the hashing of an interrupted range, which is sent again and may differ.

        Must run in the same thread as `hash_good_ranges`.
        """
        if self._hashed <= start:
            return
        at, before = self._mark
        if at == start:
            self._hash, self._hashed = before, start
        else:  # a later range is hashed already: read everything back
            self._hash = hashlib.sha256()
            self._hashed = self._next = 0

    def hash_good_ranges(self) -> None:
        """Hash the good ranges that follow the hashed part; only one thread at a time."""
        while (end := self._done.get(self._next)) is not None:
            self._hash_from_disk(self._hash, self._hashed, end, self._buffer)
            if hasattr(os, "posix_fadvise"):
                # Start the write-back now, otherwise the final fsync would wait for everything.
                os.posix_fadvise(self._fd, self._next, end - self._next, os.POSIX_FADV_DONTNEED)
            self._next = end
            self._hashed = max(self._hashed, end)

    def full_digest(self) -> str | None:
        """Return the hash of the whole; None if it is incomplete."""
        if self._hashed == self._size:
            return self._hash.hexdigest()
        return None

    def _hash_from_disk(self, into: hashlib._Hash, start: int, end: int, buffer: bytearray) -> None:
        view = memoryview(buffer)
        while start < end and (
            count := os.preadv(self._fd, [view[: min(len(buffer), end - start)]], start)
        ):
            into.update(view[:count])
            start += count

    def sync(self) -> None:
        """Flush it to disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close it; the file remains."""
        with contextlib.suppress(OSError):
            # A process being forked elsewhere holds every descriptor until its exec, which would
            # keep the lock.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


class LandedCopy(FrozenStruct, gc=False):
    """Where a copy is."""

    local: str
    stamp: FileStamp
    note: str | None = None
    """Why it has another name, or what was kept, as text."""


def write_part(
    path: str, chunks: Sequence[bytes | memoryview], mtime_ns: int, group: GroupSync | None = None
) -> bool:
    """Write a small file under a temporary name.

    Return whether it was fsynced, otherwise the group does it.

    Raises:
        OSError: it cannot be written.
    """
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
    )
    try:
        data = memoryview(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        while data:
            data = data[os.write(handle, data) :]
        set_mtime(handle, mtime_ns)
        alone = group is None or not group.is_on_device(handle)
        if alone:
            os.fsync(handle)
    finally:
        os.close(handle)
    return alone


def set_mtime(target: int | str, mtime_ns: int) -> None:
    """Set a copy's mtime to that of its original, if this machine supports it."""
    try:  # noqa: SIM105 (what `suppress` costs is a third of the call, and there may be thousands)
        os.utime(target, ns=(mtime_ns, mtime_ns))
    except (OSError, OverflowError):
        pass


def settle_part(
    part: str, local: str, sha256: str, there: FileStamp, known: FileRow | None
) -> LandedCopy:
    """Give a finished copy its name, or a similar one. An existing good file is always kept.

    Args:
        part: The finished copy, on disk.
        local: The name that it should get; its directory exists.
        sha256: Its hash.
        there: Stamp of the file on the box.
        known: The ledger's row of a copy with that name.

    Raises:
        OSError: it cannot be renamed, or the existing file cannot be read.
    """
    note = None
    try:
        found: os.stat_result | None = os.lstat(local)
    except FileNotFoundError:
        found = None
    if found is None:
        os.rename(part, local)  # noqa: PTH104 (a Path for each of thousands costs more than its rename)
    elif not stat.S_ISREG(found.st_mode):
        local = _rename_to(part, version_path(local, sha256))
        note = f"something that is not a regular file is in its place, so it is {local}"
    else:
        local, note = _place_next_to_file(part, local, found, sha256, there, known)
    return LandedCopy(local, FileStamp.from_stat(os.lstat(local)), note)


def _place_next_to_file(
    part: str,
    local: str,
    found: os.stat_result,
    sha256: str,
    there: FileStamp,
    known: FileRow | None,
) -> tuple[str, str | None]:
    as_known = known is not None and known.here == FileStamp.from_stat(found)
    if known is not None and as_known:
        old = known.sha256
    else:
        old = sha256_of(Path(local))[0]
    if old == sha256:
        Path(part).unlink()
        return local, None
    # The old copy is the beginning of the new one: a log that has grown, so nothing is lost.
    if found.st_size < there.size and sha256_of(Path(part), found.st_size)[0] == old:
        Path(part).rename(local)
        return local, None
    if known is not None and (known.sha256 != old or _is_newer_version(there, known.there)):
        kept = _rename_to(local, version_path(local, old))
        Path(part).rename(local)
        if known.sha256 == old:
            what = "the copy before it"
        else:
            what = "a copy that was changed here"
        return local, f"{what} is kept as {kept}"
    if known is None:
        what = "a file that rgt did not pull"
    else:
        what = "a verified copy that may be better"
    local = _rename_to(part, version_path(local, sha256))
    return local, f"{what} is in its place, so it is {local}"


def _is_newer_version(there: FileStamp, before: FileStamp) -> bool:
    """Return whether a file of the box is newer and not shorter than the one pulled before."""
    return there.mtime_ns > before.mtime_ns and there.size >= before.size


def version_path(local: str, sha256: str) -> str:
    """Return the name for another version of a file.

    It keeps the suffix by which programs recognise it.
    """
    path = Path(local)
    # In bytes, because that is how file systems limit a name.
    end = os.fsencode(f".rgt-{sha256[:12]}{path.suffix}")
    return str(path.with_name(os.fsdecode(os.fsencode(path.stem)[: LONGEST_NAME - len(end)] + end)))


def _rename_to(source: str, target: str) -> str:
    Path(source).rename(target)
    return target


# Flushes many small files to disk at once: one `syncfs` costs less than an fsync for each.
#
# Used only where it reports write errors: on known local file systems, on Linux 5.8 or later
# (https://man7.org/linux/man-pages/man2/syncfs.2.html). Elsewhere each file is fsynced separately.


class GroupSync:
    """Flushes everything that was written to one file system.

    Args:
        folder: A directory of it.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        import ctypes  # imported here because only a pull needs it

        self._call = ctypes.CDLL(None, use_errno=True).syncfs
        self._errno = ctypes.get_errno
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._fd).st_dev

    def is_on_device(self, fd: int) -> bool:
        """Return whether an open file is on this file system.

        A subdirectory may be a mount or link.
        """
        return os.fstat(fd).st_dev == self._device

    def sync(self) -> None:
        """Wait until everything written before is on disk.

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
    """Return a group sync for a directory's file system; None if each file needs its own fsync."""
    if sys.platform != "linux" or _parse_release(os.uname().release) < SAYS_SO:
        return None
    try:
        found = folder.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        if file_system(mounts, os.major(found), os.minor(found)) in LOCAL_FILE_SYSTEMS:
            return GroupSync(folder)
    except (OSError, AttributeError):  # the C library lacks this call
        pass
    return None


def file_system(mounts: str, major: int, minor: int) -> str:
    """Return the type of the file system with these numbers in ``/proc/self/mountinfo``.

    "" = unknown.
    """
    for line in mounts.splitlines():
        words = line.split()
        if words[2:3] == [f"{major}:{minor}"] and "-" in words:
            return "".join(words[words.index("-") + 1 :][:1])
    return ""


def _parse_release(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


class BatchThread(Generic[T]):
    """A thread that processes items in batches: those that arrived during the previous batch.

    Args:
        work: Called with each batch, in order; it must not raise.
    """

    def __init__(self, work: Callable[[list[T]], None]) -> None:
        self._work = work
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_batches, name="rgt-publish", daemon=True)
        self._thread.start()

    def add_item(self, item: T) -> None:
        """Add an item."""
        self._queue.put(item)

    def _run_batches(self) -> None:
        # Maximum number of files that are flushed and renamed together.
        most_flushed = 512
        while (item := self._queue.get()) is not None:
            some = [item]
            with contextlib.suppress(queue.Empty):
                while len(some) < most_flushed:
                    item = self._queue.get_nowait()
                    if item is None:
                        self._work(some)
                        return
                    some.append(item)
            self._work(some)

    def close(self) -> None:
        """Wait until everything is processed, and end the thread."""
        self._queue.put(None)
        self._thread.join()
