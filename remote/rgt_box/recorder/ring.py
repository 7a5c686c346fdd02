"""The ring on disk: segments of records, with one writer and any number of readers."""

from __future__ import annotations

import json
import os
import re
import zlib

from rgt_box import files, jsonline

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject

HEADER, SAMPLE, EVENT = b"H", b"S", b"E"
_NAME = re.compile(r"(\d{12})\.seg$")


def encode_record(number: int, kind: bytes, seq: int, payload: bytes) -> bytes:
    """Return a record of segment `number`."""
    body = b"%b %d %b" % (kind, seq, payload)
    # The segment's number seeds the checksum: records left from an earlier use never match.
    return b"%08x %b\n" % (zlib.crc32(body, number), body)


def decode_record(number: int, line: bytes) -> tuple[bytes, int, bytes] | None:
    """Return (kind, seq, payload) of a record without its newline.

    Return None if it is torn, stale or foreign.
    """
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:], number):
            return None
        kind, seq, payload = line[9:].split(b" ", 2)
        return kind, int(seq), payload
    except ValueError:
        return None


def segment_path(folder: str, number: int) -> str:
    """Return the path of a segment."""
    return os.path.join(folder, "%012d.seg" % number)


def segment_numbers(folder: str) -> list[int]:
    """Return the numbers of the segments in a ring directory, oldest first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(match.group(1)) for match in map(_NAME.match, names) if match)


def read_records(
    fd: int, number: int, position: int, limit: int
) -> tuple[list[tuple[bytes, int, bytes]], int]:
    """Read complete, valid records from `position` on.

    Args:
        fd: The segment file.
        number: Its number.
        position: Where a record starts.
        limit: Approximate maximum of bytes to read; one record is always read completely.

    Returns:
        The records, and the position after the last of them.
    """
    # Bytes that fit a sample of most boxes and the zero byte after it, so that a reader at the end
    # of the ring reads no more.
    few = 8192
    data = os.pread(fd, min(limit, few), position)
    # No zero byte: there is more than this, so read on in one large piece.
    if len(data) == few and b"\0" not in data:
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
        record = decode_record(number, data[start:end])
        if record is None:
            break
        found.append(record)
        start = end + 1
    return found, position + start


def last_record(fd: int, number: int) -> tuple[int, int, bytes | None]:
    """Return (position after the last valid record, its seq, the last sample) of a segment."""
    position = 0
    seq = 0
    sample = None
    chunk = 65536
    while True:
        found, after = read_records(fd, number, position, 16 * chunk)
        if after == position:
            return position, seq, sample
        position = after
        seq = found[-1][1]
        sample = next((payload for kind, _, payload in reversed(found) if kind == SAMPLE), sample)


DEFAULT_BYTES = 64 << 20
MIN_SEGMENT = 32 << 10


def ring_bytes() -> int:
    """Return the size of the ring in bytes: ``RGT_RING_BYTES``, else 64 MiB."""
    try:
        return max(2 * MIN_SEGMENT, int(os.environ.get("RGT_RING_BYTES", "")))
    except ValueError:
        return DEFAULT_BYTES


class HistoryRing:
    """The ring of one recorder; the recorder's lock ensures that there is only one writer.

    Args:
        folder: Its directory, created if missing.
        boot: This boot. The sequence continues where an earlier recorder of the same boot stopped.
        size: Total bytes on disk.

    Raises:
        OSError: Not even two segments can be allocated.
    """

    def __init__(self, folder: str, boot: str, size: int) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = folder
        self._boot = boot
        segments = 16
        self._segment = max(MIN_SEGMENT, size // segments)
        self._count = max(2, size // self._segment)
        self._fd = -1
        self._number = 0
        self._position = 0
        self.last_seq = 0
        self.last_sample: JsonObject = {}
        self.last_boot: str | None = None
        self._spares = self._find_spares()
        self._continue_segment()

    def _find_spares(self) -> list[str]:
        names = sorted(name for name in os.listdir(self._folder) if name.startswith("spare-"))
        return [os.path.join(self._folder, name) for name in names]

    def _continue_segment(self) -> None:
        """Continue the newest segment after its last complete record, or begin a new one."""
        for number in reversed(segment_numbers(self._folder)):
            self._number = max(self._number, number)
            path = segment_path(self._folder, number)
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            header = read_header(fd, number)
            if header is None:  # killed between the rename and the header
                os.close(fd)
                continue
            self.last_boot = str(header.get("boot"))
            if self.last_boot != self._boot:
                os.close(fd)
                break
            # A torn last record fails its checksum and is overwritten.
            self._position, self.last_seq, sample = last_record(fd, number)
            self.last_seq = max(self.last_seq, int(header.get("first", 1)) - 1)
            if sample:
                self.last_sample = json.loads(sample)
            else:
                self.last_sample = {}
            if number == self._number:
                self._fd = fd
                # Two segments suffice to rotate; the rest is allocated later, one per sample.
                while self.add_segment(2):
                    pass
                return
            os.close(fd)
            break
        self._begin_segment()

    def add_segment(self, count: int | None = None) -> bool:
        """Allocate one more segment; return False if there are enough or the disk is full.

        Args:
            count: Number of segments that is enough; by default the whole ring.
        """
        have = len(segment_numbers(self._folder)) + len(self._spares)
        if have >= (self._count if count is None else count):
            return False
        path = os.path.join(self._folder, "spare-%06d" % (have + 1))
        try:
            allocate_file(path, self._segment)
        except OSError:
            files.unlink_if_exists(path)
            self._count = max(2, have)  # continue with the existing segments
            return False
        self._spares.append(path)
        return True

    def append_frame(self, kind: bytes, frame: JsonObject) -> int:
        """Append a frame and return its sequence number.

        Args:
            kind: `SAMPLE` or `EVENT`.
            frame: The frame; ``boot`` and ``seq`` are set here.

        Raises:
            OSError: The disk refuses even an overwrite.
        """
        seq = self.last_seq + 1
        frame["boot"], frame["seq"] = self._boot, seq
        self.append_numbered(kind, seq, jsonline.dumps(frame))
        return seq

    def append_numbered(self, kind: bytes, seq: int, payload: bytes) -> None:
        """Append a record that already has its number.

        Raises:
            OSError: The disk refuses even an overwrite.
            ValueError: It is too large.
        """
        record = encode_record(self._number, kind, seq, payload)
        # Of the file, not the setting: an earlier recorder may have used another size.
        if self._position + len(record) + 1 > os.fstat(self._fd).st_size:
            if len(record) > self._segment // 2:
                raise ValueError("a frame of %d bytes does not fit the ring" % len(record))
            self._begin_segment()
            record = encode_record(self._number, kind, seq, payload)
        self._write_record(record)
        self.last_seq = seq

    def skip_to(self, seq: int) -> None:
        """Never use numbers up to `seq`: a client has seen them before the ring was lost."""
        self.last_seq = max(self.last_seq, seq)

    def _write_record(self, record: bytes) -> None:
        # The zero byte after the record shows readers cheaply that there is nothing newer.
        data = record + b"\0"
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], self._position + done)
        self._position += len(record)

    def _begin_segment(self) -> None:
        """Begin the next segment: a new file, a spare one, or the oldest one, renamed."""
        old = segment_numbers(self._folder)
        if not self._spares and len(old) < self._count:
            self.add_segment()
        if self._spares:
            source = self._spares.pop(0)
        elif len(old) >= 2:
            source = segment_path(self._folder, old[0])
        else:
            allocate_file(os.path.join(self._folder, "spare-000001"), self._segment)
            source = os.path.join(self._folder, "spare-000001")
        for number in old[: max(0, len(old) - self._count)]:  # the ring was made smaller
            if segment_path(self._folder, number) != source:
                files.unlink_if_exists(segment_path(self._folder, number))
        target = segment_path(self._folder, self._number + 1)
        # Renamed before it is overwritten: readers then see that their segment is gone.
        os.rename(source, target)
        if self._fd >= 0:
            os.close(self._fd)
        self._number += 1
        self._fd = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        self._position = 0
        header = json.dumps({"boot": self._boot, "first": self.last_seq + 1}).encode("ascii")
        self._write_record(encode_record(self._number, HEADER, self.last_seq, header))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def allocate_file(path: str, size: int) -> None:
    """Create a file with all its blocks allocated.

    Raises:
        OSError: ENOSPC among others; the caller removes the partial file.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            # All blocks now: later overwrites succeed even on a full disk.
            os.posix_fallocate(fd, 0, size)
        else:
            files.write_all(fd, b"\0" * size)
    finally:
        os.close(fd)


