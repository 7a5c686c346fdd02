"""A dialog with what differs between two moments of a box, the likeliest cause first."""

from __future__ import annotations

import time
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.history.moment_fleet import place_of
from rgt_tui.health import MomentChange, MomentComparison, compare_moments
from rgt_tui.language import translate
from rgt_tui.model import BoxState, EventFilter, Happening
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import Command, build_bindings, key_for
from rgt_tui.ui.notation import compact_time, current_glyphs, make_displayable
from rgt_tui.ui.screens.dialogs import TextDialog
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Tone,
    dim_span,
    fit_text,
    label_lines,
    make_line,
    text_of,
)

WHAT_CHANGED: tuple[Command, ...] = (
    Command("changed.close", ("escape", "q", "apostrophe"), "close", "Close the comparison.",
            "close"),
    Command("changed.copy", ("y",), "copy", "Copy the comparison as text.", "copy"),
    Command("changed.page-down", ("pagedown", "ctrl+d", "j", "down"), "page down", "Scroll down.",
            "scroll(1)"),
    Command("changed.page-up", ("pageup", "ctrl+u", "k", "up"), "page up", "Scroll up.",
            "scroll(-1)"),
)  # fmt: skip


class MarkedMoment(NamedTuple):
    """A moment of a box to compare with another."""

    box: str
    at: float
    """Client clock."""
    state: BoxState | None = None
    """Its state, if it was on screen; None = read from the history."""


class MomentMissing(Exception):
    """The history has no state of the box at a moment; the message says why."""


async def read_moment(fleet: FleetSource, moment: MarkedMoment) -> tuple[BoxState, float]:
    """Return the state of a box at a moment, and when it was recorded.

    Raises:
        MomentMissing: nothing was recorded then.
    """
    if moment.state is not None:
        return moment.state, moment.at
    chronicle = fleet.chronicle
    if chronicle is None:
        raise MomentMissing(
            translate("no history is kept here: mark the moments while they are on screen")
        )
    line = await chronicle.read_timeline()
    place = place_of(line, moment.at)
    if place is None:
        raise MomentMissing(translate("nothing was recorded by {at}", at=clock_text(moment.at)))
    found = await chronicle.read_moment(line.ns[place.tick], place.at, frozenset({moment.box}))
    box = found.find_box(moment.box)
    if box is None:
        raise MomentMissing(
            translate(
                "{box} was not in the fleet at {at}", box=moment.box, at=clock_text(moment.at)
            )
        )
    return box, line.ats[place.tick]


