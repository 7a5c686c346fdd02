"""A box's figures over 10 minutes, an hour or a day, with their extremes.

Unwatched times are gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len

from rgt_tui.language import translate
from rgt_tui.model import BoxState, ReducedHistory
from rgt_tui.profiles import CARD_FIGURES, MOST_CARDS, is_of_card
from rgt_tui.ui.notation import NONE, current_glyphs, percent_or_dash
from rgt_tui.ui.widgets.bars import spark_rows
from rgt_tui.ui.widgets.panes import PaneSection
from rgt_tui.ui.widgets.spans import EMPTY, Line, dim_span, fit_text, make_line

SPANS = (("10 min", 600.0, "5 min"), ("1 h", 3600.0, "30 min"), ("24 h", 86400.0, "12 h"))
"""Selectable time spans: label, seconds, and the label of half the span."""
TAIL = 17
"""Columns of the extremes at the right."""
TALLEST = 6
"""Maximum lines per curve; slow figures such as disks get one line."""
LIVELY = ("util", "vram", "cgroup")
NAMES = {"util": "gpu", "vram": "vram", "cgroup": "memory"}
"""Labels of the first figures; disks and inodes are labelled by their mount."""
MOST_FIGURES = 64


def course_of(box: BoxState, name: str, begin: float, end: float, cells: int) -> list[float | None]:
    """Return a figure's curve.

    From the fine recording where it reaches, before that the coarse one.
    """
    fine, coarse = (
        mean_per_cell(past, past.names.index(name), begin, end, cells)
        if name in past.names
        else [None] * cells
        for past in (box.recent, box.past)
    )
    if box.recent.at:
        known_from = box.recent.at[0] - box.recent.width
    else:
        known_from = end
    step = (end - begin) / cells
    # A gap in the fine recording is a gap, even where the coarse one averages over it.
    return [
        old if new is None and begin + cell * step < known_from else new
        for cell, (new, old) in enumerate(zip(fine, coarse, strict=True))
    ]


def mean_per_cell(
    past: ReducedHistory, place: int, begin: float, end: float, cells: int
) -> list[float | None]:
    """Return a figure's mean in each of `cells` equal parts of a time span.

    None where nothing was recorded.

    Args:
        past: The recording.
        place: Index of the figure in its names.
        begin: Client clock.
        end: Client clock.
        cells: Number of parts.
    """
    step = (end - begin) / cells
    sums, counts = [0.0] * cells, [0] * cells
    for at, row in zip(past.at, past.values, strict=False):
        if place < len(row):
            value = row[place]
        else:
            value = None
        if value is None or not math.isfinite(value) or at <= begin or at - past.width >= end:
            continue
        # A value that ends exactly at the edge of a cell must not count for the next one.
        first = max(0, math.floor((at - past.width - begin) / step + 1e-6))
        last = min(cells, max(first + 1, math.ceil((at - begin) / step - 1e-6)))
        for cell in range(first, last):
            sums[cell] += value
            counts[cell] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def past_height(box: BoxState) -> int:
    """Return the lines that a pane of the history needs, its frame included."""
    names = names_of(box)
    # 3 lines: the frame and the axis.
    return 3 + len(names) + bool(unkept_cards(box, names, ""))


def unkept_cards(box: BoxState, names: Sequence[str], when: str) -> str:
    """Return a note on which GPUs have no recording of their own; empty if none is missing."""
    cards = 0
    if box.sample is not None:
        cards = len(box.sample.gpus)
    if cards > 1 and not any(map(is_of_card, names)):
        return translate("no per-GPU data is recorded for {when}", when=when)
    if cards > MOST_CARDS:
        return translate(
            "only the first {most_cards} of {cards} GPUs are recorded separately",
            most_cards=MOST_CARDS,
            cards=cards,
        )
    return ""


def past_room(box: BoxState, height: int) -> int:
    """Return how many of `height` lines the pane uses, frame included.

    Busy figures take spare lines.
    """
    least, lively = past_height(box), sum(name in LIVELY for name in names_of(box))
    more = 0
    if lively:
        more = max(0, min(TALLEST - 1, (height - least) // lively))
    return min(height, least + lively * more)


def names_of(box: BoxState) -> list[str]:
    """Return the recorded figures, utilisation first."""
    known = [
        name
        for past in (box.past, box.recent)
        for place, name in enumerate(past.names)
        if any(place < len(row) and row[place] is not None for row in past.values)
    ]
    return sorted(dict.fromkeys(known), key=_sort_key)[:MOST_FIGURES]


def _sort_key(name: str) -> tuple[int, int, int]:
    """Sort key: the box's own figures, its disks, then its GPUs one by one."""
    kind, _, card = name.partition(":")
    if is_of_card(name):
        return 2, int(card) if card.isdecimal() else MOST_FIGURES, CARD_FIGURES.index(kind)
    if name in LIVELY:
        return (0, LIVELY.index(name), 0)
    return (1, 0, 0)


