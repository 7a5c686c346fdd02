"""Runs and their curves in the file: complete while short, then thinned, except the newest part.

A run's figures, its curves and the cursors of its sources are written in one transaction, so that a
later rgt sends the box cursors that match the displayed curves. The process tracks where the points
of its growing series are stored (`StoredSeries`), and so writes only new ones.
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

from rgt_tui.model import FileCursor, FrozenStruct, RunResume, RunState, Series
from rgt_tui.store.database import HistoryDamaged

EXACT = 8192
"""A curve of more points than this is thinned."""
THINNED = 4096
CHUNK = 512
"""Points in a full chunk."""
FROM_THE_START = FileCursor(inode=0, offset=1 << 60)
"""A cursor that matches no file: the box sends this source from the beginning, which replaces the
displayed curve."""
_LOSS = "loss"
_PLAIN, _ZLIB = 0, 1
_LARGEST = 2**63 - 1

Key = tuple[int, str, str]
"""Box, run, metric."""


# Runs.


class StoredSeries(FrozenStruct):
    """How a series in memory is stored in the file.

    Its first `base` points are stored as the first `stored` ones (fewer if thinned), in the first
    `chunk` chunks; later points are stored one to one, `CHUNK` per chunk.
    """

    xs: list[int]
    ys: list[float]
    count: int
    """Number of points of the series that are in the file."""
    base: int = 0
    stored: int = 0
    chunk: int = 0

    @property
    def point_count(self) -> int:
        """Number of points of the curve in the file."""
        return self.stored + self.count - self.base

    def stored_position(self, index: int) -> int:
        """Return the position in the file of the point at `index` of the series."""
        if index >= self.base:
            return self.stored + index - self.base
        return self.stored


class RunBody(FrozenStruct):
    """The body of a row of ``runs``."""

    run: RunState
    """Without its series."""


class KnownRun(FrozenStruct):
    """This process's knowledge of a run in the file."""

    run: RunState
    held: Mapping[str, StoredSeries] = {}
    resumes: tuple[RunResume, ...] = ()
    marks: tuple[int, ...] = ()
    """Position in the stored loss curve of the first point after each of `resumes`."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RunBody).decode


def save_run(
    con: sqlite3.Connection, box: int, run: RunState, kept: KnownRun | None, now: float
) -> KnownRun:
    """Write a run; return the updated knowledge of it.

    Args:
        con: In a transaction.
        box: The box's number.
        run: Its newest state.
        kept: Result of the last write or load.
        now: Client clock.
    """
    there = con.execute("SELECT 1 FROM runs WHERE box = ? AND run = ?", (box, run.name)).fetchone()
    if kept is not None and there is not None:
        known = kept
    else:
        known = KnownRun(RunState(name=run.name))
    same = _count_same(known.resumes, run.resumes)
    held: dict[str, StoredSeries] = {}
    marks = known.marks[:same]
    for metric, series in run.series.items():
        old = known.held.get(metric)
        is_loss = metric == _LOSS
        if is_loss:
            before = _stored_positions(run, same, marks, old, series)
        else:
            before = ()
        held[metric], after = write_curve(con, (box, run.name, metric), series, old, before)
        marks = tuple(after) if is_loss else marks
    places = ", ".join("?" * len(run.series))
    con.execute(
        f"DELETE FROM curves WHERE box = ? AND run = ? AND metric NOT IN ({places})",
        (box, run.name, *run.series),
    )
    bare = _strip_series(
        run, marks if _LOSS in held else tuple(resume.index for resume in run.resumes)
    )
    con.execute(
        "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)",
        (box, run.name, now, _encode(RunBody(bare))),
    )
    return KnownRun(run, held, run.resumes if _LOSS in held else (), marks)


def _count_same(old: tuple[RunResume, ...], new: tuple[RunResume, ...]) -> int:
    count = 0
    while count < min(len(old), len(new)) and old[count] == new[count]:
        count += 1
    return count


def _stored_positions(
    run: RunState, same: int, marks: tuple[int, ...], held: StoredSeries | None, series: Series
) -> tuple[int, ...]:
    """Return the stored positions of the resumes: known ones as tracked, new ones from memory."""
    if held is None:
        return tuple(resume.index for resume in run.resumes)
    xs, ys, count = series.backing_columns()
    if count_unchanged(held, xs, ys, count) < held.base:  # it will be rewritten from its start
        return tuple(resume.index for resume in run.resumes)
    return (*marks, *(held.stored_position(resume.index) for resume in run.resumes[same:]))


def _strip_series(run: RunState, marks: tuple[int, ...]) -> RunState:
    resumes = tuple(
        msgspec.structs.replace(resume, index=mark)
        for resume, mark in zip(run.resumes, marks, strict=True)
    )
    # The cursor of a found curve counts its points, and earlier points may be corrected while rgt
    # is disconnected. The cursor of a file counts bytes, which do not change.
    cursors = {
        source: FROM_THE_START if "#" in source else cursor
        for source, cursor in run.cursors.items()
    }
    return msgspec.structs.replace(run, series={}, resumes=resumes, cursors=cursors)


def recall_runs(con: sqlite3.Connection, box: int) -> tuple[KnownRun, ...]:
    """Return up to 64 runs of a box with their curves, oldest first.

    These are first the runs that the fleet file names, then the newest: on a machine that others
    share, any number of other trainings may have been found since.

    Raises:
        HistoryDamaged: their rows are invalid.
    """
    # Number of runs of a box that are loaded.
    recalled = 64
    rows = con.execute("SELECT run, body FROM runs WHERE box = ? ORDER BY at", (box,))
    saved = [(name, _decode_run(name, body)) for name, body in rows.fetchall()]
    wanted = sorted(saved, key=lambda row: bool(row[1].named_by))[-recalled:]
    kept = {name for name, _ in wanted}
    return tuple(_load_run(con, box, name, run) for name, run in saved if name in kept)


def _decode_run(name: str, body: bytes) -> RunState:
    try:
        return _decode(body).run
    except msgspec.MsgspecError as error:
        raise HistoryDamaged(f"run {name!r} cannot be read: {error}") from error


def _load_run(con: sqlite3.Connection, box: int, name: str, saved: RunState) -> KnownRun:
    held: dict[str, StoredSeries] = {}
    for (metric,) in con.execute(
        "SELECT DISTINCT metric FROM curves WHERE box = ? AND run = ?", (box, name)
    ).fetchall():
        held[metric] = _load_curve(con, (box, name, metric))
    series = {metric: Series(each.xs, each.ys) for metric, each in held.items()}
    # It may have ended meanwhile.
    run = msgspec.structs.replace(saved, series=series, alive=None)
    return KnownRun(run, held, run.resumes, tuple(resume.index for resume in run.resumes))


def curves_of(
    con: sqlite3.Connection, box: int, run: str
) -> dict[str, tuple[list[int], list[float]]]:
    """Return the stored curves of a run: steps and values by metric. Damaged curves are skipped."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    metrics = con.execute(
        "SELECT DISTINCT metric FROM curves WHERE box = ? AND run = ?", (box, run)
    ).fetchall()
    for (metric,) in metrics:
        try:
            held = _load_curve(con, (box, run, metric))
        except HistoryDamaged:
            continue
        found[metric] = (held.xs, held.ys)
    return found


