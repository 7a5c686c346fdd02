"""A box's figures over 10 minutes, an hour or a day, with their extremes; times nobody watched are gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rgt_tui.model import BoxState, Past
from rgt_tui.profiles import CARD_FIGURES, MOST_CARDS, is_of_card
from rgt_tui.ui.notation import NONE, glyphs, percent
from rgt_tui.ui.widgets.bars import spark_rows
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import EMPTY, Line, dim, fit, line

SPANS = (("10 min", 600.0, "5 min"), ("1 h", 3600.0, "30 min"), ("24 h", 86400.0, "12 h"))
"""What can be chosen: words, seconds, and the half of it in words."""
LABEL = 18
"""Columns of the names, at most; where they are shorter the course has the rest."""
TAIL = 17
"""Columns of the extremes, at the right."""
TALLEST = 6
"""Lines of one figure's course; what moves seldom (a disk) has one."""
UNDER_WAY = 1.5
"""Stretches behind the newest one that is kept for which the next is merely not whole yet."""
LIVELY = ("util", "vram", "cgroup")
NAMES = {"util": "gpu", "vram": "vram", "cgroup": "memory"}
"""What the first figures are called; disks and inodes carry their mount."""
MOST_FIGURES = 64


def course_of(box: BoxState, name: str, begin: float, end: float, cells: int) -> list[float | None]:
    """Return a figure's course: finely as far back as that is kept, before that as it is kept for the day."""
    fine, coarse = (
        course(past, past.names.index(name), begin, end, cells)
        if name in past.names
        else [None] * cells
        for past in (box.recent, box.past)
    )
    known_from = box.recent.at[0] - box.recent.width if box.recent.at else end
    step = (end - begin) / cells
    return [
        old if new is None and begin + cell * step < known_from else new
        for cell, (new, old) in enumerate(zip(fine, coarse, strict=True))
    ]


def course(past: Past, place: int, begin: float, end: float, cells: int) -> list[float | None]:
    """Return a figure's course in equal parts of a stretch of time: the mean of what was seen in each, None = nothing.

    Args:
        past: What is kept.
        place: Of the figure among its names.
        begin: Client clock.
        end: Client clock.
        cells: How many parts.
    """
    step = (end - begin) / cells
    sums, counts = [0.0] * cells, [0] * cells
    for at, row in zip(past.at, past.values, strict=False):
        value = row[place] if place < len(row) else None
        if value is None or not math.isfinite(value) or at <= begin or at - past.width >= end:
            continue
        first = max(0, math.floor((at - past.width - begin) / step + 1e-6))
        last = min(cells, max(first + 1, math.ceil((at - begin) / step - 1e-6)))
        for cell in range(first, last):
            sums[cell] += value
            counts[cell] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def past_height(box: BoxState) -> int:
    """Return the lines that a pane of it wants, its frame included."""
    names = names_of(box)
    return 3 + len(names) + bool(unkept_cards(box, names, ""))


def unkept_cards(box: BoxState, names: Sequence[str], when: str) -> str:
    """Return what these figures lack of the single cards of a box; empty = nothing, or it has but one."""
    cards = len(box.sample.gpus) if box.sample is not None else 0
    if cards > 1 and not any(map(is_of_card, names)):
        return f"nothing about its single cards is kept for {when}"
    if cards > MOST_CARDS:
        return f"only the first {MOST_CARDS} of {cards} cards are kept one by one"
    return ""


