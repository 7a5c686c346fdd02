"""The part of the fleet screen below the table: how it is divided, the selected box, its log and its past."""

from __future__ import annotations

from rgt_tui.model import BoxState, FleetState
from rgt_tui.ui.box_status import choose_log, level_tone, old_mark
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import clock, compact_time
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import Row
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line, toned

PANES = ("why", "loss", "since", "detail")
TAILS = ("log", "past")
LEAST_PANE = 4
PANE_SHARE = 0.4
SHARED_FROM = 14
"""Lines that the lower half has where more than one pane stands there."""
TALLEST = 36
"""Lines of the lower half beyond which nothing is gained."""
LEAST_HALF = 22
LEAST_TAIL = 10
"""Lines that panes below the lower half have where there is so much room: the log, and the past."""
SHARES: tuple[tuple[int, dict[str, int]], ...] = (
    (0, {"why": 1}),
    (100, {"why": 58, "since": 42}),
    (116, {"why": 52, "loss": 27, "since": 41}),
    (150, {"why": 62, "loss": 40, "since": 48}),
    (200, {"why": 64, "loss": 40, "since": 42, "detail": 54}),
)
"""From which width on which panes share the lower half, and in what proportion."""


def lower_widths(width: int, height: int) -> dict[str, int]:
    """Return the panes of a lower half of that size, each with its width."""
    shares = next(found for least, found in reversed(SHARES) if width >= least or not least)
    if height < SHARED_FROM:
        shares = SHARES[0][1]
    total, left = sum(shares.values()), width
    out = {name: width * share // total for name, share in shares.items()}
    left -= sum(out.values())
    out["why"] += left
    return out


def split_heights(rows: int, room: int, wanted: int) -> tuple[int, int]:
    """Return the heights of a table of `rows` lines and of the panes below it.

    Where both do not fit, the panes have a fixed share, so that the table does not jump with the selection.
    """
    if rows + 1 + wanted <= room:
        return rows + 1, wanted
    if room < LEAST_PANE + 4:
        return room, 0
    table = min(rows, room - max(LEAST_PANE, int(room * PANE_SHARE)))
    return table, room - table


def split_left(left: int) -> tuple[int, int]:
    """Return the heights of the lower half and of what stands below it, of so many lines; 0 = nothing does."""
    half = min(TALLEST, max(LEAST_HALF, left * 11 // 20))
    return (half, left - half) if left - half >= LEAST_TAIL else (min(TALLEST, left), 0)


def tail_widths(width: int, *, past: bool) -> dict[str, int]:
    """Return the panes below the lower half, each with its width.

    Args:
        width: Of the screen.
        past: Something of the box's past is kept.
    """
    if not past or width < BOTH_FROM:
        return {"log": width}
    return {"log": width - width * 2 // 5, "past": width * 2 // 5}


BOTH_FROM = 150


def newest_lines(box: BoxState, width: int, height: int, *, stale: bool) -> list[Section]:
    """Return the newest lines of the log that a box writes, its errors marked, as many as fit."""
    from rgt_tui.ui.logs.error_lines import is_error

    view = choose_log(box, None)
    if view is None or not view.lines:
        return []
    rows = list(view.lines[-max(1, height) :])
    body = [line(Span(fit(row, width), _tone(is_error(row), stale=stale))) for row in rows]
    return [Section(line("log  ", dim(view.path.rpartition("/")[2])), body, line(dim(key_for("box.log"))))]


def _tone(error: bool, *, stale: bool) -> Tone:
    return Tone.TROUBLE if error else Tone.DIM if stale else Tone.TEXT


def past_of(box: BoxState, width: int, height: int, now: float) -> list[Section]:
    """Return the course of a box's figures, as far as it is kept; nothing where it is not."""
    from rgt_tui.ui.widgets.box_past import fitting_span, past_section

    if not (box.past.at or box.recent.at):
        return []
    return [past_section(box, fitting_span(box, now), width, height, now)]


def event_lines(state: FleetState, box: str, width: int, most: int = 6) -> list[Line]:
    """Return the last events of one box, newest first."""
    mine = [event for event in state.events if event.box == box][-most:]
    return [
        line(dim(f"{clock(event.at)}  "), Span(event.text, level_tone(event.level)))
        for event in reversed(mine)
    ]


def detail_sections(row: Row, state: FleetState, width: int, now: float) -> list[Section]:
    """Return the sections of the detail pane."""
    from rgt_tui.ui.widgets.gpu_cards import gpu_sections
    from rgt_tui.ui.widgets.queue_lines import queue_lines
    from rgt_tui.ui.widgets.vitals import disk_lines, memory_lines

    parts = gpu_sections(row.box, width)
    parts.append(Section(line("memory"), memory_lines(row.box, width)))
    parts.append(Section(line("disks"), disk_lines(row.box, None, width)))
    parts.append(Section(line("queue"), queue_lines(row.box, width, now)))
    events = event_lines(state, row.name, width)
    if events:
        parts.append(Section(line("events"), events))
    if not row.verdict.stale:
        return parts
    if row.verdict.sample_age is not None:
        old = f"{old_mark(row.verdict.health)} {compact_time(row.verdict.sample_age)} old"
        parts[0] = parts[0]._replace(hint=line(dim(old)))
    return [part._replace(body=[toned(made, Tone.DIM) for made in part.body]) for part in parts]
