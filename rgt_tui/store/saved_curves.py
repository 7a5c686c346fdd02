"""Runs and their curves in the file: complete while short, then thinned out, the newest part always complete.

A run's figures, its curves, and how far its sources are go into one transaction, so that a later rgt tells the box
exactly how far the curves go that it shows. The process knows which points of its growing series stand where (`Held`),
and so writes only what is new.
"""

from __future__ import annotations

import math
import sqlite3
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rgt_tui.model import Cursor, Resume, RunState, Series
from rgt_tui.store.database import Damaged

RECALLED = 64
"""Runs of a box that are recalled, the newest."""
EXACT = 8192
"""A curve of more points than this is thinned."""
THINNED = 4096
CHUNK = 512
"""Points in a full chunk."""
FROM_THE_START = Cursor(inode=0, offset=1 << 60)
"""Fits no file: whatever the box has of this source it tells anew, and what is shown gives way to that."""
_LOSS = "loss"
_PLAIN, _ZLIB = 0, 1
_LARGEST = 2**63 - 1

Key = tuple[int, str, str]
"""Box, run, metric."""


# Runs.


class Held(msgspec.Struct, frozen=True):
    """How a series in memory is stored in the file.

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

    @property
    def points(self) -> int:
        """Points of the curve in the file."""
        return self.stored + self.count - self.base

    def place(self, index: int) -> int:
        """Return the place in the file of the point at `index` of the series."""
        if index >= self.base:
            return self.stored + index - self.base
        return self.stored


class Saved(msgspec.Struct, frozen=True):
    """The body of a row of ``runs``."""

    run: RunState
    """Without its series."""


class Kept(msgspec.Struct, frozen=True):
    """What this process knows of a run in the file."""

    run: RunState
    held: Mapping[str, Held] = {}
    resumes: tuple[Resume, ...] = ()
    marks: tuple[int, ...] = ()
    """Where the first point after each of `resumes` stands in the loss curve as the file has it."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Saved).decode


def save(con: sqlite3.Connection, box: int, run: RunState, kept: Kept | None, now: float) -> Kept:
    """Write a run; return what is known of it now.

    Args:
        con: In a transaction.
        box: The box's number.
        run: Its newest state.
        kept: What the last write, or reading, left.
        now: Client clock.
    """
    there = con.execute("SELECT 1 FROM runs WHERE box = ? AND run = ?", (box, run.name)).fetchone()
    known = kept if kept is not None and there is not None else Kept(RunState(name=run.name))
    same = _same(known.resumes, run.resumes)
    held: dict[str, Held] = {}
    marks = known.marks[:same]
    for metric, series in run.series.items():
        old = known.held.get(metric)
        is_loss = metric == _LOSS
        before = _placed(run, same, marks, old, series) if is_loss else ()
        held[metric], after = write(con, (box, run.name, metric), series, old, before)
        marks = tuple(after) if is_loss else marks
    places = ", ".join("?" * len(run.series))
    con.execute(
        f"DELETE FROM curves WHERE box = ? AND run = ? AND metric NOT IN ({places})",
        (box, run.name, *run.series),
    )
    bare = _bare(run, marks if _LOSS in held else tuple(resume.index for resume in run.resumes))
    con.execute(
        "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)",
        (box, run.name, now, _encode(Saved(bare))),
    )
    return Kept(run, held, run.resumes if _LOSS in held else (), marks)


def _same(old: tuple[Resume, ...], new: tuple[Resume, ...]) -> int:
    count = 0
    while count < min(len(old), len(new)) and old[count] == new[count]:
        count += 1
    return count


def _placed(
    run: RunState, same: int, marks: tuple[int, ...], held: Held | None, series: Series
) -> tuple[int, ...]:
    """Return where the resumes stand: as followed so far, the new ones by their place in memory."""
    if held is None:
        return tuple(resume.index for resume in run.resumes)
    xs, ys, count = series.columns()
    if common(held, xs, ys, count) < held.base:  # it will be written from its start
        return tuple(resume.index for resume in run.resumes)
    return (*marks, *(held.place(resume.index) for resume in run.resumes[same:]))