def past_room(box: BoxState, height: int) -> int:
    """Return how much of so many lines a pane of it takes, its frame included: the lively figures use what is left."""
    least, lively = past_height(box), sum(name in LIVELY for name in names_of(box))
    more = max(0, min(TALLEST - 1, (height - least) // lively)) if lively else 0
    return min(height, least + lively * more)


def names_of(box: BoxState) -> list[str]:
    """Return the figures of which something is kept, utilisation first."""
    known = [
        name
        for past in (box.past, box.recent)
        for place, name in enumerate(past.names)
        if any(place < len(row) and row[place] is not None for row in past.values)
    ]
    return sorted(dict.fromkeys(known), key=_order)[:MOST_FIGURES]


def _order(name: str) -> tuple[int, int, int]:
    """The box's own figures, its disks, then its cards one by one."""
    kind, _, card = name.partition(":")
    if is_of_card(name):
        return 2, int(card) if card.isdecimal() else MOST_FIGURES, CARD_FIGURES.index(kind)
    if name in LIVELY:
        return (0, LIVELY.index(name), 0)
    return (1, 0, 0)


def fitting_span(box: BoxState, now: float) -> int:
    """Return which of `SPANS` what is kept fills best: of a box that was just met an hour would be one hole."""
    first = min((past.at[0] for past in (box.past, box.recent) if past.at), default=now)
    if now - first < SPANS[0][1]:
        return 0
    return 1


def past_section(
    box: BoxState, span: int, width: int, height: int, now: float, hint: Line = EMPTY
) -> Section:
    """Return the figures' courses, as tall as the room allows, with a line of times below.

    Args:
        box: The box.
        span: Which of `SPANS`.
        width: Cells.
        height: Lines that there are; more are made where not each figure fits in one, for the pane to scroll.
        now: Client clock.
        hint: For the border.
    """
    words, seconds, _ = SPANS[span % len(SPANS)]
    newest = max((past.at[-1] for past in (box.past, box.recent) if past.at), default=now)
    if 0 < now - newest <= UNDER_WAY * box.recent.width:
        now = newest  # what is younger is being read: nobody failed to watch
    begin = now - seconds
    names = names_of(box)
    label = min(LABEL, max((len(label_of(name)) for name in names), default=0) + 2)
    room = max(4, width - label - TAIL - 1)
    cells = room * (2 if glyphs().braille else 1)
    shown = []
    for name in names:
        values = course_of(box, name, begin, now, cells)
        if any(value is not None for value in values):
            shown.append((name, values))
    title = line("past ", dim(words))
    if not shown:
        return Section(title, [line(dim(f"nothing of the last {words} is kept"))], hint)
    lively = sum(name in LIVELY for name, _ in shown)
    note = unkept_cards(box, [name for name, _ in shown], f"the last {words}")
    spare = height - 1 - len(shown) - bool(note)
    tall = 1 + max(0, min(TALLEST - 1, spare // lively)) if lively else 1
    out = [
        made
        for name, values in shown
        for made in _figure(name, values, label, room, tall if name in LIVELY else 1)
    ]
    out += [line(dim(note))] if note else []
    return Section(title, [*out, _axis(span, label, room)], hint)


def _figure(
    name: str, values: Sequence[float | None], label: int, room: int, tall: int
) -> list[Line]:
    known = [value for value in values if value is not None]
    write = degrees if name.startswith("temp:") else percent
    low, high = write(min(known)), write(max(known))
    # From 0 to 100 percent, or degrees: a figure that hardly moves is a flat line, and no false alarm.
    rows = spark_rows(values, room, tall, low=0.0, high=100.0)
    span = f"min {low:>4} max {high:>4}"
    last = f"now {write(values[-1]):>4}" if values[-1] is not None else ""
    tails = {0: last, tall - 1: span}
    return [
        line(
            dim(fit(fit(label_of(name) if place == 0 else "", label - 1), label)),
            rows[place],
            dim(fit(tails.get(place, ""), TAIL + 1, right=True)),
        )
        for place in range(tall)
    ]


def label_of(name: str) -> str:
    """Return what a figure is called: ``gpu``, ``GPU 0 temp``, ``disk data``, ``inode data``."""
    kind, _, mount = name.partition(":")
    if is_of_card(name):
        return f"GPU {mount} {kind}"
    if not mount:
        return NAMES.get(kind, kind)
    short = mount.rsplit("/", 1)[-1] or "/"
    return f"{'inode' if kind == 'inodes' else 'disk'} {short}"


def degrees(value: float | None) -> str:
    """Return a temperature in at most four characters."""
    if value is None:
        return NONE
    if value < 100:
        return f"{value:.0f}°C"
    return f"{value:.0f}°"


def _axis(span: int, label: int, room: int) -> Line:
    words, _, half = SPANS[span % len(SPANS)]
    middle = max(1, room // 2 - len(words) - 4 - len(half) // 2)
    text = f"{words} ago{' ' * middle}{half}"
    return line(dim(f"{fit('', label)}{fit(text, max(1, room - 3))}now"))
