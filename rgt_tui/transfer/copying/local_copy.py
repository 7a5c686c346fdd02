"""Writes a box's bytes to local files: to a temporary file, flushed, renamed; a good copy is never replaced.

A copy takes its name only when all of it is on the disk. What stands at that name already gives way to a file of
which it is the beginning, or it is moved beside; else the new one lands beside. Both are there afterwards.
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

import msgspec

from rgt_tui.transfer.copying.box_listing import LONGEST_NAME
from rgt_tui.transfer.ledger import FileRow, Stamp, sha256_of

FULL = (errno.ENOSPC, errno.EDQUOT)
OF_ONE = (
    errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL,
    errno.EACCES, errno.EPERM, errno.ELOOP, errno.EFBIG,
)  # fmt: skip
"""What concerns one file, and not all that come after it."""
READ_BYTES = 1 << 20
"""Read back at once: memory that is used again costs no page faults."""
SAYS_SO = 5, 8
"""From this Linux on `syncfs` reports what could not be written since its descriptor was opened."""
LOCAL_FILE_SYSTEMS = frozenset(("ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs"))
"""Not FUSE, whose server is not told; nor a network's."""
MOST_FLUSHED = 512
"""Files that are brought to the disk, and take their names, together."""
T = TypeVar("T")


class LandingFailed(Exception):
    """This machine cannot take what comes; the message names the file and says why. Nothing that was taken is lost."""


def failed(path: str, needed: int, destination: Path, error: OSError) -> LandingFailed:
    """Return the message for a file of the box that could not be written."""
    if error.errno in FULL:
        return LandingFailed(
            f"the disk under {destination} is full: {path} needs {needed:,} bytes, {room(destination)} are free; make "
            "room and pull again: what has arrived is kept"
        )
    blocking = _file_in_the_path(error)
    if blocking is not None:
        aside = shlex.join(["mv", "-n", blocking, beside(blocking, sha256_of(Path(blocking))[0])])
        return LandingFailed(
            f"cannot write {path}: {blocking} is a file here and a directory on the box now; it is kept. To go on, "
            f"move it with `{aside}` and pull again"
        )
    where = f" ({error.filename})" if error.filename else ""
    return LandingFailed(
        f"cannot write {path} below {destination}{where}: {error.strerror or error}"
    )


def _file_in_the_path(error: OSError) -> str | None:
    """Return the regular file that is where a directory has to be made; None where something else went wrong."""
    if error.errno not in (errno.ENOTDIR, errno.EEXIST) or not error.filename:
        return None
    path = Path(error.filename)
    for candidate in (path, *path.parents):
        try:
            found = candidate.lstat()
        except OSError:
            continue  # below a file nothing can be there
        if stat.S_ISREG(found.st_mode):
            return str(candidate)
        return None
    return None


def room(folder: Path) -> str:
    """Return how many bytes are free, in words."""
    try:
        return f"{shutil.disk_usage(folder).free:,} bytes"
    except OSError:
        return "an unknown number of bytes"


class PartFile:
    """The unfinished copy of one file. Its ranges may come in any order.

    Args:
        path: Where it is kept.
        size: How many bytes it shall have; what is beyond that is cut off.

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
            pass  # no locks on this file system
        self.present = os.fstat(self._fd).st_size
        if self.present > size:
            os.ftruncate(self._fd, size)
            self.present = size
        self._size = size
        self._done: dict[int, int] = {}
        self._hash = hashlib.sha256()
        self._hashed = self._next = 0
        self._mark = 0, self._hash
        """The hash at the beginning of the range that is hashed from memory."""
        self._buffer = bytearray(READ_BYTES)

    def write(self, offset: int, chunks: Sequence[bytes | memoryview]) -> int:
        """Write bytes; return the offset behind them."""
        for at in range(0, len(chunks), 512):  # IOV_MAX
            some = chunks[at : at + 512]
            left = sum(map(len, some))
            wrote = os.pwritev(self._fd, some, offset)
            if wrote < left:
                rest = b"".join(some)
                while wrote < left:
                    wrote += os.pwrite(self._fd, rest[wrote:], offset + wrote)
            offset += left
        return offset

    def sha256(self, start: int, end: int) -> str:
        """Return the hash of a range that was written, by now or by a pull before this one."""
        found = hashlib.sha256()
        self._read(found, start, end, bytearray(READ_BYTES))
        return found.hexdigest()

    def has(self, start: int, end: int) -> None:
        """Note that a range is good."""
        self._done[start] = end

    def hash_piece(self, start: int, offset: int, piece: memoryview) -> None:
        """Hash bytes that were written, while they are in memory still, if it is their turn; as `hash_on`.

        Args:
            start: Where their range begins.
            offset: Where they begin themselves.
            piece: The bytes.
        """
        if offset != self._hashed:
            return
        if offset == start:
            self._mark = start, self._hash.copy()
        self._hash.update(piece)
        self._hashed += len(piece)

    def unhash(self, start: int) -> None:
        """Forget what was hashed of a range that broke off: it comes anew, and may be other bytes; as `hash_on`."""
        if self._hashed <= start:
            return
        at, before = self._mark
        if at == start:
            self._hash, self._hashed = before, start
        else:  # another stream has gone on behind it: all of it is read back
            self._hash = hashlib.sha256()
            self._hashed = self._next = 0

    def hash_on(self) -> None:
        """Hash what is good behind what was hashed; only one thread at a time."""
        while (end := self._done.get(self._next)) is not None:
            self._read(self._hash, self._hashed, end, self._buffer)
            if hasattr(os, "posix_fadvise"):
                # It begins to be written now, or the last fsync would wait for all of it.
                os.posix_fadvise(self._fd, self._next, end - self._next, os.POSIX_FADV_DONTNEED)
            self._next = end
            self._hashed = max(self._hashed, end)

    def digest(self) -> str | None:
        """Return the hash of the whole; None while it is not whole."""
        if self._hashed == self._size:
            return self._hash.hexdigest()
        return None

    def _read(self, into: hashlib._Hash, start: int, end: int, buffer: bytearray) -> None:
        view = memoryview(buffer)
        while start < end and (
            count := os.preadv(self._fd, [view[: min(len(buffer), end - start)]], start)
        ):
            into.update(view[:count])
            start += count

    def sync(self) -> None:
        """Bring it to the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close it; the file stays."""
        with contextlib.suppress(OSError):
            # A process that is just being started elsewhere has every descriptor till its exec: it locks nothing.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


class Landed(msgspec.Struct, frozen=True, gc=False):
    """Where a copy is."""

    local: str
    stamp: Stamp
    note: str | None = None
    """What else stands there now, in words."""


def write_part(
    path: str, chunks: Sequence[bytes | memoryview], mtime_ns: int, group: GroupSync | None = None
) -> bool:
    """Write a small file aside, and bring it to the disk, unless the group does so later; tell whether it is there.

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
        dated(handle, mtime_ns)
        alone = group is None or not group.covers(handle)
        if alone:
            os.fsync(handle)
    finally:
        os.close(handle)
    return alone


