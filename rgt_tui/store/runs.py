"""A run in the file: its figures, its curves, and how far its sources are - all three of the same moment.

They are written in one transaction, so that a later rgt tells the box exactly how far the curves go that it shows.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rgt_tui.model.protocol import Cursor
from rgt_tui.model.run import Resume, RunState, Series
from rgt_tui.store import curves
from rgt_tui.store.chunks import unpack
from rgt_tui.store.curves import Held
from rgt_tui.store.errors import Damaged
from rgt_tui.store.seal import checked
from rgt_tui.store.tables import CURVES, RUNS

FOREIGN_SECONDS = 180.0
"""A run that another process wrote so lately is left to it."""
RECALLED = 64
"""Runs of a box that are recalled, the newest."""
FROM_THE_START = Cursor(inode=0, offset=1 << 60)
"""Fits no file: whatever the box has of this source it tells anew, and what is shown gives way to that."""
_LOSS = "loss"


class Saved(msgspec.Struct, frozen=True):
    """The body of a row of ``runs``."""

    run: RunState
    """Without its series."""
    points: dict[str, int] = {}
    """Metric → points in the file."""
    thinned: tuple[str, ...] = ()


class Book(msgspec.Struct, frozen=True):
    """What this process knows of a run in the file."""

    stamp: int
    """Of the write that it knows; another one there now is another process's."""
    run: RunState
    held: Mapping[str, Held] = {}
    resumes: tuple[Resume, ...] = ()
    marks: tuple[int, ...] = ()
    """Where the first point after each of `resumes` stands in the loss curve as the file has it."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Saved).decode


def save(con: sqlite3.Connection, box: int, run: RunState, book: Book | None, now: float) -> Book | None:
    """Write a run; return what is known of it now, or None when it was left to the process that has it.

    Args:
        con: In a transaction.
        box: The box's number.
        run: Its newest state.
        book: What the last write, or reading, left.
        now: Client clock.
    """
    row = con.execute(RUNS.select + " WHERE box = ? AND run = ?", (box, run.name)).fetchone()
    if book is not None and (row is None or row[2] != book.stamp):
        book = None
    if row is not None and book is None and 0 <= now - checked("runs", row)[3] < FOREIGN_SECONDS:
        return None
    known = book or Book(0, RunState(name=run.name))
    same = _same(known.resumes, run.resumes)
    held: dict[str, Held] = {}
    marks = known.marks[:same]
    for metric, series in run.series.items():
        old = known.held.get(metric)
        is_loss = metric == _LOSS
        before = _placed(run, same, marks, old, series) if is_loss else ()
        held[metric], after = curves.write(con, (box, run.name, metric), series, old, before)
        marks = tuple(after) if is_loss else marks
    _forget_others(con, box, run)
    saved = Saved(
        run=_bare(run, marks if _LOSS in held else tuple(r.index for r in run.resumes)),
        points={metric: each.points for metric, each in held.items()},
        thinned=tuple(metric for metric, each in held.items() if each.thinned),
    )
    stamp = random.getrandbits(62)
    con.execute(RUNS.insert(), RUNS.sealed((box, run.name, stamp, now, _encode(saved))))
    return Book(stamp, run, held, run.resumes if _LOSS in held else (), marks)


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
    if curves.common(held, xs, ys, count) < held.base:  # it will be written from its start
        return tuple(resume.index for resume in run.resumes)
    return (*marks, *(held.place(resume.index) for resume in run.resumes[same:]))


def _bare(run: RunState, marks: tuple[int, ...]) -> RunState:
    resumes = tuple(
        msgspec.structs.replace(resume, index=mark) for resume, mark in zip(run.resumes, marks, strict=True)
    )
    # The cursor of a curve that was found counts its points, and points before it may be corrected while nobody is
    # connected. That of a file counts bytes that do not change.
    cursors = {source: FROM_THE_START if "#" in source else cursor for source, cursor in run.cursors.items()}
    return msgspec.structs.replace(run, series={}, resumes=resumes, cursors=cursors)


def _forget_others(con: sqlite3.Connection, box: int, run: RunState) -> None:
    marks = ", ".join("?" * len(run.series))
    con.execute(
        f"DELETE FROM curves WHERE box = ? AND run = ? AND metric NOT IN ({marks})",
        (box, run.name, *run.series),
    )


def recall(con: sqlite3.Connection, box: int) -> tuple[tuple[RunState, Book], ...]:
    """Return the newest runs of a box with their curves, oldest first.

    Raises:
        Damaged: they are not what was written.
    """
    rows = con.execute(RUNS.select + " WHERE box = ? ORDER BY at DESC LIMIT ?", (box, RECALLED)).fetchall()
    return tuple(_recalled(con, checked("runs", row)) for row in reversed(rows))


def _recalled(con: sqlite3.Connection, row: Sequence[Any]) -> tuple[RunState, Book]:
    box, name, stamp, _, body, _ = row
    try:
        saved = _decode(body)
    except msgspec.MsgspecError as error:
        raise Damaged(f"run {name!r} cannot be read: {error}") from error
    held = _series(con, box, name, saved)
    series = {metric: Series(each.xs, each.ys) for metric, each in held.items()}
    run = msgspec.structs.replace(saved.run, series=series, alive=None)  # what lived then may not now
    return run, Book(stamp, run, held, run.resumes, tuple(resume.index for resume in run.resumes))


def _series(con: sqlite3.Connection, box: int, name: str, saved: Saved) -> dict[str, Held]:
    found: dict[str, tuple[list[int], list[float], int, int]] = {
        metric: ([], [], 0, 0) for metric in saved.points
    }
    order = " WHERE box = ? AND run = ? ORDER BY metric, chunk"
    for row in con.execute(CURVES.select + order, (box, name)):
        metric, body = checked("curves", row)[2], row[4]
        if metric not in found:
            raise Damaged(f"run {name!r} has a curve {metric!r} that it does not know of")
        xs, ys, chunks, _ = found[metric]
        steps, values = unpack(body)
        xs += steps
        ys += values
        found[metric] = (xs, ys, chunks + 1, len(steps))
    if {metric: len(each[0]) for metric, each in found.items()} != saved.points:
        raise Damaged(f"run {name!r} has not as many points as it should")
    return {metric: curves.taken_up(*each, thinned=metric in saved.thinned) for metric, each in found.items()}


def whole(con: sqlite3.Connection, box: int, name: str) -> bool:
    """Tell whether a run and all pieces of its curves are there."""
    row = con.execute(RUNS.select + " WHERE box = ? AND run = ?", (box, name)).fetchone()
    try:
        return row is not None and bool(_recalled(con, checked("runs", row)))
    except Damaged:
        return False
