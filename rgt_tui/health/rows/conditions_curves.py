"""Conditions of curves besides NaN and spikes: a flat or rising loss, or a bad resume."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from rgt_tui.health.condition import EntryProof, Reading
from rgt_tui.health.facts import BoxFacts
from rgt_tui.health.rows.conditions_runs import attempt_of, runs_of
from rgt_tui.language import translate
from rgt_tui.model import EPOCH, TIME, RunResume, RunState, training_of

WINDOW = 30
"""Number of points whose median is the loss level."""
FLAT_POINTS, FLAT = 300, 0.98
"""After this many points, a loss that is still above this fraction of its start counts as flat."""
TO_SIGMA, CLEAR = 1.4826, 4.0
"""Factor from median absolute deviation to standard deviation, and how many standard deviations a
change must exceed to be more than scatter.
"""
BEFORE, AFTER = 50, 20
"""Points before and after a resume that are compared."""
LR_HIGHER, LR_LOWER = 1.5, 0.1
"""Fractions of its value before a resume outside of which the learning rate has restarted."""
STARTED_AGAIN = "started again"
"""The agent's name for a segment of a curve that follows another one."""
BACK_POINTS, BACK_SPACINGS = 5, 5
"""A step has gone back if this many points stay below the highest step, by this many usual gaps
between points.
"""
LEAST_PART, MOST_PART = 0.05, 2.5
"""Range of a run's newest checkpoint relative to the end of its curve; outside it, the two use
different units.
"""
GONE_BACK = 0.5
"""A run that continues below this fraction of its newest checkpoint has not loaded it."""


