"""One curve in the file: exact while it is short, then thinned ever more, its newest part always exact.

The process knows which points of its growing series stand where (`Held`), and so writes only what is new.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from rgt_tui.model.run import Series
from rgt_tui.store.chunks import CHUNK, pack, unpack
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import CURVES
from rgt_tui.store.thin import thin

EXACT = 8192
"""A curve of more points than this is thinned."""
THINNED = 4096

Key = tuple[int, str, str]
"""Box, run, metric."""


class Held(msgspec.Struct, frozen=True):
    """How a series in memory stands in the file.

    Its first `base` points stand there as the first `stored` ones (fewer where they were thinned), in the first `chunk`
    chunks; those after it stand there one by one, `CHUNK` to a chunk.
    """

    xs: list[int]
    ys: list[float]
    count: int
    """Points of the series that are in the file."""
    base: int = 0
    stored: int = 0
    chunk: int = 0
    thinned: bool = False

    @property
    def points(self) -> int:
        """Points of the curve in the file."""
        return self.stored + self.count - self.base

    def place(self, index: int) -> int:
        """Return where the point at `index` of the series stands in the file."""
        return self.stored + index - self.base if index >= self.base else self.stored


def write(
    con: sqlite3.Connection, key: Key, series: Series, held: Held | None, marks: Sequence[int]
) -> tuple[Held, list[int]]:
    """Bring a curve up to `series`; return how it stands now, and where its marks do.

    Args:
        con: In a transaction.
        key: Which curve.
        series: The newest snapshot.
        held: How it stood after the last write, or after it was read; None = nothing in the file is of this series.
        marks: Places in the series as the file has it (for old ones) that must be followed through a thinning.
    """
    xs, ys, count = series.columns()
    same = 0 if held is None else common(held, xs, ys, count)
    if held is None or same < held.base:
        return _anew(con, key, xs[:count], ys[:count], marks)
    if same < count or count < held.count:
        _append(con, key, xs, ys, count, held, same)
    new = msgspec.structs.replace(held, xs=xs, ys=ys, count=count)
    if new.points <= EXACT:
        return new, list(marks)
    image = read(con, key)
    kept = thin(*image, THINNED)
    chunks = _replace(con, key, [image[0][i] for i in kept], [image[1][i] for i in kept])
    return (
        Held(xs, ys, count, base=count, stored=len(kept), chunk=chunks, thinned=True),
        [bisect_left(kept, mark) for mark in marks],
    )


def _anew(
    con: sqlite3.Connection, key: Key, xs: list[int], ys: list[float], marks: Sequence[int]
) -> tuple[Held, list[int]]:
    if len(xs) <= EXACT:
        _replace(con, key, xs, ys)
        return Held(xs, ys, len(xs)), list(marks)
    kept = thin(xs, ys, THINNED)
    chunks = _replace(con, key, [xs[i] for i in kept], [ys[i] for i in kept])
    held = Held(xs, ys, len(xs), base=len(xs), stored=len(kept), chunk=chunks, thinned=True)
    return held, [bisect_left(kept, mark) for mark in marks]


def common(held: Held, xs: list[int], ys: list[float], count: int) -> int:
    """Return how many leading points are as they were written, in whole chunks where they are not all."""
    if xs is held.xs and ys is held.ys:
        return min(count, held.count)
    most = min(count, held.count)
    if xs[:most] == held.xs[:most] and ys[:most] == held.ys[:most]:
        return most
    same = 0
    while same < most:
        stop = min(most, same + CHUNK)
        if xs[same:stop] != held.xs[same:stop] or ys[same:stop] != held.ys[same:stop]:
            break
        same = stop
    return same


def _append(
    con: sqlite3.Connection, key: Key, xs: list[int], ys: list[float], count: int, held: Held, same: int
) -> None:
    first = (same - held.base) // CHUNK
    last = first
    for number, start in enumerate(range(held.base + first * CHUNK, count, CHUNK), first):
        stop = min(count, start + CHUNK)
        _put(con, key, held.chunk + number, xs[start:stop], ys[start:stop])
        last = number + 1
    _cut(con, key, held.chunk + last)


def _replace(con: sqlite3.Connection, key: Key, xs: list[int], ys: list[float]) -> int:
    chunks = 0
    for start in range(0, len(xs), CHUNK):
        _put(con, key, chunks, xs[start : start + CHUNK], ys[start : start + CHUNK])
        chunks += 1
    _cut(con, key, chunks)
    return chunks


def _put(con: sqlite3.Connection, key: Key, chunk: int, xs: list[int], ys: list[float]) -> None:
    con.execute(CURVES.insert(), CURVES.sealed((*key, chunk, pack(xs, ys))))


def _cut(con: sqlite3.Connection, key: Key, chunk: int) -> None:
    con.execute("DELETE FROM curves WHERE box = ? AND run = ? AND metric = ? AND chunk >= ?", (*key, chunk))


def read(con: sqlite3.Connection, key: Key) -> tuple[list[int], list[float]]:
    """Return a curve's points.

    Raises:
        Damaged: they are not what was written.
    """
    xs: list[int] = []
    ys: list[float] = []
    condition = " WHERE box = ? AND run = ? AND metric = ? ORDER BY chunk"
    for row in con.execute(CURVES.select + condition, key):
        steps, values = unpack(checked("curves", row)[4])
        xs += steps
        ys += values
    return xs, ys


def taken_up(xs: list[int], ys: list[float], chunks: int, last: int, *, thinned: bool) -> Held:
    """Return how a series that was just read stands in the file: its last chunk, if not full, is gone on with.

    Args:
        xs: Its steps; the list that the series goes on with.
        ys: Its values.
        chunks: How many chunks it has.
        last: How many points are in the last one.
        thinned: It has fewer points than the run logged.
    """
    count = len(xs)
    if 0 < last < CHUNK:
        base = count - last
        return Held(xs, ys, count, base=base, stored=base, chunk=chunks - 1, thinned=thinned)
    return Held(xs, ys, count, base=count, stored=count, chunk=chunks, thinned=thinned)
