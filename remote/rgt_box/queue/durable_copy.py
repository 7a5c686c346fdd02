"""Copy a finished run, verified, to storage that outlives the box.

Also removes checkpoints once their copy is verified again.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat

from rgt_wire import size_text

from rgt_box import files, jsonline
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.commands import file_tree, hashing
from rgt_box.queue.queue_file import Job
from rgt_box.sampling import free_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    from rgt_wire import JsonObject


MANIFEST = ".rgt-manifest.jsonl"
"""Written into every copy, so that it can be verified later, on another machine, without the job's
state.
"""


LOG = "rgt-cell.log"
"""The cell's own log in its copy: it is outside the run's directory and would be lost with the box.
"""


class CopyFailed(Exception):
    """The copy is missing or different; the message says why."""


WORK = "rgt-work"
"""Copies of files that a job has written into its working directory, under the same relative paths.
"""


def copy_verified(
    out: str,
    keep: list[str],
    target: str,
    log: str | None = None,
    work: str = "",
    written: tuple[str, ...] = (),
) -> list[str]:
    """Copy what exists of `keep` from `out` to `target`, with the cell's log, all or nothing.

    Files that the cell has `written` into the directory `work` are copied as well, see `WORK`.

    Everything is written to a temporary directory next to `target`, flushed, read back and compared
    by SHA-256; only then does it replace `target`. What a crash left of an earlier replacement gets
    its name back first.

    Returns:
        The paths of `keep` that were copied, and `work` if files of it were.

    Raises:
        CopyFailed: With the reason; `target` is then unchanged.
    """
    # Next to the target, because a rename must stay within one file system.
    temporary = "%s.tmp-%s" % (target, files.unique_suffix())
    try:
        found = locate_copy(target)
        if found != target:
            os.rename(found, target)
        os.makedirs(temporary)
        kept = [path for path in keep if not files.is_missing(os.path.join(out, path))]
        pairs = [
            pair
            for path in kept
            for pair in _pair_files(os.path.join(out, path), os.path.join(temporary, path))
        ]
        if not pairs:
            kept = []  # directories alone are no result
        for path in written:
            copy = os.path.join(temporary, WORK, os.path.relpath(path, work))
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            pairs.append((SourceFile(path), copy))
        if written:
            kept = [*kept, work]
        if kept and log and os.path.isfile(log) and os.path.getsize(log):
            pairs.append((SourceFile(log), os.path.join(temporary, LOG)))
        _check_room(pairs, temporary)
        copies = [(copy, *_copy_and_hash(source, copy)) for source, copy in pairs]
        _write_manifest(temporary, target, copies)
        # Every directory: after a power loss a file without its entry is lost.
        for folder, _, _ in os.walk(temporary):
            hashing.sync_folder(folder)
        for copy, digest, _ in copies:
            # Read back from the disk, because its pages were dropped from the cache after writing.
            if _hash_file(copy) != digest:
                raise CopyFailed(f"{copy} reads back different from what was written")
        _replace_target(temporary, target)
        return kept
    except OSError as error:
        raise CopyFailed(f"{error.filename or target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class SourceFile:
    """A file as it was found; a file that replaces it later is refused.

    Args:
        path: Path of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.stat = os.stat(path)

    def open_unchanged(self) -> int:
        """Open the file for reading.

        Raises:
            OSError: It cannot be opened, or another file has replaced it.
        """
        fd = files.open_regular(self.path)
        if os.path.samestat(os.fstat(fd), self.stat):
            return fd
        os.close(fd)
        raise OSError(errno.ESTALE, "another file took its place while it was copied", self.path)


def _pair_files(source: str, copy: str) -> list[tuple[SourceFile, str]]:
    """Return (source, copy) for every file, and create the directories.

    Links are followed, because a copy must not contain dangling ones. A link to one of its own
    parent directories is left out, and so are pipes, sockets and devices.

    Raises:
        CopyFailed: Links lead to one directory under too many names, or `source` is neither a file
            nor a directory.
    """
    if not os.path.isdir(source):
        if not os.path.isfile(source):
            raise CopyFailed(f"{source} is not a regular file")
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        return [(SourceFile(source), copy)]
    pairs: list[tuple[SourceFile, str]] = []
    seen: dict[tuple[int, int], int] = {}
    waiting: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(source, copy, frozenset())]
    # Number of names (by links) under which one directory is copied. Without a limit, nested links
    # can multiply into a thousand million paths.
    names = 8
    while waiting:
        folder, to, above = waiting.pop()
        found = os.stat(folder)
        this = found.st_dev, found.st_ino
        if this in above:
            continue
        seen[this] = seen.get(this, 0) + 1
        if seen[this] > names:
            raise CopyFailed(
                "%s: links lead there under more than %d names; remove some" % (folder, names)
            )
        os.makedirs(to, exist_ok=True)
        for name in sorted(os.listdir(folder)):
            file = SourceFile(os.path.join(folder, name))
            if stat.S_ISREG(file.stat.st_mode):
                pairs.append((file, os.path.join(to, name)))
            # A checkpoint that is still being written, or was left by a killed run.
            elif stat.S_ISDIR(file.stat.st_mode) and not name.startswith(".tmp-"):
                waiting.append((file.path, os.path.join(to, name), above | {this}))
    return pairs