def resumes_of(con: sqlite3.Connection, box: int, run: str) -> tuple[RunResume, ...]:
    """Return the resumes of a run, with positions in the stored loss curve; empty if damaged."""
    row = con.execute("SELECT body FROM runs WHERE box = ? AND run = ?", (box, run)).fetchone()
    try:
        if row is None:
            return ()
        return _decode(row[0]).run.resumes
    except msgspec.MsgspecError:
        return ()


# Curves.


def write_curve(
    con: sqlite3.Connection,
    key: Key,
    series: Series,
    held: StoredSeries | None,
    marks: Sequence[int],
) -> tuple[StoredSeries, list[int]]:
    """Update a stored curve to `series`; return its new state and that of its marks.

    Args:
        con: In a transaction.
        key: Identifies the curve.
        series: The newest snapshot.
        held: Its state after the last write or load; None = the file has nothing of this series.
        marks: Positions in the stored series that must be adjusted when it is thinned.
    """
    xs, ys, count = series.backing_columns()
    if held is None:
        same = 0
    else:
        same = count_unchanged(held, xs, ys, count)
    if held is None or same < held.base:
        return _rewrite_curve(con, key, xs[:count], ys[:count], marks)
    if same < count or count < held.count:
        _append_points(con, key, xs, ys, count, held, same)
    new = msgspec.structs.replace(held, xs=xs, ys=ys, count=count)
    if new.point_count <= EXACT:
        return new, list(marks)
    image = _load_curve(con, key)
    kept = thin_indices(image.xs, image.ys, THINNED)
    chunks = _replace_chunks(con, key, [image.xs[i] for i in kept], [image.ys[i] for i in kept])
    return (
        StoredSeries(xs, ys, count, base=count, stored=len(kept), chunk=chunks),
        [bisect_left(kept, mark) for mark in marks],
    )


def _rewrite_curve(
    con: sqlite3.Connection, key: Key, xs: list[int], ys: list[float], marks: Sequence[int]
) -> tuple[StoredSeries, list[int]]:
    if len(xs) <= EXACT:
        _replace_chunks(con, key, xs, ys)
        return StoredSeries(xs, ys, len(xs)), list(marks)
    kept = thin_indices(xs, ys, THINNED)
    chunks = _replace_chunks(con, key, [xs[i] for i in kept], [ys[i] for i in kept])
    held = StoredSeries(xs, ys, len(xs), base=len(xs), stored=len(kept), chunk=chunks)
    return held, [bisect_left(kept, mark) for mark in marks]


def count_unchanged(held: StoredSeries, xs: list[int], ys: list[float], count: int) -> int:
    """Return how many leading points are unchanged since they were written.

    If some differ, the count is rounded down to full chunks.
    """
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


