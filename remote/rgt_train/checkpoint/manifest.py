"""The manifest of a checkpoint: its files, their lengths and checksums; and its verification.

Standard library only, so that listing and verifying never waits for `import torch`, and the writer
process never imports it.

CRC-32 of 16 MiB chunks: it finds every single flipped bit and every burst of up to 32 bits, zlib
computes it at 6 GB/s per core without holding the GIL, and chunks are checked in parallel. It
protects against disks and cables, not against people: no content is ever executed (see
`rgt_train.checkpoint.encoding`), so that forging it gains nothing.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import mmap
import os
import threading
import zlib
from typing import (
    Any,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    TypeVar,
)

from rgt_wire import checkpoint_names

from rgt_train.checkpoint import diskio
from rgt_train.checkpoint.diskio import StrPath, Unreadable
from rgt_train.exits import UsageError

CHUNK = 16 << 20
"""Bytes under one checksum."""
_PIECE = 1 << 20
"""Bytes that are read and summed at a time: they stay in the cache of a core between the two."""


def chunk_checksums(view: memoryview) -> list[str]:
    """Return the CRC-32 of each chunk of contiguous bytes as eight hexadecimal digits; an empty view has none."""
    return [f"{zlib.crc32(view[at : at + CHUNK]):08x}" for at in range(0, len(view), CHUNK)]


def crc32_in(
    path: str, begin: int, length: int, pieces: Iterable[memoryview] | None = None
) -> tuple[str, int]:
    """Return the CRC-32 of `length` bytes of a file from `begin` on, and the number of bytes read.

    They are read, not mapped: a sector that cannot be read is an error then, not the end of the
    process (SIGBUS).

    Args:
        path: The file.
        begin: Offset of the first byte.
        length: Bytes to read.
        pieces: Memory for them, in order, in pieces that stay in the cache of a core; None drops
            them.

    Raises:
        OSError: It cannot be opened or read.
    """
    found = done = 0
    if pieces is None:
        buffer = memoryview(bytearray(min(_PIECE, length)))
        pieces = (buffer[: length - at] for at in range(0, length, _PIECE))
    # one descriptor per piece of work: their read-ahead does not interfere
    fd = diskio.open_file(path)
    try:
        for piece in pieces:
            count = diskio.read_into(fd, begin + done, piece)
            found = zlib.crc32(piece[:count], found)
            done += count
            if count < len(piece):
                break
    finally:
        os.close(fd)
    return f"{found:08x}", done


def file_facts(view: memoryview, *, sha256: bool = False) -> dict[str, Any]:
    """Return the entry of a manifest for a file with the content `view`.

    Args:
        view: Contiguous bytes.
        sha256: Whether to add a digest of the whole file, for comparing copies of it.
    """
    found: dict[str, Any] = {"size": len(view), "crc32": chunk_checksums(view), "chunk": CHUNK}
    if sha256:
        found["sha256"] = hashlib.sha256(view).hexdigest()
    return found


def spare_threads() -> int:
    """Return how many threads are useful on this machine while nothing else runs."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    most_threads = 8
    return max(1, min(most_threads, cores))


def bind_number(work: Callable[[int], None], number: int) -> Callable[[], None]:
    """Return ``work(number)`` as a task."""
    return lambda: work(number)


def in_parallel(tasks: Sequence[Callable[[], None]], threads: int) -> None:
    """Run `tasks`, `threads` at a time.

    Raises:
        BaseException: The first error of a task; the others are finished or not started.
    """
    if threads <= 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    waiting = iter(tasks)
    errors: list[BaseException] = []
    guard = threading.Lock()

    def run_tasks() -> None:
        # One damaged chunk is enough: the tasks after it are not begun.
        while not errors:
            with guard:
                task: Callable[[], None] | None = next(waiting, None)
            if task is None:
                return
            try:
                task()
            except BaseException as error:
                errors.append(error)

    helpers = [
        threading.Thread(target=run_tasks, daemon=True) for _ in range(min(threads, len(tasks)) - 1)
    ]
    for helper in helpers:
        helper.start()
    # This thread works as well, so that one helper fewer is needed.
    run_tasks()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


NAME, FORMAT = checkpoint_names.MANIFEST, checkpoint_names.FORMAT
# Python names it from 3.10 on; the number is Linux's.
_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)
T = TypeVar("T")


