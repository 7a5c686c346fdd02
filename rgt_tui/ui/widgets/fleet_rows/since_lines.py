"""What has happened since the person last looked: newest first, repeats once, and what idle boxes cost."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rgt_tui.model import FleetEvent, FleetState
from rgt_tui.profiles import written
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.last_look import Look, day_of, idle_since
from rgt_tui.ui.notation import glyphs, plain
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, fit, fit_name, line, wrapped

WIDEST_NAME = 14
MOST_ROWS = 3
"""Of one event, where there are many."""
FEW, WHOLE = 3, 12
"""So few events are told in so many rows each: there is room for them."""
MOST_EVENTS = 200
"""So many a fleet keeps at hand; where there are as many, earlier ones may be gone."""


def minute(at: float) -> str:
    """Return the local time of day, ``02:31``."""
    return time.strftime("%H:%M", time.localtime(at))


def when(at: float, now: float) -> str:
    """Return the same with the day, where that is not today's: ``Sun 02:31``."""
    return minute(at) if day_of(at) == day_of(now) else time.strftime("%a %H:%M", time.localtime(at))


def happened(events: Sequence[FleetEvent], since: float) -> list[tuple[FleetEvent, int]]:
    """Return the events from a moment on, newest first; what a box says again and again once, with its count."""
    found: dict[tuple[str, str], tuple[FleetEvent, int]] = {}
    for event in reversed(events):
        if event.at < since:
            break
        key = (event.box, event.text)
        newest, count = found.get(key, (event, 0))
        found[key] = (newest, count + 1)
    return list(found.values())


def at_hand_from(events: Sequence[FleetEvent], began: float) -> float:
    """Return since when nothing is missing among the events of a fleet that was watched from `began` on."""
    return max(began, events[0].at) if len(events) >= MOST_EVENTS else began


def since_section(
    events: Sequence[FleetEvent],
    look: Look | None,
    began: float,
    width: int,
    now: float,
    *,
    journal: bool,
    height: int = 0,
) -> Section:
    """Return what the pane says.

    Args:
        events: Oldest first.
        look: The last look before this visit; None = none is known.
        began: Client clock since when none of them is missing.
        width: Inner width of the pane.
        now: Client clock.
        journal: There is a journal to look into.
        height: Lines there are; where they suffice for all, nothing is cut off.
    """
    if look is not None and look.at <= now:
        since, title = look.at, f"since you looked, {when(look.at, now)}"
    elif began <= now:
        since, title = began, f"since {when(began, now)}"
    else:
        since, title = -math.inf, "what happened"
    found = happened(events, since)
    name = min(WIDEST_NAME, max((len(event.box) for event, _ in found), default=0))

    def told(most: int) -> list[Line]:
        return [
            row for event, count in found for row in _rows(event, count, minute(event.at), name, width, most)
        ]

    body = told(WHOLE)
    if len(found) > FEW and len(body) > height:
        body = told(MOST_ROWS)
    if not body:
        body.append(line(dim("nothing has happened")))
    if since < began <= now:
        where = f": {key_for('past.journal')} tells it" if journal else ""
        body += wrapped(
            f"what was before {when(began, now)} is not kept here{where}", max(8, width), Tone.DIM
        )
    return Section(line(title), body, line(dim(key_for("past.journal"))) if journal else EMPTY)


def story_section(events: Sequence[FleetEvent], box: str, width: int, height: int, now: float) -> Section:
    """Return what happened on one box, newest first, as much as there is room for, with the day of what is older."""
    found = happened(events, -math.inf)
    times = max((len(when(event.at, now)) for event, _ in found), default=0)
    body: list[Line] = []
    for event, count in found:
        if len(body) >= height:
            break
        body += _rows(event, count, fit(when(event.at, now), times, right=True), 0, width, MOST_ROWS)
    title = line(Span(box), dim("  what happened"))
    return Section(title, body or [line(dim("nothing has happened"))], line(dim(key_for("past.journal"))))


def idle_foot(state: FleetState, look: Look | None, now: float) -> Line:
    """Return what idle boxes have cost since then; nothing where nobody counts."""
    told = None if look is None or look.at > now else idle_since(look, state.spend, now)
    if told is None or not told[0]:
        return EMPTY
    amounts, midnight = told
    said = "idle since midnight" if midnight else "idle since then"
    return line(dim(f"{said} "), Span(plain(written(amounts, none="?")), Tone.WARN))


def _rows(event: FleetEvent, count: int, stamp: str, name: int, width: int, most: int) -> list[Line]:
    """Return an event in at most so many lines; a name of no width is not told."""
    g = glyphs()
    tone = level_tone(event.level)
    mark = {"error": g.trouble, "warn": g.warn}.get(event.level, g.unknown)
    again = f" {g.times}{count}" if count > 1 else ""
    named = (Span(fit_name(event.box, name), Tone.STRONG), " ") if name else ()
    head = line(dim(f"{stamp} "), Span(mark, tone), " ", *named)
    below = len(stamp) + 1
    indent = below + 2 + (name + 1 if name else 0)
    beside = width - indent
    if beside < 16:  # the text below the name, where there is no room beside it
        rows = wrapped(event.text + again, max(8, width - below), tone, most=most)
        return [head, *(line(" " * below, *row) for row in rows)]
    first, *rest = wrapped(event.text + again, beside, tone, most=most)
    return [line(*head, *first), *(line(" " * indent, *row) for row in rest)]