def fitting_span(box: BoxState, now: float) -> int:
    """Return the index in `SPANS` that the recording fills best.

    An hour would be mostly empty for a box that was added a few minutes ago.
    """
    first = min((past.at[0] for past in (box.past, box.recent) if past.at), default=now)
    if now - first < SPANS[0][1]:
        return 0
    return 1


def past_section(
    box: BoxState, span: int, width: int, height: int, now: float, hint: Line = EMPTY
) -> PaneSection:
    """Draw the curves as tall as the room allows, with a time axis below.

    Args:
        box: The box.
        span: Index in `SPANS`.
        width: Cells.
        height: Available lines. The result is longer if not every figure fits; the pane scrolls
            then.
        now: Client clock.
        hint: Shown in the border.
    """
    words, seconds, _ = SPANS[span % len(SPANS)]
    newest = max((past.at[-1] for past in (box.past, box.recent) if past.at), default=now)
    # If the newest value is at most this many intervals old, the next one is merely being recorded.
    under_way = 1.5
    if 0 < now - newest <= under_way * box.recent.width:
        now = newest  # later values are still being recorded: this is no gap
    begin = now - seconds
    names = names_of(box)
    # Maximum columns of the names; shorter names leave more room for the curves.
    label_limit = 18
    label = min(label_limit, max((cell_len(label_of(name)) for name in names), default=0) + 2)
    room = max(4, width - label - TAIL - 1)
    cells = room * (2 if current_glyphs().braille else 1)
    shown = []
    for name in names:
        values = course_of(box, name, begin, now, cells)
        if any(value is not None for value in values):
            shown.append((name, values))
    title = make_line(translate("past "), dim_span(words))
    if not shown:
        return PaneSection(
            title,
            [make_line(dim_span(translate("no data of the last {words}", words=words)))],
            hint,
        )
    lively = sum(name in LIVELY for name, _ in shown)
    note = unkept_cards(
        box, [name for name, _ in shown], translate("the last {words}", words=words)
    )
    spare = height - 1 - len(shown) - bool(note)
    if lively:
        tall = 1 + max(0, min(TALLEST - 1, spare // lively))
    else:
        tall = 1
    out = [
        made
        for name, values in shown
        for made in _figure_lines(name, values, label, room, tall if name in LIVELY else 1)
    ]
    out += [make_line(dim_span(note))] if note else []
    return PaneSection(title, [*out, _axis_line(span, label, room)], hint)


def _figure_lines(
    name: str, values: Sequence[float | None], label: int, room: int, tall: int
) -> list[Line]:
    known = [value for value in values if value is not None]
    if name.startswith("temp:"):
        write = format_degrees
    else:
        write = percent_or_dash
    low, high = write(min(known)), write(max(known))
    # Fixed scale of 0 to 100 (percent or °C): a figure that hardly moves is a flat line, no false
    # alarm.
    rows = spark_rows(values, room, tall, low=0.0, high=100.0)
    span = translate("min {low:>4} max {high:>4}", low=low, high=high)
    last = ""
    if values[-1] is not None:
        last = f"now {write(values[-1]):>4}"
    tails = {0: last, tall - 1: span}
    return [
        # The inner call leaves a blank before the curve.
        make_line(
            dim_span(fit_text(fit_text(label_of(name) if place == 0 else "", label - 1), label)),
            rows[place],
            dim_span(fit_text(tails.get(place, ""), TAIL + 1, right=True)),
        )
        for place in range(tall)
    ]


def label_of(name: str) -> str:
    """Return a figure's label: ``gpu``, ``GPU 0 temp``, ``disk data``, ``inode data``."""
    kind, _, mount = name.partition(":")
    if is_of_card(name):
        return f"GPU {mount} {kind}"
    if not mount:
        return NAMES.get(kind, kind)
    short = mount.rsplit("/", 1)[-1] or "/"
    return f"{'inode' if kind == 'inodes' else 'disk'} {short}"


def format_degrees(value: float | None) -> str:
    """Return a temperature in at most five characters."""
    if value is None:
        return NONE
    if value < 100:
        return f"{value:.0f}°C"
    return f"{value:.0f}°"


def _axis_line(span: int, label: int, room: int) -> Line:
    words, _, half = SPANS[span % len(SPANS)]
    middle = max(1, room // 2 - len(words) - 4 - len(half) // 2)
    text = f"{words} ago{' ' * middle}{half}"
    return make_line(
        dim_span(
            translate(
                "{fit_text}{words}now",
                fit_text=fit_text("", label),
                words=fit_text(text, max(1, room - 3)),
            )
        )
    )
