"""Follow one run's ``metrics.jsonl`` from its start, row by row, resumable at any byte."""

from __future__ import annotations

import os
import time

from rgt_box.metrics.jsonl import RunMetrics
from rgt_box.metrics.reader_base import TOTAL
from rgt_box.metrics.rows import spelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.reader_base import Batch, Point

ROWS = 500
QUIET = 30.0
"""Seconds without news after which a source is looked at once in a while only: a sweep has thousands."""
MOST_STEP = 2.0**53
"""Steps beyond it cannot be told apart in a float."""


class ScalarFollower:
    """One metric source.

    Args:
        run: The cell's name.
        source: Path of the file; it need not exist yet.
        cursor: ``(inode, offset)`` up to which the client has everything.
    """

    def __init__(self, run: str, source: str, cursor: tuple[int, int] | None) -> None:
        self.run, self.source = run, source
        self._reader = RunMetrics(source)
        self._cursor = None if cursor is None else {"inode": cursor[0], "offset": cursor[1]}
        self._news = time.monotonic()

    def poll(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Return the next ``scalar`` frame (None when there is nothing new) and events of the run.

        At most `ROWS` points; call again until None to catch up. A replaced or shortened file starts anew
        at offset 0: the frame's inode and start say so.
        """
        try:
            named = os.stat(self.source)
        except OSError:
            return None, []
        before = self._cursor
        if before is not None and (named.st_ino, named.st_size) == (before["inode"], before["offset"]):
            return None, []
        batch = self._reader.read(before, ROWS)
        self._cursor = now = batch.cursor
        start = 0 if before is None or batch.reset else before["offset"]
        if now is None or now["offset"] == start:
            return None, []
        self._news = time.monotonic()
        frame: dict[str, Any] = {"t": "scalar", "run": self.run, "source": self.source}
        frame.update(inode=now["inode"], start=start, end=now["offset"])
        points = frame["points"] = [_row(row) for row in _rows(batch)]
        if points and points[-1][1] is None:
            frame["written"] = round(named.st_mtime, 3)
        resumes = [[int(start.x), start.why] for start in batch.starts if start.x is not None]
        if resumes:
            frame["resumes"] = resumes
        return frame, batch.events

    @property
    def is_quiet(self) -> bool:
        """Nothing was written for a while."""
        return time.monotonic() - self._news > QUIET


def _rows(batch: Batch) -> list[list[Point]]:
    """Return the rows with a whole step, as their points."""
    ends = [*batch.rows[1:], len(batch.points)]
    rows = [batch.points[at:end] for at, end in zip(batch.rows, ends)]  # noqa: B905 (3.10)
    return [row for row in rows if row and row[0].x_kind == "step" and _is_whole(row[0].x)]


def _is_whole(x: float) -> bool:
    return abs(x) < MOST_STEP and x == int(x)


def _row(row: list[Point]) -> list[Any]:
    values = {point.tag: spelled(point.y) for point in row}
    if TOTAL in values:
        values["total_steps"] = values.pop(TOTAL)
    epoch = values.pop("epoch", None)
    return [int(row[0].x), row[0].at, epoch if isinstance(epoch, float) else None, values]
