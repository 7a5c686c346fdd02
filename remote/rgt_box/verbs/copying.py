"""One file to durable storage: written beside its place, flushed, read back, compared, renamed."""

from __future__ import annotations

import os
import stat

from rgt_box.verbs import hashing, tree
from rgt_box.verbs.cache import HashCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PART = b".rgt-mirror.part"
"""What is being written. One name for each directory: what a killed run leaves is overwritten, not collected."""


def file(entry: tree.Entry, target: bytes, cache: HashCache) -> dict[str, Any]:
    """Make `target` hold the file of `entry`.

    Returns:
        ``status`` (copied, same or failed), ``size``, ``sha256``, ``error``.

    Raises:
        OSError: when it cannot be read or written.
    """
    source = entry.stat
    there = _regular(target)
    if source is not None and there is not None and there.st_size == source.st_size:
        try:
            digest, source = _known(entry, cache)
        except hashing.Changed as error:
            return {"status": "failed", "error": str(error)}
        if there.st_size == source.st_size and hashing.of_path(target) == digest:
            _dress(target, source)
            return {"status": "same", "size": source.st_size, "sha256": digest}
    return _copy(entry, target, cache)


def _known(entry: tree.Entry, cache: HashCache) -> tuple[str, os.stat_result]:
    digest = cache.get(entry.stat) if entry.stat is not None else None
    if digest is not None and entry.stat is not None:
        return digest, entry.stat
    digest, found = hashing.steady(entry.open)
    cache.put(found, digest)
    return digest, found


def _copy(entry: tree.Entry, target: bytes, cache: HashCache) -> dict[str, Any]:
    folder = os.path.dirname(target)
    if os.path.isdir(target) and not os.path.islink(target):
        return {"status": "failed", "error": "a directory is in its place; nothing is deleted here"}
    part = os.path.join(folder, PART)
    try:
        for _ in range(2):
            found, stat_of = _write(entry, part)
            if stat_of is None:
                continue
            if hashing.of_path(part) != found:
                return {"status": "failed", "error": "reads back different from what was written"}
            _dress(part, stat_of)
            os.rename(part, target)
            hashing.sync_folder(folder)
            cache.put(stat_of, found)
            return {"status": "copied", "size": stat_of.st_size, "sha256": found}
        return {"status": "failed", "error": "changed while it was copied"}
    finally:
        remove(part)


def _write(entry: tree.Entry, part: bytes) -> tuple[str, os.stat_result | None]:
    """Write a copy; returns its SHA-256 and the source's stat, or None for it when the source changed meanwhile."""
    reader = entry.open()
    try:
        before = os.fstat(reader)
        remove(part)  # and make it anew: nobody's link may be written through
        writer = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            found, total = hashing.digest(reader, writer)
            hashing.flush(writer)
        finally:
            os.close(writer)
        after = os.fstat(reader)
    finally:
        os.close(reader)
    same = hashing.identity(before) == hashing.identity(after) and total == after.st_size
    return found, after if same else None


def link(entry: tree.Entry, target: bytes) -> dict[str, Any]:
    """Make `target` the same link as `entry`; what it points to is copied in its own turn."""
    wanted = entry.target()
    try:
        if os.readlink(target) == wanted:
            return {"status": "same"}
    except OSError:
        pass
    if os.path.lexists(target) and not os.path.islink(target):
        return {"status": "failed", "error": "something else is in its place; nothing is deleted here"}
    part = os.path.join(os.path.dirname(target), PART)
    remove(part)
    os.symlink(wanted, part)
    os.rename(part, target)
    return {"status": "copied"}


def clear(folder: bytes) -> None:
    """Remove what a killed run was writing in a directory."""
    remove(os.path.join(folder, PART))


def remove(path: bytes) -> None:
    """Remove a temporary file of ours."""
    try:
        os.unlink(path)
    except OSError:
        pass


def _dress(path: bytes, source: os.stat_result) -> None:
    """Give times and permissions; storage that has none keeps the content all the same."""
    try:
        os.chmod(path, stat.S_IMODE(source.st_mode))
        os.utime(path, ns=(source.st_atime_ns, source.st_mtime_ns))
    except OSError:
        pass


def _regular(path: bytes) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
