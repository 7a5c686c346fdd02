"""Curves: a loss that is no number, and one that jumps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from rgt_tui.alerts.kind import Reading
from rgt_tui.health.facts import Facts
from rgt_tui.model.run import RunState

LOOK_BACK = 49
"""Points that say what is usual."""
LEAST = 30
"""Fewer points say nothing: a short curve has no usual."""
NEWEST = 3
"""So many points in a row must be high: one bad batch is no spike."""
TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, of a normal distribution."""
FLOOR = 0.01
"""Part of the usual loss below which no scatter is believed: a flat curve must not make a spike of a ripple."""
MOST_BAD = 50


def _runs(view: Facts) -> Iterator[RunState]:
    """Runs that go on: those of running cells, and those of trainings outside of the queues."""
    for _, _, run in view.running:
        if run is not None:
            yield run
    for runs in view.beside:
        yield from runs


def _attempt(run: RunState) -> tuple[list[float], int, int] | None:
    """Return the losses and where the present attempt begins and ends in them."""
    loss = run.series.get("loss")
    if loss is None or not len(loss):
        return None
    _, values, count = loss.columns()
    return values, run.resumes[-1].index if run.resumes else 0, count


def read_nan(view: Facts) -> Sequence[Reading] | None:
    """How many losses in a row, the newest included, are not finite."""
    if view.blind:
        return None
    found = []
    for run in _runs(view):
        if run.loss is None:
            continue
        if math.isfinite(run.loss):
            found.append(Reading(run.name, 0.0, run))
            continue
        attempt = _attempt(run)
        bad = 1
        if attempt is not None:
            values, start, count = attempt
            newest = values[max(start, count - MOST_BAD) : count]
            bad = max(1, next((i for i, v in enumerate(reversed(newest)) if math.isfinite(v)), len(newest)))
        found.append(Reading(run.name, float(bad), run))
    return found


def say_nan(view: Facts, reading: Reading, since: float) -> str:
    """Give the loss, the step, and since how many points."""
    run: RunState = reading.about
    many = f", {reading.value:.0f} points in a row" if (reading.value or 0) > 1 else ""
    step = "?" if run.step is None else f"{run.step:,}"
    return f"{run.name}: loss {run.loss} at step {step}{many}"


def read_spike(view: Facts) -> Sequence[Reading] | None:
    """How far the last losses lie above the usual ones, in robust standard deviations."""
    if view.blind:
        return None
    found = []
    for run in _runs(view):
        attempt = _attempt(run)
        if attempt is None:
            continue
        values, start, count = attempt
        usual = values[max(start, count - NEWEST - LOOK_BACK) : max(start, count - NEWEST)]
        found.append(Reading(run.name, spike(usual, values[max(start, count - NEWEST) : count]), run))
    return found


def spike(usual: Sequence[float], newest: Sequence[float]) -> float | None:
    """Return by how many robust standard deviations all of `newest` exceed `usual`; None = too few to tell."""
    if len(usual) < LEAST or len(newest) < NEWEST:
        return None
    low = min(newest)
    if not math.isfinite(low):
        return None
    known = usual if math.isfinite(sum(usual)) else [value for value in usual if math.isfinite(value)]
    if len(known) < LEAST:
        return None
    middle = median(known)
    if low <= middle:
        return 0.0
    scatter = TO_SIGMA * median([abs(value - middle) for value in known])
    return max(0.0, (low - middle) / max(scatter, FLOOR * abs(middle), 1e-12))


def say_spike(view: Facts, reading: Reading, since: float) -> str:
    """Give the loss, and what was usual before."""
    run: RunState = reading.about
    attempt = _attempt(run)
    assert attempt is not None
    values, start, count = attempt
    known = [v for v in values[max(start, count - NEWEST - LOOK_BACK) : count - NEWEST] if math.isfinite(v)]
    usual = f"{median(known):.4g}" if known else "?"
    step = "?" if run.step is None else f"{run.step:,}"
    return f"{run.name}: the loss jumped to {values[count - 1]:.4g} at step {step}, usual was {usual}"
