"""Bars, sparklines and limits as pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from rgt_tui.model import Series
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.widgets.spans import Line, Span, Tone


def draw_bar(
    value: float | None, width: int, *, tone: Tone = Tone.TEXT, limit: float | None = None
) -> Line:
    """Return a bar of `width` cells for `value` percent, in eighths of a cell.

    Args:
        value: Percent; None draws an empty track.
        width: Cells.
        tone: Tone of the filled part.
        limit: Percent at which a limit is drawn into the track.
    """
    g = current_glyphs()
    if value is None or not math.isfinite(value):
        share = 0.0
    else:
        share = min(max(value, 0.0), 100.0)
    eighths = round(share * width * 8 / 100)
    # A small share must differ from none, and a large one from all.
    if share > 0:
        eighths = max(1, eighths)
    if share < 100:
        eighths = min(eighths, width * 8 - 1)
    full, rest = divmod(eighths, 8)
    filled = g.bar[8] * full + (g.bar[rest] if rest else "")
    track = g.bar_rest * (width - len(filled))
    if limit is None:
        return (Span(filled, tone), Span(track, Tone.DIM))
    at = min(width - 1, max(0, round(limit * width / 100)))
    # The mark of the limit replaces a cell, so that the bar keeps its width.
    if at < len(filled):
        return (
            Span(filled[:at], tone),
            Span(g.limit, tone),
            Span(filled[at + 1 :], tone),
            Span(track, Tone.DIM),
        )
    cut = at - len(filled)
    return (
        Span(filled, tone),
        Span(track[:cut], Tone.DIM),
        Span(g.limit),
        Span(track[cut + 1 :], Tone.DIM),
    )


def thin_bar(value: float | None, width: int) -> Line:
    """Draw a bar in half cells for tables, with space between the rows.

    ``?`` marks an unknown value.
    """
    g = current_glyphs()
    if value is None:
        return (Span("?" + g.bar_rest * (width - 1), Tone.DIM),)
    share = 0.0
    if math.isfinite(value):
        share = min(max(value, 0.0), 100.0)
    full, half = divmod(round(share * width * 2 / 100), 2)
    filled = g.thin[0] * full + (g.thin[1] if half else "")
    return (Span(filled), Span(g.bar_rest * (width - len(filled)), Tone.DIM))


def resample(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return `width` values, each the mean of its part, None for an empty part.

    If there are fewer than `width` values, the result is padded with None at the front.
    """
    count = len(values)
    # At the front: the newest value is always at the right edge.
    if count <= width:
        return [None] * (width - count) + list(values)
    out: list[float | None] = []
    for cell in range(width):
        part = [
            v for v in values[cell * count // width : (cell + 1) * count // width] if v is not None
        ]
        out.append(sum(part) / len(part) if part else None)
    return out


def draw_sparkline(
    values: Sequence[float | None],
    width: int,
    *,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Return a sparkline of `width` cells; a missing value is a dot, NaN or infinity an x."""
    g = current_glyphs()
    return _draw_cached_sparkline(tuple(values), width, low, high, (g.braille, g.bar_rest, g.spark))


@lru_cache(maxsize=128)
def _draw_cached_sparkline(
    values: tuple[float | None, ...],
    width: int,
    low: float | None,
    high: float | None,
    # Only a part of the cache's key: the glyphs to draw with.
    _signs: object,
) -> str:
    """Draw a sparkline. Cached, because a table redraws twice as often as its boxes report."""
    g = current_glyphs()
    points = width
    if g.braille:
        points = width * 2
    cells = resample(values, points)
    known = [v for v in cells if v is not None and math.isfinite(v)]
    if low is not None:
        bottom = low
    else:
        bottom = min(known, default=0.0)
    if high is not None:
        top = high
    else:
        top = max(known, default=1.0)
    if g.braille:
        pairs = zip(cells[::2], cells[1::2], strict=True)
        return "".join(_braille_dots(left, right, bottom, top) for left, right in pairs)
    height = len(g.spark) - 1
    return "".join(_level_glyph(value, bottom, top, g.spark, height) for value in cells)


def spark_rows(
    values: Sequence[float | None], width: int, height: int, *, low: float, high: float
) -> list[str]:
    """Return a sparkline of `height` lines, top line first.

    A missing value is a dot in the last line.
    """
    g = current_glyphs()
    points = width
    if g.braille:
        points = width * 2
    cells = resample(values, points)
    levels = (4 if g.braille else len(g.spark)) * height
    # A known value has at least one dot, because zero is not unknown.
    heights: list[int | None] = []
    for v in cells:
        if v is None or not math.isfinite(v):
            heights.append(None)
        else:
            heights.append(1 + round(_scale_share(v, low, high) * (levels - 1)))
    each = levels // height
    rows = []
    for row in range(height - 1, -1, -1):
        part = [None if h is None else min(each, max(0, h - row * each)) for h in heights]
        if g.braille:
            pairs = zip(part[::2], part[1::2], strict=True)
            rows.append(
                "".join(_braille_column(left, right, lowest=row == 0) for left, right in pairs)
            )
        else:
            missing = " "
            if row == 0:
                missing = g.bar_rest
            # By height of the part in this row: none, then the steps of a block.
            blocks = (" ", *g.spark)
            rows.append("".join(missing if h is None else blocks[h] for h in part))
    return rows


def _braille_column(left: int | None, right: int | None, *, lowest: bool) -> str:
    if left is None and right is None:
        if lowest:
            return current_glyphs().bar_rest
        return " "
    dots = _LEFT[left or 0] + _RIGHT[right or 0]
    if dots:
        return chr(0x2800 + dots)
    return " "


def _scale_share(value: float, bottom: float, top: float) -> float:
    # Equal values are a line in the middle.
    if top <= bottom:
        return 0.5
    return min(max((value - bottom) / (top - bottom), 0.0), 1.0)


def _level_glyph(value: float | None, bottom: float, top: float, levels: str, height: int) -> str:
    if value is None:
        return current_glyphs().bar_rest
    if math.isfinite(value):
        return levels[round(_scale_share(value, bottom, top) * height)]
    return "x"


_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille dots of a column filled from below, indexed by the number of dots set (0 to 4)."""


def _braille_dots(left: float | None, right: float | None, bottom: float, top: float) -> str:
    """Return two values as the two columns of one braille character."""
    if left is None and right is None:
        return current_glyphs().bar_rest
    # One of the two is enough: a NaN must not be drawn as a low value.
    if any(value is not None and not math.isfinite(value) for value in (left, right)):
        return "x"
    heights = [
        0 if v is None else 1 + round(_scale_share(v, bottom, top) * 3) for v in (left, right)
    ]
    return chr(0x2800 + _LEFT[heights[0]] + _RIGHT[heights[1]])


def curve_spark(series: Series | None, width: int) -> str:
    """Return a sparkline of a whole curve. Reads one point per cell, however long the curve is."""
    if not series:
        return ""
    _, ys, count = series.backing_columns()
    if current_glyphs().braille:
        cells = width * 2
    else:
        cells = width
    if count <= cells:
        return draw_sparkline(ys[:count], width)
    # The last point of each part, so that the newest one is always drawn.
    return draw_sparkline([ys[(cell + 1) * count // cells - 1] for cell in range(cells)], width)
