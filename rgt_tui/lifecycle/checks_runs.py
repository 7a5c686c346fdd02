"""What the checklist asks of runs."""

from __future__ import annotations

import math
from statistics import median

from rgt_tui.health.facts import (
    CHECKPOINT_OLD_S,
    HOPELESS_STALL,
    LAYER_OLD_S,
    Facts,
)
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, person, waiting, warn
from rgt_tui.profiles.pace import stall_after
from rgt_tui.profiles.readings import age, size

SMOKE_POINTS = 20
NAN_WINDOW = 50


def check_smoke(view: Facts) -> Verdict:
    """A run wrote a checkpoint and went on from one, or a whole cell is done."""
    done = [cell for cell in view.cells if cell.state == "done"]
    if done:
        return passed(
            f"{done[0].name} ran to its end, exit {done[0].exit_code or 0}", view.client(done[0].ended)
        )
    if resumed := _resumed(view):
        return passed(f"a checkpoint was written, and {resumed[0]}", resumed[1])
    if view.newest is not None:
        run, point = view.newest
        return waiting(
            f"{run} wrote step {point.step:,}; no run has gone on from one yet", view.client(point.at)
        )
    return person("run a few steps, stop, start again: does the step go on where it was?")


def check_resume_proved(view: Facts) -> Verdict:
    """A run was cut off and went on from its checkpoint."""
    if resumed := _resumed(view):
        return passed(*resumed)
    return absent(view, "no run has been cut off and gone on yet")


def _resumed(view: Facts) -> tuple[str, float | None] | None:
    for run in view.box.runs:
        if run.resumes and run.step is not None and run.step >= run.resumes[-1].step:
            last = run.resumes[-1]
            return f"{run.name} went on from step {last.step:,} after {last.reason}", view.client(run.last_at)
    return None


def check_loss_falls(view: Facts) -> Verdict:
    """The loss is finite and lower than it was at first."""
    for run in sorted(view.box.runs, key=lambda run: -(run.last_at or 0.0)):
        loss = run.series.get("loss")
        if loss is None or len(loss) < SMOKE_POINTS:
            continue
        _, values, n = loss.columns()
        first, last = values[:10], values[n - 10 : n]
        at = view.client(run.last_at)
        if not all(map(math.isfinite, last)):
            return failed(f"{run.name}: the newest losses are not all finite", at)
        start, end = (
            median(filter(math.isfinite, first)) if any(map(math.isfinite, first)) else None,
            median(last),
        )
        if start is None:
            return warn(f"{run.name}: the first losses were not finite, now {end:.4g}", at)
        text = f"{run.name}: {start:.4g} → {end:.4g} over {n:,} points"
        return passed(text, at) if end < start else warn(f"{text}, it does not fall", at)
    return absent(view, f"no run has logged {SMOKE_POINTS} losses yet")


def check_four_layers(view: Facts) -> Verdict:
    """Session, log, curve and cgroup all report: one alone can be fooled."""
    if not view.marked_running:
        return absent(view, "no cell is running")
    box = view.box
    moved = [run.progressed_at for _, _, run in view.marked_running if run and run.progressed_at is not None]
    logs = [log.at for log in box.logs if log.at is not None]
    alive = view.trains or any(queue.runner_alive for queue in box.queues)
    layers = {
        "session": box.sample_at if alive else None,
        "log": max(logs, default=None),
        "curve": max(moved, default=None),
        "cgroup": box.sample_at if box.sample is not None and box.sample.mem.used is not None else None,
    }
    missing = [name for name, at in layers.items() if at is None]
    if missing:
        return warn(f"silent: {', '.join(missing)}", box.sample_at)
    ages = {name: view.now - at for name, at in layers.items() if at is not None}
    text = ", ".join(f"{name} {age(seconds)}" for name, seconds in ages.items())
    oldest = view.now - max(ages.values())
    return warn(text, oldest) if max(ages.values()) > LAYER_OLD_S else passed(text, oldest)


def check_progress(view: Facts) -> Verdict:
    """The step advances. Utilisation is not looked at."""
    if not view.marked_running:
        return absent(view, "no cell is running")
    moved = [
        (run.progressed_at, cell, run)
        for _, cell, run in view.marked_running
        if run and run.progressed_at is not None
    ]
    if len(moved) < len(view.marked_running):
        return waiting("a running cell has logged no step yet", view.box.sample_at)
    at, cell, run = min(moved, key=lambda item: item[0])
    still = view.now - at
    text = f"{cell.name} step {run.step or 0:,} advanced {age(still)} ago"
    limit = stall_after(cell, run)
    if still > HOPELESS_STALL * limit:
        return failed(text, at)
    return warn(text, at) if still > limit else passed(text, at)


def check_losses_finite(view: Facts) -> Verdict:
    """None of the last 50 losses is NaN or infinite."""
    if not view.marked_running:
        return absent(view, "no cell is running")
    counted = 0
    newest: float | None = None
    for _, cell, run in view.marked_running:
        loss = run.series.get("loss") if run is not None else None
        if run is None or loss is None or not len(loss):
            continue
        xs, ys, n = loss.columns()
        start = max(0, n - NAN_WINDOW)
        bad = [xs[i] for i in range(start, n) if not math.isfinite(ys[i])]
        if bad:
            text = f"{cell.name}: {len(bad)} of the last {n - start} losses, the latest at step {bad[-1]:,}"
            return failed(text, run.progressed_at)
        counted += n - start
        newest = run.progressed_at if newest is None else newest
    return passed(f"the last {counted} are finite", newest) if counted else absent(view, "no loss logged yet")


def check_checkpoint_age(view: Facts) -> Verdict:
    """The newest checkpoint is recent: its age is what a preemption would cost."""
    if not view.marked_running:
        return absent(view, "no cell is running")
    names = {cell.name for _, cell, _ in view.marked_running}
    points = [(e.run, e.items[-1]) for e in view.box.checkpoints if e.items and e.run in names]
    if not points:
        return absent(view, "the running cell has written none yet")
    run, point = max(points, key=lambda pair: pair[1].at)
    at = view.client(point.at)
    old = view.now - (at or view.now)
    text = f"{run} step {point.step:,}, {size(point.bytes)}, {age(old)} ago"
    return warn(text, at) if old > CHECKPOINT_OLD_S else passed(text, at)


def check_looked(view: Facts) -> Verdict:
    """A figure can be fine while the output is nonsense."""
    return person("you compared two validation samples")


def check_opened(view: Facts) -> Verdict:
    """A file that has arrived is not yet a result."""
    return person("you opened the pulled results on your own machine")
