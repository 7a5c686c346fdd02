"""Curves: every run of a box over its steps, overlaid; its keys, and what it says in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.model.box import BoxState
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.protocol import Cell
from rgt_tui.model.run import RunState
from rgt_tui.profiles.readings import how_many
from rgt_tui.ui.commands import BOX_TARGET, Command, bindings
from rgt_tui.ui.notation import clean, glyphs, thousands
from rgt_tui.ui.plot.view import Settings, metrics_of
from rgt_tui.ui.screens.base import FleetAwareScreen
from rgt_tui.ui.widgets.curve import CurveLegend, CurvePlot, Entry
from rgt_tui.ui.widgets.fixed_lines import HeaderLine, Parts
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, line

if TYPE_CHECKING:
    from rgt_tui.ui.plot.frame import Board, Frame

CURVES: tuple[Command, ...] = (
    Command("curves.metric", ("m",), "metric",
            "Show the next metric: loss, val_loss, lr, then any others.", "next_metric", footer=1),
    Command("curves.log", ("y",), "log", "Switch the y axis between logarithmic and linear.", "toggle_log", footer=2),
    Command("curves.smooth", ("s",), "smooth",
            "Smooth with an exponential moving average: 0, 0.6, 0.9, 0.97.", "smoother", footer=3),
    Command("curves.zoom-in", ("plus", "equals_sign"), "zoom",
            "Zoom in around the crosshair.", "zoom(0.5)", footer=4),
    Command("curves.zoom-out", ("minus",), "zoom out", "Zoom out.", "zoom(2.0)"),
    Command("curves.pan-left", ("left",), "earlier", "Move the window to earlier steps.", "pan(-0.25)"),
    Command("curves.pan-right", ("right",), "later",
            "Move the window to later steps; at the end it follows the newest.", "pan(0.25)"),
    Command("curves.reset", ("0",), "all", "Show all steps and follow the newest.", "reset_view"),
    Command("curves.cross-left", ("left_square_bracket",), "crosshair",
            "Read the values at an earlier step.", "cross(-1)", footer=5),
    Command("curves.cross-right", ("right_square_bracket",), "crosshair later",
            "Read the values at a later step.", "cross(1)"),
    Command("curves.next-run", ("j", "down"), "next run",
            "Select the next run; it is drawn on top.", "select_run(1)"),
    Command("curves.previous-run", ("k", "up"), "previous run", "Select the previous run.", "select_run(-1)"),
    Command("curves.hide", ("space",), "hide", "Hide the selected run, or show it again.", "hide_run"),
    Command("curves.only", ("v",), "only this", "Show the selected run alone, or all of them.", "only_run"),
    *(replace(command, footer={"box.phases": 6, "box.teardown": 7}.get(command.id, 0))
      for command in BOX_TARGET if command.id != "box.curves"),
)  # fmt: skip
"""Keys of the curves; those of the box are there, too."""


MOST_NOTES = 3


def curve_parts(settings: Settings, board: Board, frame: Frame | None) -> Parts:
    """Return the right end of the header."""
    log = settings.log if frame is None else frame.log
    y = "log" if log else "linear"
    if settings.log and not log:
        y = "linear (nothing above 0)"
    total = len(board.runs)
    smooth = f"{settings.smooth:.2f}" if settings.smooth else "off"
    parts: Parts = [
        (1, _pair("", clean(settings.metric))),
        (6, _pair("x ", "step")),
        (2, _pair("y ", y)),
        (3, _pair("smooth ", smooth)),
        (5, _pair("", f"{len(board.shown)} of {how_many(total, 'run')}")),
    ]
    if frame is not None:
        parts.append((4, _pair("", density(frame.steps_per_dot))))
        if not settings.view.is_all:
            window = f"{frame.window[0]:,.0f} to {frame.window[1]:,.0f}"
            parts.append(
                (5, _pair("window ", window if settings.view.right is not None else f"{window}, following"))
            )
    return parts


def _pair(name: str, value: str) -> Line:
    return line(dim(name), Span(value))


def density(steps_per_dot: float) -> str:
    """Say how many steps share a column of dots, or how many columns a step has."""
    if steps_per_dot >= 0.75:
        few = steps_per_dot < 9.5 and abs(steps_per_dot - round(steps_per_dot)) > 0.05
        count = f"{steps_per_dot:.1f}" if few else f"{steps_per_dot:,.0f}"
        return f"1 px = {count} step" + ("" if count == "1" else "s")
    return f"1 step = {1 / max(steps_per_dot, 1e-9):,.0f} px"


def nothing_to_draw(box: BoxState | None, name: str, settings: Settings) -> tuple[str, ...]:
    """Say why the plot is empty, and what to do."""
    name = clean(name)
    if box is None:
        return (f"{name} is no longer in the fleet.", "q goes back.")
    if not box.runs and box.sample is None:
        return (
            f"Nothing is known about {name} yet: {clean(box.reason) or box.link.value}.",
            "r connects now.",
        )
    if not box.runs:
        waiting = sum(cell.state == "waiting" for queue in box.queues for cell in queue.cells)
        queue = (
            f"{how_many(waiting, 'cell')} waiting in the queue."
            if waiting
            else "Start a queue on the box, or name its job directory in the fleet file."
        )
        return (f"No run of {name} has logged a point yet.", queue, "l shows the log, p the phases.")
    metrics = metrics_of(box.runs)
    if not metrics:
        return (f"The runs of {name} have started, but none has logged a point yet.", "l shows the log.")
    if settings.metric not in metrics:
        return (f"No run of {name} has {clean(settings.metric)}.", f"m shows {clean(metrics[0])}.")
    return (
        "Every run with this metric is hidden.",
        "space shows the selected one, v all of them, m another metric.",
    )


def entries(box: BoxState | None, board: Board, now: float) -> list[Entry]:
    """Return the legend's entries, one per run."""
    if box is None:
        return []
    cells = {cell.name: cell for queue in box.queues for cell in queue.cells}
    shown = frozenset(board.shown)
    return [_entry(run, cells.get(run.name), board, now, shown=run.name in shown) for run in box.runs]


