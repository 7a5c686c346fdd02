"""Phases 1 and 2: the channel to the box, and the smoke test."""

from __future__ import annotations

import math
from statistics import median

from rgt_tui.health.facts import SKEW_NOTED_S, SKEW_WARN_S, Facts
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, person, waiting, warn
from rgt_tui.model.box import Link

SMOKE_POINTS = 20


def channel(view: Facts) -> Verdict:
    """The channel is live, and so the host key is the known one: another would have been refused."""
    box = view.box
    if box.link is Link.LIVE:
        return passed(
            "connected, host key verified", box.sample_at if box.sample_at is not None else box.since
        )
    if box.link is Link.REFUSED_KEY:
        return failed(f"host key refused: {box.reason}", box.since)
    if box.link is Link.UNREACHABLE:
        return failed(f"unreachable: {box.reason}", box.since)
    return waiting(box.reason, box.since)


def agent(view: Facts) -> Verdict:
    """The agent on the box answers, and says what it cannot do there."""
    hello = view.box.hello
    if hello is None:
        return waiting("the agent has not spoken yet")
    text = f"Python {hello.python}, agent {hello.agent[:8]}, protocol {hello.proto}"
    if hello.limited:
        return warn(f"{text}; limited: {', '.join(hello.limited)}", view.box.sample_at)
    return passed(text, view.box.sample_at)


def clock_skew(view: Facts) -> Verdict:
    """The clocks agree: ages, logs and tokens with an expiry depend on it."""
    skew = view.box.clock_skew
    if skew is None:
        return waiting("not measured yet")
    text = f"the box is {abs(skew):.1f} s {'ahead' if skew >= 0 else 'behind'}"
    if abs(skew) >= SKEW_WARN_S:
        return failed(text, view.box.sample_at)
    if abs(skew) > SKEW_NOTED_S:
        return warn(text, view.box.sample_at)
    return passed(text, view.box.sample_at)


def gapless(view: Facts) -> Verdict:
    """The stream is whole: no sample was lost, none came twice."""
    counters, at = view.box.counters, view.box.sample_at
    if counters.samples == 0:
        return waiting("no sample yet")
    text = f"{counters.samples:,} samples, {counters.gaps} lost, {counters.duplicates} twice"
    text += f", {counters.connects} connect{'s' if counters.connects != 1 else ''}"
    if counters.gaps or counters.duplicates or counters.bad_frames:
        return warn(f"{text}, {counters.bad_frames} bad frames", at)
    return passed(text, at)


def credentials(view: Facts) -> Verdict:
    """Where the secrets are cannot be read off a stream, and must not be."""
    return person("no key stands in an argument, a log, or on the durable share")


def smoke(view: Facts) -> Verdict:
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


def resume_proved(view: Facts) -> Verdict:
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


def loss_falls(view: Facts) -> Verdict:
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
