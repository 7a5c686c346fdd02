"""Writers of the binary formats, independent of the readers, and how tests look at what was read."""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt_box.metrics import MetricPoint, MetricReader, ReadBatch, SeriesStore

FIXTURES = Path(__file__).parents[2] / "fixtures" / "scalars"


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, by its definition."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord(data: bytes) -> bytes:
    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", masked(header)) + data + struct.pack("<I", masked(data))


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def blob(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def simple(tag: str, y: float) -> bytes:
    return blob(1, tag.encode()) + b"\x15" + struct.pack("<f", y)


def tensor(tag: str, body: bytes, plugin: str = "scalars") -> bytes:
    metadata = blob(9, blob(1, blob(1, plugin.encode()))) if plugin else b""
    return blob(1, tag.encode()) + blob(8, body) + metadata


def event(step: int, *values: bytes, wall: float = 1.79e9) -> bytes:
    return (
        b"\x09"
        + struct.pack("<d", wall)
        + number(2, step)
        + blob(5, b"".join(blob(1, each) for each in values))
    )


def scalars(*rows: tuple[str, int, float]) -> bytes:
    """An event file with one record a scalar."""
    version = b"\x09" + struct.pack("<d", 1.79e9) + blob(3, b"brain.Event:2")
    return tfrecord(version) + b"".join(
        tfrecord(event(step, simple(tag, y))) for tag, step, y in rows
    )


def history(row: dict[str, Any], num: int = 1) -> bytes:
    """A W&B Record with one history row."""
    items = b"".join(
        blob(1, blob(1, key.encode()) + blob(16, json.dumps(y).encode())) for key, y in row.items()
    )
    return number(1, num) + blob(2, items)


def wandb_file(records: list[bytes]) -> bytes:
    out = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        left, kind = memoryview(record), 0
        while True:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                room = 32768
            part, left = left[: room - 7], left[room - 7 :]
            last = not left
            kind = (1 if last else 2) if kind == 0 else (4 if last else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            if last:
                break
    return bytes(out)


def spell(y: float) -> Any:
    """A value that equals itself, NaN included."""
    return y if math.isfinite(y) else str(y)


def plain(point: MetricPoint) -> tuple[Any, ...]:
    return (point.tag, point.x_kind, point.x, spell(point.y), point.at, point.group)


class Follower:
    """Reads as a client does: the cursor goes through JSON, the reader is a new one every time."""

    def __init__(self, make: Callable[[], MetricReader], limit: int = 5000) -> None:
        self.make, self.limit = make, limit
        self.cursor: dict[str, Any] | None = None
        self.points: list[tuple[Any, ...]] = []
        self.resets = 0
        self.problems: list[str] = []
        self.store = SeriesStore()

    def poll(self) -> ReadBatch:
        """Read to the present end; return the last batch."""
        for _ in range(100000):
            batch: ReadBatch = self.make().read(json.loads(json.dumps(self.cursor)), self.limit)
            self.cursor = batch.cursor
            if batch.reset:
                self.points, self.resets = [], self.resets + 1
            self.points += map(plain, batch.points)
            self.problems += [each.reason for each in batch.problems]
            self.store.apply_batch(batch)
            if not batch.more:
                return batch
        raise AssertionError("it never ends")


def listing(directory: Path) -> list[tuple[str, int, int]]:
    """What stands in a directory, with sizes and times."""
    return sorted(
        (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
        for entry in os.scandir(directory)
    )


def summary(store: SeriesStore) -> dict[tuple[str, str, str], tuple[int, int, float, Any]]:
    """(group, tag, x kind) → points, nonfinite ones, last x, last y."""
    return {
        key: (
            len(each.xs),
            sum(not math.isfinite(y) for y in each.ys),
            each.xs[-1],
            spell(each.ys[-1]),
        )
        for key, each in store.series.items()
    }
