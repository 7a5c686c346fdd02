"""The curves screen at 100 runs of a million points: a pan, a change of the smoothing, and what they cost before."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import Row, say
from rgt_tui.model import RunState, Series
from rgt_tui.ui.plot import (
    SMOOTHING,
    AxisWindow,
    Board,
    Floats,
    PlotSettings,
    RunningAverage,
    ShownRun,
)
from rgt_tui.ui.widgets import clip_line
from rgt_tui.ui.widgets.curve import tone_row

GOAL_MS = 50.0
SIZE = (200, 46)
"""Cells of the plot on a terminal of 200 by 50."""
KEEP = SMOOTHING[2]
TIMES = 9


def cpu_ms(work: Callable[[], object], times: int = TIMES) -> float:
    """Milliseconds of processor time, the median of some times."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        work()
        spent.append((time.process_time() - start) * 1000)
    return statistics.median(spent)


def noisy_loss(points: int, seed: int) -> Series:
    """A loss as trainings have it: it falls, and every step is off by some."""
    rng = np.random.default_rng(seed)
    steps = np.arange(points)
    values = 1.5 + 3 * np.exp(-6 * steps / points) + 0.1 * rng.normal(size=points)
    return Series(steps.tolist(), values.tolist())


def one_by_one(values: list[float], keep: float) -> list[float]:
    """The average as it was calculated before: a value at a time."""
    total = weight = 0.0
    means = []
    for value in values:
        if value == value:
            total = keep * total + (1 - keep) * value
            weight = keep * weight + 1 - keep
            means.append(total / weight)
        else:
            means.append(value)
    return means


def every_point(
    curves: list[tuple[Floats, Floats]], window: tuple[float, float], columns: int
) -> None:
    """Columns as they were made before: from all points on screen, curve by curve."""
    edges = np.linspace(*window, columns + 1)
    rows = np.arange(4 * SIZE[1], dtype=np.float64)[:, None]
    for xs, ys in curves:
        cut = np.searchsorted(xs, edges)
        filled = np.flatnonzero(cut[1:] > cut[:-1])
        seen = np.log(np.where(ys[cut[0] : cut[-1]] > 0, ys[cut[0] : cut[-1]], math.nan))
        starts = cut[:-1][filled] - cut[0]
        top, bottom = np.fmax.reduceat(seen, starts), np.fmin.reduceat(seen, starts)
        (rows >= top) & (rows <= bottom)


def curves_cases(quick: bool) -> list[Row]:
    """The rows of the curves screen."""
    runs, points = (20, 100_000) if quick else (100, 1_000_000)
    shown = []
    for number in range(runs):
        if (
            number % 25 == 0
        ):  # some runs share their points here, so that these fit into memory as lists
            series = noisy_loss(points, number)
        shown.append(ShownRun("box", RunState(f"run-{number}", series={"loss": series})))
    board = Board()
    board.update(shown, PlotSettings(), None)
    for each in shown:
        trace = board.find_trace(each.key)
        assert trace is not None
        trace.smoothed_path(KEEP)  # the screen prepares it between two redraws
    say(f"ui: {runs} runs of {points:,} points are ready")

    def draw(settings: PlotSettings) -> None:
        board.update(shown, settings, None)
        frame = board.draw_plot_frame(SIZE)
        assert frame is not None
        for row in frame.rows:
            clip_line(tone_row(row), SIZE[0])

    views = iter(
        [AxisWindow(points / 2, points / 2 + place * points / 64) for place in range(1, 4 * TIMES)]
    )
    draw(PlotSettings())
    pan = cpu_ms(lambda: draw(PlotSettings(view=next(views))))
    draw(PlotSettings(smooth=KEEP))
    turns = iter([KEEP, 0.0] * TIMES)
    smooth = cpu_ms(lambda: draw(PlotSettings(smooth=next(turns))))
    raw = [
        (trace.xs, trace.ys) for each in shown if (trace := board.find_trace(each.key)) is not None
    ]
    before = cpu_ms(lambda: every_point(raw, (points / 4, 3 * points / 4), 2 * SIZE[0]), 3)
    values = raw[0][1]
    one = cpu_ms(lambda: RunningAverage(KEEP).append_new(values), 5)
    old = cpu_ms(lambda: one_by_one(values.tolist(), KEEP), 3)
    many = f"{runs} runs of {points:,} points"
    return [
        Row(
            "curves_pan_ms",
            pan,
            f"ms of CPU, {many}",
            pan / before,
            "all points on screen",
            goal=GOAL_MS,
        ),
        Row("curves_smooth_ms", smooth, f"ms of CPU, {many}", goal=GOAL_MS),
        Row(
            "curves_average_ms",
            one,
            f"ms of CPU, {points:,} points",
            one / old,
            "a value at a time",
            goal=GOAL_MS,
        ),
    ]
