"""The reading end of the ring: everything after a cursor, in order, once, while the recorder goes on writing."""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.history import segment
from rgt_box.history.ring import read_header

HISTORY = 120
"""Records that a client without a cursor gets of what was before."""


class Record:
    """One record as it goes out.

    Attributes:
        is_sample: False for an event.
        skipped: Sequence numbers that the ring no longer held right before this one.
    """

    __slots__ = ("boot", "is_sample", "payload", "seq", "skipped")

    def __init__(self, boot: str, seq: int, is_sample: bool, payload: bytes, skipped: int) -> None:
        self.boot, self.seq, self.is_sample = boot, seq, is_sample
        self.payload, self.skipped = payload, skipped


class RingReader:
    """A position in the ring. Several readers may read one ring.

    Args:
        folder: The ring's directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd, self._number, self._position = -1, -1, 0
        self._boot = ""
        self._next: tuple[str, int] | None = None
        """(boot, seq) that is expected; what comes before it was received already."""

    def seek(self, boot: str | None, seq: int) -> None:
        """Go behind the record ``(boot, seq)``, or, without a boot, to the last `HISTORY` records."""
        headers = headers_of(self._folder)
        self._close()
        if not headers:
            self._number = -1
            self._next = (boot, seq + 1) if boot else None
            return
        if boot is None:
            newest = headers[-1]
            fd = files.open_regular(segment.path_of(self._folder, newest[0]))
            last = segment.tail(fd, newest[0])[1]
            os.close(fd)
            boot, seq = newest[1], max(0, last - HISTORY)
            first = min(start for _, name, start in headers if name == boot)
            seq = max(seq, first - 1)
        same = [number for number, name, first in headers if name == boot and first <= seq + 1]
        older = [number for number, name, _ in headers if name == boot]
        start = same[-1] if same else (older[0] if older else headers[0][0])
        self._next = (boot, seq + 1)
        self._open(start)

    def advance(self, boot: str, seq: int) -> None:
        """Take everything up to ``(boot, seq)`` for received: it came from elsewhere."""
        self._next = (boot, seq + 1)

    def read(self, limit: int = 262144) -> list[Record]:
        """Return the next records, about `limit` bytes of them; [] when there is nothing newer."""
        if self._fd < 0 and not self._open_next(self._number):
            return []
        while True:
            newer = os.path.exists(segment.path_of(self._folder, self._number + 1))
            found, after = segment.records(self._fd, self._number, self._position, limit)
            if not self._is_current():
                if not self._open_next(self._number):
                    if not segment.numbers(self._folder):  # taken away; a new ring would count from 1
                        self._close()
                        self._number = -1
                    return []
                continue
            if found:
                self._position = after
                records = self._fresh(found)
                if records:
                    return records
                continue
            if not newer or not self._open_next(self._number):
                return []

    def _fresh(self, found: list[tuple[bytes, int, bytes]]) -> list[Record]:
        records = []
        for kind, seq, payload in found:
            if kind == segment.HEADER:
                continue
            expected = self._next[1] if self._next and self._next[0] == self._boot else 1
            if seq < expected:
                continue
            missing = seq - expected if self._next else 0
            records.append(Record(self._boot, seq, kind == segment.SAMPLE, payload, missing))
            self._next = (self._boot, seq + 1)
        return records

    def _open(self, number: int) -> bool:
        try:
            fd = files.open_regular(segment.path_of(self._folder, number))
        except OSError:
            return False
        header = read_header(fd, number)
        if header is None:
            os.close(fd)
            return False
        self._close()
        self._fd, self._number, self._position = fd, number, 0
        self._boot = str(header["boot"])
        return True

    def _open_next(self, after: int) -> bool:
        return any(self._open(number) for number in segment.numbers(self._folder) if number > after)

    def _is_current(self) -> bool:
        """Tell whether the open file still carries its number: it is renamed *before* it is overwritten."""
        try:
            named = os.stat(segment.path_of(self._folder, self._number))
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Close the file; the position is kept."""
        self._close()


def headers_of(folder: str) -> list[tuple[int, str, int]]:
    """Return (number, boot, first seq) of every segment of a ring that has begun, oldest first."""
    found = []
    for number in segment.numbers(folder):
        try:
            fd = files.open_regular(segment.path_of(folder, number))
        except OSError:
            continue
        header = read_header(fd, number)
        os.close(fd)
        if header is not None:
            found.append((number, str(header["boot"]), int(header["first"])))
    return found


def newest(folder: str) -> tuple[str, int] | None:
    """Return (boot, seq) of the newest record of a ring; None when it has none."""
    headers = headers_of(folder)
    if not headers:
        return None
    number, boot, first = headers[-1]
    try:
        fd = files.open_regular(segment.path_of(folder, number))
    except OSError:
        return None
    last = segment.tail(fd, number)[1]
    os.close(fd)
    return boot, max(last, first - 1)


def oldest(folder: str, boot: str) -> int | None:
    """Return the first number of a boot that a ring still holds; None when it holds none."""
    return min((first for _, name, first in headers_of(folder) if name == boot), default=None)
