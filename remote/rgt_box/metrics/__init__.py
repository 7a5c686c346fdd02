"""Reads scalars from the files of training programs: one small reader per format, one interface.

`formats` lists the formats, `discover` finds files below a directory, and `merging` builds curves.
A reader module is imported when the first file of its kind is read, so that the agent starts in
milliseconds.
"""

from __future__ import annotations

from rgt_wire import imported_later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.metrics.console import FIRST, OTHER, OTHER_RANK, Chooser, ConsoleReader
    from rgt_box.metrics.console_formats import BY_NAME
    from rgt_box.metrics.console_lines import Row, clean
    from rgt_box.metrics.discover import Finder, run_name
    from rgt_box.metrics.formats import (
        BY_KIND,
        candidates,
        identify,
        open_reader,
        open_source,
        preference,
    )
    from rgt_box.metrics.jsonl import EVENTS
    from rgt_box.metrics.merging import (
        MAX_SERIES,
        MAX_STARTS,
        Curve,
        News,
        Offer,
        Part,
        Series,
        Store,
        merge,
        read_all,
    )
    from rgt_box.metrics.metric_names import MOST_FIGURES, Naming, choose, figure
    from rgt_box.metrics.reader_base import (
        MAX_LINE,
        MAX_TAGS,
        PROBLEMS,
        TOTAL,
        Batch,
        Point,
        Reader,
    )
    from rgt_box.metrics.rows import clock, flatten, number, position, whole
    from rgt_box.metrics.scalars_command import main
    from rgt_box.metrics.tensorboard import EventDirectory

__all__ = [
    "BY_KIND",
    "BY_NAME",
    "EVENTS",
    "FIRST",
    "MAX_LINE",
    "MAX_SERIES",
    "MAX_STARTS",
    "MAX_TAGS",
    "MOST_FIGURES",
    "OTHER",
    "OTHER_RANK",
    "PROBLEMS",
    "TOTAL",
    "Batch",
    "Chooser",
    "ConsoleReader",
    "Curve",
    "EventDirectory",
    "Finder",
    "Naming",
    "News",
    "Offer",
    "Part",
    "Point",
    "Reader",
    "Row",
    "Series",
    "Store",
    "candidates",
    "choose",
    "clean",
    "clock",
    "discover",
    "figure",
    "flatten",
    "formats",
    "identify",
    "jsonl",
    "main",
    "merge",
    "merging",
    "metric_names",
    "number",
    "open_reader",
    "open_source",
    "position",
    "preference",
    "read_all",
    "reader_base",
    "rows",
    "run_name",
    "scalars_command",
    "whole",
]

__getattr__ = imported_later(
    __name__,
    {
        "console": "Chooser ConsoleReader FIRST OTHER OTHER_RANK",
        "console_formats": "BY_NAME",
        "console_lines": "Row clean",
        "discover": "Finder run_name",
        "formats": "BY_KIND candidates identify open_reader open_source preference",
        "jsonl": "EVENTS",
        "merging": "Curve MAX_SERIES MAX_STARTS News Offer Part Series Store merge read_all",
        "metric_names": "MOST_FIGURES Naming choose figure",
        "reader_base": "Batch MAX_LINE MAX_TAGS PROBLEMS Point Reader TOTAL",
        "rows": "clock flatten number position whole",
        "scalars_command": "main",
        "tensorboard": "EventDirectory",
    },
)
