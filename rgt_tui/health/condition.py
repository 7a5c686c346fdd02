"""What a condition is: one thing that can go wrong, with its alert, finding and check."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rgt_tui.health.facts import LIMITS, BoxFacts
from rgt_tui.model import (
    BoxState,
    CheckStatus,
    Finding,
    FixStep,
    FrozenStruct,
    LinkState,
    Severity,
    TrainingProcess,
)
from rgt_tui.profiles.readings import STALL_MIN_S

Sign = Callable[[BoxFacts], object]
"""A cheap test of a view: a true result means the thing it looks for is present."""

LEAST_STAND_S = min(LIMITS.busy_stalls * STALL_MIN_S, LIMITS.no_queue_stall_s)


class Reading(NamedTuple):
    """What a rule read of one resource."""

    key: str
    """The resource, e.g. a mount point; empty if a box has just one."""
    value: float | None
    """None or NaN = unknown now: it neither raises nor clears."""
    about: Any = None
    """Data for the alert's text."""
    age_s: float | None = None
    """How many seconds it has lasted by the box's own evidence. Used only when it is first seen:
    later the client measures the time itself, so setting the box's clock changes nothing.
    """
    level: str | None = None
    """Replaces the rung's level."""
    word: str | None = None
    """Replaces the condition's short word."""


class AlertRung(NamedTuple):
    """One level of an alert and its two limits; between them the alert keeps its state."""

    level: str
    at: float
    """Raised from this value on."""
    clear: float
    """Still raised up to this value."""


Read = Callable[[BoxFacts], Sequence[Reading] | None]
"""Returns a reading per resource, or None if nothing can be decided. A resource left out has
cleared.
"""
Covered = Callable[[Finding], str | None]
Say = Callable[[BoxFacts, Reading, float], str]
"""Returns one line with the reading that proves it; the number is the client clock of its start."""


class EntryProof(NamedTuple):
    """Proof of a handbook entry that needs no line of a log."""

    evidence: str
    where: str = "sample"
    """Path, or ``sample`` or ``scalars``."""
    resource: str | None = None
    """Replaces the entry's resource."""
    run: str | None = None
    step: int | None = None
    durable: str | None = None
    """Where the run's results are copied to, for the commands that need it."""
    fixes: tuple[FixStep, ...] = ()
    """Replaces the entry's fixes: the steps with this box's real values."""
    confidence: float | None = None
    """Confidence, 0 to 1; None = that of a reading that shows it directly."""
    line_no: int | None = None
    """Line number in its log; None = not from a log, or unknown."""


class HandbookEntry(FrozenStruct):
    """A row of the handbook: a known failure of a training, its proof, and its fixes."""

    id: str
    """Stable: never renamed."""
    title: str
    severity: Severity
    action: str
    """What to do now, one of `rgt_tui.handbook.Action`."""
    resource: str
    """What ran out or broke; ``{name}`` is replaced with the first group of the pattern, if any."""
    fixes: tuple[FixStep, ...]
    """In the order in which to try them; commands are shown, never run."""
    never: str
    prove: Callable[[BoxFacts], Iterable[EntryProof]] | None = None
    """Finds proofs in the live readings."""
    needs: Sign | None = None
    """`prove` is skipped if this is false, because it would find nothing."""
    gives_way: str = ""
    """Other evidence about the same run that makes `prove` superfluous: ``log``, a finding in its
    log; ``any``, also a full disk.
    """
    reading: Callable[[BoxState], str | None] | None = None
    """The live figures shown next to the line."""
    cleared_by: str = "step"
    """What an active run shows once it is over: a finite ``step``, or a checkpoint ``saved``."""
    beats: tuple[str, ...] = ()
    """More general entries that this one replaces."""
    confidence: float = 0.0
    """Confidence if there is only a log line, 0 to 1."""
    symptom: bool = False
    """A consequence of something else: any other finding of the box replaces it."""


