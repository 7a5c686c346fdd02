"""Conditions of runs: a loss that is NaN or jumps, progress, checkpoints, and ended trainings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from rgt_tui.health.condition import (
    EntryProof,
    Reading,
    Verdict,
    failed_verdict,
    passed_verdict,
    person_verdict,
    unread_verdict,
    waiting_verdict,
    warn_verdict,
)
from rgt_tui.health.facts import LIMITS, BoxFacts
from rgt_tui.language import translate
from rgt_tui.model import (
    Alert,
    BoxState,
    Finding,
    FoundRun,
    FrozenStruct,
    RunState,
    format_duration,
    size,
)
from rgt_tui.profiles import how_ended, saved_point, stall_after, wait_text


class SpikeLimits(FrozenStruct):
    """What counts as a spike of a curve."""

    look_back: int = 49
    """Number of earlier points that define what is usual."""
    least: int = 30
    """Minimum number of points: a shorter curve has no usual level."""
    newest: int = 3
    """How many points in a row must be high: one bad batch is not a spike."""
    to_sigma: float = 1.4826
    """Factor from median absolute deviation to standard deviation, for a normal distribution."""


SPIKE_LIMITS = SpikeLimits()


def runs_of(view: BoxFacts) -> Iterator[RunState]:
    """Yield the active runs: those of running cells, and those of trainings outside the queues."""
    for _, _, run in view.running_cells:
        if run is not None:
            yield run
    for runs in view.beside:
        yield from runs


def attempt_of(run: RunState) -> tuple[list[float], int, int] | None:
    """Return the losses, and where the current attempt starts and ends in them."""
    loss = run.series.get("loss")
    if loss is None or not len(loss):
        return None
    _, values, count = loss.backing_columns()
    # From the newest resume: losses before it are of an earlier attempt, and may jump there.
    return values, run.resumes[-1].index if run.resumes else 0, count


def read_nan(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the number of non-finite losses in a row, up to the newest."""
    if view.is_blind:
        return None
    found = []
    # Three in a row are an error already, so a longer look back would change no level.
    most_bad = 50
    for run in runs_of(view):
        if run.loss is None:
            continue
        # A zero, not a gap: it is this that ends the alert.
        if math.isfinite(run.loss):
            found.append(Reading(run.name, 0.0, run))
            continue
        attempt = attempt_of(run)
        bad = 1
        if attempt is not None:
            values, start, count = attempt
            newest = values[max(start, count - most_bad) : count]
            bad = max(
                1,
                next((i for i, v in enumerate(reversed(newest)) if math.isfinite(v)), len(newest)),
            )
        found.append(Reading(run.name, float(bad), run))
    return found


