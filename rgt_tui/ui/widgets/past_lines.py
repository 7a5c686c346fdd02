"""The past hours of a box as sparklines: what the recorder on the box, and earlier runs of rgt, saw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rgt_tui.model.box import Past
from rgt_tui.ui.format import clean, compact_time, percent
from rgt_tui.ui.widgets.bars import spark
from rgt_tui.ui.widgets.spans import Line, dim, fit, line, spread

LEAST_ROWS = 3
LABEL = 14
NAMES = {"util": "gpu", "vram": "vram", "cgroup": "mem"}
"""What the first columns are called; disks and inodes carry their mount."""


def past_title(past: Past) -> Line:
    """Return the title: how far back it goes."""
    return line("past ", dim(compact_time(past.at[-1] - past.at[0] + past.width)))


def past_lines(past: Past, width: int) -> list[Line]:
    """Return a line for each quantity: its course over time with holes where nobody looked, and its mean."""
    if len(past.at) < LEAST_ROWS:
        return []
    out: list[Line] = []
    for place, name in enumerate(past.names):
        values = [row[place] if place < len(row) else None for row in past.values]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            continue
        label = fit(_label(name), LABEL)
        even = evenly(past.at, values, past.width)
        mean = line(dim("mean "), f"{percent(sum(known) / len(known)):>4}")
        course = dim(spark(even, max(4, width - LABEL - 11), low=0, high=100))
        out.append(spread(line(dim(label), " ", course), mean, width))
    return out


def _label(name: str) -> str:
    kind, _, mount = name.partition(":")
    if not mount:
        return NAMES.get(kind, clean(kind))
    short = clean(mount).rsplit("/", 1)[-1] or "/"
    return f"{'inode' if kind == 'inodes' else 'disk'} {short}"


def evenly(at: Sequence[float], values: Sequence[float | None], width: float) -> list[float | None]:
    """Return the values at even distances of `width` seconds; a stretch without a row is None."""
    if not at or width <= 0:
        return list(values)
    count = min(100_000, round((at[-1] - at[0]) / width) + 1)
    out: list[float | None] = [None] * max(1, count)
    for moment, value in zip(at, values, strict=True):
        place = round((moment - at[0]) / width)
        if 0 <= place < len(out):
            out[place] = value
    return out
