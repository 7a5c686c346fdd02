r"""One record and one segment file of the ring: framing, checksums, recovery of a torn tail.

A record is ``<crc> <kind> <seq> <payload>\n``: eight hex digits of a CRC over the rest *seeded with the segment's
number*, so that what a recycled file still holds from its former life never passes for a record; one letter
(``H`` header, ``S`` sample, ``E`` event); the sequence number; and the JSON frame exactly as it goes to a client.
"""

from __future__ import annotations

import os
import re
import zlib

HEADER, SAMPLE, EVENT = b"H", b"S", b"E"
_NAME = re.compile(r"(\d{12})\.seg$")
CHUNK = 65536


def encode(number: int, kind: bytes, seq: int, payload: bytes) -> bytes:
    """Return a record of segment `number`."""
    body = b"%b %d %b" % (kind, seq, payload)
    return b"%08x %b\n" % (zlib.crc32(body, number), body)


def decode(number: int, line: bytes) -> tuple[bytes, int, bytes] | None:
    """Return (kind, seq, payload) of a record without its newline; None when it is torn, stale or foreign."""
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:], number):
            return None
        kind, seq, payload = line[9:].split(b" ", 2)
        return kind, int(seq), payload
    except ValueError:
        return None


def path_of(folder: str, number: int) -> str:
    """Return the path of a segment."""
    return os.path.join(folder, "%012d.seg" % number)


def numbers(folder: str) -> list[int]:
    """Return the numbers of the segments in a ring directory, oldest first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(match.group(1)) for match in map(_NAME.match, names) if match)


def records(fd: int, number: int, position: int, limit: int) -> tuple[list[tuple[bytes, int, bytes]], int]:
    """Read whole, valid records from `position` on.

    Args:
        fd: The segment file.
        number: Its number.
        position: Where a record starts.
        limit: About how many bytes to read at most; one record is always read whole.

    Returns:
        The records, and the position after the last of them.
    """
    data = os.pread(fd, limit, position)
    while data and b"\n" not in data and b"\0" not in data and len(data) == limit:
        limit *= 2
        data = os.pread(fd, limit, position)
    found = []
    start = 0
    while True:
        end = data.find(b"\n", start)
        if end < 0:
            break
        record = decode(number, data[start:end])
        if record is None:
            break
        found.append(record)
        start = end + 1
    return found, position + start


def tail(fd: int, number: int) -> tuple[int, int, bytes | None]:
    """Return (position after the last valid record, its seq, the last sample's payload) of a segment."""
    position, seq, sample = 0, 0, None
    while True:
        found, after = records(fd, number, position, 16 * CHUNK)
        if after == position:
            return position, seq, sample
        position, seq = after, found[-1][1]
        sample = next((payload for kind, _, payload in reversed(found) if kind == SAMPLE), sample)
