"""Parts of a log that are only on the box: older lines, the lines around any place, and matches there."""

from __future__ import annotations

import time
from collections.abc import Callable

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.logs.box_logs import PIECE_BYTES, BoxSearch, LogPiece
from rgt_tui.fleet.logs.kept_lines import FilePlace, KeptLines
from rgt_tui.profiles.readings import how_many
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.logs.line_finder import TextFinder, finder_for, folds
from rgt_tui.ui.notation import clean, compact_time, size, thousands

LARGEST_PIECE = 8 << 20
"""A line that is longer is passed over."""
AROUND = 128 << 10
"""Bytes before and behind a place that are read to show it."""
COUNTED = 1 << 30
"""Bytes before the kept lines in which lines are counted; of more the size is said: counting would read it all."""


class Sheet:
    """Lines that are shown instead of a log's newest ones.

    Args:
        path: Of the log.
        heading: What they are.
    """

    def __init__(self, path: str, heading: str) -> None:
        self.path, self.heading = path, heading
        self.kept = KeptLines(path)
        self.hits: list[FilePlace] = []
        """Where each of them stands, by their numbers, if they are what was found on the box."""


class BeyondKept:
    """Asks a box for what is not kept of its logs.

    Args:
        fleet: Which asks it.
        box: Its name.
    """

    def __init__(self, fleet: FleetSource, box: str) -> None:
        self._fleet, self._box = fleet, box
        self._counts: dict[str, tuple[int, int]] = {}
        """Of each log, how many lines stand before which number."""

    def older(self, kept: KeptLines) -> str:
        """Say what stands before the lines of a log that are kept; empty = nothing, or nobody knows."""
        if kept.place is None or kept.place[1].offset == 0:
            return ""
        place = kept.place[1]
        before = self.count_before(kept, kept.first)
        if before is None:
            return f"{size(place.offset)} older on the box: {key_for('move.page-up')}"
        return f"{thousands(before)} older on the box: {key_for('move.page-up')}" if before > 0 else ""

    def count_before(self, kept: KeptLines, number: int) -> int | None:
        """Return how many lines of the log stand before one; None = nobody has counted."""
        known = self._counts.get(kept.path)
        return None if known is None else known[0] + number - known[1]

    def wants_count(self, kept: KeptLines) -> bool:
        """Tell whether the lines before those that are kept should be counted."""
        place = kept.place
        return place is not None and 0 < place[1].offset <= COUNTED and kept.path not in self._counts

    async def count(self, kept: KeptLines) -> None:
        """Have the lines before those that are kept counted.

        Raises:
            Exception: the box does not say.
        """
        if kept.place is None:
            return
        number, place = kept.place
        self._counts[kept.path] = (await self._fleet.log_lines_before(self._box, kept.path, place), number)

    async def load_older(self, kept: KeptLines) -> tuple[int, str]:
        """Load the lines before those that are kept.

        Returns:
            The number before which lines are others than before, and what to say where nothing was loaded.

        Raises:
            Exception: they cannot be had.
        """
        if kept.place is None:
            return kept.first, "it is not known where on the box these lines are"
        number, place = known = kept.place
        if place.offset == 0:
            return kept.first, "this is the beginning of the log"
        length = PIECE_BYTES
        while True:
            start = max(0, place.offset - length)
            piece = await self._piece(kept.path, place.inode, start, place.offset)
            if piece.lines or start == 0 or length >= LARGEST_PIECE:
                break
            length *= 4
        if kept.place != known:
            return kept.first, ""
        if not piece.lines:
            return kept.first, "the line before these is too long to be shown"
        if not kept.replace_before(number, piece.lines, piece.place):
            return (
                kept.first,
                f"no more lines are kept here; {key_for('log.find')} searches all that are on the box",
            )
        return number, ""

    async def load_newer(self, kept: KeptLines) -> int:
        """Load the lines behind those of a sheet; return how many.

        Raises:
            Exception: they cannot be had.
        """
        if kept.inode is None:
            return 0
        start = kept.reached
        piece = await self._piece(kept.path, kept.inode, start, start + PIECE_BYTES)
        kept.know(piece.place)
        kept.append(piece.lines)
        kept.reached = max(start, piece.end)
        return len(piece.lines)

    async def _piece(self, path: str, inode: int, start: int, stop: int) -> LogPiece:
        return await self._fleet.log_piece(self._box, path, inode, start, stop)

    async def around(self, path: str, place: FilePlace) -> tuple[Sheet, int]:
        """Return the lines around a place of a log, and the number of the one that begins there.

        Raises:
            Exception: they cannot be had.
        """
        before = await self._piece(path, place.inode, max(0, place.offset - AROUND), place.offset)
        behind = await self._piece(path, place.inode, place.offset, place.offset + AROUND)
        sheet = Sheet(
            path, f"{clean(path).rpartition('/')[2]} at {size(place.offset)} of {size(behind.size)}"
        )
        kept = sheet.kept
        kept.know(before.place if before.lines else place)
        kept.append(before.lines)
        number = kept.end
        kept.append(behind.lines)
        kept.inode, kept.reached = place.inode, max(behind.end, place.offset)
        return sheet, number

    async def line(self, path: str, line_no: int) -> FilePlace:
        """Return where a line of a log begins.

        Raises:
            Exception: it is not known.
        """
        return await self._fleet.log_place(self._box, path, line_no)

    async def find(self, path: str, wanted: str, show: Callable[[Sheet], None]) -> None:
        """Search a whole log on the box; show what is found as it comes.

        Raises:
            Exception: it cannot be searched.
        """
        chosen = finder_for(wanted)
        fixed = isinstance(chosen.finder, TextFinder)
        fold = folds(wanted)
        sheet = Sheet(path, "")
        found = BoxSearch()
        began = time.monotonic()

        def say(end: str) -> None:
            took = compact_time(time.monotonic() - began)
            what = how_many(max(found.matches, len(sheet.hits)), "line")
            sheet.heading = f"/{clean(wanted)} on the box: {what} in {size(found.read)}, {took}{end}"
            show(sheet)

        def take(news: BoxSearch) -> None:
            nonlocal found
            for hit in news.hits:
                sheet.hits.append(hit.place)
                sheet.kept.append((hit.text,))
            if not news.hits:
                found = news
                say(" …")

        say(" …")
        found = await self._fleet.find_in_log(self._box, path, wanted, fixed=fixed, fold=fold, each=take)
        more = (
            f"; the newest {thousands(len(sheet.hits))} stand here" if found.matches > len(sheet.hits) else ""
        )
        say(f"{more}; not all was searched: {found.incomplete}" if found.incomplete else more)
