"""Where the time of a step goes, as the trainer itself measured it: waiting for data, or for other ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rgt_tui.health.condition import Reading
from rgt_tui.health.facts import Facts
from rgt_tui.health.rows.conditions_runs import runs_of
from rgt_tui.model.run import RunState, Series
from rgt_tui.profiles.readings import pct

POINTS, LEAST = 50, 10
"""The newest points whose mean counts, and how few are enough."""
STEP = ("step_time", "time", "iter_time", "batch_time", "step_time_s")
DATA = ("data_time", "data_time_s")
TALK = ("comm_time", "comm_time_s")
"""Names of the curves in seconds a step: our own trainer's, and those of others that log both of a pair (mmengine and
detectron2: ``data_time`` and ``time``); with ``train/`` before them, too."""


class Share(NamedTuple):
    """What part of a step one thing takes: both in seconds."""

    part: float
    step: float

    @property
    def percent(self) -> float:
        """Return it in percent."""
        return 100.0 * self.part / self.step


def read_input(view: Facts) -> Sequence[Reading] | None:
    """Percent of a step in which a run waits for its data."""
    return _readings(view, DATA)


def say_input(view: Facts, reading: Reading, since: float) -> str:
    """Give the share, and the seconds."""
    return f"{reading.key} is input-bound: it waits for its data {_words(reading.about)}"


def read_talk(view: Facts) -> Sequence[Reading] | None:
    """Percent of a step in which a run waits for its other ranks."""
    return _readings(view, TALK)


def say_talk(view: Facts, reading: Reading, since: float) -> str:
    """Give the share, and the seconds."""
    return f"{reading.key} is communication-bound: it exchanges, or waits for a slower rank, {_words(reading.about)}"


def in_words(view: Facts) -> str:
    """Say what the trainer measured of the runs of a box: the largest wait for data; "" = it does not tell."""
    found = [share for run in runs_of(view) if (share := share_of(run, DATA)) is not None]
    worst = max(found, key=lambda share: share.percent, default=None)
    return "" if worst is None else f"it waits for its data {_words(worst)}"


def share_of(run: RunState, names: Sequence[str]) -> Share | None:
    """Return what part of its newest steps one of the curves `names` takes; None = it logs no such pair."""
    part, step = _mean(run, names), _mean(run, STEP)
    if part is None or step is None or not 0.0 <= part <= step or step == 0.0:
        return None
    return Share(part, step)


def _readings(view: Facts, names: Sequence[str]) -> Sequence[Reading] | None:
    if view.blind:
        return None
    found = [(run, share) for run in runs_of(view) if (share := share_of(run, names)) is not None]
    return [Reading(run.name, share.percent, share) for run, share in found]


def _mean(run: RunState, names: Sequence[str]) -> float | None:
    series = next(_named(run, names), None)
    if series is None:
        return None
    _, values, count = series.columns()
    newest = [value for value in values[max(0, count - POINTS) : count] if math.isfinite(value)]
    return sum(newest) / len(newest) if len(newest) >= LEAST else None


def _named(run: RunState, names: Sequence[str]) -> Iterator[Series]:
    for name in names:
        for said in (name, f"train/{name}"):
            if said in run.series:
                yield run.series[said]


def _words(share: Share) -> str:
    return f"{pct(share.percent)} of a step ({share.part:.3g} of {share.step:.3g} s)"
