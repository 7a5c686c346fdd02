"""Marking boxes of the fleet table, and what can be done for all marked ones at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rgt_tui.language import translate
from rgt_tui.model import BoxState, format_sums, how_many
from rgt_tui.profiles import prices
from rgt_tui.ui.box_pulls import BoxPulls
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import make_displayable
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen
from rgt_tui.ui.screens.dialogs import Choice, ChoiceScreen
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.fleet_rows import FleetTable
from rgt_tui.ui.widgets.spans import Span, Tone, make_line

MARKED = (
    Choice("p", "pull results", "pull"),
    Choice("m", "mute 1 h", "mute"),
    Choice("c", "connect", "connect"),
    Choice("d", "disconnect", "disconnect"),
    Choice("D", "tear down, one by one", "tear down"),
    Choice("y", "copy names", "copy"),
    Choice("u", "unmark", "unmark"),
)
"""What can be done for all marked boxes. Destroying stays a decision about each box."""


class MarkKeys:
    """The keys of the fleet screen for marking boxes."""

    _awaiting_teardown: Sequence[str] = ()
    """Marked boxes whose tear-down page opens after the one that is open."""

    @property
    def _screen(self) -> FleetAwareScreen:
        return cast("FleetAwareScreen", self)

    @property
    def marked_boxes(self) -> list[BoxState]:
        """The marked boxes that are shown, in the order of the table."""
        state = self._screen.fleet_state
        if state is None:
            return []
        found = map(state.find_box, self._screen.query_one(FleetTable).marked_names)
        return [box for box in found if box is not None]

    def marked_parts(self) -> Parts:
        """Return how many boxes are marked and their cost per hour, for the header."""
        boxes = self.marked_boxes
        if not boxes:
            return []
        rate = prices.fleet_rate(box.meter for box in boxes)
        cost = f"  {format_sums(rate)}/h" if rate else ""
        text = make_displayable(translate("{count} marked", count=len(boxes)) + cost)
        return [(0, make_line(Span(text, Tone.MATCH)))]

    def action_mark(self) -> None:
        """Mark the selected box or unmark it, and go to the next; in a replay, pause or resume."""
        screen = self._screen
        if screen.has_fleet and screen.fleet.plays_back:
            screen.action_hold_replay()
            return
        screen.query_one(FleetTable).toggle_mark()
        screen.redraw_now()

    def action_mark_range(self) -> None:
        """Begin a range at the selected box, or mark the range up to it."""
        table = self._screen.query_one(FleetTable)
        if table.mark_range():
            self._screen.hint(
                translate("move, then {key} marks all between", key=key_for("fleet.mark-range"))
            )
        self._screen.redraw_now()

    def action_mark_all(self) -> None:
        """Mark all shown boxes; unmark them if all are marked."""
        self._screen.query_one(FleetTable).toggle_all_marks()
        self._screen.redraw_now()

    def clear_marks(self) -> bool:
        """Unmark all boxes; return whether one was marked."""
        had = self._screen.query_one(FleetTable).clear_marks()
        if had:
            self._screen.redraw_now()
        return had

    def work_boxes(self) -> Sequence[str]:
        """Return the marked boxes, otherwise the selected one: there ``w`` starts work."""
        marked = [box.spec.name for box in self.marked_boxes]
        if marked:
            return marked
        box = self._screen.find_target()
        return () if box is None else (box.spec.name,)

    def action_editor(self) -> None:
        """Show what editors need to open the box."""
        from rgt_tui.ui.screens.command import EDITOR, CommandScreen

        boxes = self.work_boxes()
        if boxes:
            self._screen.app.push_screen(CommandScreen(self._screen.fleet, boxes, EDITOR))

    def action_with_marked(self) -> None:
        """Show what can be done for the marked boxes."""
        boxes = self.marked_boxes
        if not boxes:
            self._screen.hint(
                translate("no box is marked: {key} marks one", key=key_for("fleet.mark"))
            )
            return
        label = f"{how_many(len(boxes), 'box', 'boxes')}:"
        self._screen.app.push_screen(ChoiceScreen(label, MARKED), self._act_on_marked)

    def _act_on_marked(self, picked: str | None) -> None:
        acts: Mapping[str, Callable[[list[BoxState]], None]] = {
            "pull": self._pull_marked,
            "mute": self._mute_marked,
            "connect": self._connect_marked,
            "disconnect": self._disconnect_marked,
            "tear down": self._tear_down_marked,
            "copy": self._copy_marked,
            # `clear_marks` below does it.
            "unmark": lambda boxes: None,
        }
        # Cancelled: the marks stay.
        if picked is None:
            return
        boxes = self.marked_boxes
        acts[picked](boxes)
        self.clear_marks()

    def _pull_marked(self, boxes: list[BoxState]) -> None:
        pulls = cast("BoxPulls", cast("Any", self._screen.app).pulls)
        for box in boxes:
            # No paths: all results.
            pulls.start(self._screen.fleet, box.spec.name, ())
        self._screen.hint(
            translate(
                "pulling the results of {boxes}; {key} shows them",
                boxes=_names_of(boxes),
                key=key_for("fleet.transfers"),
            )
        )

    def _mute_marked(self, boxes: list[BoxState]) -> None:
        muted = [(box.spec.name, alert.id) for box in boxes for alert in box.alerts]
        hour = 3600.0
        for name, alert in muted:
            self._screen.fleet.mute_alert(name, alert, hour)
        self._screen.hint(
            translate(
                "muted {muted} of {boxes} for 1 h",
                muted=how_many(len(muted), "alert"),
                boxes=_names_of(boxes),
            )
        )

    def _connect_marked(self, boxes: list[BoxState]) -> None:
        for box in boxes:
            # A paused box is resumed, any other one is tried again at once.
            self._screen.fleet.set_box_paused(box.spec.name, False)
            self._screen.fleet.retry_box(box.spec.name)
        self._screen.hint(translate("connecting to {boxes}", boxes=_names_of(boxes)))

    def _disconnect_marked(self, boxes: list[BoxState]) -> None:
        for box in boxes:
            self._screen.fleet.set_box_paused(box.spec.name, True)
        self._screen.hint(
            translate("disconnected from {boxes}; their trainings continue", boxes=_names_of(boxes))
        )

    def _tear_down_marked(self, boxes: list[BoxState]) -> None:
        self._awaiting_teardown = [box.spec.name for box in boxes]
        self.open_next_teardown()

    def open_next_teardown(self) -> None:
        """Open the tear-down page of the next box that waits for it."""
        if self._awaiting_teardown:
            # The others follow when the fleet screen is on top again, see `on_screen_resume`.
            name, *self._awaiting_teardown = self._awaiting_teardown
            cast("Dashboard", self._screen.app).open_screen("teardown", name)

    def _copy_marked(self, boxes: list[BoxState]) -> None:
        names = "\n".join(box.spec.name for box in boxes)
        copied = ClipboardText(what=f"{how_many(len(boxes), 'name')}", text=names)
        self._screen.hint(copy_to_clipboard(self._screen.app, copied))


def _names_of(boxes: Sequence[BoxState]) -> str:
    """Return the names of a few boxes, or how many there are."""
    most_names = 3
    if len(boxes) <= most_names:
        return ", ".join(box.spec.name for box in boxes)
    return how_many(len(boxes), "box", "boxes")