def _check_room(pairs: list[tuple[SourceFile, str]], temporary: str) -> None:
    """Refuse a copy that cannot fit, before writing: a link may lead to anything, even /proc/kcore.

    Raises:
        CopyFailed: With the needed and the free space.
    """
    needed = sum(source.stat.st_size for source, _ in pairs)
    where, _ = free_space.measure_free_space(temporary)
    if where is not None and needed > where.free_bytes:
        words = (temporary, size_text(needed), size_text(where.free_bytes))
        raise CopyFailed("{}: No space left on device: {} needed, {} free".format(*words))


def _copy_and_hash(source: SourceFile, copy: str) -> tuple[str, int]:
    """Copy one file; return its SHA-256 and size."""
    reader = source.open_unchanged()
    try:
        writer = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            found = hashing.hash_open_file(reader, writer)
            # Evicted from the page cache, so that reading it back reaches the disk.
            hashing.flush_and_evict(writer)
        except OSError as error:
            raise OSError(error.errno, error.strerror, copy) from error
        finally:
            os.close(writer)
    finally:
        os.close(reader)
    return found


def _hash_file(path: str) -> str:
    return hashing.hash_path(path)


class ExpectedFiles:
    """The files that a copy should contain.

    Attributes:
        entries: Relative path as raw bytes → (size, SHA-256).
        problem: Why the list itself cannot be trusted; None if it can.
        found: Whether a manifest was found.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, tuple[int, str]] = {}
        self.problem: str | None = None
        self.found = False

    def add_file(self, path: bytes, size: Any, digest: Any, where: str) -> None:
        """Add one file."""
        if isinstance(size, int) and isinstance(digest, str) and len(digest) == 64:
            self.entries[path] = (size, digest)
        else:
            self.problem = f"{where} is damaged"


def read_manifest(copy: str) -> ExpectedFiles:
    """Return the files that a copy should contain, from its own manifest."""
    listing = ExpectedFiles()
    listing.found = True
    ended = False
    data = files.read_file(os.path.join(copy, MANIFEST), 256 << 20) or b""
    for raw in data.splitlines():
        row = jsonline.loads_dict(raw) or {}
        path = file_tree.raw_name(row)
        ended = row.get("end") is True
        if path is not None and "sha256" in row:
            listing.add_file(path, row.get("size"), row.get("sha256"), MANIFEST)
    if not ended:
        listing.problem = f"{MANIFEST} is cut off"
    return listing


def _write_manifest(temporary: str, target: str, copies: list[tuple[str, str, int]]) -> None:
    """Write the manifest of the copied files, in the format of the ``manifest`` verb."""
    rows = [file_tree.name_fields(os.fsencode(target), "root")]
    total = 0
    for copy, digest, size in sorted(copies):
        path = os.fsencode(os.path.relpath(copy, temporary))
        rows.append(
            dict(
                file_tree.name_fields(path), size=size, sha256=digest, mtime=os.stat(copy).st_mtime
            )
        )
        total += size
    rows.append({"end": True, "files": len(copies), "bytes": total, "links": 0, "problems": 0})
    path_of = os.path.join(temporary, MANIFEST)
    with open(path_of, "wb") as file:
        file.write(b"".join(jsonline.encode_line(row) for row in rows))
        file.flush()
        hashing.flush_and_evict(file.fileno())


def _replace_target(temporary: str, target: str) -> None:
    # With the suffix of its successor, see `locate_copy`.
    old = f"{target}.old-{temporary[len(target) + len('.tmp-') :]}"
    replaced = os.path.lexists(target)
    if replaced:
        # Moved, not deleted: if the second rename fails, the old copy returns.
        os.rename(target, old)
    try:
        os.rename(temporary, target)
    except OSError:
        if replaced:
            os.rename(old, target)
        raise
    hashing.sync_folder(os.path.dirname(target) or ".")
    # Also those that a crash has left: only one runner at a time copies a cell.
    for name in _leftover_names(target):
        shutil.rmtree(os.path.join(os.path.dirname(target), name), ignore_errors=True)


def _leftover_names(target: str) -> list[str]:
    folder, base = os.path.split(target)
    # Nothing shorter than the suffix: it could be the copy of another cell.
    pattern = re.compile(re.escape(base) + r"\.(?:tmp|old)-\d+-[0-9a-f]{8}")
    return sorted(name for name in os.listdir(folder or ".") if pattern.fullmatch(name))


def locate_copy(target: str) -> str:
    """Return the path of a cell's copy: `target`, unless a crash interrupted its replacement.

    A crash between the two renames leaves the previous copy as ``.old-SUFFIX`` and its verified
    successor as ``.tmp-SUFFIX``. The successor is returned if all its files are there.
    """
    folder, base = os.path.split(target)
    if os.path.lexists(target) or not os.path.isdir(folder or "."):
        return target
    for name in _leftover_names(target):
        if name.startswith(base + ".old-"):
            new = f"{target}.tmp-{name[len(base) + len('.old-') :]}"
            listing = read_manifest(new)
            sizes = [
                files.size_or_zero(os.path.join(os.fsencode(new), path)) == size
                for path, (size, _) in listing.entries.items()
            ]
            if all(sizes) and not listing.problem:
                return new
            return os.path.join(folder, name)
    return target


# Free space on a box: remove checkpoints of finished cells after verifying their durable copies
# again.
#
# Only checkpoint files are removed, and never a cell's best checkpoint. A checkpoint is removed
# only if each of its files, both here and in the copy, has at that moment the SHA-256 recorded in
# the copy's manifest.


if TYPE_CHECKING:

    class Removable(NamedTuple):
        """A checkpoint that could be removed."""

        cell: str
        path: str
        files: tuple[tuple[str, str, int, str], ...]
        """(file, its copy, bytes, SHA-256), absolute paths."""

        @property
        def bytes(self) -> int:
            """Total size of its files."""
            return sum(size for _, _, size, _ in self.files)
else:
    from collections import namedtuple

    class Removable(namedtuple("Removable", "cell path files")):
        """A checkpoint that could be removed; same fields as above."""

        @property
        def bytes(self):  # noqa: ANN201, D102
            return sum(size for _, _, size, _ in self.files)


def removable_checkpoints(job: Job, cells: list[JsonObject]) -> list[Removable]:
    """Return the checkpoints that could be removed, judged by name and size.

    The oldest cell's come first.
    """
    if not job.settings["prune"]:
        return []
    done = [
        cell for cell in cells if cell.get("state") == "done" and cell.get("durable") == "verified"
    ]
    found: list[Removable] = []
    for cell in sorted(done, key=lambda cell: float(cell.get("ended") or 0.0)):
        out = cell.get("out")
        copy = cell.get("durable_path")
        if isinstance(out, str) and isinstance(copy, str) and not _paths_overlap(out, copy):
            found += _removable_of_cell(str(cell.get("name")), out, copy)
    return found


def _paths_overlap(one: str, other: str) -> bool:
    one = os.path.realpath(one)
    other = os.path.realpath(other)
    return files.is_below(one, other) or files.is_below(other, one)


def _removable_of_cell(name: str, out: str, copy: str) -> list[Removable]:
    saved = [
        one for one in CheckpointSearch(out, waits=False).poll_checkpoints() if not one.unfinished
    ]
    # Without a best one, the newest stays: the cell may be continued from it.
    kept = [one for one in saved if one.best] or saved[-1:]
    stays = {path for one in kept for path in one.files}
    listing = read_manifest(copy)
    if listing.problem:
        return []  # an incomplete manifest proves nothing
    found = []
    for one in saved:
        if one in kept or stays.intersection(one.files):
            continue
        rows = [_file_with_copy(path, out, copy, listing.entries) for path in one.files]
        complete = [row for row in rows if row is not None]
        if len(complete) == len(rows):
            found.append(Removable(name, one.path, tuple(complete)))
    return found


def _file_with_copy(
    path: str, out: str, copy: str, listed: dict[bytes, tuple[int, str]]
) -> tuple[str, str, int, str] | None:
    """Return a file with its copy; None if the copy's manifest does not list it with this size."""
    name = os.path.relpath(path, out)
    try:
        status = os.lstat(path)
    except OSError:
        return None
    size, sha256 = listed.get(os.fsencode(name), (-1, ""))
    if not stat.S_ISREG(status.st_mode) or size != status.st_size:
        return None
    return path, os.path.join(copy, name), size, sha256