def _entry(run: RunState, cell: Cell | None, board: Board, now: float, *, shown: bool) -> Entry:
    settings = board.settings
    series = run.series.get(settings.metric)
    cross = settings.cross
    if cross is not None:
        value = board.value_at(run.name, cross)
    else:
        value = series.last[1] if series is not None and series.last is not None else None
    state = cell.state if cell is not None else ""
    age = now - run.progressed_at if state in {"running", ""} and run.progressed_at is not None else None
    step = (
        run.step if run.step is not None else (series.last[0] if series is not None and series.last else None)
    )
    return Entry(
        run.name, board.number(run.name), value, state, step, age,
        shown=shown, notes=notes(run, board),
    )  # fmt: skip


def notes(run: RunState, board: Board) -> tuple[tuple[str, Tone], ...]:
    """Return what happened to a curve: resumes, and gaps with their place; the newest few."""
    g = glyphs()
    up, cross = ("⇡", "╳") if g.braille else ("^", "X")
    found: list[tuple[float, str, Tone]] = []
    for resume in run.resumes:
        reason = f" after {clean(resume.reason)}" if resume.reason else ""
        found.append((float(resume.step), f"{up} resumed from {thousands(resume.step)}{reason}", Tone.DIM))
    for gap in board.gaps(run.name):
        steps = f", {gap.count} steps" if gap.count > 1 else ""
        undone = ", since redone" if gap.lost else ""
        text = f"{cross} {gap.kind} at {thousands(gap.first)}{steps}{undone}"
        found.append((gap.first, text, Tone.DIM if gap.lost else Tone.WARN))
    found.sort(key=lambda note: note[0])
    older = len(found) - MOST_NOTES
    shown = [(text, tone) for _, text, tone in found[max(0, older) :]]
    if older > 0:
        shown.insert(0, (f"{older} earlier", Tone.DIM))
    return tuple(shown)


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
            from rgt_tui.ui.plot.frame import Board

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
