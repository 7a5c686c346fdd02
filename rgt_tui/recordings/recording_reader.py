"""Reads a recording line by line, also damaged ones and those of earlier versions."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from rgt_tui.files import open_regular
from rgt_tui.model import Frame, Sample
from rgt_tui.recordings import recording_lines
from rgt_tui.recordings.recording_lines import LONGEST, DamagedLine, Entry, Header, RecordingError
from rgt_tui.ssh.channel import read_frame

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


DELTA = b'{"t":"delta",'
APART = ("t", "boot", "seq", "at", "skipped")
"""Fields of a sample that are no part of the numbered values."""


class Delta(msgspec.Struct, frozen=True, tag_field="t", tag="delta"):
    """A sample as its difference from the one before."""

    seq: int
    at: float
    back: int = 1
    """The sample that it builds on has number ``seq - back``."""
    v: tuple[Any, ...] = ()
    """Place, value, place, value …: the places are the values of the sample before, counted depth first."""
    put: dict[str, Any] = {}
    """Top-level fields whose shape changed, whole; null removes one."""
    skipped: int = 0


class RecordedFrames:
    """Lines of one recorded channel into frames."""

    def __init__(self) -> None:
        self._last = b""
        """The sample before, whole."""

    def read(self, line: bytes) -> Frame:
        """Return the frame of a line.

        Raises:
            ValueError: when it is none, or a difference from a sample that did not come.
            RecursionError: when it nests without end.
        """
        if line.startswith(DELTA):
            line = self._whole(line)
        frame = read_frame(line)
        if isinstance(frame, Sample):
            self._last = line
        return frame

    def _whole(self, line: bytes) -> bytes:
        last, self._last = self._last, b""  # whatever fails leaves nothing to build on
        delta = msgspec.json.decode(line, type=Delta)
        sample = msgspec.json.decode(last) if last else {}
        if sample.get("seq") != delta.seq - delta.back:
            raise ValueError("a difference from a sample that did not come")
        fields = {key: value for key, value in sample.items() if value is not None and key not in APART}
        places = list(_places(fields, tuple(fields)))
        for place, value in zip(delta.v[::2], delta.v[1::2], strict=True):
            if type(place) is not int or not 0 <= place < len(places):
                raise ValueError("a place that the sample before does not have")
            holder, key = places[place]
            holder[key] = value
        fields.update((key, value) for key, value in delta.put.items() if key not in APART)
        fields = {key: value for key, value in fields.items() if value is not None}
        head = {"t": "sample", "boot": sample["boot"], "seq": delta.seq, "at": delta.at}
        return msgspec.json.encode(head | {"skipped": delta.skipped} | fields)


def _places(holder: Any, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield where each value is that is neither an object nor a list of objects, depth first."""
    for key in keys:
        value = holder[key]
        if isinstance(value, dict):
            yield from _places(value, tuple(value))
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            yield from _places(value, range(len(value)))
        else:
            yield holder, key
