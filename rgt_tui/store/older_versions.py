"""Migrates history files of versions 1 to 3.

Their rows ended in a checksum, a minute's readings were a row, and costs were kept by the minute: which of its
60 seconds somebody watched (a bit each), at which price, the provider's own sum if it was read in it, and what
unwatched time before that reading cost.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Mapping
from pathlib import Path

from rgt_tui.store import minute_means, spending

_COPIED = {
    "boxes": ("boxes", "id, place, name"),
    "fleets": ("fleets", "fleet, name, box"),
    "states": ("states", "box, at, body"),
    "runs": ("runs", "box, run, at, body"),
    "curves": ("curves", "box, run, metric, chunk, body"),
    "events": ("events", "at, box, text, level"),
    "days": ("days", "box, day, currency, billed, idle_billed, 0"),
}


def copy(path: Path, new: sqlite3.Connection) -> None:
    """Copy what an older history holds into an empty one of today.

    Args:
        path: The older one; it is only read.
        new: Not in a transaction.

    Raises:
        ValueError, TypeError, sqlite3.Error: it is damaged.
    """
    new.execute("ATTACH DATABASE ? AS old", (str(path),))
    # Of both files: another process that still writes the older one waits.
    new.execute("BEGIN IMMEDIATE")
    try:
        there = {row[0] for row in new.execute("SELECT name FROM old.sqlite_master WHERE type = 'table'")}
        for target, (source, columns) in _COPIED.items():
            if source in there:  # version 1 had no events, version 2 no fleets
                new.execute(f"INSERT INTO main.{target} SELECT {columns} FROM old.{source}")
        _samples(new)
        _minutes(new)
        new.execute("COMMIT")
    except BaseException:
        new.execute("ROLLBACK")
        raise
    finally:
        new.execute("DETACH DATABASE old")


def _samples(new: sqlite3.Connection) -> None:
    names: dict[int, list[str]] = {
        row[0]: json.loads(row[1]) for row in new.execute("SELECT id, list FROM old.names")
    }
    chunks: dict[tuple[int, int, int], minute_means.Chunk] = {}
    for box, width, slot, listed, count, packed in new.execute(
        "SELECT box, width, slot, names, count, vals FROM old.samples"
    ):
        values: Mapping[str, float] = dict(
            zip(names.get(listed, []), (value for (value,) in struct.iter_unpack("<f", packed)), strict=True)
        )
        chunk = chunks.setdefault((box, width, slot // minute_means.CHUNK), {})
        chunk[slot % minute_means.CHUNK] = (count, values)
    for key, chunk in chunks.items():
        minute_means.save(new, key, chunk)


def _minutes(new: sqlite3.Connection) -> None:
    row = new.execute("SELECT value FROM old.marks WHERE name = 'minutes rolled up before'").fetchone()
    closed = 0.0 if row is None else 60.0 * row[0]
    """What unwatched time before this cost is among the days already."""
    for box, minute, currency, billed, idle, covered, spent, since, at, gap, gap_from in new.execute(
        """SELECT box, minute, currency, billed, idle_billed, covered, spent, since, at, gap, gap_from
           FROM old.minutes ORDER BY box, minute"""
    ).fetchall():
        day = spending.day_of(60.0 * minute)
        seconds = int(covered).bit_count()
        spending.add(new, box, spending.Cost(day, currency, billed, idle, seconds))
        if gap > 0 and at is not None and at > gap_from:
            start = max(gap_from, closed)
            share = gap * max(0.0, at - start) / (at - gap_from)
            spending.spread(new, box, currency, share, start, at)
        if spent is not None and since is not None:
            spending.remember_sum(new, box, spending.ProviderSum(currency, since, at, spent))
