"""TensorBoard event files, written without TensorBoard: TFRecords of the `Event` protocol message.

The fields that are written here (numbers as in TensorBoard's ``event.proto`` and ``summary.proto``): Event.wall_time 1,
step 2, file_version 3, summary 5, session_log 7; Summary.value 1; Value.tag 1, simple_value 2; SessionLog.status 1.

Byte by byte a checksum takes some 50 ns a byte, so that an event of a training step would take longer to check than to
write. But a CRC is linear: that of a record of which only a few bytes change from one step to the next is the CRC of
the fixed part, XORed with one table entry for each byte that changed.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from contextlib import suppress
from typing import Dict, List, Mapping, Sequence, Tuple

from rgt_wire.event_records import TABLE, crc32c, header_of, mask_crc, record_of

from rgt_train.checkpoint.diskio import Appender, StrPath


class Patched:
    """CRCs of records that differ from `template` in the bytes at `places` only.

    Args:
        template: A record with zero bytes at `places`.
        places: Offsets of the changing bytes, ascending.
    """

    def __init__(self, template: bytes, places: Sequence[int]) -> None:
        self._fixed = crc32c(template)
        self.tables: List[List[int]] = []
        wanted = set(places)
        bits = [TABLE[1 << bit] for bit in range(8)]  # what each bit of the last byte contributes
        for place in range(len(template) - 1, (min(wanted) if wanted else len(template)) - 1, -1):
            if place in wanted:
                self.tables.append(_spread(bits))
            bits = [TABLE[value & 255] ^ (value >> 8) for value in bits]  # one byte further from the end
        self.tables.reverse()

    def crc(self, changing: bytes) -> int:
        """Return the CRC of the record that has `changing` at the places."""
        value = self._fixed
        for table, byte in zip(self.tables, changing):  # noqa: B905  Python 3.8; made together
            value ^= table[byte]
        return value


def _spread(bits: List[int]) -> List[int]:
    """Return the contribution of each of the 256 bytes from that of the eight bits."""
    table = [0]
    for value in bits:
        table += [entry ^ value for entry in table]
    return table


_VERSION = b"brain.Event:2"
_START = 1  # SessionLog.START
_TEMPLATES = 64
_FLOAT_MAX = 3.4028234e38
_DOUBLE, _CRC = struct.Struct("<d"), struct.Struct("<I")


class EventFile:
    """One event file of one launch. Like every log it never raises: what the disk refuses waits in memory.

    All scalars of a step go into one event and one `write`, so that a reader never sees half a step.

    Args:
        folder: Directory of the event files; created if missing.
        step: The step this launch goes on from. TensorBoard then forgets the points after it that an earlier
            launch wrote and that come again now.
    """

    def __init__(self, folder: StrPath, step: int = 0) -> None:
        self._templates: Dict[Tuple[Tuple[str, ...], int], _Template] = {}
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.rgt"
        with suppress(OSError):  # the appender keeps the records, and keeps trying to open the file
            os.makedirs(folder, exist_ok=True)
        self._file = Appender(os.path.join(folder, name), lines=False)
        self.path = self._file.path
        head = b"\x09" + struct.pack("<d", now)
        self._file.append_bytes(record_of(head + b"\x1a" + _sized(_VERSION)))
        if step > 0:
            self._file.append_bytes(
                record_of(head + b"\x10" + _varint(step + 1) + b"\x3a" + _sized(b"\x08" + _varint(_START)))
            )

    def point(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Append the scalars of one step, measured at `seconds` since the epoch."""
        place = _varint(step)
        key = (tuple(values), len(place))
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = _Template(*key)
        self._file.append_bytes(template.record(seconds, place, list(values.values())))

    def close(self) -> None:
        """Write what waits and close."""
        self._file.close()


class _Template:
    """The bytes of an event with these tags and a step of this length, without its numbers."""

    def __init__(self, tags: Tuple[str, ...], step_size: int) -> None:
        values = [b"\x0a" + _sized(tag.encode()) + b"\x15" for tag in tags]
        summary_size = sum(1 + len(_varint(len(v) + 4)) + len(v) + 4 for v in values)
        pieces = [b"\x09", bytes(8), b"\x10", bytes(step_size), b"\x2a" + _varint(summary_size)]
        changing = [1, 3]
        for value in values:
            pieces.append(b"\x0a" + _varint(len(value) + 4) + value)
            changing.append(len(pieces))
            pieces.append(bytes(4))
        places: List[int] = []
        offset = 0
        for number, piece in enumerate(pieces):
            if number in changing:
                places += range(offset, offset + len(piece))
            offset += len(piece)
        blank = b"".join(pieces)
        self._crc = Patched(blank, places)
        self._head = header_of(len(blank))
        self._fixed = [piece for number, piece in enumerate(pieces) if number not in changing]
        self._floats = struct.Struct(f"<{len(tags)}f")

    def record(self, seconds: float, step: bytes, values: List[float]) -> bytes:
        """Return the whole record of these numbers; `step` is a varint."""
        time_bytes = _DOUBLE.pack(seconds)
        try:
            numbers = self._floats.pack(*values)
        except OverflowError:  # a finite number that float32 does not hold
            numbers = self._floats.pack(*[_as_float32(value) for value in values])
        fixed = self._fixed
        parts = [self._head, fixed[0], time_bytes, fixed[1], step, fixed[2]]
        at = 0
        for piece in fixed[3:]:
            parts.append(piece)
            parts.append(numbers[at : at + 4])
            at += 4
        crc = self._crc.crc(time_bytes + step + numbers)
        parts.append(_CRC.pack(mask_crc(crc)))
        return b"".join(parts)


def _as_float32(value: float) -> float:
    return max(-_FLOAT_MAX, min(_FLOAT_MAX, value)) if math.isfinite(value) else value


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