def _bare(run: RunState, marks: tuple[int, ...]) -> RunState:
    resumes = tuple(
        msgspec.structs.replace(resume, index=mark)
        for resume, mark in zip(run.resumes, marks, strict=True)
    )
    # The cursor of a curve that was found counts its points, and points before it may be corrected while nobody is
    # connected. That of a file counts bytes that do not change.
    cursors = {
        source: FROM_THE_START if "#" in source else cursor
        for source, cursor in run.cursors.items()
    }
    return msgspec.structs.replace(run, series={}, resumes=resumes, cursors=cursors)


def recall(con: sqlite3.Connection, box: int) -> tuple[Kept, ...]:
    """Return the newest runs of a box with their curves, oldest first.

    Raises:
        Damaged: they are not what was written.
    """
    rows = con.execute(
        "SELECT run, body FROM runs WHERE box = ? ORDER BY at DESC LIMIT ?", (box, RECALLED)
    ).fetchall()
    return tuple(_recalled(con, box, name, body) for name, body in reversed(rows))


def _recalled(con: sqlite3.Connection, box: int, name: str, body: bytes) -> Kept:
    try:
        saved = _decode(body)
    except msgspec.MsgspecError as error:
        raise Damaged(f"run {name!r} cannot be read: {error}") from error
    held: dict[str, Held] = {}
    for (metric,) in con.execute(
        "SELECT DISTINCT metric FROM curves WHERE box = ? AND run = ?", (box, name)
    ).fetchall():
        held[metric] = _taken_up(con, (box, name, metric))
    series = {metric: Series(each.xs, each.ys) for metric, each in held.items()}
    run = msgspec.structs.replace(
        saved.run, series=series, alive=None
    )  # what lived then may not now
    return Kept(run, held, run.resumes, tuple(resume.index for resume in run.resumes))


