"""The console of a training program as a source of scalars, read on from a cursor.

The cursor holds the place, the chosen format and what the formats remember, so that a cut at any byte (also between
two lines of one frame) gives the same points.
"""

from __future__ import annotations

import re

from rgt_box.metrics.appended import BUDGET, WINDOW, Appended
from rgt_box.metrics.base import MAX_TAGS, TOTAL, Point
from rgt_box.metrics.console.choose import Chooser
from rgt_box.metrics.console.text import PIECE, clean, complete

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.appended import Window
    from rgt_box.metrics.base import Batch
    from rgt_box.metrics.console.row import Row

_MAYBE = re.compile(rb"\d|nan|inf|epoch", re.I)
"""A piece without any of these tells no format anything."""


class ConsoleReader(Appended):
    """One log file. `source` becomes ``console:FORMAT`` once a format is chosen.

    Args:
        path: The file; it need not exist yet.
        ended: The program that writes it has ended: also give out what waits for a later line.
    """

    source = "console"

    def __init__(self, path: str, ended: bool = False) -> None:
        super().__init__(path)
        self.ended = ended

    def _consume(self, window: Window, state: dict[str, Any], batch: Batch, limit: int) -> None:
        chooser = Chooser(state.get("console"))
        offset = first = state["offset"]
        while offset < window.size:
            if len(batch.points) >= limit or offset - first >= BUDGET:
                batch.more = True
                break
            data = window.at(offset, WINDOW)
            end = complete(data)
            if end:
                offset += self._pieces(data[:end], chooser, state, batch, limit)
            elif len(data) < WINDOW:
                break  # the piece is not complete yet
            else:  # an absurd piece: its beginning says what it has to say
                self._piece(data, chooser, state, batch)
                state["skip"] = True
                offset += len(data)
        if not batch.more:
            _add(batch, chooser.flush() if self.ended else chooser.settle(), state)
        state["offset"] = offset
        state["console"] = chooser.pack()
        self.source = "console:" + chooser.format if chooser.format else "console"

    def _pieces(self, data: bytes, chooser: Chooser, state: dict[str, Any], batch: Batch, limit: int) -> int:
        """Take the pieces of `data`; return how many bytes were taken."""
        if state.get("skip") and data[0] in b"\r\n":
            del state["skip"]
        for found in PIECE.finditer(data):
            if len(batch.points) >= limit:
                return found.start()
            self._piece(found.group(), chooser, state, batch)
        return len(data)

    @staticmethod
    def _piece(piece: bytes, chooser: Chooser, state: dict[str, Any], batch: Batch) -> None:
        if state.pop("skip", False) or not _MAYBE.search(piece):
            return
        rank, text = clean(piece)
        rows, over = chooser.feed(rank, text)
        place = rows[0].place() if over else None
        if place is not None:
            batch.start(place[1], "the output is now read as %s" % chooser.format)
            state.pop("total", None)
        _add(batch, rows, state)


def _add(batch: Batch, rows: list[Row], state: dict[str, Any]) -> None:
    for row in rows:
        place = row.place()
        if place is None:
            continue
        kind, x = place
        values = row.values
        if row.epoch is not None and kind != "epoch":
            values = dict(values, epoch=row.epoch)
        for tag, y in list(values.items())[:MAX_TAGS]:
            batch.points.append(Point(tag, kind, float(x), y, None))
        if row.total is not None and kind == "step" and row.total != state.get("total", 0.0):
            state["total"] = row.total
            batch.points.append(Point(TOTAL, kind, float(x), row.total, None))