def remove_checkpoint(one: Removable) -> str | None:
    """Remove a checkpoint after verifying its files; return None, or why it was not removed."""
    for path, copy, _, sha256 in one.files:
        try:
            # Links may lead from the copy back to the original, which would match itself.
            if os.path.samefile(path, copy):
                return f"{path} is the same file as its copy"
            if hashing.hash_path(copy) != sha256:
                return f"{copy} differs from the file copied there"
            if hashing.hash_path(path) != sha256:
                return f"{path} differs from its copy"
        except OSError as error:
            return f"{error.filename or copy}: {error.strerror or error}"
    # Only after all were verified: half a checkpoint is worth nothing.
    for path, _, _, _ in one.files:
        try:
            os.unlink(path)
        except OSError as error:
            return f"{path}: {error.strerror or error}"
    if os.path.isdir(one.path):
        for folder, _, _ in os.walk(one.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # the directory is not empty
    return None


def describe_removable(found: list[Removable]) -> str:
    """Return a text that says what could be removed."""
    cells = len({one.cell for one in found})
    count = len(found)
    return "%d checkpoint%s of %d finished cell%s, %s" % (
        count,
        "" if count == 1 else "s",
        cells,
        "" if cells == 1 else "s",
        size_text(sum(one.bytes for one in found)),
    )