def say_nan(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the loss, the step, and the number of points."""
    run: RunState = reading.about
    many = ""
    if (reading.value or 0) > 1:
        many = translate(", {value:.0f} points in a row", value=reading.value)
    if run.step is None:
        step = "?"
    else:
        step = f"{run.step:,}"
    return translate(
        "{name}: loss {loss} at step {step}{many}",
        name=run.name,
        loss=run.loss,
        step=step,
        many=many,
    )


def end_reading(box: BoxState) -> str | None:
    """Return which runs have reached their last step: an abort after it has lost nothing."""
    done = [
        translate(
            "{name} has reached its last step, {total_steps:,}",
            name=run.name,
            total_steps=run.total_steps,
        )
        for run in box.runs
        # The last epoch is printed while it runs.
        if run.axis == "step"
        and run.total_steps
        and run.step is not None
        and run.step >= run.total_steps
    ]
    return ", ".join(done) or None


def read_spike(view: BoxFacts) -> Sequence[Reading] | None:
    """Return how far the last losses are above the usual ones, in robust standard deviations."""
    if view.is_blind:
        return None
    found = []
    for run in runs_of(view):
        attempt = attempt_of(run)
        if attempt is None:
            continue
        values, start, count = attempt
        newest = max(start, count - SPIKE_LIMITS.newest)
        usual = values[max(start, newest - SPIKE_LIMITS.look_back) : newest]
        found.append(Reading(run.name, spike_deviations(usual, values[newest:count]), run))
    return found


def spike_deviations(usual: Sequence[float], newest: Sequence[float]) -> float | None:
    """Return by how many robust standard deviations all of `newest` exceed `usual`.

    None = too few.
    """
    if len(usual) < SPIKE_LIMITS.least or len(newest) < SPIKE_LIMITS.newest:
        return None
    # The lowest of them: all must be high.
    low = min(newest)
    if not math.isfinite(low):
        return None
    # One sum instead of a test per value; the usual case has only finite ones.
    if math.isfinite(sum(usual)):
        known = usual
    else:
        known = [value for value in usual if math.isfinite(value)]
    if len(known) < SPIKE_LIMITS.least:
        return None
    middle = median(known)
    # A falling loss is never a spike, with any scatter.
    if low <= middle:
        return 0.0
    scatter = SPIKE_LIMITS.to_sigma * median([abs(value - middle) for value in known])
    # Minimum scatter as a fraction of the usual loss, so that ripples of a flat curve are not
    # spikes.
    floor = 0.01
    return max(0.0, (low - middle) / max(scatter, floor * abs(middle), 1e-12))


def say_spike(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the loss, and the usual one before."""
    run: RunState = reading.about
    attempt = attempt_of(run)
    assert attempt is not None
    values, start, count = attempt
    newest = count - SPIKE_LIMITS.newest
    known = [
        v for v in values[max(start, newest - SPIKE_LIMITS.look_back) : newest] if math.isfinite(v)
    ]
    if known:
        usual = f"{median(known):.4g}"
    else:
        usual = "?"
    if run.step is None:
        step = "?"
    else:
        step = f"{run.step:,}"
    return translate(
        "{name}: the loss jumped to {values:.4g} at step {step}, usual was {usual}",
        name=run.name,
        values=values[count - 1],
        step=step,
        usual=usual,
    )


UNKNOWN, FAILED = 1.0, 2.0
BY_A_PERSON = ("COMPLETED", "CANCELLED")
"""Slurm's states for an end that is no failure: completed, or cancelled by a person."""


def read_ended(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the found trainings that ended, except those known to have succeeded."""
    out = []
    # Seconds for which the end of a training is reported.
    told_s = 86400.0
    for run in view.box.found:
        # The exit status counts more than Slurm's word, which is that of the whole job.
        well = run.exit_code == 0 or (run.exit_code is None and run.outcome == "COMPLETED")
        if run.alive or well or run.ended is None:
            continue
        gone = max(0.0, view.box_now - run.ended)
        failed = bool(run.exit_code) or (run.outcome or "COMPLETED") not in BY_A_PERSON
        # After a day it is history: the alert ends without a person's doing.
        if gone < told_s:
            out.append(Reading(run.name, FAILED if failed else UNKNOWN, run, age_s=gone))
    return out


def ended_at(box: BoxState, alert: Alert) -> float:
    """Return the time of an alert's event: a training's end (box clock), or the alert's start.

    The time changes when the training was started again and has ended again, which the alert does
    not show.
    """
    run = next((run for run in box.found if alert.id == f"ended:{run.name}"), None)
    if run is not None and run.ended is not None:
        return run.ended
    return alert.since or 0.0


def say_ended(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the time of the end, and what is known of the outcome."""
    run: FoundRun = reading.about
    log = ""
    if run.log:
        log = translate("; its log is {log}", log=run.log)
    # The file has no other name, so its path would lead nowhere after the process has ended.
    if run.log is not None and run.log.startswith("/proc/"):  # it is a descriptor of a deleted file
        log = translate("; its log was deleted")
    if run.ended is None:
        when = ""
    else:
        when = " " + translate("{now} ago", now=format_duration(max(0.0, view.box_now - run.ended)))
    # If the end lies in an interval longer than this, both limits are shown.
    long_s = 900.0
    if run.ended is not None and run.seen is not None and run.ended - run.seen > long_s:
        when += translate(
            " or up to {ended} before that", ended=format_duration(run.ended - run.seen)
        )
    ended = translate("{name} ended{when}, {how}", name=run.name, when=when, how=how_ended(run))
    return ended + log


def check_smoke(view: BoxFacts) -> Verdict:
    """A run wrote a checkpoint and resumed from one, or a whole cell is done."""
    done = [cell for cell in view.cells if cell.state == "done"]
    if done:
        return passed_verdict(
            translate(
                "{name} ran to its end, exit {exit_code}",
                name=done[0].name,
                exit_code=done[0].exit_code or 0,
            ),
            view.to_client_time(done[0].ended),
        )
    # The strongest proof after a finished cell: it shows that loading works, too.
    if resumed := _describe_resume(view):
        return passed_verdict(
            translate("a checkpoint was written, and {resumed}", resumed=resumed[0]), resumed[1]
        )
    if view.newest_checkpoint is not None:
        run, point = view.newest_checkpoint
        return waiting_verdict(
            translate(
                "{run} wrote {point}; no run has resumed from one yet",
                run=run,
                point=saved_point(point),
            ),
            view.to_client_time(point.at),
        )
    return person_verdict(
        translate("run a few steps, stop, start again: does the step number continue?")
    )


def check_resume_proved(view: BoxFacts) -> Verdict:
    """A run was cut off and resumed from its checkpoint."""
    if resumed := _describe_resume(view):
        return passed_verdict(*resumed)
    return unread_verdict(view, translate("no run has been cut off and gone on yet"))


def _describe_resume(view: BoxFacts) -> tuple[str, float | None] | None:
    for run in view.box.runs:
        # At or beyond the step of the resume: it has really gone on from there.
        if run.resumes and run.step is not None and run.step >= run.resumes[-1].step:
            last = run.resumes[-1]
            return (
                translate(
                    "{name} resumed from step {step:,} after {reason}",
                    name=run.name,
                    step=last.step,
                    reason=last.reason,
                ),
                view.to_client_time(run.last_at),
            )
    return None


def check_loss_falls(view: BoxFacts) -> Verdict:
    """The loss is finite and lower than it was at first."""
    smoke_points = 20
    # The newest run with enough points: an older one may be of code that was mended since.
    for run in sorted(view.box.runs, key=lambda run: -(run.last_at or 0.0)):
        loss = run.series.get("loss")
        if loss is None or len(loss) < smoke_points:
            continue
        _, values, n = loss.backing_columns()
        # Medians of ten, since single losses of a first epoch scatter more than they fall.
        first, last = values[:10], values[n - 10 : n]
        at = view.to_client_time(run.last_at)
        if not all(map(math.isfinite, last)):
            return failed_verdict(
                translate("{name}: the newest losses are not all finite", name=run.name), at
            )
        start, end = (
            median(filter(math.isfinite, first)) if any(map(math.isfinite, first)) else None,
            median(last),
        )
        if start is None:
            return warn_verdict(
                translate(
                    "{name}: the first losses were not finite, now {end:.4g}",
                    name=run.name,
                    end=end,
                ),
                at,
            )
        text = translate(
            "{name}: {start:.4g} → {end:.4g} over {n:,} points",
            name=run.name,
            start=start,
            end=end,
            n=n,
        )
        if end < start:
            return passed_verdict(text, at)
        return warn_verdict(translate("{words}, it does not fall", words=text), at)
    return unread_verdict(
        view, translate("no run has logged {smoke_points} losses yet", smoke_points=smoke_points)
    )


def check_four_layers(view: BoxFacts) -> Verdict:
    """Session, log, curve and cgroup all report: one alone can be fooled."""
    if not view.marked_running:
        return unread_verdict(view, translate("no cell is running"))
    box = view.box
    moved = [
        run.progressed_at
        for _, _, run in view.marked_running
        if run and run.progressed_at is not None
    ]
    logs = [log.at for log in box.logs if log.at is not None and log.lines]
    # A runner between two cells counts as alive: nothing trains for a moment then.
    alive = view.trains or any(queue.runner_alive for queue in box.queues)
    counted = None
    if box.sample is not None and box.sample.mem.used is not None:
        counted = box.sample_at
    layers = {
        "session": box.sample_at if alive else None,
        "log": max(logs, default=None),
        "curve": max(moved, default=None),
        "cgroup": counted,
    }
    missing = [translate(name) for name, at in layers.items() if at is None]
    if missing:
        silent = translate("silent: {layers}", layers=", ".join(missing))
        return warn_verdict(silent, box.sample_at)
    ages = {name: view.now - at for name, at in layers.items() if at is not None}
    text = ", ".join(
        f"{translate(name)} {format_duration(seconds)}" for name, seconds in ages.items()
    )
    # The verdict is as old as its oldest layer.
    oldest = view.now - max(ages.values())
    if max(ages.values()) > LIMITS.layer_old_s:
        return warn_verdict(text, oldest)
    return passed_verdict(text, oldest)


def check_progress(view: BoxFacts) -> Verdict:
    """The step advances. Utilisation is not looked at."""
    if not view.marked_running:
        return unread_verdict(view, translate("no cell is running"))
    # A run that waits explains itself, and would otherwise be reported as late below.
    for _, cell, run in view.marked_running:
        if run is not None and run.wait is not None:
            text = translate(
                "{name} is held at step {step:,}: {wait}",
                name=cell.name,
                step=run.wait.step,
                wait=wait_text(run.wait, view.box.clock_skew, view.now),
            )
            return failed_verdict(text, view.box.sample_at)
    moved = [
        (run.progressed_at, cell, run)
        for _, cell, run in view.marked_running
        if run and run.progressed_at is not None
    ]
    if len(moved) < len(view.marked_running):
        return waiting_verdict(
            translate("a running cell has logged no step yet"), view.box.sample_at
        )
    # One that hangs is enough, so the oldest progress decides.
    at, cell, run = min(moved, key=lambda item: item[0])
    still = view.now - at
    text = translate(
        "{name} {position} advanced {still} ago",
        name=cell.name,
        position=run.position,
        still=format_duration(still),
    )
    limit = stall_after(cell, run)
    if still <= limit:
        return passed_verdict(text, at)
    if run.counts_rows:
        return unread_verdict(view, translate("{words}; its log names no step", words=text))
    if view.is_step_unknown(run, limit):
        return unread_verdict(
            view, translate("{words}; its log grows, but no step in it is understood", words=text)
        )
    if still > LIMITS.hopeless_stalls * limit:
        return failed_verdict(text, at)
    return warn_verdict(text, at)


def check_losses_finite(view: BoxFacts) -> Verdict:
    """None of the last 50 losses is NaN or infinite."""
    if not view.marked_running:
        return unread_verdict(view, translate("no cell is running"))
    counted = 0
    newest: float | None = None
    nan_window = 50
    for _, cell, run in view.marked_running:
        if run is not None:
            loss = run.series.get("loss")
        else:
            loss = None
        if run is None or loss is None or not len(loss):
            continue
        xs, ys, n = loss.backing_columns()
        start = max(0, n - nan_window)
        bad = [xs[i] for i in range(start, n) if not math.isfinite(ys[i])]
        if bad:
            text = translate(
                "{name}: {bad} of the last {n} losses, the latest at step {bad_2:,}",
                name=cell.name,
                bad=len(bad),
                n=n - start,
                bad_2=bad[-1],
            )
            return failed_verdict(text, run.progressed_at)
        counted += n - start
        if newest is None:
            newest = run.progressed_at
    if counted:
        return passed_verdict(translate("the last {counted} are finite", counted=counted), newest)
    return unread_verdict(view, translate("no loss logged yet"))


def check_checkpoint_age(view: BoxFacts) -> Verdict:
    """The newest checkpoint is recent: its age is what a preemption would cost."""
    # Found trainings, too: they lose just as much.
    names = {cell.name for _, cell, _ in view.marked_running} | {
        run.name for run in view.box.found if run.alive
    }
    if not names:
        return unread_verdict(view, translate("nothing is running"))
    of_running = [entry for entry in view.box.checkpoints if entry.run in names]
    points = [(entry.run, entry.items[-1]) for entry in of_running if entry.items]
    if not points:
        # An incomplete save says more than "none": it may be the one that fails.
        begun = next((entry.writing[-1] for entry in of_running if entry.writing), None)
        if begun is not None:
            return unread_verdict(
                view,
                translate(
                    "no complete one yet; {path} is not complete: {why}",
                    path=begun.path,
                    why=begun.why or "",
                ),
            )
        return unread_verdict(view, translate("what is running has written none yet"))
    run, point = max(points, key=lambda pair: pair[1].at)
    at = view.to_client_time(point.at)
    old = view.now - (at or view.now)
    age = translate("{now} ago", now=format_duration(old))
    text = f"{run} {saved_point(point)}, {size(point.bytes)}, {age}"
    if old > LIMITS.checkpoint_old_s:
        return warn_verdict(text, at)
    return passed_verdict(text, at)


def check_looked(view: BoxFacts) -> Verdict:
    """A figure can be fine while the output is nonsense."""
    return person_verdict(
        translate("compare them yourself: a loss can be fine while the output is nonsense")
    )


def check_opened(view: BoxFacts) -> Verdict:
    """A file that has arrived is not yet a result."""
    return person_verdict(translate("you opened the pulled results on your own machine"))


def run_of(finding: Finding) -> str | None:
    """Return the run that a finding is about."""
    return finding.run


def prove_nan(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the running cells, and runs without a cell, whose newest loss is not finite."""
    states = {cell.name: cell.state for cell in view.cells}
    for run in view.box.runs:
        if (
            states.get(run.name, "running") == "running"
            and run.loss is not None
            and not math.isfinite(run.loss)
        ):
            step = "?" if run.step is None else run.step
            yield EntryProof(
                translate("loss {loss} at step {step}", loss=run.loss, step=step),
                "scalars",
                run=run.name,
                step=run.step,
            )