class CheckpointDamaged(Exception):
    """A checkpoint is incomplete, or a byte of it is not the one written.

    The message says where.
    """


class UnknownFormat(UsageError):
    """A checkpoint that is intact but of an unknown format; it must not be skipped."""


def build_manifest(
    step: int, files: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]
) -> bytes:
    """Return the bytes of a manifest.

    Args:
        step: Optimizer steps done.
        files: Name → facts from `rgt_train.checkpoint.manifest.facts`.
        about: Further facts for a person or a tool (epoch, torch version, best metric, …).
    """
    body: dict[str, Any] = {
        **about,
        "format": FORMAT,
        "step": step,
        "files": {k: dict(v) for k, v in files.items()},
    }
    return checkpoint_names.encode_manifest(body)


def read_manifest(directory: StrPath, pauses: Sequence[float] | None = None) -> dict[str, Any]:
    """Return the manifest of `directory` after checking its own digest (not the files it lists).

    Args:
        directory: The checkpoint.
        pauses: Seconds between the attempts to read it; None for those of
            `rgt_train.checkpoint.diskio`.

    Raises:
        CheckpointDamaged: It is missing or altered.
        Unreadable: The disk cannot return its content.
        UnknownFormat: It is intact and of another format.
    """
    place = os.fspath(directory)
    try:
        raw = diskio.read_content(os.path.join(place, NAME), pauses)
    except OSError as error:
        raise CheckpointDamaged(f"{NAME}: {error.strerror}") from error
    except Unreadable as error:
        raise error.of_checkpoint(place) from error
    return parse_manifest(raw, place)


def manifest_length(body: Mapping[str, Any]) -> int:
    """Return the length of the file from which the manifest `body` was read."""
    return len(checkpoint_names.encode_manifest(body))


def parse_manifest(raw: bytes, where: str) -> dict[str, Any]:
    """Return the manifest in `raw`, found at `where`, after checking its own digest.

    Raises:
        CheckpointDamaged: It is altered.
        UnknownFormat: It is intact and of another format.
    """
    try:
        body = checkpoint_names.decode_manifest(raw)
    except ValueError as error:
        raise CheckpointDamaged(f"{NAME}: {error}") from error
    # Not "damaged": a damaged one is skipped, and this one may be the newest.
    if body["format"] != FORMAT:
        raise UnknownFormat(
            f"{where} is a checkpoint of format {body['format']}, this version reads "
            f"format {FORMAT}. Finish the run with the version that wrote it, or give another --out"
        )
    return body


class VerifiedFiles:
    """A checkpoint whose every byte was verified; its files stay mapped until `release`.

    Attributes:
        body: The manifest.
        views: File name → its content, read-only.
    """

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.views: dict[str, memoryview] = {}
        self._maps: list[mmap.mmap] = []

    def map_file(self, name: str, path: str) -> None:
        """Map a file.

        Raises:
            OSError: It cannot be opened.
        """
        fd = diskio.open_file(path)
        try:
            size = os.fstat(fd).st_size
            if size:
                self.views[name] = self._map_content(fd, size)
            else:
                self.views[name] = memoryview(b"")
        finally:
            os.close(fd)

    def release(self) -> None:
        """Close the files; the memory is freed with the last view of it."""
        self.views.clear()
        self._maps.clear()

    def _map_content(self, fd: int, size: int) -> memoryview:
        # MAP_POPULATE reads ahead in one call instead of one fault per page.
        flags = mmap.MAP_SHARED | (_POPULATE if hasattr(os, "memfd_create") else 0)
        try:
            mapped = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            # A file system in user space without mmap: read into memory of our own.
            mapped = mmap.mmap(-1, size)
            diskio.read_into(fd, 0, memoryview(mapped))
        self._maps.append(mapped)
        return memoryview(mapped)