def clock_text(at: float) -> str:
    """Return a local time to the second."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def change_lines(found: MomentComparison, width: int) -> list[Line]:
    """Return a comparison as lines: what a person sees, then the causes, then unknown parts."""
    out: list[Line] = []
    for label, changes, tone in (
        ("seen", found.effects, Tone.STRONG),
        ("causes", found.causes, Tone.TEXT),
    ):
        most_rows = 40
        for number, change in enumerate(changes[:most_rows], 1):
            name = fit_text(translate(label), 7)
            if label == "causes":
                name = f"{number:>3}    "
            out += _draw_change(name, change, width, tone)
        if len(changes) > most_rows:
            out.append(
                make_line(dim_span(translate("{changes} more", changes=len(changes) - most_rows)))
            )
        if changes:
            out.append(EMPTY)
    if not found.causes:
        out += label_lines("", translate("nothing that rgt records differs"), width, Tone.STRONG)
    for text in found.unknown:
        out += label_lines("unknown", text, width, Tone.DIM, pad=8)
    return out


def _draw_change(label: str, change: MomentChange, width: int, tone: Tone) -> list[Line]:
    what_width = min(34, max(16, width // 3))
    values = f"{change.before} {current_glyphs().arrow} {change.after}"
    if change.note:
        values += f"   {change.note}"
    rows = label_lines("", values, max(12, width - 8 - what_width), tone, pad=0, most=3)
    first = make_line(
        dim_span(label), fit_text(make_displayable(change.what), what_width), " ", *rows[0]
    )
    return [first, *(make_line(" " * (8 + what_width), *row) for row in rows[1:])]


def event_lines(events: tuple[Happening, ...], width: int) -> list[Line]:
    """Return the warnings and errors between the moments, oldest first."""
    said = [one for one in events if one.level != "info"]
    out: list[Line] = []
    for one in said[-12:]:
        out += label_lines(clock_text(one.at), one.text, width, Tone.DIM, pad=10, most=2)
    if out:
        return [make_line(dim_span(translate("between"))), *out]
    return []


class WhatChangedScreen(TextDialog):
    """Compares two moments of a box.

    Args:
        fleet: Has the history.
        first: A moment.
        second: Another one, earlier or later.
    """

    PLACE = "what changed"
    KEYS: ClassVar[tuple[Command, ...]] = WHAT_CHANGED
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(WHAT_CHANGED)
    DEFAULT_CSS = """
    WhatChangedScreen { align: center middle; }
    WhatChangedScreen > Vertical {
        width: 100%; max-width: 122; height: auto; max-height: 100%; padding: 0 1; background: $background;
        border: round $accent; border-title-color: $foreground; border-subtitle-align: right;
    }
    WhatChangedScreen.ascii > Vertical { border: ascii $accent; }
    WhatChangedScreen VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    """

    def __init__(self, fleet: FleetSource, first: MarkedMoment, second: MarkedMoment) -> None:
        super().__init__()
        self._fleet = fleet
        # They may have been marked in any order.
        self._moments = tuple(sorted((first, second), key=lambda moment: moment.at))
        self.comparison: MomentComparison | None = None
        self._events: tuple[Happening, ...] = ()
        self._text = translate("reading the history")

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys of the dialog."""
        return WHAT_CHANGED

    def compose(self) -> ComposeResult:
        """Lay out the lines."""
        with Vertical() as page:
            first, second = self._moments
            span = compact_time(second.at - first.at)
            arrow = current_glyphs().arrow
            times = f"{clock_text(first.at)} {arrow} {clock_text(second.at)}, {span}"
            page.border_title = Content(
                make_displayable(
                    translate("what changed on {box}: {times}", box=first.box, times=times)
                )
            )
            page.border_subtitle = Content(
                translate(
                    "{key} copies · {key_2} closes",
                    key=key_for("changed.copy"),
                    key_2=key_for("changed.close"),
                )
            )
            with VerticalScroll():
                yield FittedLines(self._make_lines)

    def on_mount(self) -> None:
        """Read the moments in a worker."""
        self.set_class(not current_glyphs().braille, "ascii")
        self.run_worker(self._read_moments(), exit_on_error=False)

    async def _read_moments(self) -> None:
        first, second = self._moments
        try:
            before, then = await read_moment(self._fleet, first)
            after, _ = await read_moment(self._fleet, second)
            self.comparison = compare_moments(before, after)
            if self._fleet.chronicle is not None:
                wanted = EventFilter(box=first.box, since=first.at, until=second.at)
                page = await self._fleet.chronicle.read_event_page(wanted, None, 200)
                self._events = page.rows
            self._text = ""
            # A moment is recorded each minute; a longer gap is worth a remark.
            if first.at - then > 90.0:
                self._text = translate(
                    "the first moment was recorded at {then}", then=clock_text(then)
                )
        except MomentMissing as error:
            self._text = str(error)
        except Exception as error:
            self._text = translate("the history cannot be read: {error}", error=error)
        self.query_one(FittedLines).update()

    def _make_lines(self, width: int) -> list[Line]:
        out: list[Line] = []
        if self._text:
            out += label_lines("", self._text, width, Tone.WARN, pad=0)
        if self.comparison is not None:
            out += change_lines(self.comparison, width)
            out += event_lines(self._events, width)
        return out

    def to_copy(self) -> ClipboardText:
        """Return the comparison as text."""
        text = "\n".join(text_of(row).rstrip() for row in self._make_lines(110))
        return ClipboardText(what=translate("what changed"), text=text)
