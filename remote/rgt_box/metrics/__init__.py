"""Reads scalars from the files of training programs: one small reader per format, one interface.

`formats` lists the formats, `discover` finds files below a directory, and `merging` builds curves.
A reader module is imported when the first file of its kind is read, so that the agent starts in
milliseconds.
"""

from __future__ import annotations

from rgt_wire import imported_later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.metrics.console import FIRST, OTHER, OTHER_RANK, ConsoleReader, FormatChooser
    from rgt_box.metrics.console_formats import BY_NAME
    from rgt_box.metrics.console_lines import ConsoleRow, split_rank_prefix
    from rgt_box.metrics.discover import SourceFinder, run_name
    from rgt_box.metrics.formats import (
        BY_KIND,
        candidates,
        identify_kind,
        open_reader,
        open_source,
        preference,
    )
    from rgt_box.metrics.jsonl import EVENTS
    from rgt_box.metrics.merging import (
        MAX_SERIES,
        MAX_STARTS,
        Curve,
        CurvePart,
        CurveUpdate,
        PointSeries,
        SeriesStore,
        SourceSeries,
        merge_curves,
        read_all,
    )
    from rgt_box.metrics.metric_names import MOST_FIGURES, TagNaming, choose_tags, figure_name
    from rgt_box.metrics.reader_base import (
        MAX_LINE,
        MAX_TAGS,
        PROBLEMS,
        TOTAL,
        MetricPoint,
        MetricReader,
        ReadBatch,
    )
    from rgt_box.metrics.rows import (
        flatten_row,
        parse_json_integer,
        to_epoch_seconds,
        to_number,
        to_position,
    )
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
    "ConsoleReader",
    "ConsoleRow",
    "Curve",
    "CurvePart",
    "CurveUpdate",
    "EventDirectory",
    "FormatChooser",
    "MetricPoint",
    "MetricReader",
    "PointSeries",
    "ReadBatch",
    "SeriesStore",
    "SourceFinder",
    "SourceSeries",
    "TagNaming",
    "candidates",
    "choose_tags",
    "discover",
    "figure_name",
    "flatten_row",
    "formats",
    "identify_kind",
    "jsonl",
    "main",
    "merge_curves",
    "merging",
    "metric_names",
    "open_reader",
    "open_source",
    "parse_json_integer",
    "preference",
    "read_all",
    "reader_base",
    "rows",
    "run_name",
    "scalars_command",
    "split_rank_prefix",
    "to_epoch_seconds",
    "to_number",
    "to_position",
]

__getattr__ = imported_later(
    __name__,
    {
        "console": "FormatChooser ConsoleReader FIRST OTHER OTHER_RANK",
        "console_formats": "BY_NAME",
        "console_lines": "ConsoleRow split_rank_prefix",
        "discover": "SourceFinder run_name",
        "formats": "BY_KIND candidates identify_kind open_reader open_source preference",
        "jsonl": "EVENTS",
        "merging": "Curve MAX_SERIES MAX_STARTS CurveUpdate SourceSeries CurvePart PointSeries "
        "SeriesStore merge_curves read_all",
        "metric_names": "MOST_FIGURES TagNaming choose_tags figure_name",
        "reader_base": "ReadBatch MAX_LINE MAX_TAGS PROBLEMS MetricPoint MetricReader TOTAL",
        "rows": "to_epoch_seconds flatten_row to_number to_position parse_json_integer",
        "scalars_command": "main",
        "tensorboard": "EventDirectory",
    },
)
