"""Files that only grow: go on at an offset, begin anew when the file is another one.

A cursor is ``{"inode", "offset", "head"}`` and what the format adds; ``head`` is the checksum of the first bytes,
because a file that was emptied and written again keeps its inode and may be longer than the offset.
"""

from __future__ import annotations

import os
import zlib

from rgt_box.files import open_regular
from rgt_box.metrics.base import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

HEAD = 16 << 10
"""Bytes at the beginning by which a file is known again; the header of a CSV file fits in."""
BUDGET = 4 << 20
"""Bytes after which a read ends even if they held no point."""
WINDOW = 128 << 10
MAX_LINE = 1 << 20


class Window:
    """The part of an open file that may be read now.

    Attributes:
        fd: The open file.
        size: Its size when the read began; nothing beyond is read.
        head: Its first `HEAD` bytes at most.
    """

    __slots__ = ("fd", "head", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self.head = os.pread(fd, min(self.size, HEAD), 0)

    def at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`, fewer only at the end."""
        return os.pread(self.fd, max(0, min(length, self.size - offset)), offset)


class Appended(Reader):
    """A file that grows at its end. Subclasses consume whole records in `_consume`."""

    def _read(self, batch: Batch, limit: int) -> None:
        fd = open_regular(self.path)
        try:
            inode, window = os.fstat(fd).st_ino, Window(fd)
            state = dict(batch.cursor or {})
            if state and not self._same(state, inode, window):
                state, batch.reset = {}, True
            state.setdefault("offset", 0)
            if state["offset"] < window.size:
                self._consume(window, state, batch, limit)
            state["inode"] = inode
            state["head"] = zlib.crc32(window.head[: state["offset"]])
            batch.cursor = state
        finally:
            os.close(fd)

    @staticmethod
    def _same(state: dict[str, Any], inode: int, window: Window) -> bool:
        offset = state.get("offset")
        return (
            isinstance(offset, int)
            and state.get("inode") == inode
            and 0 <= offset <= window.size
            and state.get("head")
            in (None, zlib.crc32(window.head[:offset]))  # None: a client's, who knows no more
        )

    def _consume(self, window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        """Read complete records from ``state["offset"]``, move it behind the last one, set ``batch.more``."""
        raise NotImplementedError


class Lines(Appended):
    """A text file of lines. Subclasses take one at a time in `_line`."""

    budget = BUDGET
    """Bytes after which a read ends, give or take a window."""
    mark = b""
    """A line with these bytes in it is the first of its read."""

    def _consume(self, window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        self._begin(window, state, batch)
        offset = first = state["offset"]
        length = WINDOW
        while offset < window.size:
            if batch.more or self._is_full(batch, limit) or offset - first >= self.budget:
                batch.more = True
                break
            data = window.at(offset, length)
            end = data.rfind(b"\n") + 1
            if not end:
                if len(data) < length:
                    break  # the line is not complete yet
                if length < MAX_LINE:
                    length *= 2
                    continue
                if not state.get("skip"):
                    batch.problem(offset, "line longer than 1 MiB")
                state["skip"] = True
                offset += len(data)
                continue
            length = WINDOW
            offset = self._lines(data[:end], offset, state, batch, limit)
        state["offset"] = offset

    def _lines(self, data: bytes, offset: int, state: dict[str, Any], batch: Batch, limit: int) -> int:
        """Take the lines of `data`; return the offset behind the last one that was taken."""
        place = 0
        while place < len(data) and not self._is_full(batch, limit):
            end = data.find(b"\n", place)
            if state.get("skip"):
                del state["skip"]
            elif self.mark and offset + place > state["offset"] and self.mark in data[place:end]:
                batch.more = True
                break
            elif end > place:
                self._line(data[place:end].rstrip(b"\r"), offset + place, state, batch)
            place = end + 1
        return offset + place

    def _is_full(self, batch: Batch, limit: int) -> bool:
        return len(batch.points) >= limit

    def _begin(self, window: Window, state: dict[str, Any], batch: Batch) -> None:
        """Prepare for the lines of one read (the header of a table)."""

    def _line(self, raw: bytes, offset: int, state: dict[str, Any], batch: Batch) -> None:
        """Take one complete line without its end."""
        raise NotImplementedError