class Verdict(FrozenStruct):
    """The result of an evaluator."""

    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None if it has no time, e.g. a fact of the profile."""


class LifecycleCheck(FrozenStruct):
    """One item of the lifecycle checklist."""

    id: str
    """E.g. ``4.3``; the digit before the point is the phase."""
    title: str
    evaluator: Callable[[BoxFacts], Verdict]
    live: bool = True
    """Passes only while the evidence is current; False for lasting facts (a finished cell, a
    profile).
    """
    command: str = ""
    """The command that repeats the check or achieves it, with ``{box}`` for the name; empty = none.
    """

    @property
    def phase(self) -> int:
        """0 to 5."""
        return int(self.id.split(".")[0])


class Condition(FrozenStruct):
    """One thing that can be wrong, with its alert, finding and check: a row of the table."""

    id: str
    """Id of the alert; for a condition only found in logs, that of the handbook entry."""
    title: str
    word: str = ""
    """Shown in the box's row."""
    read: Read = lambda view: None
    say: Say = lambda view, reading, since: ""
    rungs: tuple[AlertRung, ...] = ()
    """Mildest first; empty = not an alert."""
    unit: str = "yes"
    """Unit of the limits; ``yes`` for a condition that is either true or false."""
    advice: str = ""
    """What to do, in one line."""
    hold_s: float = 0.0
    """Known seconds for which it must hold before it is raised."""
    quiet_s: float = 0.0
    """Known seconds for which it must be over before it is cleared."""
    below: bool = False
    """True if small values are bad."""
    rises: bool = False
    """The value is a count: raised when it grows, cleared after `quiet_s` without growth."""
    live: bool = True
    """Needs current figures: without them it keeps its state."""
    of: frozenset[str] = frozenset()
    """All sources of its readings, by their names in `rgt_tui.health.alert_state.SOURCES`. A
    condition at rest is not read again until one of them is replaced by another object. Empty =
    read every time, which conditions that depend on the time or on a sample need.
    """
    needs: Sign | None = None
    """If false, no resource is read, so that an idle resource stays idle."""
    told: bool = False
    """The fleet's events report it anyway."""
    gauge: bool = False
    """The number alone decides: once it is good the alert is no longer shown, but it ends for the
    sinks only after `quiet_s`.
    """
    over: str = ""
    """The sentence for its end; ``{key}`` is replaced with the resource. Empty = the fleet's events
    report it.
    """
    escalates: bool = False
    """Needs a person even as a warning."""
    once: bool = False
    """As a warning it notifies once, because it reports something finished that will not change."""
    findings: tuple[str, ...] = ()
    """Handbook entries that can be its cause, with proof and fixes."""
    covered: Covered | None = None
    """The resource for which one of `findings` replaces the alert; None = both are reported."""
    checks: tuple[LifecycleCheck, ...] = ()
    """Its checks in the phases."""
    see: str = ""
    """More ids: of checks, of the handbook, and of the notes that its ids refer to."""

    @property
    def related_ids(self) -> str:
        """Ids of everything else about it: its findings, its checks, related conditions."""
        return " ".join((*self.findings, *(check.id for check in self.checks), *self.see.split()))


YES = (AlertRung("warn", 1.0, 1.0),)
YES_ERROR = (AlertRung("error", 1.0, 1.0),)
"""Limits of a condition that is either true or false."""
NOTHING: tuple[Reading, ...] = ()
SO = (Reading("", 1.0),)
"""The reading of a condition that is true of the box's only resource."""


