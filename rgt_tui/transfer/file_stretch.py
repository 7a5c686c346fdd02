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


class Refused(Exception):
    """A file is damaged, or of the wrong kind.

    The text says what and where, without the file's name.
    """


class Trouble(Exception):
    """What is wrong with one of several files that belong together."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class Stretch:
    """`length` bytes of a file from `start` on, which read like a whole file."""

    def __init__(self, handle: int, start: int, length: int) -> None:
        self._handle = handle
        self._start = start
        self.length = length

    def part(self, start: int, length: int) -> Stretch:
        """Return a part of this section.

        Raises:
            Refused: it is not within it.
        """
        if start < 0 or length < 0 or start + length > self.length:
            raise Refused(
                f"bytes {start} to {start + length} are asked for, and there are {self.length}"
            )
        return Stretch(self._handle, self._start + start, length)

    def read(self, start: int, length: int) -> bytes:
        """Return exactly these bytes.

        Raises:
            Refused: they do not exist.
            OSError: the disk cannot be read.
        """
        part = self.part(start, length)
        found = bytearray()
        while len(found) < length:
            piece = os.pread(self._handle, length - len(found), part._start + len(found))
            if not piece:
                raise Refused(
                    f"it was truncated while it was read: it ends at byte {start + len(found)}"
                )
            found += piece
        return bytes(found)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content in pieces of `PIECE` bytes."""
        for at in range(0, self.length, PIECE):
            yield self.read(at, min(PIECE, self.length - at))

    def crc32(self) -> int:
        """Return the CRC-32 of the content."""
        found = 0
        for piece in self.pieces():
            found = zlib.crc32(piece, found)
        return found

    def head(self, most: int) -> io.BytesIO:
        """Return at most the first `most` bytes as a file in memory."""
        return io.BytesIO(self.read(0, min(most, self.length)))


class OpenStretch(Stretch):
    """A regular file, opened without following a link at its name.

    A context manager that closes it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = open_regular(path, follow=False)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise Refused("it is a link, and links are not followed") from None
        handle = self._file.fileno()
        super().__init__(handle, 0, os.fstat(handle).st_size)

    def __enter__(self) -> OpenStretch:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
