"""What the curves screen says in words: header, legend, and what to do while there is nothing to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_tui.model.box import BoxState
from rgt_tui.model.protocol import Cell
from rgt_tui.model.run import RunState
from rgt_tui.ui.format import clean, thousands
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.plot.settings import Settings, metrics_of
from rgt_tui.ui.widgets.curve_legend import Entry
from rgt_tui.ui.widgets.headline import Parts
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, line

if TYPE_CHECKING:
    from rgt_tui.ui.plot.board import Board
    from rgt_tui.ui.plot.frame import Frame

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
        (5, _pair("", f"{len(board.shown)} of {total} " + ("run" if total == 1 else "runs"))),
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
            f"{waiting} cell{'' if waiting == 1 else 's'} waiting in the queue."
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
