"""Samples averaged per minute for a day and per eight minutes for a month: accumulated, stored, read back."""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from rgt_tui.model import BoxState, Past, Sample
from rgt_tui.profiles import byte_pct, card_figures, inode_pct, memory_pct, percent

WIDTH = 60
COARSE = 480
"""Seconds of a coarse stretch: a day of them fits a screen's width."""
CHUNK = 64
"""Stretches in one row of the file: a multiple of the minutes in a coarse one."""
KEPT = {WIDTH: 24, COARSE: 86}
"""Chunks of a box that are kept, by width: a day of minutes, a month of coarse ones. They are counted rather than told
by their age, so that a clock that jumps throws nothing away."""
PAST_SECONDS = 86400.0
LATE_SECONDS = 10.0
"""A minute is closed this long after its end: what is on its way then may still come."""
MOST_MOUNTS = 24
LONGEST_MOUNT = 512
"""A longer mount point is no name to keep by the minute."""
MOST_PERCENT = 1e6
"""No share is larger: a reading beyond it is nonsense, and nobody could draw it."""
LATEST = 1e11
"""Epoch seconds, in the year 5138: a sample of a later time, or of one before 1970, belongs to no minute."""


class Mean(msgspec.Struct, frozen=True):
    """One box over one stretch of time."""

    box: str
    slot: int
    """Number of the stretch since the epoch."""
    count: int
    """Samples in it."""
    values: dict[str, float]
    """Name, as in `rgt_tui.model.box.Past` → mean; what was never read is left out."""
    width: int = WIDTH


def readings(sample: Sample) -> Iterator[tuple[str, float]]:
    """Yield what of a sample is kept, in percent, by name."""
    for name, value in _shares(sample):
        if 0.0 <= value <= MOST_PERCENT:  # what is no number is neither
            yield name, float(value)


def _shares(sample: Sample) -> Iterator[tuple[str, float]]:
    utils = [gpu.util for gpu in sample.gpus if gpu.util is not None]
    if utils:
        yield "util", sum(utils) / len(utils)
    vram = percent(
        sum(g.vram_used or 0 for g in sample.gpus), sum(g.vram_total or 0 for g in sample.gpus)
    )
    if vram is not None:
        yield "vram", vram
    cgroup = memory_pct(sample.mem)
    if cgroup is not None:
        yield "cgroup", cgroup
    yield from card_figures(sample.gpus).items()
    for disk in sample.disks[:MOST_MOUNTS]:
        if len(disk.mount) > LONGEST_MOUNT:
            continue
        for what, share in (("disk", byte_pct(disk)), ("inodes", inode_pct(disk))):
            if share is not None:
                yield f"{what}:{disk.mount}", share


class _Sum:
    __slots__ = ("counts", "sums", "total")

    def __init__(self) -> None:
        self.total = 0
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}


class Means:
    """Adds up samples per box and minute."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _Sum] = {}

    def take(self, box: BoxState) -> None:
        """Count the newest sample of a box; what cannot be true of it is left out."""
        if box.sample is None or box.sample_at is None or not 0.0 <= box.sample_at < LATEST:
            return
        found = dict(readings(box.sample))
        key = (box.spec.name, int(box.sample_at // WIDTH))
        each = self._open.get(key)
        if each is None:
            each = self._open[key] = _Sum()
        each.total += 1
        for name, value in found.items():
            each.sums[name] = each.sums.get(name, 0.0) + value
            each.counts[name] = each.counts.get(name, 0) + 1

    def closed(self, now: float | None) -> tuple[Mean, ...]:
        """Return, once, the minutes that are over; all of them when `now` is None."""
        over = [
            key for key in self._open if now is None or (key[1] + 1) * WIDTH + LATE_SECONDS <= now
        ]
        # A minute of the future is of a clock that has since been set back: it closes at once.
        over += [key for key in self._open if now is not None and key[1] * WIDTH > now + WIDTH]
        found = []
        for key in over:
            each = self._open.pop(key)
            values = {name: total / each.counts[name] for name, total in each.sums.items()}
            found.append(Mean(key[0], key[1], each.total, values))
        return tuple(found)


# In the file.

Chunk = dict[int, tuple[int, Mapping[str, float]]]
"""Stretch within the chunk → samples in it, their means."""
Key = tuple[int, int, int]
"""Box, width, number of the chunk."""


class _Body(msgspec.Struct, frozen=True, array_like=True):
    """A chunk as it is stored: shares in tenths of a percent."""

    slots: dict[int, tuple[int, dict[str, int]]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode


def write(con: sqlite3.Connection, box: int, mean: Mean) -> None:
    """Write a minute, and the coarse stretch that it belongs to. Of two versions the one with more samples is kept."""
    key = (box, mean.width, mean.slot // CHUNK)
    fine = load(con, key)
    old = fine.get(mean.slot % CHUNK)
    if old is not None and old[0] >= mean.count:
        return
    fine[mean.slot % CHUNK] = (mean.count, mean.values)
    save(con, key, fine)
    slot, minutes = mean.slot * WIDTH // COARSE, COARSE // WIDTH
    first = slot * minutes % CHUNK
    coarse = load(con, (box, COARSE, slot // CHUNK))
    coarse[slot % CHUNK] = _mean(
        fine[each] for each in range(first, first + minutes) if each in fine
    )
    save(con, (box, COARSE, slot // CHUNK), coarse)


def load(con: sqlite3.Connection, key: Key) -> Chunk:
    """Return a chunk; empty where there is none, or none that can be read."""
    row = con.execute(
        "SELECT body FROM samples WHERE box = ? AND width = ? AND chunk = ?", key
    ).fetchone()
    if row is None:
        return {}
    return _unpacked(row[0])


def _unpacked(body: bytes) -> Chunk:
    try:
        slots = _decode(zlib.decompress(body)).slots
    except (zlib.error, msgspec.DecodeError):
        return {}
    return {
        slot: (count, {name: value / 10 for name, value in values.items()})
        for slot, (count, values) in slots.items()
    }


def save(con: sqlite3.Connection, key: Key, chunk: Chunk) -> None:
    """Write a chunk; with a new one, the oldest goes."""
    body = _Body(
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


def _mean(parts: Iterable[tuple[int, Mapping[str, float]]]) -> tuple[int, dict[str, float]]:
    total = 0
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for count, values in parts:
        total += count
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + count * value
            counts[name] = counts.get(name, 0) + count
    return total, {name: value / max(1, counts[name]) for name, value in sums.items()}


def past(con: sqlite3.Connection, box: int, now: float) -> Past:
    """Return a box's last day by coarse stretches."""
    first, last = int((now - PAST_SECONDS) // COARSE), int(now // COARSE)
    slots: dict[int, Mapping[str, float]] = {}
    for chunk, body in con.execute(
        "SELECT chunk, body FROM samples WHERE box = ? AND width = ? AND chunk BETWEEN ? AND ?",
        (box, COARSE, first // CHUNK, last // CHUNK),
    ):
        for slot, (_, values) in _unpacked(body).items():
            if first <= chunk * CHUNK + slot <= last:
                slots[chunk * CHUNK + slot] = values
    listed = sorted({name for values in slots.values() for name in values}, key=_order)
    return Past(
        names=tuple(listed),
        at=tuple(float((slot + 1) * COARSE) for slot in sorted(slots)),
        values=tuple(tuple(slots[slot].get(name) for name in listed) for slot in sorted(slots)),
        width=float(COARSE),
    )


def _order(name: str) -> tuple[int, str]:
    known = ("util", "vram", "cgroup")
    return (known.index(name) if name in known else len(known), name)
