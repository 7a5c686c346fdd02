"""One box: its vitals, its trouble, its queue, its past, and its current log."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.health import Remedy, list_remedies
from rgt_tui.language import translate
from rgt_tui.model import BoxState, FleetState, how_many
from rgt_tui.ui.box_status import CALM, cells_of, current_cell
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import (
    BOX,
    BOX_CARE,
    BOX_FIX,
    BOX_SHELL,
    BOX_TARGET,
    BOX_WORK,
    LOG_LINES,
    MOVE,
    REPLAY,
    Command,
    build_bindings,
    key_for,
)
from rgt_tui.ui.screens.log import LogKeys
from rgt_tui.ui.widgets.box_context import SPANS, fitting_span, past_height, past_room, past_section
from rgt_tui.ui.widgets.fleet_rows import FleetRow, LossPane, telling_run
from rgt_tui.ui.widgets.fleet_rows.loss_pane import METRIC
from rgt_tui.ui.widgets.log_pane import LogPane
from rgt_tui.ui.widgets.panes import Pane, PaneSection
from rgt_tui.ui.widgets.platform_lines import dangers_section, platform_section
from rgt_tui.ui.widgets.queue_lines import queue_lines
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim_span, make_line
from rgt_tui.ui.widgets.vitals import survival_legend, vitals_sections
from rgt_tui.ui.widgets.why import CopyableFix, remedy_lines, steps_of, why_lines

if TYPE_CHECKING:
    from textual import events


def left_of(width: int) -> int:
    """Return the width of the vitals if they are next to the log."""
    if width < 160:
        return 44
    return max(54, width * 2 // 9)


class WantedHeights(NamedTuple):
    """The heights that would show everything."""

    vitals: int
    trouble: int
    queue: int
    past: Callable[[int], int] | None = None
    """Returns the height of the history for the available lines; None = not shown."""
    asked: bool = False
    """Whether the person asked for the history: without room for both, it replaces the log."""
    curve: bool = False
    """Whether a run has a loss to plot."""
    past_least: int = 0
    """Lines that show every figure of the history."""


def place_panes(width: int, height: int, wants: WantedHeights) -> dict[str, Region]:
    """Return the region of each shown pane, by its id."""
    if width >= 110:
        return _place_side_by_side(width, height, wants)
    # Without room for both, the history takes the place of the log.
    layout = _place_stacked
    if width >= 76 and height >= 16:
        layout = _place_above_log
    found = layout(width, height, wants)
    if wants.past:
        found["past"] = found.pop("log")
    return found


def _place_side_by_side(width: int, height: int, wants: WantedHeights) -> dict[str, Region]:
    """Place the vitals at the left; trouble, queue and log at the right."""
    left = left_of(width)
    right = width - left
    out = {"vitals": Region(0, 0, left, height)}
    y = 0
    if wants.trouble:
        tall = min(wants.trouble, max(4, height // 2))
        out["trouble"] = Region(left, y, right, tall)
        y += tall
    shown = wants.curve and width >= CURVE_FROM
    tall_curve = 12
    curve_rows = 0
    if shown:
        curve_rows = tall_curve
    tall = min(max(wants.queue, curve_rows), max(3, (height - y) * 2 // 5))
    # Height of the loss plot, and its minimum.
    least_curve = 8
    curve = 0
    if shown and tall >= least_curve:
        curve = right * 2 // 5
    out["queue"] = Region(left, y, right - curve, tall)
    if curve:
        out["loss"] = Region(left + right - curve, y, curve, tall)
    y += tall
    # Minimum lines for history and log, one above the other.
    least_both = 12
    tight = height - y < least_both
    # A history without a request never takes the room of the log.
    if wants.past and (wants.asked or not tight):
        half = max((height - y) // 2, min(wants.past_least, height - y - LEAST_LOG))
        if tight:
            tall = height - y
        else:
            tall = wants.past(half)
        out["past"] = Region(left, y, right, tall)
        y += tall
    if y < height:
        out["log"] = Region(left, y, right, height - y)
    return out


def _place_above_log(width: int, height: int, wants: WantedHeights) -> dict[str, Region]:
    """Place vitals and queue side by side, and the log below in full width."""
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


def _place_stacked(width: int, height: int, wants: WantedHeights) -> dict[str, Region]:
    """Stack the panes: trouble or the queue first, then the vitals, then the log."""
    out: dict[str, Region] = {}
    first, tall = (
        ("trouble", min(wants.trouble, 9)) if wants.trouble else ("queue", min(wants.queue, 5))
    )
    if wants.trouble:
        most = height // 2
    else:
        most = height // 3
    tall = min(tall, max(3, most))
    out[first] = Region(0, 0, width, tall)
    log = max(3, height // 3)
    middle = max(0, min(wants.vitals, height - tall - log))
    if middle >= 3:
        out["vitals"] = Region(0, tall, width, middle)
    else:
        middle = 0
    out["log"] = Region(0, tall + middle, width, max(0, height - tall - middle))
    return out


CURVE_FROM = 180
"""Minimum columns for the loss next to the queue."""
HIDDEN = -1
LEAST_LOG = 9
"""Lines kept for the log when the history takes more than half."""
ROOMY = (110, 26)
"""Minimum columns and lines to show the history above the log automatically."""


class BoxScreen(LogKeys):
    """Vitals, trouble, queue and log of one box."""

    PLACE = "box"
    KEYS: ClassVar[tuple[Command, ...]] = (
        *BOX_TARGET,
        *BOX_FIX,
        *BOX_SHELL,
        *BOX_WORK,
        *LOG_LINES,
        *BOX,
        *BOX_CARE,
        *REPLAY,
        *MOVE,
    )
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)
    AUTO_FOCUS = "#log"
    PANES: ClassVar[tuple[str, ...]] = ("log", "trouble", "vitals", "queue", "loss", "past")

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self._span: int | None = None
        """Chosen index in `SPANS`; `HIDDEN` = no history; None = not chosen, shown if there is
        room."""
        self._proposed: tuple[Remedy, ...] = ()
        self._proposed_at = 0.0
        self._copied: CopyableFix | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Return the panes; their regions depend on the size."""
        yield Pane(id="vitals", focusable=True)
        yield Pane(id="trouble", focusable=True)
        yield Pane(id="queue", focusable=True)
        yield LossPane(id="loss")
        yield Pane(id="past", focusable=True)
        yield LogPane(id="log")

    @property
    def pane_room(self) -> Size:
        """The size for the panes.

        Before the first layout it is predicted, so that no second layout is needed.
        """
        size, whole = self.query_one("#body").size, self.app.size
        # Header, event line and keys.
        fixed = 3 + (self.notice is not None)
        return size or Size(whole.width, max(0, whole.height - fixed))

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the changes in every pane."""
        box = self.box_state
        if box is None:
            gone = [
                PaneSection(
                    make_line(translate("gone")),
                    [
                        make_line(
                            translate(
                                "this box is no longer in the fleet; {key} goes back",
                                key=key_for("screen.back"),
                            )
                        )
                    ],
                )
            ]
            self.query_one("#vitals", Pane).show_sections(lambda width: gone)
            return
        profile = self.fleet.profile_of(box.spec.name)
        row = FleetRow(box, self.verdict(box), (), profile.name)

        def make_vitals(width: int) -> list[PaneSection]:
            # From 110 columns on, the vitals have the whole height.
            short, health = self.pane_room.width < 110, row.verdict.health
            *parts, link = vitals_sections(box, profile, width, now, short=short, health=health)
            platform = platform_section(profile, box, width, now)
            # The dangers are long and never change: above the link they would push it out of sight.
            return [*parts, platform, link, dangers_section(profile, width)]

        def make_queue(width: int) -> list[PaneSection]:
            rows = queue_lines(box, width, now)
            return [PaneSection(make_line(translate("queue")), rows, queue_hint(box))]

        # Cached, because the height is asked for before the lines: one opening made the vitals
        # four times.
        self.query_one("#vitals", Pane).show_sections(cache(make_vitals), survival_legend())
        self.query_one("#queue", Pane).show_sections(cache(make_queue))
        if state.at < self._proposed_at:  # a replay went back: its later problems are yet to come
            self._proposed = ()
        self._proposed_at = state.at
        proposed = self._proposed = list_remedies(self._proposed, box, now)
        step = self._next_step(row)
        troubled = bool(row.verdict.alerts) or row.verdict.health not in CALM

        def make_trouble(width: int) -> list[PaneSection]:
            over = remedy_lines(proposed, width, now)
            if not troubled:
                if over:
                    return [PaneSection(make_line(translate("what was wrong")), over)]
                return []
            marked = ""
            if step is not None:
                marked = step.fix.command or ""
            why = why_lines(row, width, now, brief=True, marked=marked)
            if step is None:
                hint = EMPTY
            else:
                hint = make_line(
                    dim_span(
                        translate(
                            "{key} copies {pane_label}",
                            key=key_for("screen.copy"),
                            pane_label=step.pane_label,
                        )
                    )
                )
            return [PaneSection(make_line(translate("what is wrong")), [*why, *over], hint)]

        self.query_one("#trouble", Pane).show_sections(cache(make_trouble))
        past = self.query_one("#past", Pane)
        past.show_sections(
            lambda width: [
                past_section(
                    box,
                    self.span_index or 0,
                    width,
                    past.size.height - 2,
                    now,
                    dim_key(key_for("box.history")),
                )
            ]
        )
        shown_box = None
        if self._has_curve(box):
            shown_box = box
        self.query_one(LossPane).show_box(shown_box, stale=row.verdict.stale)
        self.show_log(box, now)
        self._arrange_panes()

    def _has_curve(self, box: BoxState) -> bool:
        """Return whether there is a loss to plot, and a screen wide enough for it."""
        if self.pane_room.width >= CURVE_FROM:
            run = telling_run(box)
        else:
            run = None
        return run is not None and bool(run.series.get(METRIC))

    def on_loss_pane_opened(self, message: LossPane.Opened) -> None:
        """Open the curves of the box."""
        self.action_open_for_box("curves")

    def _arrange_panes(self) -> None:
        """Move the panes to their regions; panes whose region is unchanged are not touched."""
        size = self.pane_room
        if not size.width or not size.height:
            return
        vitals, queue, trouble = (
            self.query_one(f"#{name}", Pane) for name in ("vitals", "queue", "trouble")
        )
        box = self.box_state
        if size.width >= 110:
            side = size.width - left_of(size.width)
        else:
            side = size.width
        make_past = None
        if self.span_index is not None and box is not None:
            make_past = partial(past_room, box)
        past_least = 0
        if box is not None:
            past_least = past_height(box)
        wants = WantedHeights(
            # 44 is the least width of the vitals, see `left_of`.
            vitals.wanted_height(44),
            trouble.wanted_height(side),
            queue.wanted_height(side),
            make_past,
            self._span is not None,
            box is not None and self._has_curve(box),
            past_least=past_least,
        )
        regions = place_panes(size.width, size.height, wants)
        for name in self.PANES:
            pane, region = self.query_one(f"#{name}"), regions.get(name)
            pane.display = region is not None
            if region is None:
                continue
            styles = pane.styles
            here = (styles.offset.x.value, styles.offset.y.value, styles.width, styles.height)
            numbers = (
                *here[:2],
                *(None if scalar is None else scalar.value for scalar in here[2:]),
            )
            if numbers != (region.x, region.y, region.width, region.height):
                styles.position = "absolute"
                styles.offset = (region.x, region.y)
                styles.width, styles.height = region.width, region.height

    def _next_step(self, row: FleetRow) -> CopyableFix | None:
        """Return the fix that the next ``y`` copies; after the last one, the first again."""
        steps = steps_of(row)
        if self._copied in steps:
            return steps[(steps.index(self._copied) + 1) % len(steps)]
        if steps:
            return steps[0]
        return None

    def to_copy(self) -> ClipboardText | None:
        """Return the text to copy for the focused pane.

        With the queue focused, the path of the current cell's log; selected lines of the log;
        otherwise the next fix, otherwise the command to log in.
        """
        box = self.box_state
        if box is None:
            return None
        if isinstance(self.focused, Pane):
            at = self.focused.id
        else:
            at = None
        current = current_cell(box)
        if at == "queue" and current is not None and current[1].log is not None:
            return ClipboardText(
                what=translate("the path of the log of {name}", name=current[1].name),
                text=current[1].log,
            )
        # The log is no `Pane`: None means that it has the focus.
        if at is None and not self.log_pane.cursor.following:
            chosen = self.log_pane.chosen_lines()
        else:
            chosen = []
        if chosen:
            return ClipboardText(what=how_many(len(chosen), "line"), text="\n".join(chosen))
        profile = self.fleet.profile_of(box.spec.name)
        if at in {None, "trouble"}:
            step = self._next_step(FleetRow(box, self.verdict(box), (), profile.name))
        else:
            step = None
        if step is not None:
            self._copied = step
            self.redraw_now()
            return step.copy_text
        words = shlex.join(box.spec.login_words(profile.launch.user))
        return ClipboardText(
            what=translate("how to log in to {name}", name=box.spec.name), text=words
        )

    @property
    def span_index(self) -> int | None:
        """Index of the shown span in `SPANS`; None = the history is hidden."""
        if self._span is not None:
            if self._span == HIDDEN:
                return None
            return self._span
        size, box = self.pane_room, self.box_state
        roomy = size.width >= ROOMY[0] and size.height >= ROOMY[1]
        shown = roomy and box is not None and (box.past.at or box.recent.at)
        if shown and box is not None:
            return fitting_span(box, self.now)
        return None

    def action_history(self) -> None:
        """Show the next span of the history; after the last one only the log."""
        if self.query_one("#past").display:
            here = self.span_index
        else:
            here = None
        after = 0 if here is None else here + 1
        if after < len(SPANS):
            self._span = after
        else:
            self._span = HIDDEN
        self.redraw_now()
        # The pane with the focus may have been hidden.
        if not self.log_pane.display or self.span_index is None:
            self.set_focus(self.main_widget())
        if self.span_index is None:
            self.hint(translate("the log alone"))
        else:
            self.hint(
                translate(
                    "the last {spans}; {key} shows the next",
                    spans=SPANS[self.span_index][0],
                    key=key_for("box.history"),
                )
            )

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        # Until the layout is done, the widgets have their old sizes.
        self.call_after_refresh(self.redraw_now)

    def main_widget(self) -> Widget:
        """Return the log, or the history if there is no room for the log."""
        if self.log_pane.display:
            return self.log_pane
        return self.query_one("#past")

    def action_next_pane(self, direction: int) -> None:
        """Focus the next or the previous pane."""
        if direction > 0:
            self.focus_next()
        else:
            self.focus_previous()


def dim_key(key: str) -> Line:
    """Return a key for the border of its pane."""
    return make_line(Span(key, Tone.ACCENT))


def queue_hint(box: BoxState) -> Line:
    """Return the current queue cell's number and the total, for the border of the queue."""
    total = len(cells_of(box))
    if not total:
        return EMPTY
    current = current_cell(box)
    return make_line(dim_span(f"{current[0] if current else 0}/{total}"))
