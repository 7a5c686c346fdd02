"""The ``mirror`` verb: copies a tree and verifies every copy; can be resumed and never deletes."""

from __future__ import annotations

import errno
import os
import stat
import sys

from rgt_wire import size_text

from rgt_box import files, jsonline, ownership, place
from rgt_box.background import error_text
from rgt_box.commands import file_tree, hashing
from rgt_box.commands.hashing import HashCache, default_path
from rgt_box.sampling import free_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

PART = b".rgt-mirror.part"
"""Temporary file of the copy in progress. One name per directory, so a killed run's leftover is
overwritten."""
LINK_OUTSIDE = "is a link to a target outside"
"""Error of a link that is not copied; `result_copies` knows by it that no result is lost."""


def copy_file(entry: file_tree.TreeEntry, target: bytes, cache: HashCache) -> JsonObject:
    """Make `target` a verified copy of the file of `entry`.

    Returns:
        ``status`` (copied, same or failed), ``size``, ``sha256``, ``error``.

    Raises:
        OSError: when it cannot be read or written.
    """
    source = entry.stat
    there = _stat_regular_file(target)
    if source is not None and there is not None and there.st_size == source.st_size:
        try:
            digest, source = _source_hash(entry, cache)
        except hashing.FileChangedError as error:
            return {"status": "failed", "error": str(error)}
        # Equal size and mtime prove nothing about the bytes on another storage.
        if there.st_size == source.st_size and hashing.hash_path(target) == digest:
            _copy_metadata(target, source)
            return {"status": "same", "size": source.st_size, "sha256": digest}
    return _copy_verified(entry, target, cache)


def _source_hash(entry: file_tree.TreeEntry, cache: HashCache) -> tuple[str, os.stat_result]:
    if entry.stat is not None:
        digest = cache.get(entry.stat)
    else:
        digest = None
    if digest is not None and entry.stat is not None:
        return digest, entry.stat
    digest, found = hashing.hash_unchanging_file(entry.open_file)
    cache.put(found, digest)
    return digest, found


def _copy_verified(entry: file_tree.TreeEntry, target: bytes, cache: HashCache) -> JsonObject:
    folder = os.path.dirname(target)
    if os.path.isdir(target) and not os.path.islink(target):
        return {"status": "failed", "error": "a directory has its name; nothing is deleted here"}
    part = os.path.join(folder, PART)
    try:
        for _ in range(2):
            found, stat_of = _write_part(entry, part)
            if stat_of is None:
                continue
            # Read back from the storage: the page cache was dropped after the write.
            if hashing.hash_path(part) != found:
                return {"status": "failed", "error": "reads back different from what was written"}
            # Before the rename: the file appears with its final times, as a later run compares
            # them.
            _copy_metadata(part, stat_of)
            os.rename(part, target)
            # The rename is only durable once the directory is.
            hashing.sync_folder(folder)
            cache.put(stat_of, found)
            return {"status": "copied", "size": stat_of.st_size, "sha256": found}
        return {"status": "failed", "error": "changed while it was copied"}
    finally:
        files.unlink_if_exists(part)


def _write_part(entry: file_tree.TreeEntry, part: bytes) -> tuple[str, os.stat_result | None]:
    """Write a copy; returns its SHA-256 and the source's stat, or None if the source changed."""
    reader = entry.open_file()
    try:
        before = os.fstat(reader)
        files.unlink_if_exists(
            part
        )  # create a new file: an existing link must not be written through
        writer = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            found, total = hashing.hash_open_file(reader, writer)
            hashing.flush_and_evict(writer)
        finally:
            os.close(writer)
        after = os.fstat(reader)
    finally:
        os.close(reader)
    same = hashing.content_key(before) == hashing.content_key(after) and total == after.st_size
    return found, after if same else None


def copy_link(entry: file_tree.TreeEntry, target: bytes) -> JsonObject:
    """Make `target` the same link as `entry`; the link's target is copied as its own entry."""
    wanted = entry.read_link()
    try:
        if os.readlink(target) == wanted:
            return {"status": "same"}
    except OSError:
        pass
    if os.path.lexists(target) and not os.path.islink(target):
        return {
            "status": "failed",
            "error": "another kind of file has its name; nothing is deleted here",
        }
    part = os.path.join(os.path.dirname(target), PART)
    files.unlink_if_exists(part)
    # Under another name first: replacing a link in one step needs a rename.
    os.symlink(wanted, part)
    os.rename(part, target)
    return {"status": "copied"}


