"""Curves: every run of a box over its steps, overlaid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet.source import FleetSource
from rgt_tui.model.box import BoxState
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.commands import Command, bindings
from rgt_tui.ui.format import clean
from rgt_tui.ui.plot.settings import Settings, metrics_of
from rgt_tui.ui.screens.base import FleetAwareScreen
from rgt_tui.ui.screens.curves_keys import CURVES
from rgt_tui.ui.screens.curves_text import curve_parts, entries, nothing_to_draw
from rgt_tui.ui.widgets.curve import CurvePlot
from rgt_tui.ui.widgets.curve_legend import CurveLegend
from rgt_tui.ui.widgets.headline import HeaderLine, Parts

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board

WIDE = 100
"""From this width on the legend stands beside the plot, not under it."""


class CurvesScreen(FleetAwareScreen):
    """Loss over step for all runs of one box."""

    KEYS: ClassVar[tuple[Command, ...]] = CURVES
    PLACE: ClassVar[str] = "curves"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(KEYS))
    DEFAULT_CSS = """
    CurvesScreen { layout: vertical; }
    CurvesScreen #plot { height: 1fr; width: 1fr; margin: 0 1 0 0; }
    CurvesScreen #legend { height: 6; width: 1fr; }
    CurvesScreen #curves { layout: vertical; height: 1fr; margin: 0 0 1 0; }
    CurvesScreen.wide #curves { layout: horizontal; }
    CurvesScreen.wide #legend { height: 1fr; width: 40; }
    CurvesScreen.huge #legend { width: 56; }
    """

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self.settings = Settings()
        self.selected: str | None = None
        self._board: Board | None = None

    def body(self) -> Iterable[Widget]:
        """Return the plot and its legend."""
        yield Widget(CurvePlot(id="plot"), CurveLegend(id="legend"), id="curves")

    def on_resize(self, event: events.Resize) -> None:
        """Put the legend beside the plot where there is room."""
        self.set_class(event.size.width >= WIDE, "wide")
        self.set_class(event.size.width >= 160, "huge")

    @property
    def plot(self) -> CurvePlot:
        """The plot."""
        return self.query_one(CurvePlot)

    @property
    def board(self) -> Board:
        """The prepared curves. Made with the first look at this screen, as it needs numpy."""
        if self._board is None:
            from rgt_tui.ui.plot.board import Board

            self._board = Board()
        return self._board

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the curves if a point, a run or a choice is new; the legend shows ages and is always drawn."""
        box = self.box
        runs = box.runs if box is not None else ()
        changed = self.board.update(runs, self.settings, self.selected)
        if changed or self.plot.frame is None:
            self.plot.show(self.board, nothing_to_draw(box, self.box_name or "", self.settings))
        self._show_legend(box, now)

    def _show_legend(self, box: BoxState | None, now: float) -> None:
        cross = self.settings.cross
        title = f"{clean(self.settings.metric)}, newest"
        if cross is not None:
            title = f"at step {cross:,.0f}" + (", smoothed" if self.settings.smooth else "")
        legend = self.query_one(CurveLegend)
        found = entries(box, self.board, now)
        stale = box is None or box.sample_at is None or now - box.sample_at > 3 * box.spec.interval
        legend.show(title, found, self.selected, stale=stale)
        if not self.has_class("wide"):
            most = max(2, (self.size.height - 3) // 3)
            legend.styles.height = min(most, max(2, legend.needed()))

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return metric, axes, smoothing and decimation."""
        return curve_parts(self.settings, self.board, self.plot.frame)

    def _change(self, settings: Settings) -> None:
        if settings != self.settings:
            self.settings = settings
            self.redraw_now()

    def redraw_now(self) -> None:
        """Draw, and the header again: it depends on the frame, which is made by drawing."""
        super().redraw_now()
        if self.fleet_state is not None:
            self.query_one(HeaderLine).show(self.crumbs(), self.summary(self.fleet_state, self.now))

    def clear(self) -> bool:
        """Take the crosshair away."""
        if self.settings.pinned is None:
            return False
        self._change(replace(self.settings, pinned=None, hover=None))
        return True

    def action_next_metric(self) -> None:
        """Show the next metric."""
        metrics = metrics_of(self.box.runs) if self.box is not None else []
        if len(metrics) < 2:
            self.hint(f"{metrics[0]} is the only metric" if metrics else "no run has logged a metric yet")
        self._change(self.settings.next_metric(metrics))

    def action_toggle_log(self) -> None:
        """Change the y axis."""
        self._change(self.settings.toggled_log())

    def action_smoother(self) -> None:
        """Take the next smoothing."""
        self._change(self.settings.smoother())

    def action_zoom(self, factor: float) -> None:
        """Zoom around the crosshair, or the middle."""
        view = self.settings.view.zoom(factor, self.settings.cross, self.board.extent)
        self._change(replace(self.settings, view=view))

    def action_pan(self, share: float) -> None:
        """Move the window."""
        if self.settings.view.is_all:
            self.hint("everything is on screen: + zooms in")
        self._change(replace(self.settings, view=self.settings.view.pan(share, self.board.extent)))

    def action_reset_view(self) -> None:
        """Show everything."""
        self._change(replace(self.settings, view=type(self.settings.view)()))

    def action_cross(self, cells: int) -> None:
        """Move the crosshair by columns; it enters from the right."""
        frame = self.plot.frame
        if frame is None:
            return
        now = self.settings.pinned
        pace = max(1.0, 2 * frame.steps_per_dot)
        step = frame.window[1] if now is None else now + cells * pace
        step = min(max(float(round(step)), frame.window[0]), frame.window[1])
        self._change(replace(self.settings, pinned=step, hover=None))

    def action_select_run(self, by: int) -> None:
        """Select another run."""
        names = [run.name for run in self.box.runs] if self.box is not None else []
        if names:
            at = names.index(self.selected) + by if self.selected in names else (0 if by > 0 else -1)
            self.selected = names[at % len(names)]
            self.redraw_now()

    def action_hide_run(self) -> None:
        """Hide or show the selected run."""
        if self.selected is None:
            self.hint("j and k select a run")
        else:
            self._change(self.settings.toggled(self.selected))

    def action_only_run(self) -> None:
        """Show the selected run alone, or all."""
        if self.selected is None or self.box is None:
            self.hint("j and k select a run")
        else:
            self._change(self.settings.only(self.selected, (run.name for run in self.box.runs)))

    def on_curve_plot_pointed(self, message: CurvePlot.Pointed) -> None:
        """Follow the pointer; a click pins the crosshair, a second one on the same place frees it."""
        step = None if message.step is None else float(round(message.step))
        if message.clicked:
            self._change(
                replace(self.settings, pinned=None if step == self.settings.pinned else step, hover=None)
            )
        else:
            self._change(replace(self.settings, hover=step))

    def on_curve_plot_zoomed(self, message: CurvePlot.Zoomed) -> None:
        """Zoom around the pointer."""
        view = self.settings.view.zoom(message.factor, message.step, self.board.extent)
        self._change(replace(self.settings, view=view))

    def on_curve_legend_picked(self, message: CurveLegend.Picked) -> None:
        """Select a run; a click on the selected one hides it or shows it again."""
        if message.run == self.selected:
            self.action_hide_run()
        else:
            self.selected = message.run
            self.redraw_now()