def dated(target: int | str, mtime_ns: int) -> None:
    """Give a copy the time of its original, where this machine can hold it."""
    try:  # noqa: SIM105 (what `suppress` costs is a third of the call, and there may be thousands)
        os.utime(target, ns=(mtime_ns, mtime_ns))
    except (OSError, OverflowError):
        pass


def settle(part: str, local: str, sha256: str, there: Stamp, known: FileRow | None) -> Landed:
    """Give a finished copy its name, or one next to it; a good file that is already there is always kept.

    Args:
        part: The finished copy, on the disk.
        local: The name that it shall have; its directory is there.
        sha256: Of it.
        there: Of the file on the box.
        known: What the ledger says of a copy at that name.

    Raises:
        OSError: it cannot be renamed, or what stands there cannot be read.
    """
    note = None
    try:
        found: os.stat_result | None = os.lstat(local)
    except FileNotFoundError:
        found = None
    if found is None:
        os.rename(part, local)  # noqa: PTH104 (a Path for each of thousands costs more than its rename)
    elif not stat.S_ISREG(found.st_mode):
        local = _move(part, beside(local, sha256))
        note = f"something that is not a regular file is in its place, so it is {local}"
    else:
        local, note = _beside_a_file(part, local, found, sha256, there, known)
    return Landed(local, Stamp.of(os.lstat(local)), note)


def _beside_a_file(
    part: str, local: str, found: os.stat_result, sha256: str, there: Stamp, known: FileRow | None
) -> tuple[str, str | None]:
    as_known = known is not None and known.here == Stamp.of(found)
    old = known.sha256 if known is not None and as_known else sha256_of(Path(local))[0]
    if old == sha256:
        Path(part).unlink()
        return local, None
    if found.st_size < there.size and sha256_of(Path(part), found.st_size)[0] == old:
        Path(part).rename(local)
        return local, None
    if known is not None and (known.sha256 != old or _newer(there, known.there)):
        kept = _move(local, beside(local, old))
        Path(part).rename(local)
        what = "the copy before it" if known.sha256 == old else "a copy that was changed here"
        return local, f"{what} is kept as {kept}"
    what = "a file that rgt did not pull" if known is None else "a verified copy that may be better"
    local = _move(part, beside(local, sha256))
    return local, f"{what} is in its place, so it is {local}"


def _newer(there: Stamp, before: Stamp) -> bool:
    """Tell whether a file of the box was written later, and is not shorter: neither cut off nor an older one."""
    return there.mtime_ns > before.mtime_ns and there.size >= before.size


def beside(local: str, sha256: str) -> str:
    """Return the name for another version of a file: with the same ending, by which programs know it."""
    path = Path(local)
    end = os.fsencode(f".rgt-{sha256[:12]}{path.suffix}")
    return str(path.with_name(os.fsdecode(os.fsencode(path.stem)[: LONGEST_NAME - len(end)] + end)))


def _move(source: str, target: str) -> str:
    Path(source).rename(target)
    return target


# Flushes many small files to disk at once: one `syncfs` costs less than an fsync for each.
#
# It is used only where it says so when a write has failed: a local file system that is known here, on a Linux
# from 5.8 on (https://man7.org/linux/man-pages/man2/syncfs.2.html). Everywhere else each file is synced by
# itself.


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
        if file_system(mounts, os.major(found), os.minor(found)) in LOCAL_FILE_SYSTEMS:
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
                while len(some) < MOST_FLUSHED:
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