def read_flat(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the loss of a run without resumes is still at its initial level."""
    if view.is_blind:
        return None
    out = []
    for run in runs_of(view):
        found = attempt_of(run)
        if found is None or run.resumes or found[2] < FLAT_POINTS or run.series["loss"].dropped:
            continue
        values, _, count = found
        first, last = (
            _median_of_known(values[:WINDOW]),
            _median_of_known(values[count - WINDOW : count]),
        )
        # A loss around zero belongs to a policy or a game: it need not fall.
        if first is not None and last is not None and min(values[:WINDOW]) > 0:
            flat = last >= FLAT * first
            out.append(Reading(run.name, 1.0 if flat else 0.0, (run, first, last, count)))
    return out


def say_flat(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with both ends of the curve."""
    run, first, last, count = reading.about
    return translate(
        "{name}: the loss has not fallen over {count:,} points: {first:.4g} at "
        "first, {last:.4g} now",
        name=run.name,
        count=count,
        first=first,
        last=last,
    )


def read_rising(view: BoxFacts) -> Sequence[Reading] | None:
    """Return how many times its lowest earlier level the loss is now.

    Levels are medians of windows.
    """
    if view.is_blind:
        return None
    out = []
    rising_points = 120
    for run in runs_of(view):
        found = attempt_of(run)
        if found is None:
            continue
        values, start, count = found
        if count - start < rising_points:
            continue
        out.append(Reading(run.name, _rise_ratio(values, start, count), run))
    return out


def _rise_ratio(values: Sequence[float], start: int, count: int) -> float | None:
    now = _median_of_known(values[count - WINDOW : count])
    span = count - WINDOW - start
    windows = [values[at : at + WINDOW] for at in (start + span * part // 4 for part in (1, 2, 3))]
    levels = [
        (level, window) for window in windows if (level := _median_of_known(window)) is not None
    ]
    if now is None or not levels:
        return None
    level, window = min(levels, key=itemgetter(0))
    if level <= 0 or now <= level:  # the usual case: a falling loss needs no scatter
        return 1.0
    scatter = TO_SIGMA * median([abs(value - level) for value in _finite_values(window)])
    if now - level < CLEAR * scatter:
        return 1.0
    return now / level


def say_rising(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the factor."""
    return translate(
        "{key}: the loss is {value:.1f} times its earlier value in this attempt, and stays there",
        key=reading.key,
        value=reading.value,
    )


def read_jumped(view: BoxFacts) -> Sequence[Reading] | None:
    """Return how many times higher the loss is after the newest resume than before it.

    It is 1 if scatter could explain the difference.
    """
    if view.is_blind:
        return None
    out = []
    for run in runs_of(view):
        sides = _losses_around_resume(run)
        if sides is not None:
            before, after, resume = sides
            level, now = median(before), median(after)
            scatter = TO_SIGMA * median([abs(value - level) for value in before])
            clear = level > 0 and now - level >= CLEAR * scatter
            out.append(Reading(run.name, now / level if clear else 1.0, (resume, level, now)))
    return out


def say_jumped(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with both levels."""
    resume, level, now = reading.about
    return translate(
        "{key}: since the resume at step {step:,} the loss is {now:.4g}, before it was {level:.4g}",
        key=reading.key,
        step=resume.step,
        now=now,
        level=level,
    )


def _losses_around_resume(run: RunState) -> tuple[list[float], list[float], RunResume] | None:
    """Return the finite losses before and after the newest resume; None = too few.

    A resume at step 0 is a fresh start and does not count.
    """
    loss = run.series.get("loss")
    if loss is None or not run.resumes or run.resumes[-1].step <= 0:
        return None
    xs, ys, count = loss.backing_columns()
    resume = run.resumes[-1]
    at = resume.index
    earlier = [
        ys[i] for i in range(max(0, at - 4 * BEFORE), min(at, count)) if xs[i] <= resume.step
    ][-BEFORE:]
    before = [value for value in earlier if math.isfinite(value)]
    after = [value for value in ys[at : min(count, at + AFTER)] if math.isfinite(value)]
    if len(before) >= AFTER and len(after) >= AFTER:
        return (before, after, resume)
    return None


def read_restarted(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the runs that did not continue from their newest checkpoint and have not reached its step."""
    if view.is_blind:
        return None
    kept = {entry.run: entry.items for entry in view.box.checkpoints}
    attempts = {run.name: cell.attempts for _, cell, run in view.running_cells if run is not None}
    out = []
    for run in runs_of(view):
        items = kept.get(run.name, ())
        if not items or run.step is None:
            continue
        resume = _newest_resume(run, attempts.get(run.name, 1))
        if resume is None or "rollback" in resume.reason:
            continue
        counted = [(item.step, item) for item in items if item.step is not None]
        if not counted:
            continue
        step, newest = max(counted, key=lambda pair: pair[0])
        if not _same_count(run, step):
            continue
        # The first step after a resume may be logged some steps late, or be numbered from 0.
        anew = resume.step < step - _usual_gap(run) and run.step < step
        out.append(Reading(run.name, 1.0 if anew else 0.0, (resume, newest)))
    return out


def _newest_resume(run: RunState, attempts: int) -> RunResume | None:
    """Return a run's newest resume; None = none.

    The metrics of a script that knows nothing of rgt name no resumes: there the step falls in a
    later attempt of its cell.
    """
    if run.resumes:
        return run.resumes[-1]
    loss = run.series.get("loss")
    if attempts < 2 or loss is None or not len(loss):
        return None
    xs, _, count = loss.backing_columns()
    at = next((i for i in range(count - 1, 0, -1) if xs[i] < xs[i - 1]), 0)
    return RunResume(step=xs[at], reason="", index=at)


def _usual_gap(run: RunState) -> float:
    """Return the usual number of steps between two points: a smaller difference proves nothing."""
    xs, _, count = run.series["loss"].backing_columns()
    gaps = sorted(after - before for before, after in itertools.pairwise(xs[:count]))
    if not gaps:
        return math.inf
    return max(1.0, float(gaps[(9 * len(gaps)) // 10]))


def _same_count(run: RunState, step: int) -> bool:
    """Return whether a checkpoint and the run's curve count in the same unit.

    Some count epochs, images or steps of a simulation.
    """
    loss = run.series.get("loss")
    if loss is None or not len(loss) or run.counts_rows:
        return False
    xs, _, count = loss.backing_columns()
    top = max(xs[:count])
    return LEAST_PART * top <= step <= MOST_PART * top


def say_restarted(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the checkpoint that was skipped."""
    resume, newest = reading.about
    return translate(
        "{key} started at step {step:,}, although {path} has step {step_2:,}",
        key=reading.key,
        step=resume.step,
        path=newest.path,
        step_2=newest.step,
    )


def read_back(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the runs whose step fell within one attempt to a step without a checkpoint.

    Runs that have caught up since are left out.
    """
    if view.is_blind:
        return None
    kept = {entry.run: entry.items for entry in view.box.checkpoints}
    out = []
    for run, began, single in _iterate_attempts(view):
        fall = _find_step_fall(run)
        if fall is None:
            out.append(Reading(run.name, 0.0))
            continue
        saved = [item.step for item in kept.get(run.name, ()) if item.step is not None]
        if saved and not _same_count(run, max(saved)):
            saved = []
        fell = _unexplained(run, fall, began, saved, single)
        out.append(Reading(run.name, 1.0 if fell else 0.0, fall))
    return out


def say_back(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with both steps."""
    fall: _StepFall = reading.about
    return translate(
        "{key} went back from step {top:,} to step {step:,} within one attempt: "
        "there is no checkpoint, and the log shows no resume",
        key=reading.key,
        top=fall.top,
        step=fall.step,
    )


class _StepFall(NamedTuple):
    """A step that is lower than the previous one."""

    top: int
    step: int
    at: int
    """Index of the first point after the fall in the loss curve."""
    spacing: float
    """Usual number of steps between two points."""


def _iterate_attempts(view: BoxFacts) -> Iterator[tuple[RunState, float | None, bool]]:
    """Yield the active runs, the start of their attempt, and whether nothing restarts them."""
    for _, cell, run in view.running_cells:
        if run is not None:
            yield run, view.to_client_time(cell.started), False
    found = {one.name: one for one in view.box.found}
    for runs in view.beside:
        for run in runs:
            training = found.get(training_of(run.name, found) or "")
            if training is not None:
                yield run, view.to_client_time(training.started), training.world is None


def _find_step_fall(run: RunState) -> _StepFall | None:
    """Return the last fall of the step in the current attempt; None = none, or caught up."""
    loss = run.series.get("loss")
    if loss is None or len(loss) < BACK_POINTS + 2:
        return None
    xs, _, count = loss.backing_columns()
    if run.resumes:
        resume = run.resumes[-1]
    else:
        resume = None
    start = max(resume.index if resume is not None else 0, count - 4 * BEFORE)
    gaps = [b - a for a, b in pairwise(xs[max(0, count - BEFORE) : count]) if b > a]
    if gaps:
        spacing = float(median(gaps))
    else:
        spacing = 1.0
    at = next((i for i in range(count - 1, start, -1) if xs[i] < xs[i - 1]), None)
    if at is not None:
        fall = _StepFall(max(xs[start:at]), xs[at], at, spacing)
    elif resume is not None and resume.reason == STARTED_AGAIN and resume.reached is not None:
        fall = _StepFall(resume.reached, resume.step, resume.index, spacing)
    else:
        return None
    if fall.at + BACK_POINTS <= count and max(xs[fall.at : count]) < fall.top:
        return fall
    return None


def _unexplained(
    run: RunState, fall: _StepFall, began: float | None, saved: Sequence[int], single: bool
) -> bool:
    """Return whether only a fault can explain a fall.

    Args:
        run: The run.
        fall: The fall.
        began: Start of the attempt; None = unknown.
        saved: The steps of its checkpoints.
        single: Nothing restarts its processes while it is active.
    """
    xs = run.series["loss"].backing_columns()[0]
    before = _value_at_loss_point(run, TIME, fall.at - 1)
    if began is None or before is None or before < began or not (saved or single):
        # the fall may be the start of another attempt, or a resume from an unknown checkpoint
        return False
    if fall.top - fall.step < BACK_SPACINGS * fall.spacing or fall.step <= xs[0] + fall.spacing:
        # ranks that write in turn; or epochs, evaluations or runs that count from the beginning
        return False
    old, new = (
        _value_at_loss_point(run, EPOCH, fall.at - 1),
        _value_at_loss_point(run, EPOCH, fall.at),
    )
    if old is not None and new is not None and new > old:
        return False
    if any(0 <= fall.step - step <= fall.spacing for step in saved):
        return False
    # far below it, the condition "began-anew" reports it
    return not saved or fall.step >= GONE_BACK * max(saved)


def _value_at_loss_point(run: RunState, name: str, index: int) -> float | None:
    """Return the value of another curve at a point of the loss; None if it has none."""
    loss, other = run.series["loss"], run.series.get(name)
    if other is None:
        return None
    at = index - (len(loss) - len(other))  # logged with each loss, or from some point on
    _, ys, count = other.backing_columns()
    if 0 <= at < count and math.isfinite(ys[at]):
        return ys[at]
    return None


def prove_lr_restart(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the runs whose learning rate after a resume differs from the one before it."""
    for run in runs_of(view):
        rates, loss = run.series.get("lr"), run.series.get("loss")
        if rates is None or loss is None or not run.resumes or run.resumes[-1].step <= 0:
            continue
        resume = run.resumes[-1]
        at = resume.index - (len(loss) - len(rates))  # logged with each loss, or from some point on
        xs, ys, count = rates.backing_columns()
        if not 0 < at < count:
            continue
        old = next(
            (ys[i] for i in range(at - 1, max(-1, at - 4 * BEFORE), -1) if xs[i] <= resume.step),
            None,
        )
        if old is None or not math.isfinite(old) or old <= 0 or not math.isfinite(ys[at]):
            continue
        if ys[at] > LR_HIGHER * old or ys[at] < LR_LOWER * old:
            text = translate(
                "learning rate {old:.3g} before the resume at step {step:,}, {ys:.3g} after it",
                old=old,
                step=resume.step,
                ys=ys[at],
            )
            yield EntryProof(text, "scalars", run=run.name, step=resume.step)


def prove_epoch_restart(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the runs whose epochs restarted from the beginning after a resume, while their steps continued."""
    # In its first epoch, a run that counts from 0 or 1 is below this.
    first_epochs = 2.0
    for run in runs_of(view):
        epochs, loss = run.series.get(EPOCH), run.series.get("loss")
        if epochs is None or loss is None or not run.resumes or run.resumes[-1].step <= 0:
            continue
        resume = run.resumes[-1]
        at = resume.index - (len(loss) - len(epochs))
        xs, ys, count = epochs.backing_columns()
        if not 0 < at < count:
            continue
        earlier = (
            ys[i] for i in range(at - 1, max(-1, at - 4 * BEFORE), -1) if xs[i] <= resume.step
        )
        old = next((value for value in earlier if math.isfinite(value)), None)
        new = next((ys[i] for i in range(at, min(count, at + AFTER)) if math.isfinite(ys[i])), None)
        if old is None or new is None or xs[at] < GONE_BACK * resume.step:
            continue
        if new < first_epochs and old - new >= 1.0:
            text = translate(
                "epoch {old:g} before the resume at step {step:,}, {new:g} after it, at step "
                "{xs:,}",
                old=old,
                step=resume.step,
                new=new,
                xs=xs[at],
            )
            yield EntryProof(text, "scalars", run=run.name, step=resume.step)


def _median_of_known(values: Sequence[float]) -> float | None:
    known = _finite_values(values)
    if len(known) >= WINDOW // 2:
        return median(known)
    return None


def _finite_values(values: Sequence[float]) -> Sequence[float]:
    # A sum is finite only if all values are: one check suffices for nearly every curve.
    if math.isfinite(sum(values)):
        return values
    return [value for value in values if math.isfinite(value)]


def read_tracker_warning(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the newest warning that a run raised at its tracker, such as trackio."""
    return _read_tracker(view, "warn")


def read_tracker_error(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the newest error that a run raised at its tracker."""
    return _read_tracker(view, "error")


def _read_tracker(view: BoxFacts, level: str) -> Sequence[Reading]:
    event = view.news.tracker.get(level)
    if event is None:
        return ()
    # Its time rises with each alert, as a counter would.
    return (Reading("", event.at, event.text, age_s=max(0.0, view.box_now - event.at)),)
