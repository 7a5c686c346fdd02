"""Appending lines or records that a reader may follow while the disk is full, half dead, or fine."""

from __future__ import annotations

import os
from collections import deque
from typing import Deque, Optional

from rgt_train.durable import StrPath

_BACKLOG = 20_000


class Appender:
    """Appends lines (or records) to one file, each by one `write`, and never raises.

    The descriptor is opened once: appending to an existing file needs no inode, so that events still arrive when
    nothing new can be created. Lines that the disk refuses wait in memory, in order, and go out with the next one
    that fits; only after 20,000 the oldest are dropped.

    Args:
        path: The file; created if missing.
        lines: Whether it holds lines: then one that a power loss tore is ended before ours begins.
    """

    def __init__(self, path: StrPath, *, lines: bool = True) -> None:
        self.path = os.fspath(path)
        self._lines = lines
        self._fd: Optional[int] = None
        self._waiting: Deque[bytes] = deque(maxlen=_BACKLOG)
        self._open()

    def append(self, line: str) -> bool:
        """Append `line` (without its newline); False where it has to wait in memory."""
        return self.append_bytes(line.encode() + b"\n")

    def append_bytes(self, data: bytes) -> bool:
        """Append `data` as it is; False where it has to wait in memory."""
        if self._waiting or self._fd is None:
            self._waiting.append(data)
            return self.flush()
        if self._write(self._fd, data):
            return True
        self._waiting.append(data)
        return False

    def flush(self) -> bool:
        """Write what waits; True where nothing waits any more."""
        if self._fd is None:
            self._open()
        while self._waiting and self._fd is not None:
            if not self._write(self._fd, self._waiting[0]):
                break
            self._waiting.popleft()
        return not self._waiting

    def close(self) -> None:
        """Write what still can be written and close."""
        self.flush()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            size = os.fstat(self._fd).st_size
            if self._lines and size and os.pread(self._fd, 1, size - 1) != b"\n":
                os.write(self._fd, b"\n")  # a power loss tore the last line: ours must not be glued to it
        except OSError:
            return

    @staticmethod
    def _write(fd: int, data: bytes) -> bool:
        try:
            written = os.write(fd, data)
        except OSError:
            return False
        if written == len(data):
            return True
        try:  # a disk that fills up takes half a line: take it back, this process is the only writer
            os.ftruncate(fd, os.fstat(fd).st_size - written)
        except OSError:
            return True  # half a line is in the file for good; repeating it would not mend it
        return False
