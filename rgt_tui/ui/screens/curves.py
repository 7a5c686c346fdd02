"""The curves screen: all runs of a box, or of several boxes, in one plot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace
from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.language import translate
from rgt_tui.model import BoxState, FleetState, ScreenPosition
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import CURVES, Command, build_bindings, key_for
from rgt_tui.ui.curve_words import (
    build_legend_entries,
    compare_chosen_runs,
    copied_table,
    curve_parts,
    heard_part,
    nothing_to_draw,
    step_at_time,
    time_at_crosshair,
)
from rgt_tui.ui.enduring import shorten_path
from rgt_tui.ui.exports import (
    NotExported,
    check_suffix,
    export_points,
    propose_file_name,
    render_png,
    write_export,
)
from rgt_tui.ui.plot.view import NO_AXIS, PlotSettings, RunKey, ShownRun, XAxis, axes_of, metrics_of
from rgt_tui.ui.screens.base import Dashboard, FleetAwareScreen
from rgt_tui.ui.widgets.curve import CurveLegend, CurvePlot, MetricGrid, grid_settings
from rgt_tui.ui.widgets.fixed_lines import HeaderLine, Parts
from rgt_tui.ui.widgets.lines import PaintedGround, RowChosen

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import AveragedRuns, Board

KEPT = "curve_settings"
"""Attribute of the app that keeps the settings for the next curves screen."""


def listed_runs(boxes: Iterable[BoxState], here: str | None) -> tuple[list[ShownRun], int]:
    """Return the runs of some boxes, those of the box `here` first, and how many are left out."""
    found = [ShownRun(box.spec.name, run) for box in boxes for run in box.runs]
    # Sorting is stable: the runs of each box keep their order.
    found.sort(key=lambda each: each.box != here)
    # Maximum runs in the list; the runs with the newest progress are kept.
    most_listed = 200
    if len(found) <= most_listed:
        return found, 0
    newest = sorted(found, key=lambda each: each.run.progressed_at or 0.0, reverse=True)[
        :most_listed
    ]
    # The order of the list stays: colours and numbers depend on it.
    kept = {each.key for each in newest}
    return [each for each in found if each.key in kept], len(found) - len(kept)


class CurvesScreen(FleetAwareScreen):
    """The curves of the runs of a box."""

    KEYS: ClassVar[tuple[Command, ...]] = CURVES
    PLACE: ClassVar[str] = "curves"
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings(KEYS))
    # The legend floats on a layer above the plot; with the class `below` it takes room under it.
    DEFAULT_CSS = """
    CurvesScreen { layout: vertical; }
    CurvesScreen #curves { layout: vertical; layers: plot legend; height: 1fr; }
    CurvesScreen #plot { layer: plot; height: 1fr; width: 1fr; }
    CurvesScreen #grid { layer: plot; height: 1fr; width: 1fr; display: none; }
    CurvesScreen #legend { layer: legend; }
    CurvesScreen.grid #plot, CurvesScreen.grid #legend { display: none; }
    CurvesScreen.grid #grid { display: block; }
    CurvesScreen.below #legend { layer: plot; width: 1fr; }
    """

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self.settings = PlotSettings()
        self.selected: RunKey | None = None
        self.scope: tuple[str, ...] = ()
        """Name patterns of further boxes whose runs are shown; empty = only this box."""
        self._board: Board | None = None
        self._left_out = 0
        self._placed: tuple[object, ...] = ()
        """The state for which the legend was placed."""
        self._beside: tuple[int, int] | None = None
        self._warming = False
        self.grid = False
        """Whether all metrics are shown as small plots; the settings hold the chosen one."""
        self._grid_boards: dict[str, Board] = {}
        self._listed: list[ShownRun] = []
        """All runs of the shown boxes, also while their average is drawn."""
        self._seeds: AveragedRuns | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Return the plot and its legend."""
        yield PaintedGround(
            CurvePlot(id="plot"), MetricGrid(id="grid"), CurveLegend(id="legend"), id="curves"
        )

    def on_resize(self, event: events.Resize) -> None:
        """Place the legend for the new size."""
        self.call_after_refresh(self.redraw_now)

    @property
    def plot_widget(self) -> CurvePlot:
        """The plot."""
        return self.query_one(CurvePlot)

    @property
    def board(self) -> Board:
        """The prepared curves. Created on first use, because it imports numpy."""
        if self._board is None:
            from rgt_tui.ui.plot.board import Board

            self._board = Board()
        return self._board

    def on_mount(self) -> None:
        """Restore the settings of the last curves screen."""
        super().on_mount()
        self._restore_settings()

    def show_for(self, fleet: FleetSource, box_name: str | None) -> None:
        """Restore the settings again: since the screen was mounted, another one was closed."""
        super().show_for(fleet, box_name)
        self._restore_settings()

    def _restore_settings(self) -> None:
        """Restore smoothing, y axes and pinned run of the last curves screen."""
        kept: PlotSettings | None = getattr(self.app, KEPT, None)
        if kept is not None:
            here = self.settings
            # Metric, axis and crosshair are those that this screen was opened with.
            self.settings = replace(kept, metric=here.metric, axis=here.axis, pinned=here.pinned)

    def on_unmount(self) -> None:
        """Save the settings that do not depend on this box for the next screen."""
        if self.box_name is not None:  # None = mounted in advance, and never shown
            setattr(self.app, KEPT, self.settings.for_next_screen())

    def _is_box_shown(self, box: str) -> bool:
        return box == self.box_name or any(fnmatchcase(box, pattern) for pattern in self.scope)

    def shown_boxes(self) -> dict[str, BoxState]:
        """Return the boxes whose runs are shown, by name, including the pinned run's box."""
        pinned = self.settings.reference
        return {
            box.spec.name: box
            for box in (self.fleet_state.boxes if self.fleet_state is not None else ())
            if self._is_box_shown(box.spec.name)
            or (pinned is not None and box.spec.name == pinned.box)
        }

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the curves if a point, a run or a setting changed.

        Always draw the legend with its ages.
        """
        boxes, pinned = self.shown_boxes(), self.settings.reference
        runs, self._left_out = listed_runs(
            (box for box in boxes.values() if self._is_box_shown(box.spec.name)), self.box_name
        )
        # The pinned run stays for comparison, also when its box is no longer among those shown.
        if pinned is not None and not self._is_box_shown(pinned.box) and pinned.box in boxes:
            runs += [
                ShownRun(pinned.box, run)
                for run in boxes[pinned.box].runs
                if run.name == pinned.run
            ]
        if self.spot is not None:
            self._go_to_spot(self.spot, runs)
        self._listed = runs
        if self.settings.over_seeds and not self.grid:
            runs = self._average_runs(runs)
        changed = self.board.update(runs, self.settings, self.selected)
        if self.grid:
            self._show_grid(runs)
            return
        # Most states bring no new point: the plot is left as it is.
        if changed or self.plot_widget.drawn_frame is None:
            self.plot_widget.show_board(
                self.board,
                nothing_to_draw(self.box_state, self.box_name or "", self.settings, runs),
            )
        self._show_legend(boxes, now)
        # Without time it prepares nothing, and returns whether anything is left.
        if not self._warming and self.board.prepare_smoothings(0.0):
            self._warming = True
            self.set_timer(0.05, self._prepare_smoothings)

    def _drawn_average(self) -> AveragedRuns | None:
        if self.settings.over_seeds and not self.grid:
            return self._seeds
        return None

    def _average_runs(self, runs: list[ShownRun]) -> list[ShownRun]:
        """Return the average and the band of the shown runs, as runs of their own."""
        from rgt_tui.ui.plot.board import AveragedRuns

        if self._seeds is None:
            self._seeds = AveragedRuns()
        return self._seeds.summarize(runs, self.settings, self.box_name or "")

    def _show_grid(self, runs: list[ShownRun]) -> None:
        from rgt_tui.ui.plot.board import Board

        metrics = metrics_of(each.run for each in runs)
        self._grid_boards = {
            # The numbers are shared, so that a run has the same colour in every plot.
            metric: self._grid_boards.get(metric) or Board(self.board)
            for metric in metrics
        }
        grid = self.query_one(MetricGrid)
        empty = nothing_to_draw(self.box_state, self.box_name or "", self.settings, runs)
        grid.show_plots(self._grid_boards, metrics, self.settings.metric, empty)
        # Only the plots in sight: a run may log hundreds of metrics.
        for metric in grid.shown_metrics():
            self._grid_boards[metric].update(
                runs, grid_settings(self.settings, metric), self.selected
            )
        grid.redraw()

    def _prepare_smoothings(self) -> None:
        """Prepare smoothings for the next keys, one time slice at a time."""
        # Time slice for preparing smoothings in advance, before a key requests them.
        warm_seconds = 0.015
        self._warming = self.board.prepare_smoothings(warm_seconds)
        if self._warming:
            self.set_timer(0.05, self._prepare_smoothings)

    def legend_title(self) -> str:
        """Return what the values in the legend are."""
        cross = self.settings.crosshair_x
        if cross is None:
            return translate("{metric}, newest", metric=self.settings.metric)
        from rgt_tui.ui.plot.frame import format_axis_value

        word = format_axis_value(self.settings.axis, cross)
        if self.settings.axis is XAxis.STEP:
            at = translate("at step {word}", word=word)
        else:
            at = translate("at {axis} {word}", axis=translate(self.settings.axis.value), word=word)
        return at + (translate(", smoothed") if self.settings.smooth else "")

    def _show_legend(self, boxes: dict[str, BoxState], now: float) -> None:
        legend = self.query_one(CurveLegend)
        legend.show_runs(
            self.legend_title(),
            build_legend_entries(boxes, self.board, now, self.plot_widget.drawn_frame),
            self.selected,
        )
        self._place_legend(legend)

    def _place_legend(self, legend: CurveLegend) -> None:
        """Put the legend into the plot's emptiest corner, or below if a curve is in every corner.

        Once below, it stays there until other runs or settings are shown: the plot is smaller then,
        and a legend that moved with each new point would be worse than either place.
        """
        frame, settings = self.plot_widget.drawn_frame, self.settings
        shown = (
            self.size,
            settings.metric,
            settings.axis,
            settings.hidden,
            self.scope,
            settings.reference,
        )
        room = self.query_one("#curves").size
        if shown != self._placed:
            self._placed, self._beside = shown, None
            # On narrower screens the legend is always below the plot.
            narrow = 70
            self.set_class(self.size.width < narrow, "below")
        if frame is None or self.has_class("below"):
            return self._put_below(legend, room.height)
        most = max(3, frame.canvas.height * 3 // 5)
        # With a pinned run, the differences between the runs matter: they are not left out.
        for brief in (0, 1, 2) if settings.reference is None else (0, 1):
            # The legend may be wider with a pinned run, to show the differences.
            widest = frame.columns * (3 if settings.reference is None else 4) // 5
            width = min(legend.needed_width(brief=brief), max(30, widest))
            height = min(legend.needed_height(brief=brief), most)
            place, covered = frame.choose_corner(width, height, self._beside)
            if not covered:
                break
        if covered and not self._is_crowded(legend, most):
            self.add_class("below")
            return self._put_below(legend, room.height)
        self._beside = place
        self._set_place(legend, place, width, height, brief=brief)
        return None

    def _is_crowded(self, legend: CurveLegend, most: int) -> bool:
        """Return whether the legend would not fit below the plot, either.

        In that case it stays in the plot, in the corner where it hides the least.
        """
        return legend.needed_height(brief=2) > most

    def _put_below(self, legend: CurveLegend, room: int) -> None:
        most = max(2, room // 3)
        self._set_place(legend, (0, 0), 0, min(most, max(2, legend.needed_height())), brief=0)

    def _set_place(
        self, legend: CurveLegend, place: tuple[int, int], width: int, height: int, *, brief: int
    ) -> None:
        wanted = (place, width, height)
        styles = legend.styles
        if wanted != getattr(self, "_last_place", None):
            self._last_place = wanted
            styles.offset = place
            styles.width = width or "1fr"
            styles.height = height
        if legend.brief != brief:
            legend.brief = brief
            legend.redraw()

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return metric, axes, smoothing and decimation."""
        box = self.box_state
        verdict = None
        if box is not None:
            verdict = self.verdict(box)
        heard = heard_part(box, verdict)
        return [
            *heard,
            *curve_parts(
                self.settings,
                self.board,
                self.plot_widget.drawn_frame,
                self._left_out,
                self._drawn_average(),
            ),
        ]

    def _apply_settings(self, settings: PlotSettings) -> None:
        if settings != self.settings:
            self.settings = settings
            self.redraw_now()

    def redraw_now(self) -> None:
        """Redraw, and the header after that: it depends on the frame that drawing makes."""
        super().redraw_now()
        if self.fleet_state is not None:
            self.query_one(HeaderLine).show_parts(
                self.shown_crumbs(), self.header_parts(self.fleet_state, self.now)
            )

    def clear_on_escape(self) -> bool:
        """Leave the grid, or hide the crosshair."""
        if self.grid:
            self.action_toggle_grid()
            return True
        if self.settings.pinned is None:
            return False
        self._apply_settings(replace(self.settings, pinned=None, hover=None))
        return True

    def to_copy(self) -> ClipboardText | None:
        """Return the values in the legend."""
        title = f"{self.settings.metric} {self.legend_title()}"
        if self.settings.crosshair_x is None:
            title = self.legend_title()
        text = copied_table(title, build_legend_entries(self.shown_boxes(), self.board, self.now))
        if text:
            return ClipboardText(what=translate("the values of the runs"), text=text)
        return None

    # Going to a spot, and opening one in the log.

    def _go_to_spot(self, spot: ScreenPosition, runs: list[ShownRun]) -> None:
        """Go to the spot that the screen was opened for, once its run exists."""
        mine = [each for each in runs if each.box == self.box_name and each.run.metrics]
        if not mine:
            return
        # Before the checks, so that a run that does not exist is reported once.
        self.spot = None
        named = [each for each in mine if each.run.name == spot.run]
        if spot.run is not None and not named:
            self.hint(translate("no run {run} here", run=spot.run))
            return
        chosen = (named or sorted(mine, key=lambda each: each.run.progressed_at or 0.0))[-1]
        self.selected = chosen.key
        metrics = metrics_of([chosen.run])
        if self.settings.metric not in metrics and metrics:
            self.settings = replace(self.settings, metric=metrics[0])
        step = float(spot.step) if spot.step is not None else step_at_time(chosen, spot.at)
        if step is None and spot.at is not None:
            self.hint(
                translate("{name} did not log which step it was at then", name=chosen.run.name)
            )
        self.settings = replace(self.settings, axis=XAxis.STEP, pinned=step, hover=None)

    def action_open_log(self) -> None:
        """Open the log of the selected run at the crosshair.

        In the grid, open the chosen metric.
        """
        if self.grid:
            self.action_toggle_grid()
            return
        cross, board = self.settings.crosshair_x, self.board
        here = [
            key
            for key in board.shown_runs
            if cross is not None and board.value_at(key, cross) is not None
        ]
        if cross is None:
            self.hint(
                translate(
                    "{key} and {key_2} put the crosshair on a step first",
                    key=key_for("curves.cross-left"),
                    key_2=key_for("curves.cross-right"),
                )
            )
            return
        chosen = self.selected if self.selected in here else next(iter(here), None)
        each = next((one for one in board.runs if one.key == chosen), None)
        if each is None:
            self.hint(
                translate(
                    "no shown run has that step; {key} and {key_2} select another",
                    key=key_for("curves.next-run"),
                    key_2=key_for("curves.previous-run"),
                )
            )
            return
        step = board.step_at(each.key, cross)
        place = board.find_trace(each.key)
        # The log has the logged steps, and the crosshair may be between two of them.
        if place is not None and step is not None and (index := place.index_at(step)) is not None:
            step = float(place.xs[index])
        from rgt_tui.ui.plot.board import clock_of

        knots = clock_of(each.run)
        box = self.shown_boxes().get(each.box)
        log = None
        if box is not None:
            cells = [
                cell for queue in box.queues for cell in queue.cells if cell.name == each.run.name
            ]
            logs = [cell.log for cell in cells] + [
                one.log for one in box.found if one.name == each.run.name
            ]
            log = next((path for path in logs if path), None)
        step_of_cursor = None
        if step is not None:
            step_of_cursor = int(step)
        at = None
        if knots is not None and step is not None:
            at = knots.x_of(step)
        spot = ScreenPosition(run=each.run.name, step=step_of_cursor, at=at, log=log)
        cast("Dashboard", self.app).open_screen("log", each.box, spot)

    def find_moment(self, box: BoxState) -> tuple[float, BoxState | None] | None:
        """Return when the selected run was at the crosshair; without a crosshair, now."""
        if self.settings.crosshair_x is None:
            return super().find_moment(box)
        at = time_at_crosshair(self.board, self.settings, self.selected, box.spec.name)
        if at is None:
            return None
        return at, None

    # What is shown, and how.

    def action_next_metric(self) -> None:
        """Show the next metric."""
        # Not the board's runs: an average has a single metric.
        metrics = metrics_of(each.run for each in self._listed)
        if len(metrics) < 2:
            if metrics:
                self.hint(translate("{metrics} is the only metric", metrics=metrics[0]))
            else:
                self.hint(translate("no run has logged a metric yet"))
        self._apply_settings(self.settings.next_metric(metrics))

    def _choose_metric(self, by: int) -> None:
        metrics = metrics_of(each.run for each in self.board.runs)
        if metrics:
            here = 0
            if self.settings.metric in metrics:
                here = metrics.index(self.settings.metric)
            at = min(max(0, here + by), len(metrics) - 1)
            self._apply_settings(replace(self.settings, metric=metrics[at]))

    def action_toggle_grid(self) -> None:
        """Switch between all metrics and one."""
        self.grid = not self.grid
        self.set_class(self.grid, "grid")
        self._grid_boards.clear()
        self.plot_widget.forget_frame()
        self.redraw_now()
        # Again, when the widgets have their new sizes.
        self.call_after_refresh(self.redraw_now)

    def on_metric_grid_chosen(self, message: MetricGrid.Chosen) -> None:
        """Choose a plot; a click on the chosen one opens it."""
        if message.metric == self.settings.metric:
            self.action_toggle_grid()
        else:
            self._apply_settings(replace(self.settings, metric=message.metric))

    def action_next_axis(self) -> None:
        """Switch to the next x axis that a run logs; the crosshair stays at its step."""
        known = axes_of(each.run for each in self.board.runs)
        order = list(XAxis)
        here = order.index(self.settings.axis)
        skipped = []
        for turn in range(1, len(order) + 1):
            axis = order[(here + turn) % len(order)]
            if axis in known:
                break
            skipped.append(axis)
        missing = dict.fromkeys(translate(NO_AXIS[axis]) for axis in skipped)
        if missing:
            self.hint("; ".join(missing))
        if self.selected in self.board.shown_runs:
            keys = [self.selected]
        else:
            keys = self.board.shown_runs
        cross, key = self.settings.pinned, next(iter(keys), None)
        if key is not None and cross is not None:
            step = self.board.step_at(key, cross)
        else:
            step = None
        self._apply_settings(
            replace(
                # A window is in units of its axis.
                self.settings,
                axis=axis,
                view=type(self.settings.view)(),
                pinned=None,
                hover=None,
            )
        )
        if key is not None and step is not None:
            # Only now does the board know the new axis.
            self._apply_settings(replace(self.settings, pinned=self.board.x_of(key, step)))

    def action_toggle_log(self) -> None:
        """Switch the y axis between logarithmic and linear."""
        self._apply_settings(self.settings.toggled_log())

    def action_smoother(self) -> None:
        """Use the next smoothing."""
        self._apply_settings(self.settings.next_smoothing())

    def action_toggle_evaluations(self) -> None:
        """Show or hide the evaluations of the loss."""
        self._apply_settings(replace(self.settings, evaluations=not self.settings.evaluations))
        if self.settings.metric != "loss":
            self.hint(
                translate(
                    "evaluations are drawn with the loss; {key} shows it",
                    key=key_for("curves.metric"),
                )
            )

    def action_toggle_seeds(self) -> None:
        """Show the average of the shown runs, or the runs; the average is drawn over steps."""
        on = not self.settings.over_seeds
        self._apply_settings(
            replace(
                self.settings,
                over_seeds=on,
                axis=XAxis.STEP,
                view=type(self.settings.view)(),
                pinned=None,
                hover=None,
            )
        )
        if on and self._seeds is not None and self._seeds.problem:
            self.hint(self._seeds.problem)

    def action_zoom(self, factor: float) -> None:
        """Zoom around the crosshair, or the middle."""
        self._zoom_by(factor, self.settings.crosshair_x)

    def _zoom_by(self, factor: float, about: float | None) -> None:
        closest = self.settings.axis.closest_zoom
        view = self.settings.view.zoom(factor, about, self.board.x_extent, closest)
        self._apply_settings(replace(self.settings, view=view))

    def action_pan(self, share: float) -> None:
        """Move the window; in the grid, choose the next plot in the row."""
        if self.grid:
            self._choose_metric(1 if share > 0 else -1)
            return
        if self.settings.view.is_all:
            self.hint(translate("everything is on screen: + zooms in"))
        self._apply_settings(
            replace(self.settings, view=self.settings.view.pan(share, self.board.x_extent))
        )

    def action_reset_view(self) -> None:
        """Show everything."""
        self._apply_settings(replace(self.settings, view=type(self.settings.view)()))

    def _round_x(self, x: float) -> float:
        """Round an x value for the crosshair to a whole step, second or token."""
        if self.settings.axis is XAxis.EPOCH:
            return x
        return float(round(x))

    def action_cross(self, cells: int) -> None:
        """Move the crosshair by columns; it starts at the right end."""
        frame = self.plot_widget.drawn_frame
        if frame is None:
            return
        now = self.settings.pinned
        # A cell has two columns of dots.
        pace = 2 * frame.per_dot
        if self.settings.axis is not XAxis.EPOCH:
            pace = max(1.0, pace)
        if now is None:
            x = frame.window[1]
        else:
            x = now + cells * pace
        x = min(max(self._round_x(x), frame.window[0]), frame.window[1])
        # The pointer takes precedence, so it would hide the move.
        self._apply_settings(replace(self.settings, pinned=x, hover=None))

    def action_select_run(self, by: int) -> None:
        """Select another run; in the grid, choose the plot below or above."""
        if self.grid:
            self._choose_metric(by * self.query_one(MetricGrid).column_count)
            return
        keys = [each.key for each in self.board.runs]
        if keys:
            if self.selected in keys:
                at = keys.index(self.selected) + by
            elif by > 0:
                at = 0
            else:
                at = -1
            self.selected = keys[at % len(keys)]
            self.redraw_now()

    def action_hide_run(self) -> None:
        """Hide or show the selected run."""
        if self.selected is None:
            self.hint(
                translate(
                    "{key} and {key_2} select a run",
                    key=key_for("curves.next-run"),
                    key_2=key_for("curves.previous-run"),
                )
            )
        else:
            self._apply_settings(self.settings.toggle_run(self.selected))

    def action_only_run(self) -> None:
        """Show only the selected run, or all runs."""
        if self.selected is None:
            self.hint(
                translate(
                    "{key} and {key_2} select a run",
                    key=key_for("curves.next-run"),
                    key_2=key_for("curves.previous-run"),
                )
            )
        else:
            self._apply_settings(
                self.settings.isolate_run(self.selected, (each.key for each in self.board.runs))
            )

    def action_pin_reference(self) -> None:
        """Pin the selected run as reference for the others, or unpin it."""
        if self.selected is None:
            self.hint(
                translate(
                    "{key} and {key_2} select a run to pin",
                    key=key_for("curves.next-run"),
                    key_2=key_for("curves.previous-run"),
                )
            )
        else:
            if self.settings.reference == self.selected:
                pinned = None
            else:
                pinned = self.selected
            self._apply_settings(replace(self.settings, reference=pinned))

    def action_first_difference(self) -> None:
        """Put the crosshair on the first step where two runs differ; name the other settings."""
        found = compare_chosen_runs(self.board, self.settings, self.selected, self.shown_boxes())
        if found.step is not None:
            view = self.settings.view
            if self.settings.axis is not XAxis.STEP:
                view = type(view)()
            at = float(found.step)
            self._apply_settings(
                replace(self.settings, axis=XAxis.STEP, view=view, pinned=at, hover=None)
            )
        self.hint(found.text, 30.0)

    def action_all_boxes(self) -> None:
        """Show the runs of all boxes, or of this box only."""
        self._apply_scope(() if self.scope else ("*",))

    def action_choose_boxes(self) -> None:
        """Open the entry for the boxes whose runs to show."""
        self.open_entry(
            translate("runs of boxes"),
            " ".join(self.scope),
            lambda text: self._apply_scope(tuple(text.split())),
        )

    def action_export(self) -> None:
        """Open the entry for the file name; its suffix decides the format."""
        if not self.board.shown_runs:
            self.hint(translate("nothing to export"))
            return
        self.open_entry(
            translate("write to (.svg .csv .png)"),
            propose_file_name(self.box_name or "fleet", self.settings.metric),
            self._start_export,
        )

    def _start_export(self, name: str) -> None:
        """Collect the shown data here; the file is made in a worker."""
        try:
            name = name.strip()
            ending = check_suffix(name)
        except NotExported as error:
            self.hint(str(error))
            return
        board, settings = self.board, self.settings
        shown = frozenset(board.shown_runs)
        runs = [each for each in board.runs if each.key in shown]
        picture = ""
        if ending != ".csv":
            from rgt_tui.ui.plot.picture import draw_svg

            curves = board.build_curves()
            several = len({each.box for each in runs}) > 1
            by_number = {board.run_number(each.key): each for each in runs}
            listed = [by_number[curve.number] for curve in curves]
            names = [f"{each.box} {each.run.name}" if several else each.run.name for each in listed]
            smooth = ""
            if settings.smooth:
                smooth = translate(", smoothed {share:.2f}", share=settings.smooth)
            title = f"{settings.metric}{smooth}  {'' if several else self.box_name}".rstrip()
            picture = draw_svg(curves, names, title, settings)
        self._write_export(name, ending, picture, runs, settings.metric)

    @work(group="export", exit_on_error=False, description="write the curves to a file")
    async def _write_export(
        self, name: str, ending: str, picture: str, runs: list[ShownRun], metric: str
    ) -> None:
        """Make and write the file in a thread, and show its path."""

        def write_file() -> Path:
            if ending == ".csv":
                content = export_points(runs, metric)
            elif ending == ".png":
                content = render_png(picture)
            else:
                content = picture.encode()
            return write_export(name, content, os.environ)

        export_seconds = 12.0
        try:
            path = await asyncio.to_thread(write_file)
            self.hint(
                translate(
                    "written: {name} in {parent}", name=path.name, parent=shorten_path(path.parent)
                ),
                export_seconds,
            )
        except NotExported as error:
            self.hint(str(error), export_seconds)

    def _apply_scope(self, scope: tuple[str, ...]) -> None:
        self.scope = scope
        names = [name for name in self.shown_boxes() if self._is_box_shown(name)]
        if scope and len(names) < 2:
            if scope != ("*",):
                self.hint(translate("no other box is called {scope}", scope=" ".join(scope)))
            else:
                self.hint(translate("there is no other box"))
        self.redraw_now()

    # The mouse.

    def on_curve_plot_pointed(self, message: CurvePlot.Pointed) -> None:
        """Follow the pointer; a click pins the crosshair, another at the same place unpins it."""
        if message.x is None:
            x = None
        else:
            x = self._round_x(message.x)
        if message.clicked:
            self._apply_settings(
                replace(self.settings, pinned=None if x == self.settings.pinned else x, hover=None)
            )
        else:
            self._apply_settings(replace(self.settings, hover=x))

    def on_curve_plot_zoomed(self, message: CurvePlot.Zoomed) -> None:
        """Zoom around the pointer."""
        self._zoom_by(message.factor, message.x)

    def on_row_chosen(self, message: RowChosen) -> None:
        """Select a run; a click on the selected one hides it or shows it again."""
        if message.opened:
            self.action_hide_run()
        else:
            self.selected = message.key
            self.redraw_now()