def _append_points(
    con: sqlite3.Connection,
    key: Key,
    xs: list[int],
    ys: list[float],
    count: int,
    held: StoredSeries,
    same: int,
) -> None:
    first = (same - held.base) // CHUNK
    last = first
    for number, start in enumerate(range(held.base + first * CHUNK, count, CHUNK), first):
        stop = min(count, start + CHUNK)
        _put_chunk(con, key, held.chunk + number, xs[start:stop], ys[start:stop])
        last = number + 1
    _delete_from_chunk(con, key, held.chunk + last)


def _replace_chunks(con: sqlite3.Connection, key: Key, xs: list[int], ys: list[float]) -> int:
    chunks = 0
    for start in range(0, len(xs), CHUNK):
        _put_chunk(con, key, chunks, xs[start : start + CHUNK], ys[start : start + CHUNK])
        chunks += 1
    _delete_from_chunk(con, key, chunks)
    return chunks


def _put_chunk(
    con: sqlite3.Connection, key: Key, chunk: int, xs: list[int], ys: list[float]
) -> None:
    con.execute(
        "INSERT OR REPLACE INTO curves VALUES (?, ?, ?, ?, ?)", (*key, chunk, pack_points(xs, ys))
    )


def _delete_from_chunk(con: sqlite3.Connection, key: Key, chunk: int) -> None:
    con.execute(
        "DELETE FROM curves WHERE box = ? AND run = ? AND metric = ? AND chunk >= ?", (*key, chunk)
    )


def _iterate_pieces(con: sqlite3.Connection, key: Key) -> Iterator[tuple[list[int], list[float]]]:
    condition = "box = ? AND run = ? AND metric = ? ORDER BY chunk"
    for (body,) in con.execute(f"SELECT body FROM curves WHERE {condition}", key):
        yield unpack_points(body)


def _load_curve(con: sqlite3.Connection, key: Key) -> StoredSeries:
    """Load a curve; a last chunk that is not full will be extended."""
    xs: list[int] = []
    ys: list[float] = []
    chunks = last = 0
    for steps, values in _iterate_pieces(con, key):
        xs += steps
        ys += values
        chunks, last = chunks + 1, len(steps)
    if 0 < last < CHUNK:
        base = len(xs) - last
        return StoredSeries(xs, ys, len(xs), base=base, stored=base, chunk=chunks - 1)
    return StoredSeries(xs, ys, len(xs), base=len(xs), stored=len(xs), chunk=chunks)


def pack_points(xs: Sequence[int], ys: Sequence[float]) -> bytes:
    """Pack points as bytes; only full chunks are compressed, because they rarely change again."""
    steps = array("q", [min(_LARGEST, max(-_LARGEST, x)) for x in xs])
    values = array("d", ys)
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    data = steps.tobytes() + values.tobytes()
    if len(steps) >= CHUNK:
        return bytes([_ZLIB]) + zlib.compress(data, 1)
    return bytes([_PLAIN]) + data


def unpack_points(body: bytes) -> tuple[list[int], list[float]]:
    """Unpack steps and values.

    Raises:
        HistoryDamaged: the bytes were not made by `pack_points`.
    """
    try:
        if body[0] == _ZLIB:
            data = zlib.decompress(body[1:])
        else:
            data = body[1:]
        half = len(data) // 2
        steps, values = array("q"), array("d")
        steps.frombytes(data[:half])
        values.frombytes(data[half:])
    except (zlib.error, ValueError, IndexError) as error:
        raise HistoryDamaged(f"a piece of a curve cannot be read: {error}") from error
    if len(steps) != len(values):
        raise HistoryDamaged("a piece of a curve has not as many steps as values")
    if sys.byteorder == "big":
        steps.byteswap()
        values.byteswap()
    return steps.tolist(), values.tolist()


def thin_indices(xs: Sequence[int], ys: Sequence[float], most: int) -> list[int]:
    """Return the indices of at most `most` points that draw the curve ``(xs, ys)``.

    It keeps both ends, and of every section the lowest and the highest point, the first NaN and the
    first infinity of either sign, because extremes matter most to a reader. Sections have equal
    width in steps, so that repeated thinning of a growing run does not wear out its beginning; a
    resume that goes back in steps begins a new section. A curve that goes back too often for that
    is divided by index instead.

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
        kept = _keep_extremes(
            ys, [int((x - low) / width) for x in xs] if width > 0 else [0] * len(xs)
        )
        if len(kept) <= most:
            return kept
        parts //= 2
    parts = max(1, most // 6)
    return _keep_extremes(ys, [index * parts // len(xs) for index in range(len(xs))])


def _keep_extremes(ys: Sequence[float], stretch_of: Sequence[int]) -> list[int]:
    kept = {0, len(ys) - 1}
    for start, stop in _stretches(stretch_of):
        kept.update(_find_extremes(ys, start, stop))
    return sorted(kept)


def _stretches(stretch_of: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for index in range(1, len(stretch_of)):
        if stretch_of[index] != stretch_of[start]:
            yield start, index
            start = index
    yield start, len(stretch_of)


def _find_extremes(ys: Sequence[float], start: int, stop: int) -> set[int]:
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
