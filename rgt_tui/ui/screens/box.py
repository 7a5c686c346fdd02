"""One box: its vitals, its trouble, its queue, the log that is being written, and where these stand at each size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.geometry import Region
from textual.widget import Widget

from rgt_tui.health import clock_readings, pending_readings
from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.box_status import box_parts, cells_of, current_cell, level_tone
from rgt_tui.ui.commands import BOX, BOX_CARE, BOX_TARGET, LOG_LINES, MOVE, REPLAY, Command, bindings
from rgt_tui.ui.notation import clean, compact_time
from rgt_tui.ui.screens.log import LogKeys
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.fleet_cells import Row, clock_left
from rgt_tui.ui.widgets.log_pane import LogPane
from rgt_tui.ui.widgets.panes import Pane, Section
from rgt_tui.ui.widgets.platform_lines import dangers_section, platform_section
from rgt_tui.ui.widgets.queue_lines import queue_lines
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, dim, line
from rgt_tui.ui.widgets.vitals import SURVIVAL_LEGEND, vitals_sections
from rgt_tui.ui.widgets.why import why_lines

if TYPE_CHECKING:
    from textual import events

LEFT = 44
"""Width of the vitals where they stand beside the log."""


class Wants(NamedTuple):
    """The heights that would show everything."""

    vitals: int
    trouble: int
    queue: int


def place(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """Return the region of each pane that is shown, by its id."""
    if width >= 110:
        return _beside(width, height, wants)
    if width >= 76 and height >= 16:
        return _above(width, height, wants)
    return _stacked(width, height, wants)


def _beside(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """Vitals at the left; trouble, queue and log at the right."""
    left = LEFT if width < 160 else 54
    right = width - left
    out = {"vitals": Region(0, 0, left, height)}
    y = 0
    if wants.trouble:
        tall = min(wants.trouble, max(4, height // 2))
        out["trouble"] = Region(left, y, right, tall)
        y += tall
    tall = min(wants.queue, max(3, (height - y) * 2 // 5))
    out["queue"] = Region(left, y, right, tall)
    y += tall
    out["log"] = Region(left, y, right, height - y)
    return out


def _above(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """Vitals and queue side by side, the log below in full width."""
    out: dict[str, Region] = {}
    y = 0
    if wants.trouble:
        tall = min(wants.trouble, max(4, height // 2))
        out["trouble"] = Region(0, 0, width, tall)
        y = tall
    log = max(5, (height - y) * 2 // 5)
    tall = max(4, min(max(wants.vitals, wants.queue), height - y - log))
    half = width // 2
    out["vitals"] = Region(0, y, half, tall)
    out["queue"] = Region(half, y, width - half, tall)
    out["log"] = Region(0, y + tall, width, height - y - tall)
    return out


def _stacked(width: int, height: int, wants: Wants) -> dict[str, Region]:
    """One below the other: trouble or the queue first, then vitals, then the log."""
    out: dict[str, Region] = {}
    first, tall = ("trouble", min(wants.trouble, 9)) if wants.trouble else ("queue", min(wants.queue, 5))
    tall = min(tall, max(3, height // 2 if wants.trouble else height // 3))
    out[first] = Region(0, 0, width, tall)
    log = max(3, height // 3)
    middle = max(0, min(wants.vitals, height - tall - log))
    if middle >= 3:
        out["vitals"] = Region(0, tall, width, middle)
    else:
        middle = 0
    out["log"] = Region(0, tall + middle, width, max(0, height - tall - middle))
    return out


CALM = {Health.RUNNING, Health.IDLE, Health.FINISHED}


class BoxScreen(LogKeys):
    """Vitals, trouble, queue and log of one box."""

    PLACE = "box"
    KEYS: ClassVar[tuple[Command, ...]] = (*BOX_TARGET, *LOG_LINES, *BOX, *BOX_CARE, *REPLAY, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)
    PANES: ClassVar[tuple[str, ...]] = ("log", "trouble", "vitals", "queue")

    def body(self) -> Iterable[Widget]:
        """The panes; where they stand depends on the size."""
        yield Pane(id="vitals", focusable=True)
        yield Pane(id="trouble", focusable=True)
        yield Pane(id="queue", focusable=True)
        yield LogPane(id="log")

    def on_mount(self) -> None:
        """Give the log the keys."""
        self.log_pane.focus()

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return the state, platform, meter and danger clock of this box."""
        box = self.box
        if box is None:
            return []
        profile = self.fleet.profile(box.spec.name)
        clock = None
        for reading in clock_readings(profile, box, now)[:1]:
            left = "" if reading.seconds_left is None else f" {clock_left(reading, reading.seconds_left)}"
            clock = Span(f"{clean(reading.what)}{left}", level_tone(reading.level))
        for pending in pending_readings(profile)[:1] if clock is None else ():
            if pending.seconds_left is not None:
                clock = dim(f"if stopped: {clean(pending.what)} in {compact_time(pending.seconds_left)}")
        return box_parts(box, self.verdict(box), profile.name, clock)

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw what changed in every pane."""
        box = self.box
        if box is None:
            gone = [Section(line("gone"), [line("this box is no longer in the fleet; q goes back")])]
            self.query_one("#vitals", Pane).show(lambda width: gone)
            return
        profile = self.fleet.profile(box.spec.name)
        row = Row(box, self.verdict(box), (), profile.name)

        def vitals(width: int) -> list[Section]:
            *parts, link = vitals_sections(box, profile, width, now, short=self.size.width < 110)
            platform = platform_section(profile, box, width, now)
            return [*parts, platform, link, dangers_section(profile, width)]

        self.query_one("#vitals", Pane).show(vitals, SURVIVAL_LEGEND)
        self.query_one("#queue", Pane).show(
            lambda width: [Section(line("queue"), queue_lines(box, width, now), queue_hint(box))]
        )
        troubled = bool(row.verdict.alerts) or row.verdict.health not in CALM

        def trouble(width: int) -> list[Section]:
            return (
                [Section(line("what is wrong"), why_lines(row, width, now, brief=True))] if troubled else []
            )

        self.query_one("#trouble", Pane).show(trouble)
        self.show_log(box, now)
        self._arrange()

    def _arrange(self) -> None:
        """Put the panes where they belong at this size; nothing moves while the size of each is the same."""
        size = self.query_one("#body").size
        if not size.width or not size.height:
            return
        vitals, queue, trouble = (self.query_one(f"#{name}", Pane) for name in ("vitals", "queue", "trouble"))
        side = size.width - (44 if size.width < 160 else 54) if size.width >= 110 else size.width
        wants = Wants(vitals.wanted_height(44), trouble.wanted_height(side), queue.wanted_height(side))
        regions = place(size.width, size.height, wants)
        for name in self.PANES:
            pane, region = self.query_one(f"#{name}"), regions.get(name)
            pane.display = region is not None
            if region is None:
                continue
            styles = pane.styles
            here = (styles.offset.x.value, styles.offset.y.value, styles.width, styles.height)
            numbers = (*here[:2], *(None if scalar is None else scalar.value for scalar in here[2:]))
            if numbers != (region.x, region.y, region.width, region.height):
                styles.position = "absolute"
                styles.offset = (region.x, region.y)
                styles.width, styles.height = region.width, region.height

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        self.call_after_refresh(self.redraw_now)

    def _focused_pane(self) -> Pane | None:
        return self.focused if isinstance(self.focused, Pane) else None

    def action_move(self, count: int) -> None:
        """Scroll the pane that has the keys."""
        pane = self._focused_pane()
        if pane is None:
            super().action_move(count)
        else:
            pane.scroll_lines(count)

    @property
    def page_rows(self) -> int:
        """Rows of the pane that has the keys."""
        pane = self._focused_pane()
        return super().page_rows if pane is None else pane.page_rows

    def action_next_pane(self, direction: int) -> None:
        """Give another pane the keys."""
        if direction > 0:
            self.focus_next()
        else:
            self.focus_previous()


def queue_hint(box: BoxState) -> Line:
    """Return which cell of how many, for the border of the queue."""
    total = len(cells_of(box))
    if not total:
        return EMPTY
    current = current_cell(box)
    return line(dim(f"{current[0] if current else 0}/{total}"))
