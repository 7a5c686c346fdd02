"""The writing end of the ring: segment files allocated beforehand, so that a full disk cannot stop history."""

from __future__ import annotations

import json
import os

from rgt_box import files
from rgt_box.history import segment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_BYTES = 64 << 20
MIN_SEGMENT = 32 << 10
SEGMENTS = 16


def ring_bytes() -> int:
    """Return the size of the ring: ``RGT_RING_BYTES``, else 64 MiB."""
    try:
        return max(2 * MIN_SEGMENT, int(os.environ.get("RGT_RING_BYTES", "")))
    except ValueError:
        return DEFAULT_BYTES


class Ring:
    """The ring of one recorder. There is never more than one writer (the recorder's lock sees to it).

    Args:
        folder: Its directory, made when missing.
        boot: This boot. The sequence goes on where an earlier recorder of the same boot stopped.
        size: Total bytes on disk.

    Raises:
        OSError: when not even two segments can be allocated.
    """

    def __init__(self, folder: str, boot: str, size: int) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder, self._boot = folder, boot
        self._segment = max(MIN_SEGMENT, size // SEGMENTS)
        self._count = max(2, size // self._segment)
        self._fd, self._number, self._position = -1, 0, 0
        self.last_seq = 0
        self.last_sample: dict[str, Any] = {}
        self.last_boot: str | None = None
        self._spares = self._find_spares()
        self._recover()

    def _find_spares(self) -> list[str]:
        names = sorted(name for name in os.listdir(self._folder) if name.startswith("spare-"))
        return [os.path.join(self._folder, name) for name in names]

    def _recover(self) -> None:
        """Continue the newest segment behind its last whole record, or begin a new one."""
        for number in reversed(segment.numbers(self._folder)):
            self._number = max(self._number, number)
            path = segment.path_of(self._folder, number)
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            header = read_header(fd, number)
            if header is None:  # killed between the rename and the header
                os.close(fd)
                continue
            self.last_boot = str(header.get("boot"))
            if self.last_boot != self._boot:
                os.close(fd)
                break
            self._position, self.last_seq, sample = segment.tail(fd, number)
            self.last_seq = max(self.last_seq, int(header.get("first", 1)) - 1)
            self.last_sample = json.loads(sample) if sample else {}
            if number == self._number:
                self._fd = fd
                while self.grow(2):
                    pass
                return
            os.close(fd)
            break
        self._roll()

    def grow(self, count: int | None = None) -> bool:
        """Allocate one more segment; False when there are enough or the disk is full.

        Args:
            count: How many segments suffice; the whole ring by default.
        """
        have = len(segment.numbers(self._folder)) + len(self._spares)
        if have >= (self._count if count is None else count):
            return False
        path = os.path.join(self._folder, "spare-%06d" % (have + 1))
        try:
            allocate(path, self._segment)
        except OSError:
            files.unlink(path)
            self._count = max(2, have)  # make do with what there is
            return False
        self._spares.append(path)
        return True

    def append(self, kind: bytes, frame: dict[str, Any], encode: Any) -> int:
        """Append a frame and return its sequence number.

        Args:
            kind: `segment.SAMPLE` or `segment.EVENT`.
            frame: The frame; ``boot`` and ``seq`` are put in here.
            encode: Frame → bytes.

        Raises:
            OSError: when the disk refuses even an overwrite.
        """
        seq = self.last_seq + 1
        frame["boot"], frame["seq"] = self._boot, seq
        self.put(kind, seq, encode(frame))
        return seq

    def put(self, kind: bytes, seq: int, payload: bytes) -> None:
        """Append a record that has its number already.

        Raises:
            OSError: when the disk refuses even an overwrite.
            ValueError: when it is too large.
        """
        record = segment.encode(self._number, kind, seq, payload)
        if self._position + len(record) + 1 > os.fstat(self._fd).st_size:
            if len(record) > self._segment // 2:
                raise ValueError("a frame of %d bytes does not fit the ring" % len(record))
            self._roll()
            record = segment.encode(self._number, kind, seq, payload)
        self._write(record)
        self.last_seq = seq

    def skip_to(self, seq: int) -> None:
        """Never use numbers up to `seq`: a client has seen them (the ring was lost in between)."""
        self.last_seq = max(self.last_seq, seq)

    def _write(self, record: bytes) -> None:
        # The zero byte behind the record tells the reader cheaply that nothing newer is there.
        data = record + b"\0"
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], self._position + done)
        self._position += len(record)

    def _roll(self) -> None:
        """Begin the next segment: a new file, else a spare one, else the oldest, by renaming it."""
        old = segment.numbers(self._folder)
        if not self._spares and len(old) < self._count:
            self.grow()
        if self._spares:
            source = self._spares.pop(0)
        elif len(old) >= 2:
            source = segment.path_of(self._folder, old[0])
        else:
            allocate(os.path.join(self._folder, "spare-000001"), self._segment)
            source = os.path.join(self._folder, "spare-000001")
        for number in old[: max(0, len(old) - self._count)]:  # the ring was made smaller
            if segment.path_of(self._folder, number) != source:
                files.unlink(segment.path_of(self._folder, number))
        target = segment.path_of(self._folder, self._number + 1)
        os.rename(source, target)
        if self._fd >= 0:
            os.close(self._fd)
        self._number += 1
        self._fd, self._position = os.open(target, os.O_RDWR | os.O_CLOEXEC), 0
        header = json.dumps({"boot": self._boot, "first": self.last_seq + 1}).encode("ascii")
        self._write(segment.encode(self._number, segment.HEADER, self.last_seq, header))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def allocate(path: str, size: int) -> None:
    """Make a file whose every block is already there.

    Raises:
        OSError: ENOSPC among others; the caller removes what is left.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            files.write_all(fd, b"\0" * size)
    finally:
        os.close(fd)


def read_header(fd: int, number: int) -> dict[str, Any] | None:
    """Return the header of a segment; None when it has none yet."""
    found, _ = segment.records(fd, number, 0, 4096)
    if not found or found[0][0] != segment.HEADER:
        return None
    header: dict[str, Any] = json.loads(found[0][2])
    return header