def clear_part(folder: bytes) -> None:
    """Remove the temporary file that a killed run left in a directory."""
    files.unlink_if_exists(os.path.join(folder, PART))


def _copy_metadata(path: bytes, source: os.stat_result) -> None:
    """Copy times and permissions; ignored if the storage does not support them."""
    try:
        os.chmod(path, stat.S_IMODE(source.st_mode))
        os.utime(path, ns=(source.st_atime_ns, source.st_mtime_ns))
    except OSError:
        pass


def _stat_regular_file(path: bytes) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISREG(found.st_mode):
        return found
    return None


HELP = """
usage: mirror SRC DST [--quiet] [--cache FILE | --no-cache]

Make DST hold every file of SRC. Each file is written beside its place, flushed, read back, compared by SHA-256 and
then renamed; a file that is there already is read and compared. If it is killed, the next call resumes it. Nothing in
DST is ever deleted. Links within SRC are copied as links; one that leads out of SRC, and what is not a regular file, is
refused and named.

Prints {"path", "status": "copied" | "same" | "failed", "size", "sha256", "error"} for each file, and at the end
{"end": true, "ok", "verified", "copied", "same", "failed", "bytes", "source", "target"}.

  --quiet   print failures and the last line only

Exit status: 0 every file was verified, 1 one was not, 2 wrong command line or SRC or DST unusable, 3 another mirror
to DST is running, 74 DST has no room (needed and free are named).

Example: mirror /workspace/runs/a /mnt/results/a
"""
SPEC = {"--quiet": "flag", "--cache": "str", "--no-cache": "flag"}
FAILED, USAGE, BUSY, NO_ROOM = 1, 2, 3, 74
FULL = (errno.ENOSPC, errno.EDQUOT)


