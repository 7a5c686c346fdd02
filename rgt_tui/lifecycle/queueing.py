"""Phase 3: the queue is read, its runner outlives you, the first cell moves, its checkpoints land where they stay."""

from __future__ import annotations

from rgt_tui.health.facts import Facts
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, waiting, warn
from rgt_tui.profiles.survival import survival


def queue_read(view: Facts) -> Verdict:
    """The queue is read, and no two cells share a name: they would write over each other."""
    queues = view.box.queues
    if not queues:
        return absent(view, "no queue on this box yet")
    at = view.client(max(queue.at for queue in queues))
    errors = [queue.error for queue in queues if queue.error is not None]
    if errors:
        return failed(errors[0], at)
    for queue in queues:
        names = [cell.name for cell in queue.cells]
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            return failed(f"{queue.path}: {', '.join(double)} stands there twice", at)
    count = len(view.cells)
    return (
        passed(f"{count} cell{'s' if count != 1 else ''}, names distinct", at)
        if count
        else waiting("empty", at)
    )


def detached(view: Facts) -> Verdict:
    """The runner lives in a session of its own, so that a lost connection ends nothing."""
    box = view.box
    if not box.queues:
        return absent(view, "no queue on this box yet")
    if all(queue.done for queue in box.queues):
        return passed("the runner has written QUEUE DONE", view.client(max(queue.at for queue in box.queues)))
    tmux = box.sample.session.tmux if box.sample is not None else ()
    where = f", tmux {', '.join(tmux)}" if tmux else ""
    alive = [queue for queue in box.queues if queue.runner_alive]
    if len(alive) == sum(not queue.done for queue in box.queues):
        return passed(f"runner {alive[0].runner_pid or '?'} is alive{where}", box.sample_at)
    if any(cell.state in ("running", "interrupted") for cell in view.cells):
        return failed(f"a cell is unfinished and no runner is alive{where}", box.sample_at)
    return waiting(f"no runner is alive yet{where}", box.sample_at)


def first_step(view: Facts) -> Verdict:
    """The cell that runs has logged a step."""
    if not view.marked_running:
        stepped = [run for run in view.box.runs if run.step is not None]
        if stepped:
            newest = stepped[-1]
            return passed(f"{newest.name} reached step {newest.step:,}", view.client(newest.last_at))
        return absent(view, "no cell is running")
    for _, cell, run in view.marked_running:
        if run is None or run.step is None:
            return waiting(f"{cell.name} has logged no step yet", view.box.sample_at)
    _, cell, run = view.marked_running[0]
    step = run.step if run is not None and run.step is not None else 0
    return passed(f"{cell.name} is at step {step:,}", run.progressed_at if run is not None else None)


def checkpoints_stay(view: Facts) -> Verdict:
    """Checkpoints land on a disk that a stop leaves alone."""
    if view.newest is None:
        return absent(view, "no checkpoint yet")
    run, point = view.newest
    at = view.client(point.at)
    tier = survival(view.profile, point.path, known=view.box.spec.tiers)
    if tier is None:
        return warn(f"{run}: {point.path}; the profile does not know that disk", at)
    text = f"{run}: step {point.step:,} on {tier.name}"
    if tier.survives_stop is True:
        return passed(f"{text}, which survives a stop", at)
    if tier.survives_stop is False:
        return failed(f"{text}, which a stop empties", at)
    return warn(f"{text}; whether it survives a stop is not known", at)


def durable_named(view: Facts) -> Verdict:
    """Every cell copies its result to a place that outlives the box."""
    if not view.cells:
        return absent(view, "no cell yet")
    without = [cell.name for cell in view.cells if cell.durable is None and cell.durable_path is None]
    if without:
        return warn(
            f"{len(without)} of {len(view.cells)} cells copy nothing to a durable place", view.box.sample_at
        )
    return passed(f"{len(view.cells)} cells copy to a durable place", view.box.sample_at)
