"""Phase 4: while it trains. Progress is what counts; a busy card can be busy with nothing."""

from __future__ import annotations

import math

from rgt_tui.health.facts import (
    CHECKPOINT_OLD_S,
    HOPELESS_STALL,
    LAYER_OLD_S,
    MEMORY_ERROR_PCT,
    MEMORY_WARN_PCT,
    Facts,
)
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, person, waiting, warn
from rgt_tui.profiles.pace import stall_after
from rgt_tui.profiles.readings import age, memory_pct, pct, size

NAN_WINDOW = 50


def four_layers(view: Facts) -> Verdict:
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


def progress(view: Facts) -> Verdict:
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


def losses_finite(view: Facts) -> Verdict:
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


def checkpoint_age(view: Facts) -> Verdict:
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


def looked(view: Facts) -> Verdict:
    """A figure can be fine while the output is nonsense."""
    return person("you compared two validation samples")


def undiagnosed(view: Facts) -> Verdict:
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


def memory(view: Facts) -> Verdict:
    """The container's memory is below its limit, and the kernel killed nothing."""
    if view.box.sample is None:
        return waiting("no sample yet")
    mem, at = view.box.sample.mem, view.box.sample_at
    share = memory_pct(mem)
    kills = "?" if mem.oom_kills is None else str(mem.oom_kills)
    text = f"{pct(share)} of {size(mem.limit)}, cache left out; oom kills {kills}"
    if share is None or mem.oom_kills is None:
        return warn(text, at)
    if share >= MEMORY_ERROR_PCT:
        return failed(text, at)
    return warn(text, at) if share >= MEMORY_WARN_PCT or mem.oom_kills else passed(text, at)
