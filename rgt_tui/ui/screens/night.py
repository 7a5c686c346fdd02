"""The night ahead: the time machine turned forward, until tomorrow noon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.fleet.history.night_forecast import (
    NightAdvice,
    NightForecast,
    forecast_night,
    night_lines,
)
from rgt_tui.fleet.history.spoken_times import day_and_clock
from rgt_tui.language import translate
from rgt_tui.model import FleetState
from rgt_tui.ui.box_status import level_tone
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.commands import NIGHT, Command, build_bindings
from rgt_tui.ui.notation import make_displayable
from rgt_tui.ui.screens.base import FleetAwareScreen
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import Line, Span, clip_line, dim_span, make_line


class NightScreen(FleetAwareScreen):
    """What each box will probably do, what it costs by seven, and commands worth running now."""

    PLACE = "night"
    KEYS: ClassVar[tuple[Command, ...]] = NIGHT
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)
    DEFAULT_CSS = "NightScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }"

    def __init__(self, fleet: FleetSource, box_name: str | None = None) -> None:
        # The night is about all boxes.
        super().__init__(fleet, None)
        self.forecast: NightForecast | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Return the forecast; it scrolls."""
        with VerticalScroll():
            yield FittedLines(self._make_lines)

    def show_state(self, state: FleetState, now: float) -> None:
        """Forecast again."""
        boxes = [(box, self.fleet.profile_of(box.spec.name)) for box in state.boxes]
        self.forecast = forecast_night(boxes, now)
        self.query_one(FittedLines).update()

    def _make_lines(self, width: int) -> list[Line]:
        if self.forecast is None:
            return []
        return [
            clip_line(make_line(Span(make_displayable(line.text), level_tone(line.level))), width)
            for line in night_lines(self.forecast, width)
        ]

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the time span of the forecast."""
        if self.forecast is None:
            return []
        return [
            (
                0,
                make_line(
                    dim_span(translate("from {now} until noon", now=day_and_clock(now, now)))
                ),
            )
        ]

    def action_follow_advice(self, number: int) -> None:
        """Open the command of an advice: its dry run first. A command that reads an address is copied."""
        advice: tuple[NightAdvice, ...] = ()
        if self.forecast is not None:
            advice = self.forecast.advice
        if number > len(advice):
            self.hint(translate("there is no advice {number}", number=number))
            return
        one = advice[number - 1]
        if not one.command:
            self.hint(one.why)
            return
        if one.command.startswith("notify"):
            text = f"rgt {one.command}"
            copied = copy_to_clipboard(self.app, ClipboardText(what=text, text=text))
            self.hint(
                translate(
                    "it reads the address from standard input: run it in a shell. {copied}",
                    copied=copied,
                )
            )
            return
        from rgt_tui.ui.screens.command import CommandScreen

        # The person completes `--confirm` with the name of the box.
        self.app.push_screen(CommandScreen(self.fleet, [one.box], f"{one.command} --confirm "))

    def action_scroll(self, pages: int) -> None:
        """Scroll by half a page."""
        part = self.query_one(VerticalScroll)
        part.scroll_relative(y=pages * max(1, part.size.height // 2), animate=False)

    def to_copy(self) -> ClipboardText | None:
        """Return the whole forecast as text."""
        if self.forecast is None:
            return None
        lines = night_lines(self.forecast, 120)
        return ClipboardText(
            what=translate("the night ahead"), text="\n".join(line.text.rstrip() for line in lines)
        )
