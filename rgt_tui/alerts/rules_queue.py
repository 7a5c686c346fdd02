"""Rules on cells and queues: failed, stalled, interrupted, left waiting, done but billing."""

from __future__ import annotations

from collections.abc import Iterator

from rgt_tui.alerts.assessment import Alert
from rgt_tui.alerts.view import View
from rgt_tui.model.money import Lifecycle, MeterKind
from rgt_tui.profiles.pace import stall_after, step_time
from rgt_tui.profiles.readings import age, money

FIRST_STEP_S = 600.0
"""A cell that has not logged a step by then is worth a look; loading weights and data takes its time."""


def stalled(view: View) -> Iterator[Alert]:
    """A cell is being run, but its step does not advance."""
    if not view.live:
        return
    for queue, cell, run in view.running:
        if not queue.runner_alive and not view.trains:
            continue
        if run is None or run.progressed_at is None:
            waited = None if cell.started is None else view.box_now - cell.started
            if waited is not None and waited > FIRST_STEP_S:
                text = f"{cell.name} has logged no step, {age(waited)} after its start"
                yield Alert(f"stalled:{cell.name}", "warn", text, "stalled")
            continue
        still = view.now - run.progressed_at
        per_step = step_time(cell, run)
        if still > stall_after(cell, run):
            usual = "" if per_step is None else f", usually {per_step:.1f} s a step"
            text = f"{cell.name} stands at step {run.step or 0:,} for {age(still)}{usual}"
            yield Alert(f"stalled:{cell.name}", "warn", text, "stalled")


def failed(view: View) -> Iterator[Alert]:
    """A cell ended badly."""
    for queue in view.box.queues:
        if queue.error is not None:
            yield Alert(f"queue:{queue.path}", "error", f"queue {queue.path}: {queue.error}", "queue")
        for cell in queue.cells:
            if cell.state == "failed":
                code = cell.signal or ("?" if cell.exit_code is None else f"exit {cell.exit_code}")
                why = f": {cell.reason}" if cell.reason else ""
                yield Alert(f"failed:{cell.name}", "error", f"{cell.name} failed, {code}{why}", "failed")


def interrupted(view: View) -> Iterator[Alert]:
    """A cell was cut off (preempted, killed), and no runner is there to go on with it."""
    for queue in view.box.queues:
        if queue.runner_alive or queue.done:
            continue
        for cell in queue.cells:
            if cell.state == "interrupted":
                cause = "preempted" if cell.exit_code == 75 else "interrupted"
                text = f"{cell.name} {cause}, nobody runs it"
                yield Alert(f"interrupted:{cell.name}", "warn", text, cause)
            elif cell.state == "running":
                left = "the training goes on without it" if view.trains else "nobody runs the cell"
                text = f"{cell.name}: its runner is gone, {left}"
                yield Alert(f"interrupted:{cell.name}", "warn", text, "interrupted")


def waiting_alone(view: View) -> Iterator[Alert]:
    """Cells wait, nothing runs, and no runner is there."""
    for queue in view.box.queues:
        states = [cell.state for cell in queue.cells]
        if queue.runner_alive or queue.done or "running" in states or "interrupted" in states:
            continue
        if waiting := states.count("waiting"):
            text = f"{waiting} cell{'s' if waiting > 1 else ''} waiting, no runner alive"
            yield Alert(f"waiting:{queue.path}", "warn", text, "waiting")


def finished_but_billing(view: View) -> Iterator[Alert]:
    """The work is over and the provider says that the GPU still bills."""
    meter = view.box.meter
    if not view.queue_done or view.trains or meter.lifecycle is not Lifecycle.RUNNING:
        return
    if meter.kind is MeterKind.COMPUTE_AND_STORAGE:
        rate = money(meter.per_hour, meter.currency)
        yield Alert(
            "done-billing", "warn", f"queue done, still billing {rate}/h ({meter.source})", "finished"
        )
