"""A mirror in a directory: a network volume, a bucket mounted as one, a second disk."""

from __future__ import annotations

import os
from typing import BinaryIO, Iterator, List, Mapping

from rgt_train.durable import fsync_dir, remove, replace_file, write_all
from rgt_train.exits import UsageError
from rgt_train.mirror.place import MANIFEST, OWNER, PIECE, is_ours


class Folder:
    """A directory; it is made where its parent exists.

    Args:
        path: Where it is.

    Raises:
        UsageError: It is not absolute, or something else is there.
        OSError: It cannot be made: a volume that is not mounted must not be replaced by an empty directory.
    """

    def __init__(self, path: str) -> None:
        if not os.path.isabs(path):
            raise UsageError(f"mirror {path}: give an absolute path, or a URL such as s3://bucket/run")
        self.url = path
        if not os.path.isdir(path):
            if os.path.lexists(path):
                raise UsageError(f"mirror {path} is not a directory")
            os.mkdir(path)
            fsync_dir(os.path.dirname(path))

    def names(self) -> List[str]:
        """Return the names of the complete directories."""
        found = [name for name in os.listdir(self.url) if not name.startswith(".")]
        return [name for name in found if os.path.exists(os.path.join(self.url, name, MANIFEST))]

    def put(self, name: str, files: Mapping[str, BinaryIO]) -> None:
        """Copy `files` into the new directory `name`."""
        temporary, target = os.path.join(self.url, f".tmp-{name}"), os.path.join(self.url, name)
        remove(temporary)
        os.mkdir(temporary)
        try:
            for file, source in files.items():
                self._copy(source, os.path.join(temporary, file))
            fsync_dir(temporary)
            if os.path.lexists(target):  # the same name again: a copy of it that was found wanting
                self.drop(name)
            os.rename(temporary, target)
            fsync_dir(self.url)
        except BaseException:
            remove(temporary)
            raise

    def read(self, name: str, file: str) -> Iterator[bytes]:
        """Yield the content of a file."""
        fd = os.open(os.path.join(self.url, name, file), os.O_RDONLY)
        try:
            if hasattr(os, "posix_fadvise"):  # from the disk, where the system lets go of its copy
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while True:
                piece = os.read(fd, PIECE)
                if not piece:
                    return
                yield piece
        finally:
            os.close(fd)

    def drop(self, name: str) -> None:
        """Delete a directory."""
        aside = os.path.join(self.url, f".old-{name}")
        remove(aside)
        os.rename(os.path.join(self.url, name), aside)
        fsync_dir(self.url)
        remove(aside)

    def sweep(self) -> None:
        """Delete what copies that were killed left half done, or half deleted."""
        for name in os.listdir(self.url):
            if any(name.startswith(kind) and is_ours(name[len(kind) :]) for kind in (".tmp-", ".old-")):
                remove(os.path.join(self.url, name))

    def note(self, file: str = OWNER) -> bytes:
        """Return what `mark` wrote last; empty where there is nothing."""
        try:
            with open(os.path.join(self.url, file), "rb") as opened:
                return opened.read()
        except FileNotFoundError:
            os.stat(self.url)  # a volume that went away is no mirror without an owner
            return b""

    def mark(self, content: bytes, file: str = OWNER) -> None:
        """Keep `content` beside the directories, in place of what is there under that name."""
        replace_file(os.path.join(self.url, file), content)

    @staticmethod
    def _copy(source: BinaryIO, target: str) -> None:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            while True:
                piece = source.read(PIECE)
                if not piece:
                    break
                write_all(fd, piece, target)
            os.fsync(fd)
        finally:
            os.close(fd)