def curves_of(
    con: sqlite3.Connection, box: int, run: str
) -> dict[str, tuple[list[int], list[float]]]:
    """Return the curves of a run as the file has them: steps and values by metric. One that is damaged is left out."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    metrics = con.execute(
        "SELECT DISTINCT metric FROM curves WHERE box = ? AND run = ?", (box, run)
    ).fetchall()
    for (metric,) in metrics:
        try:
            held = _taken_up(con, (box, run, metric))
        except Damaged:
            continue
        found[metric] = (held.xs, held.ys)
    return found


def resumes_of(con: sqlite3.Connection, box: int, run: str) -> tuple[Resume, ...]:
    """Return the resumes of a run, with their places in the loss curve as the file has it; none where it is damaged."""
    row = con.execute("SELECT body FROM runs WHERE box = ? AND run = ?", (box, run)).fetchone()
    try:
        if row is None:
            return ()
        return _decode(row[0]).run.resumes
    except msgspec.MsgspecError:
        return ()


# Curves.


def write(
    con: sqlite3.Connection, key: Key, series: Series, held: Held | None, marks: Sequence[int]
) -> tuple[Held, list[int]]:
    """Bring a stored curve up to `series`; return its new state and that of its marks.

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
    image = _taken_up(con, key)
    kept = thin(image.xs, image.ys, THINNED)
    chunks = _replace(con, key, [image.xs[i] for i in kept], [image.ys[i] for i in kept])
    return (
        Held(xs, ys, count, base=count, stored=len(kept), chunk=chunks),
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
    held = Held(xs, ys, len(xs), base=len(xs), stored=len(kept), chunk=chunks)
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
    con: sqlite3.Connection,
    key: Key,
    xs: list[int],
    ys: list[float],
    count: int,
    held: Held,
    same: int,
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
    con.execute("INSERT OR REPLACE INTO curves VALUES (?, ?, ?, ?, ?)", (*key, chunk, pack(xs, ys)))


def _cut(con: sqlite3.Connection, key: Key, chunk: int) -> None:
    con.execute(
        "DELETE FROM curves WHERE box = ? AND run = ? AND metric = ? AND chunk >= ?", (*key, chunk)
    )


def _pieces(con: sqlite3.Connection, key: Key) -> Iterator[tuple[list[int], list[float]]]:
    condition = "box = ? AND run = ? AND metric = ? ORDER BY chunk"
    for (body,) in con.execute(f"SELECT body FROM curves WHERE {condition}", key):
        yield unpack(body)


def _taken_up(con: sqlite3.Connection, key: Key) -> Held:
    """Return how a curve stands in the file: its last chunk, if not full, is gone on with."""
    xs: list[int] = []
    ys: list[float] = []
    chunks = last = 0
    for steps, values in _pieces(con, key):
        xs += steps
        ys += values
        chunks, last = chunks + 1, len(steps)
    if 0 < last < CHUNK:
        base = len(xs) - last
        return Held(xs, ys, len(xs), base=base, stored=base, chunk=chunks - 1)
    return Held(xs, ys, len(xs), base=len(xs), stored=len(xs), chunk=chunks)


def pack(xs: Sequence[int], ys: Sequence[float]) -> bytes:
    """Return the points as bytes; a full chunk, which will hardly be written again, is compressed."""
    steps = array("q", [min(_LARGEST, max(-_LARGEST, x)) for x in xs])
    values = array("d", ys)
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    data = steps.tobytes() + values.tobytes()
    if len(steps) >= CHUNK:
        return bytes([_ZLIB]) + zlib.compress(data, 1)
    return bytes([_PLAIN]) + data


def unpack(body: bytes) -> tuple[list[int], list[float]]:
    """Return steps and values.

    Raises:
        Damaged: these are no bytes of `pack`.
    """
    try:
        data = zlib.decompress(body[1:]) if body[0] == _ZLIB else body[1:]
        half = len(data) // 2
        steps, values = array("q"), array("d")
        steps.frombytes(data[:half])
        values.frombytes(data[half:])
    except (zlib.error, ValueError, IndexError) as error:
        raise Damaged(f"a piece of a curve cannot be read: {error}") from error
    if len(steps) != len(values):
        raise Damaged("a piece of a curve has not as many steps as values")
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    return steps.tolist(), values.tolist()


def thin(xs: Sequence[int], ys: Sequence[float], most: int) -> list[int]:
    """Return the places of at most `most` points that draw the curve ``(xs, ys)``.

    Kept are both ends, and of every stretch of steps the lowest and the highest point and the first NaN and the first
    infinity of either sign: what a person looks for in a curve is its extremes. Stretches are of equal width in steps,
    so that thinning again and again while a run goes on does not starve its beginning; a resume that goes back in
    steps begins a stretch of its own. A curve that goes back too often for that is cut by places instead.

    Args:
        xs: Steps.
        ys: Values, as many.
        most: At least 16.
    """
    if len(xs) <= most:
        return list(range(len(xs)))
    low, high = min(xs), max(xs)
    parts = most // 2 - 1
    while parts >= 2:
        width = (high - low) / parts
        kept = _kept(ys, [int((x - low) / width) for x in xs] if width > 0 else [0] * len(xs))
        if len(kept) <= most:
            return kept
        parts //= 2
    parts = max(1, most // 6)
    return _kept(ys, [index * parts // len(xs) for index in range(len(xs))])


def _kept(ys: Sequence[float], stretch_of: Sequence[int]) -> list[int]:
    kept = {0, len(ys) - 1}
    for start, stop in _stretches(stretch_of):
        kept.update(_extremes(ys, start, stop))
    return sorted(kept)


def _stretches(stretch_of: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(stretch_of)):
        if stretch_of[index] != stretch_of[start]:
            yield start, index
            start = index
    yield start, len(stretch_of)


def _extremes(ys: Sequence[float], start: int, stop: int) -> set[int]:
    found: dict[str, int] = {}
    for index in range(start, stop):
        value = ys[index]
        if math.isfinite(value):
            if "low" not in found or value < ys[found["low"]]:
                found["low"] = index
            if "high" not in found or value > ys[found["high"]]:
                found["high"] = index
        else:
            found.setdefault(str(value), index)
    return set(found.values())
