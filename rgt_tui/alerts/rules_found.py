"""Trainings that nobody told rgt about: one that is gone has not failed for certain, and not succeeded either."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.alerts.kind import Reading
from rgt_tui.health.facts import Facts
from rgt_tui.model.alert import Alert
from rgt_tui.model.box import BoxState
from rgt_tui.model.protocol import FoundRun
from rgt_tui.profiles.readings import age, how_ended

TOLD_S = 86400.0
"""An end is told for a day; after that nobody waits for it."""
UNKNOWN, FAILED = 1.0, 2.0
BY_A_PERSON = ("COMPLETED", "CANCELLED")
"""Slurm's words for an end that is no failure: the one is no news, the other was somebody's wish."""
LONG_S = 900.0
"""An end that nobody saw, somewhere in so long a time, is told with both of its limits."""


def read_ended(view: Facts) -> Sequence[Reading] | None:
    """Found trainings whose processes are gone, but for those of which Slurm says that they ended well."""
    out = []
    for run in view.box.found:
        well = run.exit_code == 0 or (run.exit_code is None and run.outcome == "COMPLETED")
        if run.alive or well or run.ended is None:
            continue
        gone = max(0.0, view.box_now - run.ended)
        failed = bool(run.exit_code) or (run.outcome or "COMPLETED") not in BY_A_PERSON
        if gone < TOLD_S:
            out.append(Reading(run.name, FAILED if failed else UNKNOWN, run, age_s=gone))
    return out


def ended_at(box: BoxState, alert: Alert) -> float:
    """Return when what an alert is about came about: box clock where a training has ended, else that of the client.

    It is another one when the training has been started again and has ended again, which the alert does not show.
    """
    run = next((run for run in box.found if alert.id == f"ended:{run.name}"), None)
    return run.ended if run is not None and run.ended is not None else alert.since or 0.0


def say_ended(view: Facts, reading: Reading, since: float) -> str:
    """Say when it ended, and what is known of how."""
    run: FoundRun = reading.about
    log = f"; its log is {run.log}" if run.log else ""
    when = "" if run.ended is None else f" {age(max(0.0, view.box_now - run.ended))} ago"
    if run.ended is not None and run.seen is not None and run.ended - run.seen > LONG_S:
        when += f" or up to {age(run.ended - run.seen)} before that"
    return f"{run.name} ended{when}, {how_ended(run)}{log}"
