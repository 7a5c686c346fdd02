"""The loss of the selected box's most relevant run, as a small plot next to the fleet."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, NamedTuple, cast

from textual import work
from textual.message import Message

from rgt_tui.language import translate
from rgt_tui.model import BoxState, RunResume, RunState
from rgt_tui.profiles import no_agent
from rgt_tui.ui.box_status import current_run
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import number_or_dash
from rgt_tui.ui.plot.view import PlotSettings, ShownRun
from rgt_tui.ui.widgets.curve import CurvePlot
from rgt_tui.ui.widgets.panes import draw_frame
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim_span, make_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual import events

    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.frame import PlotFrame

METRIC = "loss"
BARE = PlotSettings(metric=METRIC, evaluations=False, best=False)
BOARD = "rgt_tui.ui.plot.board"
"""Imports numpy, which takes 0.1 s, so it is loaded in a thread when the first curve arrives."""


def board_class() -> type[Board] | None:
    """Return the board class once it is loaded, else None.

    A module that another thread is still importing may not have all of its names yet.
    """
    found: type[Board] | None = getattr(sys.modules.get(BOARD), "Board", None)
    return found


def telling_run(box: BoxState) -> RunState | None:
    """Return the most relevant run: the worst finding's, or the current, or the last one."""
    named = [finding.run for finding in box.findings if finding.run and not finding.cleared]
    for name in named:
        for run in box.runs:
            if run.name == name and run.series.get(METRIC):
                return run
    current = current_run(box)
    if current is not None:
        return current
    # the current cell may not have logged anything yet
    told = [run for run in box.runs if run.series.get(METRIC)]
    return max(told, key=lambda run: run.progressed_at or 0.0, default=None)


class DrawnPart(NamedTuple):
    """How much of a run's curve was drawn."""

    run: str
    resumes: tuple[RunResume, ...]
    dropped: int
    points: int
    """Number of points; dropped ones are not counted."""


def measure_drawn(run: RunState) -> DrawnPart:
    """Return the extent of a run's whole curve."""
    series = run.series[METRIC]
    return DrawnPart(run.name, run.resumes, series.dropped, len(series))


def frame_still_fits(frame: PlotFrame, seen: DrawnPart, run: RunState) -> bool:
    """Return whether a plot drawn from `seen` is still right: new points add no column of dots."""
    now = measure_drawn(run)
    if now[:3] != seen[:3] or now.points < seen.points:
        return False
    # A value within a dot of the edge is drawn at the edge.
    end, dot = frame.window[1], (frame.high - frame.low) / max(1, frame.canvas.dot_size[1])
    points = (run.series[METRIC][index] for index in range(seen.points, now.points))
    return all(
        end <= step < end + frame.per_dot and frame.low - dot <= value <= frame.high + dot
        for step, value in cast("Iterable[tuple[int, float]]", points)
    )


class LossPane(CurvePlot):
    """The curve in its own frame; a click opens all curves."""

    HINTS_CLICK = False

    DEFAULT_CSS = "LossPane { height: 1fr; }"

    class Opened(Message):
        """The pane was clicked."""

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._kept: Board | None = None
        self._body: tuple[tuple[int, int], list[Line]] | None = None
        """The drawn plot, and its size."""
        self._seen: DrawnPart | None = None
        """How much of the curve the plot shows."""
        self._run: RunState | None = None
        self._box = ""
        self._dim = False
        self._failed = self._none = ""

    def show_box(self, box: BoxState | None, *, stale: bool) -> None:
        """Show the most relevant run of a box; nothing if no box is selected."""
        if box is None:
            run = None
        else:
            run = telling_run(box)
        if box is not None and no_agent(box):
            self._none = translate("no agent on the box: no curve")
        else:
            self._none = translate("no run yet")
        name = "" if box is None else box.spec.name
        # Another box may have a run of the same name: its curve must not pass as this one's.
        if name != self._box:
            self._kept = self._body = None
        changed = (name, run is None, stale) != (self._box, self._run is None, self._dim)
        newer = run is not self._run
        self._box, self._run, self._dim = name, run, stale
        if run is not None and run.series.get(METRIC) and newer:
            if board_class() is None:
                self._load_board()
            # Most points of a long run move no dot: the plot is still right.
            elif self._still_shows(run):
                self._seen = measure_drawn(run)
            else:
                self._feed_board(run)
        if changed or newer:
            self.redraw()

    def _still_shows(self, run: RunState) -> bool:
        if self._body is None:
            drawn = None
        else:
            drawn = self._frame
        return (
            drawn is not None
            and self._seen is not None
            and frame_still_fits(drawn, self._seen, run)
        )

    def _feed_board(self, run: RunState) -> None:
        shown = ShownRun(self._box, run)
        if self._kept is None or self._kept.runs[0].key != shown.key:
            made = board_class()
            assert made is not None
            # A new board gives the run the first colour, as every run has here.
            self._kept = made()
        self._kept.update((shown,), BARE, None)
        self._seen, self._body = measure_drawn(run), None

    @work(exclusive=True, group="plot", exit_on_error=False, description="load what draws curves")
    async def _load_board(self) -> None:
        """Import the board in a thread, so that the screen stays responsive."""
        try:
            await asyncio.to_thread(importlib.import_module, BOARD)
        except ImportError as error:
            self._failed = translate("this cannot be drawn: {error}", error=error)
        else:
            if self._run is not None and self._run.series.get(METRIC):
                self._feed_board(self._run)
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the frame and the plot in it."""
        if not self._box or width < 12 or height < 4:
            return []
        run = self._run
        has = run is not None and bool(run.series.get(METRIC))
        self._board = self._kept if has else None
        if run is None:
            self._empty = (self._none,)
        else:
            if run.loss is None:
                nothing = translate("no loss logged")
            else:
                nothing = translate("its curve was not kept")
            self._empty = (self._failed or ("" if has else nothing),)
        size = (width - 4, height - 2)
        if not has or self._body is None or self._body[0] != size:
            body = super().make_lines(*size)
            if self._frame is None:
                self._body = None
            else:
                self._body = (size, body)
        else:
            body = self._body[1]
        title, hint = make_line(translate("loss")), EMPTY
        if run is not None:
            tone = Tone.TEXT
            if self._dim:
                tone = Tone.DIM
            newest = make_line(dim_span("  "), Span(number_or_dash(run.loss), tone))
            shown_newest = EMPTY
            if has:
                shown_newest = newest
            title = make_line(translate("loss  "), Span(run.name, Tone.STRONG), shown_newest)
            hint = make_line(dim_span(key_for("box.curves")))
        return draw_frame(body, width, height, title=title, hint=hint)

    def on_click(self, event: events.Click) -> None:
        """Open the curves."""
        self.post_message(self.Opened())
