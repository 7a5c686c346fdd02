"""Shows what a search of a complete log on its box finds."""

from __future__ import annotations

import time
from collections.abc import Callable

from rgt_tui.fleet.logs.box_logs import BoxLog, BoxSearch
from rgt_tui.fleet.logs.kept_lines import FilePlace, KeptLines
from rgt_tui.profiles import how_many
from rgt_tui.ui.logs.line_finder import TextFinder, finder_for, folds
from rgt_tui.ui.notation import compact_time, size, thousands


class Sheet:
    """Lines that are shown instead of a log's newest ones.

    Args:
        kept: The lines.
        heading: What they are.
    """

    def __init__(self, kept: KeptLines, heading: str) -> None:
        self.kept, self.heading = kept, heading
        self.hits: list[FilePlace] = []
        """Where each of them is on the box, by number, if they are matches."""


async def search_box(log: BoxLog, wanted: str, show: Callable[[Sheet], None]) -> None:
    """Search a complete log on its box; show the matches as they arrive.

    Raises:
        Exception: it cannot be searched.
    """
    sheet = Sheet(KeptLines(log.path), "")
    found = BoxSearch()
    began = time.monotonic()

    def update_heading(end: str) -> None:
        took = compact_time(time.monotonic() - began)
        what = how_many(max(found.matches, len(sheet.hits)), "line")
        sheet.heading = f"/{wanted} on the box: {what} in {size(found.read)}, {took}{end}"
        show(sheet)

    def add(news: BoxSearch) -> None:
        nonlocal found
        for hit in news.hits:
            sheet.hits.append(hit.place)
            sheet.kept.append((hit.text,))
        if not news.hits:
            found = news
            update_heading(" …")

    update_heading(" …")
    fixed = isinstance(finder_for(wanted).finder, TextFinder)
    found = await log.search(wanted, fixed=fixed, fold=folds(wanted), each=add)
    more = ""
    if found.matches > len(sheet.hits):
        more = f"; the newest {thousands(len(sheet.hits))} are listed"
    if found.incomplete:
        more = f"{more}; not all was searched: {found.incomplete}"
    update_heading(more)
