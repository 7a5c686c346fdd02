"""Read a recording's file line by line, whatever has become of it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import msgspec

from rgt_tui.fleet import recording
from rgt_tui.fleet.recording import LONGEST, DamagedLine, Entry, Header, RecordingError

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


class Tape:
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
        self.header: Header = recording.read_header(first, str(path))
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
            entry = recording.read_entry(line)
            if entry.box not in self._names:
                raise DamagedLine("it is of a box that the header does not name")
            if abs(entry.at - self.header.started) > LONGEST_SECONDS:
                raise DamagedLine("its time is years away from the header's")
            recording.wire_of(entry)
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


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP
    return cast("IO[bytes]", gzip.open(path, "rb") if zipped else path.open("rb"))