def say_text(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text that was read."""
    return str(reading.about)


def level_of_value(rungs: Sequence[AlertRung], value: float) -> str | None:
    """Return the level of a value for which large is bad; None = below all rungs.

    Without hysteresis.
    """
    return next((rung.level for rung in reversed(rungs) if value >= rung.at), None)


def passed_verdict(evidence: str, at: float | None = None) -> Verdict:
    """Return the verdict *passed*."""
    return Verdict(CheckStatus.PASSED, evidence, at)


def failed_verdict(evidence: str, at: float | None = None) -> Verdict:
    """Return the verdict *failed*."""
    return Verdict(CheckStatus.FAILED, evidence, at)


def warn_verdict(evidence: str, at: float | None = None) -> Verdict:
    """Return the verdict *warn*: neither proved nor disproved, and worth checking."""
    return Verdict(CheckStatus.WARN, evidence, at)


def waiting_verdict(evidence: str, at: float | None = None) -> Verdict:
    """Return the verdict *waiting*: nothing to evaluate yet."""
    return Verdict(CheckStatus.WAITING, evidence, at)


def unread_verdict(seen: BoxFacts, evidence: str, at: float | None = None) -> Verdict:
    """Return *waiting*, with the reason if the box could not be read at all."""
    return Verdict(CheckStatus.WAITING, seen.unread_reason or evidence, at)


def person_verdict(evidence: str) -> Verdict:
    """Return *person*: only a person can decide."""
    return Verdict(CheckStatus.PERSON, evidence)


def verdict_of_level(evidence: str, found: str | None, at: float | None = None) -> Verdict:
    """Turn the `level_of_value` of a reading into a verdict."""
    return {"error": failed_verdict, "warn": warn_verdict}.get(found or "", passed_verdict)(
        evidence, at
    )


# Cheap tests for the things a condition or handbook page needs before it has anything to check.
#
# Each costs a fraction of the reading that it saves, and several conditions share one: on a healthy
# box, most conditions need not be read.


class SignCache:
    """The tests of one view, each evaluated once."""

    __slots__ = ("_known", "_view")

    def __init__(self, view: BoxFacts) -> None:
        self._view = view
        self._known: dict[Sign, bool] = {}

    def lacks_sign(self, sign: Sign | None) -> bool:
        """Return whether a needed sign is absent; False if no sign is needed."""
        if sign is None:
            return False
        there = self._known.get(sign)
        if there is None:
            there = self._known[sign] = bool(sign(self._view))
        return not there


def unreachable(view: BoxFacts) -> object:
    """Return whether the box does not answer."""
    return view.box.link is LinkState.UNREACHABLE


def has_stale_figures(view: BoxFacts) -> object:
    """Return whether there are no current figures."""
    return view.stale


def has_queues(view: BoxFacts) -> object:
    """Return the queues."""
    return view.box.queues


def has_work(view: BoxFacts) -> object:
    """Return the queues, or the trainings found outside of them."""
    return view.box.queues or view.box.found


def named_work(view: BoxFacts) -> object:
    """Return the running cells, or the trainings found outside of the queues."""
    return view.running_cells or view.box.found


def has_running_cells(view: BoxFacts) -> object:
    """Return the running cells."""
    return view.running_cells


def has_active_runs(view: BoxFacts) -> object:
    """Return the active runs."""
    return view.running_cells or view.beside


def has_stalled_run(view: BoxFacts) -> object:
    """Return whether a run has not advanced for long enough that something may hang."""
    return view.progress_age is not None and view.progress_age >= LEAST_STAND_S


def has_resumed_run(view: BoxFacts) -> object:
    """Return whether a run resumed from a checkpoint, or a cell was started again."""
    again = any(cell.attempts > 1 for _, cell, _ in view.running_cells)
    return again or any(run.resumes for run in view.box.runs)


def has_nonfinite_loss(view: BoxFacts) -> object:
    """Return whether a loss is not a finite number."""
    return any(run.loss is not None and not math.isfinite(run.loss) for run in view.box.runs)


def waiting_run(view: BoxFacts) -> object:
    """Return whether a run waits with unsaved work in memory."""
    return any(run.wait is not None for run in view.box.runs)


def has_ended_training(view: BoxFacts) -> object:
    """Return whether the processes of a found training are gone."""
    return any(not run.alive for run in view.box.found)


def has_self_stop(view: BoxFacts) -> object:
    """Return what this computer armed the box with to stop itself, if anything."""
    return view.box.self_stop


def unread_mount(view: BoxFacts) -> object:
    """Return whether a mount could not be read."""
    sample = view.box.sample
    return sample is not None and any(disk.error is not None for disk in sample.disks)


def ailing_card(view: BoxFacts) -> object:
    """Return whether a GPU does not answer, is throttled, or has reported errors."""
    sample = view.box.sample
    return view.news.hard or (
        sample is not None
        and any(
            gpu.error is not None or gpu.throttle or gpu.xid is not None or gpu.ecc_uncorrected
            for gpu in sample.gpus
        )
    )


def stopped_process(view: BoxFacts) -> object:
    """Return whether a process is stopped by a signal."""
    return any(proc.state == "T" for proc in _list_processes(view))


def has_ranks(view: BoxFacts) -> object:
    """Return whether a process is a rank of a distributed training."""
    return any(proc.dist is not None for proc in _list_processes(view))


def _list_processes(view: BoxFacts) -> tuple[TrainingProcess, ...]:
    if view.box.sample is not None:
        return view.box.sample.procs
    return ()
