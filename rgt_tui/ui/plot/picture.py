"""Curves as an SVG picture, with the window, axes and marks of the screen at a finer resolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

import numpy as np

from rgt_tui.language import translate
from rgt_tui.model import clean_text
from rgt_tui.ui.plot.canvas import ColumnSamples, ValueScale, edges_of, sample_columns
from rgt_tui.ui.plot.curve_stats import Floats
from rgt_tui.ui.plot.frame import PlotCurve, axis_ticks, curves_extent, drawn_points, value_range
from rgt_tui.ui.plot.ticks import format_labels, linear_ticks, log_ticks
from rgt_tui.ui.plot.view import PlotSettings, name_axis

WIDTH, HEIGHT = 1200, 640
LEFT, TOP, RIGHT, BOTTOM = 80, 50, 20, 60
COLOURS = ("#2563a8", "#7a4fc0", "#0b7f92", "#b03a86", "#2a2f36", "#4048c8")
"""The colours of a light screen."""
DASHES = ("", "7 3", "2 3", "9 3 2 3")
Place = Callable[[float], float]
"""Maps a value to a coordinate in the picture."""
FONT = "system-ui, 'DejaVu Sans', sans-serif"


def draw_svg(
    curves: Sequence[PlotCurve], names: Sequence[str], title: str, settings: PlotSettings
) -> str:
    """Return the picture.

    Args:
        curves: In drawing order, the topmost last.
        names: Their names in the legend.
        title: Written above the plot.
        settings: Window, axes and smoothing.
    """
    columns, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    window = settings.view.visible_range(curves_extent(curves))
    edges = edges_of(window, columns)
    log = settings.is_log
    looks, found = _sample_curves(curves, edges, window, log=log)
    if log and found is None:
        log = False
        looks, found = _sample_curves(curves, edges, window, log=False)
    scale = ValueScale.from_range(*(found or (0.0, 1.0)), log=log)

    def x_of(x: float) -> float:
        # As in `edges_of`: the window ends in the middle of the outer columns.
        return LEFT + (x - window[0]) / (window[1] - window[0]) * (columns - 1)

    def y_of(value: float) -> float:
        return TOP + scale.row_of_value(value, height)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="{FONT}" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text_element(LEFT, TOP - 24, title, size=16),
    ]
    if log:
        ticks = log_ticks(scale.low, scale.high, 8)
    else:
        ticks = linear_ticks(scale.low, scale.high, 8)
    for tick, name in zip(ticks, format_labels(ticks), strict=True):
        y = y_of(tick)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e3e6ea"/>')
        out.append(_text_element(LEFT - 8, y + 4, name, anchor="end"))
    # `axis_ticks` counts in cells of a terminal, which are some 8 pixels wide.
    for tick, name in zip(*axis_ticks(settings.axis, window, columns // 8), strict=True):
        x = x_of(tick)
        out.append(f'<path d="M{x:.1f} {HEIGHT - BOTTOM}v5" stroke="#6a717b"/>')
        out.append(_text_element(x, HEIGHT - BOTTOM + 20, name, anchor="middle"))
    unit = name_axis(settings.axis, (curve.unit for curve in curves))
    out.append(_text_element(LEFT + columns / 2, HEIGHT - 14, unit, anchor="middle"))
    out.append(
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#6a717b"/>'
    )
    out.append(
        f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{columns}" '
        f'height="{height}"/></clipPath>'
    )
    out.append('<g clip-path="url(#plot)" fill="none" stroke-linejoin="round">')
    for row, curve in enumerate(curves):
        colour = COLOURS[curve.number % len(COLOURS)]
        dash = DASHES[curve.dash % len(DASHES)]
        style = ""
        if dash:
            style = f' stroke-dasharray="{dash}"'
        for line in _curve_pieces(looks, row, scale, height):
            points = " ".join(f"{LEFT + x:.0f},{TOP + y:.1f}" for x, y in line)
            out.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="1.6"{style}/>')
    out.append("</g>")
    for curve in curves:
        out += _mark_elements(curve, window, scale, x_of, y_of)
    # In the order of the screen's legend; the drawing order changes with the selected run.
    legend = sorted(zip(curves, names, strict=True), key=lambda each: each[0].number)
    most_named = 24
    for place, (curve, name) in enumerate(legend[:most_named]):
        y, colour = TOP + 12 + 18 * place, COLOURS[curve.number % len(COLOURS)]
        dash = DASHES[curve.dash % len(DASHES)]
        out.append(_text_element(WIDTH - RIGHT - 46, y + 4, name, anchor="end"))
        out.append(
            f'<path d="M{WIDTH - RIGHT - 40} {y}h36" stroke="{colour}" stroke-width="2"'
            + (f' stroke-dasharray="{dash}"/>' if dash else "/>")
        )
    if len(legend) > most_named:
        out.append(
            _text_element(
                WIDTH - RIGHT - 4,
                TOP + 16 + 18 * most_named,
                translate("{count} more", count=len(legend) - most_named),
                anchor="end",
            )
        )
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _sample_curves(
    curves: Sequence[PlotCurve], edges: Floats, window: tuple[float, float], *, log: bool
) -> tuple[ColumnSamples, tuple[float, float] | None]:
    paths = []
    for curve in curves:
        steps, crossed = (edges, edges) if curve.knots is None else curve.knots.steps_of(edges)
        paths.append((curve.trace.smoothed_path(curve.keep, positive=log), steps, crossed))
    looks = sample_columns(paths, len(edges) - 1)
    return looks, value_range(curves, looks, window, positive=log)


def _curve_pieces(
    looks: ColumnSamples, row: int, scale: ValueScale, height: int
) -> list[list[tuple[float, float]]]:
    """Return the pieces of one curve, broken at its gaps."""
    high, low = (
        scale.rows_of_values(looks.high[row], height),
        scale.rows_of_values(looks.low[row], height),
    )
    whole = np.isfinite(scale.rows_of_values(looks.left[row], height)) & np.isfinite(
        scale.rows_of_values(looks.right[row], height)
    )
    pieces: list[list[tuple[float, float]]] = []
    last = -2
    for column in np.flatnonzero(np.isfinite(high) & np.isfinite(low)).tolist():
        ends = [float(high[column]), float(low[column])]
        joined = last >= 0 and bool(whole[last + 1 : column + 1].all())
        if not joined:
            pieces.append([])
        # Each column is a bar; the end nearer to the previous one is joined to it.
        elif abs(pieces[-1][-1][1] - ends[1]) < abs(pieces[-1][-1][1] - ends[0]):
            ends.reverse()
        pieces[-1] += [(column, end) for end in dict.fromkeys(ends)]
        last = column
    # A polyline of one point would be invisible.
    return [
        piece if len(piece) > 1 else [*piece, (piece[0][0] + 1, piece[0][1])] for piece in pieces
    ]


def _mark_elements(
    curve: PlotCurve, window: tuple[float, float], scale: ValueScale, x_of: Place, y_of: Place
) -> list[str]:
    colour = COLOURS[curve.number % len(COLOURS)]
    out = [
        (
            f'<circle cx="{x_of(x):.1f}" cy="{y_of(value):.1f}" r="4" fill="#ffffff" '
            f'stroke="{colour}" stroke-width="1.6"/>'
        )
        for x, value in drawn_points(curve, window)
        if math.isfinite(y_of(value))
    ]

    def add_mark(step: float, value: float | None, mark: str, tone: str) -> None:
        x = curve.x_of(step)
        if (
            x is not None
            and window[0] <= x <= window[1]
            and value is not None
            and math.isfinite(y_of(value))
        ):
            out.append(_text_element(x_of(x), y_of(value) + 4, mark, anchor="middle", colour=tone))

    for step in curve.resumes:
        add_mark(step, curve.trace.value_at(step, curve.keep), "⇡", colour)
    for gap in curve.trace.gaps:
        if not gap.lost:
            height = scale.high
            if gap.beside is not None:
                height = gap.beside
            add_mark(gap.first, height, "✕", "#8a5f00")
    if curve.best is not None:
        add_mark(*curve.best, "★", colour)
    return out


def _text_element(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, colour: str = "#2a2f36"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{escape(clean_text(text))}</text>"
    )
