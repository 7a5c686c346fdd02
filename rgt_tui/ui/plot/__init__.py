"""Pure plotting: raw series in, rows of styled text out. Independent of Textual.

`view` and `ticks` are plain Python. The other modules import numpy, so import them only when the
first plot is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.canvas import Canvas, Scale, edges_of, lit, look, rows_of
    from rgt_tui.ui.plot.curve_stats import FINE, Average, Floats, Pyramid, moving_average
    from rgt_tui.ui.plot.frame import FIRST_CURVE, GAP, Curve, Frame, compose
    from rgt_tui.ui.plot.picture import svg
    from rgt_tui.ui.plot.ticks import (
        clock_labels,
        duration_labels,
        labels,
        linear_ticks,
        log_ticks,
        nice_step,
        time_ticks,
    )
    from rgt_tui.ui.plot.trace import MOST_LOST, Knots, Path, Trace
    from rgt_tui.ui.plot.view import (
        MIN_SPAN,
        SMOOTHING,
        Axis,
        RunKey,
        Settings,
        Shown,
        View,
        best_is_highest,
        metrics_of,
        tag,
    )

__all__ = [
    "FINE",
    "FIRST_CURVE",
    "GAP",
    "MIN_SPAN",
    "MOST_LOST",
    "SMOOTHING",
    "Average",
    "Axis",
    "Board",
    "Canvas",
    "Curve",
    "Floats",
    "Frame",
    "Knots",
    "Path",
    "Pyramid",
    "RunKey",
    "Scale",
    "Settings",
    "Shown",
    "Trace",
    "View",
    "best_is_highest",
    "board",
    "canvas",
    "clock_labels",
    "compose",
    "duration_labels",
    "edges_of",
    "frame",
    "labels",
    "linear_ticks",
    "lit",
    "log_ticks",
    "look",
    "metrics_of",
    "moving_average",
    "nice_step",
    "picture",
    "rows_of",
    "svg",
    "tag",
    "time_ticks",
    "view",
]

__getattr__ = imported_later(
    __name__,
    {
        "board": "Board",
        "canvas": "Canvas Scale edges_of lit look rows_of",
        "curve_stats": "FINE Average Floats Pyramid moving_average",
        "frame": "Curve FIRST_CURVE Frame GAP compose",
        "picture": "svg",
        "ticks": "clock_labels duration_labels labels linear_ticks log_ticks nice_step time_ticks",
        "trace": "Knots MOST_LOST Path Trace",
        "view": "Axis MIN_SPAN RunKey SMOOTHING Settings Shown View best_is_highest metrics_of tag",
    },
)