def open_verified(directory: StrPath, only: Container[str] | None = None) -> VerifiedFiles:
    """Compare every byte of the checkpoint in `directory` with its checksum, and map its files.

    The files are read before they are mapped: a sector that cannot be read is an error of a call,
    but kills a process that touches it in a mapping (SIGBUS).

    Args:
        directory: The checkpoint.
        only: Names of the files to verify, if several processes share the work; None for all.

    Raises:
        CheckpointDamaged: The first file that is missing, short, long or altered.
        Unreadable: The disk cannot return its content.
        UnknownFormat: It is of another format.
    """
    place = os.fspath(directory)
    result = VerifiedFiles(verify_checkpoint(place, only=only))
    try:
        for name in result.body["files"]:
            if only is None or name in only:
                path = os.path.join(place, name)
                keep = functools.partial(result.map_file, name, path)
                _query_disk(place, name, path, keep)
    except BaseException:
        result.release()
        raise
    return result


def verify_checkpoint(
    directory: StrPath,
    threads: int | None = None,
    only: Container[str] | None = None,
    memory_of: Callable[[str, str, int], Sequence[memoryview]] | None = None,
) -> dict[str, Any]:
    """Read every byte of the checkpoint in `directory` and return its manifest.

    Args:
        directory: The checkpoint.
        threads: Number of threads that check; None for one per core.
        only: As in `open_verified`.
        memory_of: Returns the memory into which a file is read, from its name, its path and its
            size; None keeps nothing. An `OSError` in it is one of reading the file.

    Raises:
        CheckpointDamaged: The first file that is missing, short, long or altered.
        Unreadable: The disk cannot return its content.
        UnknownFormat: It is of another format.
    """
    place = os.fspath(directory)
    body = read_manifest(place)
    tasks: list[Callable[[], None]] = []
    for name, facts in body["files"].items():
        if only is None or name in only:
            tasks += _build_checks(place, name, facts, memory_of)
    in_parallel(tasks, threads or spare_threads())
    return body


def _build_checks(
    place: str,
    name: str,
    facts: Mapping[str, Any],
    memory_of: Callable[[str, str, int], Sequence[memoryview]] | None,
) -> list[Callable[[], None]]:
    """Check the lengths, and return the tasks that compare each chunk with its checksum."""
    path = os.path.join(place, name)
    size = facts["size"]
    chunk = facts["chunk"]
    expected = facts["crc32"]
    there = _query_disk(place, name, path, lambda: os.stat(path).st_size)
    if there != size:
        raise CheckpointDamaged(f"{name}: {there} bytes, {size} were written")
    # The manifest has a digest of its own, so this is a bug of the writer, not a bad disk.
    if len(expected) != -(-size // chunk):
        raise CheckpointDamaged(f"{name}: {len(expected)} checksums for {size} bytes")
    if size == 0:
        # An empty file has no chunk, but it must exist.
        return [lambda: os.close(_query_disk(place, name, path, lambda: diskio.open_file(path)))]

    pieces: list[list[memoryview] | None] = [None] * len(expected)
    if memory_of is not None:
        read_to = memory_of
        views = _query_disk(place, name, path, lambda: read_to(name, path, size))
        pieces = [*_cut_pieces(views, chunk)]

    def check_chunk(number: int) -> None:
        begin = number * chunk
        end = min(begin + chunk, size)
        found, count = _query_disk(
            place, name, path, lambda: crc32_in(path, begin, end - begin, pieces[number])
        )
        if count != end - begin:
            raise CheckpointDamaged(f"{name}: ends at byte {begin + count}, {size} were written")
        if found != expected[number]:
            raise CheckpointDamaged(
                f"{name}: crc32 {found} of bytes {begin} to {end}, {expected[number]} was written"
            )

    return [bind_number(check_chunk, number) for number in range(len(expected))]


def _cut_pieces(views: Iterable[memoryview], chunk: int) -> Iterator[list[memoryview]]:
    """Yield the memory of each chunk of a file, in pieces."""
    found: list[memoryview] = []
    room = chunk
    for view in views:
        while view:
            piece = view[: min(_PIECE, room)]
            view = view[len(piece) :]
            found.append(piece)
            room -= len(piece)
            if not room:
                yield found
                found = []
                room = chunk
    if found:
        yield found


def _query_disk(place: str, name: str, path: str, ask: Callable[[], T]) -> T:
    """Return the answer of the disk about a file of the checkpoint `place`."""
    try:
        return diskio.retry_reading(path, ask)
    except OSError as error:
        raise CheckpointDamaged(f"{name}: {error.strerror}") from error
    except Unreadable as error:
        raise error.of_checkpoint(place) from error
