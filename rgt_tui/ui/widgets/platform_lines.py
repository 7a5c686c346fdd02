"""What a platform does by itself, as lines: the worst case in money, the clocks that count, its dangers and notices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rgt_tui import health
from rgt_tui.model.box import BoxState
from rgt_tui.model.profile import Profile
from rgt_tui.profiles.prices import caveats, written
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.notation import clean, glyphs, plain
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, line, wrapped

if TYPE_CHECKING:
    from rgt_tui.health import Worst

TELLS_BILL = re.compile(r"\b(bill(s|ing)?|price)\b")
"""In a platform's worst danger: it says what a stop goes on billing, and the clock of that need not say it again."""
LEAST = 8
"""Cells below which no text is broken any further."""


def platform_section(profile: Profile, box: BoxState, width: int, now: float) -> Section:
    """Return what this box can still cost, and what counts against it."""
    readings = health.clock_readings(profile, box, now)
    worst = health.worst_case_of(box, readings, now)
    body = _told("worst ", worst.text, width, Tone.WARN if worst.at_least else Tone.TEXT)
    for caveat in caveats(box.meter):
        body += _told("price ", caveat, width, Tone.WARN if box.meter.at_least else Tone.DIM)
    for reading in readings:
        body += _told("clock ", reading.text, width, level_tone(reading.level))
    for pending in () if readings else health.pending_readings(profile):
        if pending.seconds_left is not None or not TELLS_BILL.search(next(iter(health.notices(profile)), "")):
            body += _told("clock ", f"none counts; {pending.text}", width, Tone.DIM)
    return Section(line("platform ", dim(clean(profile.name))), body)


def dangers_section(profile: Profile, width: int) -> Section:
    """Return what the platform is known for: its worst danger, and what nothing can watch for."""
    first, *rest = health.notices(profile)
    body = _told("worst ", first, width, Tone.DIM)
    for text in rest:
        body += _told("note ", text, width, Tone.DIM)
    return Section(line("dangers ", dim(clean(profile.name))), body)


LABEL = 7


def _told(label: str, text: str, width: int, tone: Tone) -> list[Line]:
    first, *rest = wrapped(clean(text), max(LEAST, width - LABEL), tone)
    return [line(dim(label.ljust(LABEL)), *first), *(line(" " * LABEL, *more) for more in rest)]


def worst_parts(worst: Worst | None) -> Parts:
    """Return the worst case of the whole fleet for the header; what is not in the sum is counted beside it."""
    if worst is None or not (worst.amounts or worst.open):
        return []
    if not worst.amounts:
        return [(4, line(dim("worst "), Span("unlimited")))]
    text = plain(written(worst.amounts))
    if not worst.open:
        return [(4, line(dim("worst "), Span(f"{glyphs().at_most} {text}")))]
    return [(4, line(dim("worst "), Span(text), dim(f", {worst.open} without a limit")))]
