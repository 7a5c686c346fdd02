"""A section of an open file, read in pieces: no file is mapped or read into memory as a whole."""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from rgt_tui.files import open_regular

PIECE = 1 << 20


class FileRefused(Exception):
    """A file is damaged, or of the wrong kind.

    The text says what and where, without the file's name.
    """


class MemberFileError(Exception):
    """What is wrong with one of several files that belong together."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class FileSection:
    """`length` bytes of a file from `start` on, which read like a whole file."""

    def __init__(self, handle: int, start: int, length: int) -> None:
        self._handle = handle
        self._start = start
        self.length = length

    def subsection(self, start: int, length: int) -> FileSection:
        """Return a part of this section.

        Raises:
            FileRefused: it is not within it.
        """
        if start < 0 or length < 0 or start + length > self.length:
            raise FileRefused(
                f"bytes {start} to {start + length} are asked for, and there are {self.length}"
            )
        return FileSection(self._handle, self._start + start, length)

    def read(self, start: int, length: int) -> bytes:
        """Return exactly these bytes.

        Raises:
            FileRefused: they do not exist.
            OSError: the disk cannot be read.
        """
        part = self.subsection(start, length)
        found = bytearray()
        while len(found) < length:
            piece = os.pread(self._handle, length - len(found), part._start + len(found))
            if not piece:
                raise FileRefused(
                    f"it was truncated while it was read: it ends at byte {start + len(found)}"
                )
            found += piece
        return bytes(found)

    def iterate_pieces(self) -> Iterator[bytes]:
        """Yield the content in pieces of `PIECE` bytes."""
        for at in range(0, self.length, PIECE):
            yield self.read(at, min(PIECE, self.length - at))

    def compute_crc32(self) -> int:
        """Return the CRC-32 of the content."""
        found = 0
        for piece in self.iterate_pieces():
            found = zlib.crc32(piece, found)
        return found

    def read_head(self, most: int) -> io.BytesIO:
        """Return at most the first `most` bytes as a file in memory."""
        return io.BytesIO(self.read(0, min(most, self.length)))


class OpenFileSection(FileSection):
    """A regular file, opened without following a link at its name.

    A context manager that closes it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = open_regular(path, follow=False)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise FileRefused("it is a link, and links are not followed") from None
        handle = self._file.fileno()
        super().__init__(handle, 0, os.fstat(handle).st_size)

    def __enter__(self) -> OpenFileSection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
