"""Pure plotting: raw series in, rows of styled text out. Independent of Textual.

`view` and `ticks` are plain Python. The other modules import numpy, so import them only when the
first plot is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

# For type checkers, which do not see the names below.
if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.canvas import (
        Canvas,
        ValueScale,
        edges_of,
        lit_rows,
        rows_of,
        sample_columns,
    )
    from rgt_tui.ui.plot.curve_stats import (
        FINE,
        AverageBand,
        DifferenceRule,
        ExtremesPyramid,
        FirstDifference,
        Floats,
        RunningAverage,
        SeedSummary,
        find_first_difference,
        moving_average,
        summarize_seeds,
    )
    from rgt_tui.ui.plot.frame import FIRST_CURVE, GAP, PlotCurve, PlotFrame, draw_plot
    from rgt_tui.ui.plot.picture import draw_svg
    from rgt_tui.ui.plot.ticks import (
        clock_labels,
        duration_labels,
        format_labels,
        linear_ticks,
        log_ticks,
        nice_step,
        time_ticks,
    )
    from rgt_tui.ui.plot.trace import MOST_LOST, AxisKnots, CurvePath, CurveTrace
    from rgt_tui.ui.plot.view import (
        MIN_SPAN,
        SMOOTHING,
        AxisWindow,
        PlotSettings,
        RunKey,
        ShownRun,
        XAxis,
        metrics_of,
        name_axis,
        run_tag,
    )

__all__ = [
    "FINE",
    "FIRST_CURVE",
    "GAP",
    "MIN_SPAN",
    "MOST_LOST",
    "SMOOTHING",
    "AverageBand",
    "AxisKnots",
    "AxisWindow",
    "Board",
    "Canvas",
    "CurvePath",
    "CurveTrace",
    "DifferenceRule",
    "ExtremesPyramid",
    "FirstDifference",
    "Floats",
    "PlotCurve",
    "PlotFrame",
    "PlotSettings",
    "RunKey",
    "RunningAverage",
    "SeedSummary",
    "ShownRun",
    "ValueScale",
    "XAxis",
    "board",
    "canvas",
    "clock_labels",
    "draw_plot",
    "draw_svg",
    "duration_labels",
    "edges_of",
    "find_first_difference",
    "format_labels",
    "frame",
    "linear_ticks",
    "lit_rows",
    "log_ticks",
    "metrics_of",
    "moving_average",
    "name_axis",
    "nice_step",
    "picture",
    "rows_of",
    "run_tag",
    "sample_columns",
    "summarize_seeds",
    "time_ticks",
    "view",
]

# Imported when first used, because numpy takes 0.1 s.
__getattr__ = imported_later(
    __name__,
    {
        "board": "Board",
        "canvas": "Canvas ValueScale edges_of lit_rows sample_columns rows_of",
        "curve_stats": (
            "FINE RunningAverage AverageBand SeedSummary Floats ExtremesPyramid moving_average "
            "summarize_seeds DifferenceRule FirstDifference find_first_difference"
        ),
        "frame": "PlotCurve FIRST_CURVE PlotFrame GAP draw_plot",
        "picture": "draw_svg",
        "ticks": (
            "clock_labels duration_labels format_labels linear_ticks log_ticks nice_step time_ticks"
        ),
        "trace": "AxisKnots MOST_LOST CurvePath CurveTrace",
        "view": (
            "XAxis MIN_SPAN RunKey SMOOTHING PlotSettings ShownRun AxisWindow metrics_of name_axis "
            "run_tag"
        ),
    },
)
