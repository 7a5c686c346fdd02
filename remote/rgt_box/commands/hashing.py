"""SHA-256 of files that may be changing, and copies that are read back."""

from __future__ import annotations

import os
import time

from rgt_box import files, jsonline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject

CHUNK = 1 << 20


class FileChangedError(Exception):
    """The file changed while it was read, twice in a row."""


def new_sha256() -> Any:
    """Return a new SHA-256 object."""
    import hashlib  # imported here: it loads libcrypto, which most verbs do not need

    return hashlib.sha256()


def hash_open_file(fd: int, into: int | None = None) -> tuple[str, int]:
    """Return (SHA-256 in hex, bytes) of an open file, from its beginning.

    Args:
        fd: The file.
        into: A descriptor to which the data is also written.

    Raises:
        OSError: as reading and writing do.
    """
    found = new_sha256()
    total = 0
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


def content_key(stat: os.stat_result) -> tuple[int, int, int, int, int]:
    """Return a key that changes whenever the file's content may have changed."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def change_stamp(found: os.stat_result) -> list[int]:
    """Return the stamp by which a client detects a change: size, mtime, ctime and inode."""
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def listing_fields(found: os.stat_result) -> JsonObject:
    """Return a file's stamp and device for a listing; ``send`` checks device and inode later."""
    return {"stamp": change_stamp(found), "device": found.st_dev}


def hash_unchanging_file(opened: Callable[[], int]) -> tuple[str, os.stat_result]:
    """Hash a file, and retry once if it changed while it was read.

    Args:
        opened: Opens the file; called again after a change.

    Returns:
        (SHA-256 in hex, its stat).

    Raises:
        FileChangedError: when it changed both times.
        OSError: when it cannot be read.
    """
    for _ in range(2):
        fd = opened()
        try:
            before = os.fstat(fd)
            found, total = hash_open_file(fd)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        # The ctime changes with every write, even if the mtime is set back.
        if content_key(before) == content_key(after) and total == after.st_size:
            return found, after
    raise FileChangedError("changed while it was read")


def flush_and_evict(fd: int) -> None:
    """Flush a file to disk and drop it from the page cache, so that verifying reads the storage."""
    os.fsync(fd)
    if hasattr(os, "posix_fadvise"):
        # Only after fsync: dirty pages are not dropped.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def hash_path(path: str | bytes) -> str:
    """Return the SHA-256 of a regular file.

    Raises:
        OSError: when it cannot be read.
    """
    fd = files.open_regular(os.fsdecode(path))
    try:
        return hash_open_file(fd)[0]
    finally:
        os.close(fd)


def sync_folder(folder: str | bytes) -> None:
    """Flush a directory's entries to disk, if the file system supports it."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems cannot; the files themselves were flushed
    finally:
        os.close(fd)


MOST = 32 << 20
"""Maximum bytes of the cache file; above that, its older half is dropped."""

RACY_NS = 50 * 10**6
"""A file modified this shortly before hashing may change again within the same clock tick."""


class HashCache:
    """Cache of SHA-256 by device, inode, size, mtime and ctime, appended to a file.

    Args:
        path: The cache file; None to cache nothing.
    """

    def __init__(self, path: str | None) -> None:
        self._known: dict[str, str] = {}
        self._fd = -1
        if path is None:
            return
        from rgt_box import (
            ownership,
        )  # imported here: a zipapp compiles each imported module at every start

        if os.path.lexists(path) and not ownership.is_ours(path):
            return  # a user who can write to the file could fake any hash
        for row in (files.read_file(path, 4 * MOST) or b"").splitlines():
            found = jsonline.loads_dict(row) or {}
            key = found.get("k")
            digest = found.get("h")
            if isinstance(key, str) and isinstance(digest, str) and len(digest) == 64:
                self._known[key] = digest
        try:
            ownership.ensure_private_folder(os.path.dirname(path) or ".")
            self._drop_oldest_half(path)
            self._fd = files.open_appending(path)
        except OSError:
            pass  # without a cache everything is hashed, which is only slower

    def _drop_oldest_half(self, path: str) -> None:
        found = files.signature(path)
        if found is None or found[1] <= MOST:
            return
        kept = list(self._known.items())[len(self._known) // 2 :]
        files.replace_file(path, b"".join(_cache_line(key, digest) for key, digest in kept))
        self._known = dict(kept)

    def get(self, stat: os.stat_result) -> str | None:
        """Return the hash of a file unchanged since `put`, or None."""
        return self._known.get(_cache_key(stat))

    def put(self, stat: os.stat_result, digest: str) -> None:
        """Store a hash, unless the file changed within the last `RACY_NS`.

        The times of such a file would not show another change within the same clock tick.
        """
        if self._fd < 0 or time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < RACY_NS:
            return
        self._known[_cache_key(stat)] = digest
        try:
            files.write_all(self._fd, _cache_line(_cache_key(stat), digest))
        except OSError:
            # A full disk must not stop the work; a truncated row is not valid JSON and is skipped.
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _cache_key(stat: os.stat_result) -> str:
    return ":".join(f"{number:x}" for number in content_key(stat))


def _cache_line(key: str, digest: str) -> bytes:
    return jsonline.encode_line({"k": key, "h": digest})


def default_path() -> str:
    """Return the default path of the cache."""
    from rgt_box import place  # imported here: see above

    return os.path.join(place.state_dir(), "hashes.jsonl")
