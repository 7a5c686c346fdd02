"""Means of samples per minute (for a day) and per eight minutes (for a month).

This module accumulates, stores and reads them.
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from rgt_tui.model import BoxState, FrozenStruct, ReducedHistory, Sample
from rgt_tui.profiles import byte_pct, card_figures, compute_percent, inode_pct, memory_pct

WIDTH = 60
COARSE = 480
"""Width of a coarse slot in seconds: a day of them fits the width of a screen."""
CHUNK = 64
"""Slots per row of the file: a multiple of the minutes in a coarse slot."""
KEPT = {WIDTH: 24, COARSE: 86}
"""Chunks kept per box, by width: a day of minutes, a month of coarse slots. They are limited by
number, not age, so that a clock change deletes nothing."""
LONGEST_MOUNT = 512
"""A mount point with a longer name is not recorded."""


class SlotMean(FrozenStruct):
    """Means of one box over one time slot."""

    box: str
    slot: int
    """Number of the slot since the epoch."""
    count: int
    """Number of samples in it."""
    values: dict[str, float]
    """Name, as in `rgt_tui.model.box.Past` → mean; values that were never read are missing."""
    width: int = WIDTH


def iterate_percentages(sample: Sample) -> Iterator[tuple[str, float]]:
    """Yield the recorded percentages of a sample, by name."""
    # Larger shares are invalid.
    most_percent = 1e6
    for name, value in _iterate_shares(sample):
        if 0.0 <= value <= most_percent:  # also excludes NaN
            yield name, float(value)


def _iterate_shares(sample: Sample) -> Iterator[tuple[str, float]]:
    utils = [gpu.util for gpu in sample.gpus if gpu.util is not None]
    if utils:
        yield "util", sum(utils) / len(utils)
    vram = compute_percent(
        sum(g.vram_used or 0 for g in sample.gpus), sum(g.vram_total or 0 for g in sample.gpus)
    )
    if vram is not None:
        yield "vram", vram
    cgroup = memory_pct(sample.mem)
    if cgroup is not None:
        yield "cgroup", cgroup
    yield from card_figures(sample.gpus).items()
    most_mounts = 24
    for disk in sample.disks[:most_mounts]:
        if len(disk.mount) > LONGEST_MOUNT:
            continue
        for what, share in (("disk", byte_pct(disk)), ("inodes", inode_pct(disk))):
            if share is not None:
                yield f"{what}:{disk.mount}", share


class _SlotSum:
    __slots__ = ("counts", "sums", "total")

    def __init__(self) -> None:
        self.total = 0
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}


class MinuteMeans:
    """Adds up samples per box and minute."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _SlotSum] = {}

    def add_sample(self, box: BoxState) -> None:
        """Count the newest sample of a box; impossible values are left out."""
        # Epoch seconds (year 5138): samples of a later time, or before 1970, are ignored.
        latest = 1e11
        if box.sample is None or box.sample_at is None or not 0.0 <= box.sample_at < latest:
            return
        found = dict(iterate_percentages(box.sample))
        key = (box.spec.name, int(box.sample_at // WIDTH))
        each = self._open.get(key)
        if each is None:
            each = self._open[key] = _SlotSum()
        each.total += 1
        for name, value in found.items():
            each.sums[name] = each.sums.get(name, 0.0) + value
            each.counts[name] = each.counts.get(name, 0) + 1

    def take_finished(self, now: float | None) -> tuple[SlotMean, ...]:
        """Return the finished minutes, each once; `now` = None returns all."""
        # A minute is closed this long after its end, to include late samples.
        late_seconds = 10.0
        over = [
            key for key in self._open if now is None or (key[1] + 1) * WIDTH + late_seconds <= now
        ]
        # A minute in the future comes from a clock that has since been set back: close it at once.
        over += [key for key in self._open if now is not None and key[1] * WIDTH > now + WIDTH]
        found = []
        for key in over:
            each = self._open.pop(key)
            values = {name: total / each.counts[name] for name, total in each.sums.items()}
            found.append(SlotMean(key[0], key[1], each.total, values))
        return tuple(found)


# In the file.

Chunk = dict[int, tuple[int, Mapping[str, float]]]
"""Slot within the chunk → number of samples, means."""
Key = tuple[int, int, int]
"""Box, width, number of the chunk."""


class _ChunkBody(FrozenStruct, array_like=True):
    """A chunk as it is stored: shares in tenths of a percent."""

    slots: dict[int, tuple[int, dict[str, int]]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_ChunkBody).decode


def write_mean(con: sqlite3.Connection, box: int, mean: SlotMean) -> None:
    """Write a minute and its coarse slot.

    If the minute is stored already, the version with more samples is kept.
    """
    key = (box, mean.width, mean.slot // CHUNK)
    fine = load_chunk(con, key)
    old = fine.get(mean.slot % CHUNK)
    if old is not None and old[0] >= mean.count:
        return
    fine[mean.slot % CHUNK] = (mean.count, mean.values)
    save_chunk(con, key, fine)
    slot, minutes = mean.slot * WIDTH // COARSE, COARSE // WIDTH
    first = slot * minutes % CHUNK
    coarse = load_chunk(con, (box, COARSE, slot // CHUNK))
    coarse[slot % CHUNK] = _weighted_mean(
        fine[each] for each in range(first, first + minutes) if each in fine
    )
    save_chunk(con, (box, COARSE, slot // CHUNK), coarse)


def load_chunk(con: sqlite3.Connection, key: Key) -> Chunk:
    """Return a chunk; empty if it is missing or unreadable."""
    row = con.execute(
        "SELECT body FROM samples WHERE box = ? AND width = ? AND chunk = ?", key
    ).fetchone()
    if row is None:
        return {}
    return _unpack_chunk(row[0])


def _unpack_chunk(body: bytes) -> Chunk:
    try:
        slots = _decode(zlib.decompress(body)).slots
    except (zlib.error, msgspec.DecodeError):
        return {}
    return {
        slot: (count, {name: value / 10 for name, value in values.items()})
        for slot, (count, values) in slots.items()
    }


def save_chunk(con: sqlite3.Connection, key: Key, chunk: Chunk) -> None:
    """Write a chunk; adding a new one deletes the oldest above the limit."""
    body = _ChunkBody(
        {
            slot: (
                count,
                {name: round(10 * value) for name, value in values.items() if math.isfinite(value)},
            )
            for slot, (count, values) in chunk.items()
        }
    )
    con.execute(
        "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)",
        (*key, zlib.compress(_encode(body), 1)),
    )
    con.execute(
        """DELETE FROM samples WHERE box = ? AND width = ? AND chunk <=
           (SELECT chunk FROM samples WHERE box = ? AND width = ? ORDER BY chunk DESC LIMIT 1 OFFSET ?)""",
        (*key[:2], *key[:2], KEPT[key[1]]),
    )


def _weighted_mean(
    parts: Iterable[tuple[int, Mapping[str, float]]],
) -> tuple[int, dict[str, float]]:
    total = 0
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for count, values in parts:
        total += count
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + count * value
            counts[name] = counts.get(name, 0) + count
    return total, {name: value / max(1, counts[name]) for name, value in sums.items()}


def read_last_day(con: sqlite3.Connection, box: int, now: float) -> ReducedHistory:
    """Return a box's last day in coarse slots."""
    past_seconds = 86400.0
    first, last = int((now - past_seconds) // COARSE), int(now // COARSE)
    slots: dict[int, Mapping[str, float]] = {}
    for chunk, body in con.execute(
        "SELECT chunk, body FROM samples WHERE box = ? AND width = ? AND chunk BETWEEN ? AND ?",
        (box, COARSE, first // CHUNK, last // CHUNK),
    ):
        for slot, (_, values) in _unpack_chunk(body).items():
            if first <= chunk * CHUNK + slot <= last:
                slots[chunk * CHUNK + slot] = values
    listed = sorted({name for values in slots.values() for name in values}, key=_name_order)
    return ReducedHistory(
        names=tuple(listed),
        at=tuple(float((slot + 1) * COARSE) for slot in sorted(slots)),
        values=tuple(tuple(slots[slot].get(name) for name in listed) for slot in sorted(slots)),
        width=float(COARSE),
    )


def _name_order(name: str) -> tuple[int, str]:
    known = ("util", "vram", "cgroup")
    return (known.index(name) if name in known else len(known), name)