def read_header(fd: int, number: int) -> JsonObject | None:
    """Return the header of a segment; None if it has none yet."""
    found, _ = read_records(fd, number, 0, 4096)
    if not found or found[0][0] != HEADER:
        return None
    header: JsonObject = json.loads(found[0][2])
    return header


HISTORY = 120
"""Number of earlier records that a client without a cursor gets."""


class RingRecord:
    """One record as sent to clients.

    Attributes:
        is_sample: False for an event.
        skipped: Sequence numbers right before this one that the ring no longer contained.
    """

    __slots__ = ("boot", "is_sample", "payload", "seq", "skipped")

    def __init__(self, boot: str, seq: int, is_sample: bool, payload: bytes, skipped: int) -> None:
        self.boot = boot
        self.seq = seq
        self.is_sample = is_sample
        self.payload = payload
        self.skipped = skipped


class RingReader:
    """A read position in a ring; several readers may read the same ring.

    Args:
        folder: The ring's directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = -1
        self._number = -1
        self._position = 0
        self._boot = ""
        self._next: tuple[str, int] | None = None
        """Expected (boot, seq); earlier records were already received."""

    def seek_after(self, boot: str | None, seq: int) -> None:
        """Move to after ``(boot, seq)`` or, without a boot, to the last `HISTORY` records."""
        headers = read_segment_headers(self._folder)
        self._close_file()
        if not headers:
            self._number = -1
            if boot:
                self._next = (boot, seq + 1)
            else:
                self._next = None
            return
        if boot is None:
            newest = headers[-1]
            fd = files.open_regular(segment_path(self._folder, newest[0]))
            last = last_record(fd, newest[0])[1]
            os.close(fd)
            boot = newest[1]
            seq = max(0, last - HISTORY)
            first = min(start for _, name, start in headers if name == boot)
            seq = max(seq, first - 1)
        same = [number for number, name, first in headers if name == boot and first <= seq + 1]
        older = [number for number, name, _ in headers if name == boot]
        if same:
            start = same[-1]
        elif older:
            start = older[0]
        else:
            start = headers[0][0]
        self._next = (boot, seq + 1)
        self._open_segment(start)

    def skip_received(self, boot: str, seq: int) -> None:
        """Treat everything up to ``(boot, seq)`` as received, because it was read elsewhere."""
        self._next = (boot, seq + 1)

    def read_records(self, limit: int = 262144) -> list[RingRecord]:
        """Return the next records, about `limit` bytes of them; [] if there is nothing newer."""
        if self._fd < 0 and not self._open_next(self._number):
            return []
        while True:
            # Before the read: a record written in between is then found by the next call.
            newer = os.path.exists(segment_path(self._folder, self._number + 1))
            found, after = read_records(self._fd, self._number, self._position, limit)
            # After the read: only then is it certain that the bytes were those of this segment.
            if not self._is_current():
                if not self._open_next(self._number):
                    if not segment_numbers(
                        self._folder
                    ):  # the ring was removed; a new one would count from 1
                        self._close_file()
                        self._number = -1
                    return []
                continue
            if found:
                self._position = after
                records = self._unseen_records(found)
                if records:
                    return records
                continue
            if not newer or not self._open_next(self._number):
                return []

    def _unseen_records(self, found: list[tuple[bytes, int, bytes]]) -> list[RingRecord]:
        records = []
        for kind, seq, payload in found:
            if kind == HEADER:
                continue
            if self._next and self._next[0] == self._boot:
                expected = self._next[1]
            else:
                expected = 1
            if seq < expected:
                continue
            missing = 0
            if self._next:
                missing = seq - expected
            records.append(RingRecord(self._boot, seq, kind == SAMPLE, payload, missing))
            self._next = (self._boot, seq + 1)
        return records

    def _open_segment(self, number: int) -> bool:
        try:
            fd = files.open_regular(segment_path(self._folder, number))
        except OSError:
            return False
        header = read_header(fd, number)
        if header is None:
            os.close(fd)
            return False
        self._close_file()
        self._fd = fd
        self._number = number
        self._position = 0
        self._boot = str(header["boot"])
        return True

    def _open_next(self, after: int) -> bool:
        return any(
            self._open_segment(number) for number in segment_numbers(self._folder) if number > after
        )

    def _is_current(self) -> bool:
        """Return whether the open file still has its number; it is renamed before being reused."""
        try:
            named = os.stat(segment_path(self._folder, self._number))
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Close the file; the position is kept."""
        self._close_file()


def read_segment_headers(folder: str) -> list[tuple[int, str, int]]:
    """Return (number, boot, first seq) of every segment of a ring with a header, oldest first."""
    found = []
    for number in segment_numbers(folder):
        try:
            fd = files.open_regular(segment_path(folder, number))
        except OSError:
            continue
        header = read_header(fd, number)
        os.close(fd)
        if header is not None:
            found.append((number, str(header["boot"]), int(header["first"])))
    return found


def newest_position(folder: str) -> tuple[str, int] | None:
    """Return (boot, seq) of the newest record of a ring; None if it has none."""
    headers = read_segment_headers(folder)
    if not headers:
        return None
    number, boot, first = headers[-1]
    try:
        fd = files.open_regular(segment_path(folder, number))
    except OSError:
        return None
    last = last_record(fd, number)[1]
    os.close(fd)
    return boot, max(last, first - 1)


def oldest_seq(folder: str, boot: str) -> int | None:
    """Return the first number of a boot that a ring still contains, or None."""
    return min(
        (first for _, name, first in read_segment_headers(folder) if name == boot), default=None
    )
