"""What the checklist asks of queue."""

from __future__ import annotations

from rgt_tui.health.facts import (
    Facts,
    trainers,
)
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, waiting, warn


def check_queue_read(view: Facts) -> Verdict:
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


def check_detached(view: Facts) -> Verdict:
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


def check_first_step(view: Facts) -> Verdict:
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


def check_durable_named(view: Facts) -> Verdict:
    """Every cell copies its result to a place that outlives the box."""
    if not view.cells:
        return absent(view, "no cell yet")
    without = [cell.name for cell in view.cells if cell.durable is None and cell.durable_path is None]
    if without:
        return warn(
            f"{len(without)} of {len(view.cells)} cells copy nothing to a durable place", view.box.sample_at
        )
    return passed(f"{len(view.cells)} cells copy to a durable place", view.box.sample_at)


def check_undiagnosed(view: Facts) -> Verdict:
    """Nothing is diagnosed."""
    if view.box.sample is None:
        return waiting("no sample yet")
    findings = [finding for finding in view.box.findings if not finding.cleared]
    if findings:
        return failed(
            f"{findings[0].gotcha}: {findings[0].title}, {findings[0].resource}", view.box.sample_at
        )
    if view.box.findings:
        return warn(f"{view.box.findings[0].gotcha}: cause gone, not saved since", view.box.sample_at)
    if not view.box.logs:
        return absent(view, "no finding in the readings, and no log is read", view.box.sample_at)
    return passed(f"no finding in {len(view.box.logs)} logs and the readings", view.box.sample_at)


def check_all_done(view: Facts) -> Verdict:
    """Every cell of every queue is done."""
    if not view.cells:
        return absent(view, "no cell yet")
    done = sum(cell.state == "done" for cell in view.cells)
    at = view.client(max(queue.at for queue in view.box.queues))
    text = f"{done} of {len(view.cells)} cells done"
    lost = [cell.name for cell in view.cells if cell.state == "failed"]
    if lost:
        return failed(f"{text}; failed: {', '.join(lost)}", at)
    return passed(text, at) if done == len(view.cells) else waiting(text, at)


def check_all_verified(view: Facts) -> Verdict:
    """Every finished cell's result was read back from the durable place with equal hashes."""
    done = [cell for cell in view.cells if cell.state == "done"]
    if not done:
        return absent(view, "no cell is done yet")
    at = view.client(max(queue.at for queue in view.box.queues))
    good = sum(cell.durable == "verified" for cell in done)
    text = f"{good} of {len(done)} finished cells verified on durable storage"
    if any(cell.durable == "failed" for cell in done):
        return failed(text, at)
    if good == len(done):
        return passed(text, at)
    if any(cell.durable is None for cell in done):
        return warn(f"{text}; the others name no durable place", at)
    return waiting(text, at)


def check_quiet(view: Facts) -> Verdict:
    """Nothing trains any more."""
    box = view.box
    if box.sample is None:
        return waiting("no sample yet")
    if live := trainers(box.sample):
        return waiting(f"{len(live)} training: pid {live[0].pid} {live[0].cmd[:60]}", box.sample_at)
    if view.blind:
        return warn(f"whether anything trains is unknown: {view.unseen}", box.sample_at)
    if view.marked_running or any(queue.runner_alive and not queue.done for queue in box.queues):
        return waiting("a cell or its runner is alive", box.sample_at)
    return passed("no training process, no cell running", box.sample_at)
