"""Reads a recording line by line, and names the damaged lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import msgspec

from rgt_tui.files import open_regular
from rgt_tui.recordings import recording_lines
from rgt_tui.recordings.recording_lines import LONGEST, DamagedLine, Entry, Header, RecordingError

GZIP = b"\x1f\x8b"
BATCH = 256
LONGEST_SECONDS = 10 * 366 * 86400.0
"""A time that is further from the recording's beginning is none of it."""


class Skipped(msgspec.Struct, frozen=True):
    """A line that could not be used."""

    line: int
    """Its number; the header is line 1."""
    why: str
    torn: bool = False
    """It is the last one, and was never finished."""

    def __str__(self) -> str:
        return f"line {self.line} was left out: {self.why}"


Item = Entry | Skipped
_UNREADABLE = (OSError, EOFError, zlib.error)


class RecordingReader:
    """A recording, from its first entry to its last. Reading blocks: do it in a thread.

    Args:
        path: The file.

    Raises:
        RecordingError: it cannot be read, or is no recording.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = _open(path)
            first = self._file.readline(LONGEST)
        except _UNREADABLE as error:
            raise RecordingError(
                f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error
        self.header: Header = recording_lines.read_header(first, str(path))
        self._names = frozenset(spec.name for spec in self.header.boxes)
        self._number = 1
        self._over = False

    def read(self, count: int = BATCH) -> list[Item]:
        """Return the next items, at most `count`; [] at the end."""
        found: list[Item] = []
        while len(found) < count and not self._over:
            found += self._next()
        return found

    def _next(self) -> Iterator[Item]:
        self._number += 1
        try:
            line = self._file.readline(LONGEST)
        except _UNREADABLE as error:
            self._over = True
            yield Skipped(self._number, f"the file ends in its middle ({error})", torn=True)
            return
        if not line:
            self._over = True
            return
        if not line.endswith(b"\n") and len(line) >= LONGEST:
            try:
                self._skip_rest()
            except _UNREADABLE:
                self._over = True
            yield Skipped(self._number, f"it is longer than {LONGEST:,} bytes")
            return
        try:
            entry = recording_lines.read_entry(line)
            if entry.box not in self._names:
                raise DamagedLine("it is of a box that the header does not name")
            if abs(entry.at - self.header.started) > LONGEST_SECONDS:
                raise DamagedLine("its time is years away from the header's")
            recording_lines.wire_of(entry)
            yield entry
        except DamagedLine as error:
            torn = not line.endswith(b"\n")
            yield Skipped(self._number, "the file ends in its middle" if torn else str(error), torn)

    def _skip_rest(self) -> None:
        while True:
            line = self._file.readline(LONGEST)
            if not line or line.endswith(b"\n"):
                return

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def length(path: Path, going: Callable[[], bool] = lambda: True) -> float | None:
    """Return how many seconds a recording lasts, the times that its clock was set taken out. It reads all of it.

    Args:
        path: The file.
        going: Asked now and then; False = nobody wants to know any more, and None is returned.

    Raises:
        RecordingError: it cannot be read, or is no recording.
    """
    reader = RecordingReader(path)
    try:
        end = reader.header.started
        set_by, set_at = 0.0, None
        while items := reader.read():
            if not going():
                return None
            for item in items:
                if isinstance(item, Skipped):
                    continue
                if item.set is not None and item.set.moved and item.at != set_at:
                    set_by, set_at, end = set_by + item.set.moved, item.at, item.at
                end = max(end, item.at)
        return end - set_by - reader.header.started
    finally:
        reader.close()


def _open(path: Path) -> IO[bytes]:
    with open_regular(path) as file:
        zipped = file.read(2) == GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if zipped else open_regular(path)
