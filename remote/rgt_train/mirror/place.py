"""What the mirror needs of a place, whatever it is."""

from __future__ import annotations

import os
import re
from typing import BinaryIO, Iterator, List, Mapping, Optional, Protocol, Tuple

from rgt_train import digest, manifest
from rgt_train.durable import fsync_dir, remove, write_all
from rgt_train.manifest import Damaged
from rgt_train.retention import Item

MANIFEST = manifest.NAME
OWNER = "owner.json"
"""Beside the directories: whose mirror it is (see `rgt_train.mirror.owner`)."""
PIECE = 4 << 20
"""Bytes that are read or written at a time."""
_STEP = re.compile(r"step-(\d{8,})-a(\d+)(?:\.(\d+))?\Z")
_BEST = re.compile(r"best-(\d{8,})-a(\d+)(?:\.(\d+))?\Z")


class Place(Protocol):
    """Directories of files somewhere else. Every method raises `OSError` where the place does not answer.

    Attributes:
        url: Where it is, for a person.
    """

    url: str

    def names(self) -> List[str]:
        """Return the names of the complete directories: those that have a manifest."""

    def put(self, name: str, files: Mapping[str, BinaryIO]) -> None:
        """Copy `files` into the new directory `name`, the manifest last; replaces what a dead copy left there."""

    def read(self, name: str, file: str) -> Iterator[bytes]:
        """Yield the content of a file, from where it is kept and not from a cache of ours."""

    def drop(self, name: str) -> None:
        """Delete a directory, the manifest first."""

    def sweep(self) -> None:
        """Delete what copies that were killed left half done, or half deleted."""

    def note(self, file: str = OWNER) -> bytes:
        """Return what `mark` wrote last; empty where there is nothing."""

    def mark(self, content: bytes, file: str = OWNER) -> None:
        """Keep `content` beside the directories, in place of what is there under that name."""


def steps(names: List[str]) -> List[Item]:
    """Return the step checkpoints among `names`, oldest first."""
    return _items(names, _STEP)


def bests(names: List[str]) -> List[Item]:
    """Return the best checkpoints among `names`, the one that counts last.

    That is the best of the last launch: one of a later step may be of a time that a rollback gave up.
    """
    return sorted(_items(names, _BEST), key=lambda item: (item.attempt, item.step, item.serial))


def is_ours(name: str) -> bool:
    """Say whether `name` is that of a checkpoint in a mirror."""
    return bool(_STEP.match(name) or _BEST.match(name))


def check(place: Place, name: str, expected: Mapping[str, Mapping[str, object]]) -> None:
    """Read a directory back and compare every byte.

    Args:
        place: Where it is.
        name: Its name.
        expected: The ``files`` of its manifest as they are at the source.

    Raises:
        Damaged: A file is not what was copied.
    """
    for file, facts in expected.items():
        size, sums = _sums(place.read(name, file))
        if size != facts["size"] or sums != facts["crc32"]:
            raise Damaged(f"{file} reads back differently ({size} of {facts['size']} bytes)")


def fetch(place: Place, name: str, target: str) -> None:
    """Copy a directory to the new local directory `target`, fsynced.

    Raises:
        OSError: It could not be read, or not be written.
        Damaged: It is not whole there.
    """
    remove(target)
    os.mkdir(target)
    try:
        raw = b"".join(place.read(name, MANIFEST))
        _write(os.path.join(target, MANIFEST), iter([raw]))
        for file in manifest.read(target)["files"]:
            if os.path.basename(file) != file:
                raise Damaged(f"{file} is not a name of a file")
            _write(os.path.join(target, file), place.read(name, file))
        fsync_dir(target)
        manifest.verify(target)
    except BaseException:
        remove(target)
        raise


def _write(path: str, pieces: Iterator[bytes]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for piece in pieces:
            write_all(fd, piece, path)
        os.fsync(fd)
    finally:
        os.close(fd)


def _sums(pieces: Iterator[bytes]) -> Tuple[int, List[str]]:
    """Return the size and the checksums of a stream, by the chunks a manifest has."""
    import zlib

    sums: List[str] = []
    size = current = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = digest.CHUNK - size % digest.CHUNK
            part, view = view[:room], view[room:]
            current = zlib.crc32(part, current)
            size += len(part)
            if size % digest.CHUNK == 0:
                sums.append(f"{current:08x}")
                current = 0
    if size % digest.CHUNK:
        sums.append(f"{current:08x}")
    return size, sums


def _items(names: List[str], pattern: "re.Pattern[str]") -> List[Item]:
    found: List[Item] = []
    for name in names:
        match: "Optional[re.Match[str]]" = pattern.match(name)
        if match:
            step, attempt, serial = (int(group or 0) for group in match.groups())
            found.append(Item(step, attempt, serial, name, 0.0))
    return sorted(found)
