"""The pane at the right of a wide fleet screen: the selected box in more depth."""

from __future__ import annotations

from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.format import clean, clock
from rgt_tui.ui.verdict import level_tone
from rgt_tui.ui.widgets.box_vitals import disk_lines, gpu_sections, memory_lines
from rgt_tui.ui.widgets.fleet_row import Row
from rgt_tui.ui.widgets.frame import Section
from rgt_tui.ui.widgets.queue_lines import queue_lines
from rgt_tui.ui.widgets.spans import Line, Span, dim, line


def event_lines(state: FleetState, box: str, width: int, most: int = 6) -> list[Line]:
    """Return the last events of one box, newest first."""
    mine = [event for event in state.events if event.box == box][-most:]
    return [
        line(dim(f"{clock(event.at)}  "), Span(clean(event.text), level_tone(event.level)))
        for event in reversed(mine)
    ]


def detail_sections(row: Row, state: FleetState, width: int, now: float) -> list[Section]:
    """Return the sections of the detail pane."""
    parts = gpu_sections(row.box, width)
    parts.append(Section(line("memory"), memory_lines(row.box, width)))
    parts.append(Section(line("disks"), disk_lines(row.box, None, width)))
    parts.append(Section(line("queue"), queue_lines(row.box, width, now)))
    events = event_lines(state, row.name, width)
    if events:
        parts.append(Section(line("events"), events))
    return parts