class NoRoomError(Exception):
    """The target has no room; the message says how much is needed and free."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    paths, found = file_tree.parse_words(argv, SPEC, HELP)
    if len(paths) != 2:
        return file_tree.print_usage_error("mirror: SRC and DST are required")
    source, target = (os.path.realpath(os.path.expanduser(path)) for path in paths)
    if not os.path.exists(source):
        return file_tree.print_usage_error(f"mirror: {source} does not exist")
    # A copy into itself would grow until the disk is full.
    if files.is_below(target, source) or files.is_below(source, target):
        return file_tree.print_usage_error(
            f"mirror: one of {source} and {target} is inside the other"
        )
    try:
        held = _lock_target(target)
    except OSError as error:
        return file_tree.print_usage_error(
            f"mirror: {error.filename or place.state_dir()}: {error_text(error)}"
        )
    if held is None:
        print(f"mirror: another mirror to {target} is running", file=sys.stderr)
        return BUSY
    cache = HashCache(None if found["no-cache"] else found["cache"] or default_path())
    try:
        return MirrorRun(source, target, cache, bool(found["quiet"])).copy_tree()
    except NoRoomError as error:
        print(f"mirror: {error}", file=sys.stderr)
        return NO_ROOM
    except OSError as error:
        return file_tree.print_usage_error(
            f"mirror: {error.filename or target}: {error_text(error)}"
        )
    finally:
        cache.close()
        held.release()


def _lock_target(target: str) -> files.FileLock | None:
    import zlib

    ownership.ensure_private_folder(place.state_dir())
    # The lock is not in the target, which may be a network storage without locks.
    name = f"mirror-{zlib.crc32(os.fsencode(target)):08x}.lock"
    held = files.FileLock(os.path.join(place.state_dir(), name))
    if held.acquire():
        return held
    return None


class MirrorRun:
    """One mirror run.

    Args:
        source: A directory or a file; a file is copied to its name in `target`.
        target: The directory to fill.
        cache: Known hashes of the source.
        quiet: Print failures only.
        left_out: Directories that are not copied, relative to the source.
    """

    def __init__(
        self,
        source: str,
        target: str,
        cache: HashCache,
        quiet: bool,
        left_out: frozenset[bytes] = frozenset(),
    ) -> None:
        self._source = source
        self._target = target
        self._cache = cache
        self._quiet = quiet
        self._left_out = left_out
        self._counts = {"verified": 0, "copied": 0, "same": 0, "failed": 0, "bytes": 0}

    def copy_tree(self) -> int:
        """Copy everything; returns the exit status.

        Raises:
            NoRoomError: before writing if predictable, otherwise when the disk is full.
            OSError: when source or target cannot be used at all.
        """
        self._check_room()
        os.makedirs(self._target, exist_ok=True)
        clear_part(os.fsencode(self._target))
        for entry in file_tree.walk_tree(self._source, self._left_out):
            try:
                row = self._copy_entry(entry)
            except OSError as error:
                if error.errno in FULL:
                    self._count_and_print(
                        {"path": entry.path, "status": "failed", "error": error_text(error)}
                    )
                    raise NoRoomError(self._disk_full_text(entry)) from error
                row = {"status": "failed", "error": error_text(error)}
            if row is not None:
                self._count_and_print(dict(row, path=entry.path))
        ok = not self._counts["failed"]
        self._print_row(
            dict({"end": True, "ok": ok}, **self._counts, source=self._source, target=self._target)
        )
        if ok:
            return 0
        return FAILED

    def _copy_entry(self, entry: file_tree.TreeEntry) -> JsonObject | None:
        place_of = os.path.join(os.fsencode(self._target), entry.path)
        if entry.kind == file_tree.FOLDER:
            os.makedirs(place_of, exist_ok=True)
            clear_part(place_of)
            return None
        if entry.kind == file_tree.FILE:
            return copy_file(entry, place_of, self._cache)
        if entry.kind == file_tree.LINK:
            if file_tree.leads_outside(self._source, entry.path):
                return {
                    "status": "failed",
                    "error": f"{LINK_OUTSIDE} {self._source}",
                }
            return copy_link(entry, place_of)
        if entry.kind == file_tree.SPECIAL:
            text = f"is {entry.text}: refused"
        else:
            text = entry.text
        return {"status": "failed", "error": text}

    def _check_room(self) -> None:
        """Refuse before writing if the data cannot fit: a partial copy only fills the disk."""
        needed = 0
        inodes = 0
        largest = 0
        for entry in file_tree.walk_tree(self._source, self._left_out):
            if entry.stat is None or entry.kind not in (
                file_tree.FILE,
                file_tree.FOLDER,
                file_tree.LINK,
            ):
                continue
            try:
                there = os.lstat(os.path.join(os.fsencode(self._target), entry.path))
            except OSError:
                inodes += 1
                needed += entry.stat.st_size if entry.kind == file_tree.FILE else 0
                continue
            if entry.kind == file_tree.FILE and there.st_size != entry.stat.st_size:
                needed += max(0, entry.stat.st_size - there.st_size)
                # While a file is replaced, its old and its new version are there at the same time.
                largest = max(largest, min(entry.stat.st_size, there.st_size))
        self._compare_with_free_space(needed + largest, inodes)

    def _compare_with_free_space(self, needed: int, inodes: int) -> None:
        where, error = free_space.measure_free_space(self._target)
        if where is None:
            raise OSError(errno.EIO, error or "does not answer", self._target)
        if needed > where.free_bytes:
            raise NoRoomError(
                "no space on %s: %s (%d bytes) needed, %s (%d bytes) free"
                % (
                    where.mount,
                    size_text(needed),
                    needed,
                    size_text(where.free_bytes),
                    where.free_bytes,
                )
            )
        if where.free_inodes is not None and inodes > where.free_inodes:
            raise NoRoomError(
                "no inodes on %s: %d needed, %d free" % (where.mount, inodes, where.free_inodes)
            )

    def _disk_full_text(self, entry: file_tree.TreeEntry) -> str:
        """Return the error text for a disk that became full at a file."""
        needed = 0
        if entry.stat is not None:
            needed = entry.stat.st_size
        where, _ = free_space.measure_free_space(self._target)
        if where:
            free = "%d bytes and %s inodes" % (where.free_bytes, where.free_inodes)
        else:
            free = "unknown"
        name = entry.path.decode("utf-8", "backslashreplace")
        return "no space for %s: %d bytes and 1 inode needed, %s free" % (name, needed, free)

    def _count_and_print(self, row: JsonObject) -> None:
        status = row["status"]
        self._counts[status] += 1
        if status != "failed":
            self._counts["verified"] += 1
            self._counts["bytes"] += row.get("size", 0)
        if status == "failed" or not self._quiet:
            self._print_row(dict(file_tree.name_fields(row.pop("path")), **row))

    def _print_row(self, row: JsonObject) -> None:
        jsonline.print_frame(row)
