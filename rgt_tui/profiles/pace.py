"""How fast a run usually goes, and when standing still is no longer usual; shared by alerts and lifecycle."""

from __future__ import annotations

from rgt_tui.model.protocol import Cell
from rgt_tui.model.run import RunState

STALL_MIN_S = 30.0
STALL_STEPS = 10.0


def step_time(cell: Cell, run: RunState) -> float | None:
    """Return the usual seconds per logged point of `run` in the cell's present attempt; None when not known.

    The curve carries no times, so this is the mean over the attempt, its start-up included: too long rather than
    too short, which makes an alarm late rather than wrong.
    """
    loss = run.series.get("loss")
    if loss is None or run.last_at is None or cell.started is None:
        return None
    points = len(loss) - (run.resumes[-1].index if run.resumes else 0)
    span = run.last_at - cell.started
    return span / points if points > 0 and span > 0 else None


def stall_after(cell: Cell, run: RunState) -> float:
    """Return the seconds without progress from which `run` counts as stalled: 30, or ten usual steps."""
    return max(STALL_MIN_S, STALL_STEPS * (step_time(cell, run) or 0.0))
