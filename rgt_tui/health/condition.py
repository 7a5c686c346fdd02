"""What a condition is: one thing that can go wrong, with its three views (alert, finding, check)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rgt_tui.health.facts import NO_QUEUE_STALL_S, STANDS, Facts
from rgt_tui.model import BoxState, CheckStatus, Finding, Fix, Link, Proc, Severity
from rgt_tui.profiles.readings import STALL_MIN_S

Sign = Callable[[Facts], object]
"""Tells, by something that is true or false, whether it is there."""

LEAST_STAND_S = min(STANDS * STALL_MIN_S, NO_QUEUE_STALL_S)


class Reading(NamedTuple):
    """What a rule reads of one resource."""

    key: str
    """Which resource, e.g. a mount point; empty where a box has just one."""
    value: float | None
    """None or NaN = not known now: it neither raises nor clears."""
    about: Any = None
    """What the words are made of."""
    age_s: float | None = None
    """For how long it has been so by the box's own evidence. Only counted when it is seen for the first time:
    later the client counts itself, so that a clock that is set on the box changes nothing."""
    level: str | None = None
    """In place of the rung's."""
    word: str | None = None
    """In place of the kind's."""


class Rung(NamedTuple):
    """One level of an alert and its two limits: between them the alert stays as it is."""

    level: str
    at: float
    """Raised from here on."""
    clear: float
    """Still raised up to here."""


Read = Callable[[Facts], Sequence[Reading] | None]
"""All resources that the kind is about, or None where nothing can be said. What is left out is over."""
Covered = Callable[[Finding], str | None]
Say = Callable[[Facts, Reading, float], str]
"""One line with the reading that proves it; the number is the client clock of the beginning."""


class Proof(NamedTuple):
    """What proves an entry of the handbook without any line of a log."""

    evidence: str
    where: str = "sample"
    """Path, or ``sample`` or ``scalars``."""
    resource: str | None = None
    """In place of the entry's."""
    run: str | None = None
    step: int | None = None
    durable: str | None = None
    """Where the run's results are copied to, for the commands that want it."""
    fixes: tuple[Fix, ...] = ()
    """In place of the entry's: the steps with what this box really has."""
    confidence: float | None = None
    """How sure it is; None = as sure as a reading that says it."""
    line_no: int | None = None
    """Which line of its log it is; None = it is none, or nobody knows."""


class Entry(msgspec.Struct, frozen=True):
    """A known way for training to go wrong, how it is proved, and the way out: a row of the handbook."""

    id: str
    """Stable for ever."""
    title: str
    severity: Severity
    action: str
    """What to do now, of a closed set (`rgt_tui.handbook.Action`)."""
    resource: str
    """What ran out or broke; ``{name}`` is filled with the first group of the pattern, where there is one."""
    fixes: tuple[Fix, ...]
    """In the order in which to try them; every command is shown, never run."""
    never: str
    prove: Callable[[Facts], Iterable[Proof]] | None = None
    """What the live readings prove."""
    needs: Sign | None = None
    """Where this is not there, `prove` has nothing to tell, and is not asked."""
    gives_way: str = ""
    """What of the same run makes `prove` superfluous: ``log``, a finding in its log; ``any``, also a full disk."""
    reading: Callable[[BoxState], str | None] | None = None
    """The live figures that belong beside the line."""
    cleared_by: str = "step"
    """What a run that goes on shows when it is over: a finite ``step``, or a checkpoint ``saved``."""
    beats: tuple[str, ...] = ()
    """More general entries that this one explains away."""
    confidence: float = 0.0
    """How sure a line alone is, 0 to 1."""
    symptom: bool = False
    """It only follows from something else: it gives way to any other finding of the box."""


class Verdict(msgspec.Struct, frozen=True):
    """What an evaluator found."""

    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None where it has none, e.g. a fact of the profile."""


class Check(msgspec.Struct, frozen=True):
    """One item of the lifecycle."""

    id: str
    """e.g. ``4.3``; the figure before the point is the phase."""
    title: str
    evaluator: Callable[[Facts], Verdict]
    live: bool = True
    """Proved only while the evidence is of now; False for facts that stay true (a finished cell, a profile)."""
    command: str = ""
    """What to type to check it anew, or to bring it about, with ``{box}`` for the name; empty = there is nothing."""

    @property
    def phase(self) -> int:
        """0 to 5."""
        return int(self.id.split(".")[0])


class Condition(msgspec.Struct, frozen=True):
    """One thing that can be wrong: a row of the table. Alert, finding and check are three views of it."""

    id: str
    """Of the alert; for what is only found in logs that of the entry."""
    title: str
    word: str = ""
    """What the box's row shows."""
    read: Read = lambda view: None
    say: Say = lambda view, reading, since: ""
    rungs: tuple[Rung, ...] = ()
    """Mildest first; none = it is no alert."""
    unit: str = "yes"
    """Of the limits; ``yes`` where it either is so or not."""
    advice: str = ""
    """What to do, in one line."""
    hold_s: float = 0.0
    """Known seconds for which it must be so before it rises."""
    quiet_s: float = 0.0
    """Known seconds for which it must be over before it clears."""
    below: bool = False
    """True where small values are the bad ones."""
    rises: bool = False
    """The value is a count: raised when it grows, cleared when it has not grown for `quiet_s`."""
    live: bool = True
    """Needs figures of now: without them it stays as it is."""
    of: frozenset[str] = frozenset()
    """All that its readings are made of, as `rgt_tui.health.alert_state.SOURCES` calls it. As long as none of it is
    another object, what was at rest is so still and is not read again. Empty = it is read at every look: what is made
    of the time, or of a sample, has to be."""
    needs: Sign | None = None
    """Where this is not there, no resource is read at all: what is at rest is so still, and is not read then."""
    told: bool = False
    """The fleet's events tell of it anyway."""
    gauge: bool = False
    """Its number alone says whether it is so: as soon as that is good it is shown no more, while it is over for
    the sinks only after `quiet_s`."""
    over: str = ""
    """What is true once it has ended; ``{key}`` is filled with the resource. Empty = the fleet's events say it."""
    escalates: bool = False
    """Also as a warning it calls for a person."""
    once: bool = False
    """As a warning it does so once: it is about something that is over, and that nothing will change any more."""
    findings: tuple[str, ...] = ()
    """Entries of the handbook that are its causes, with proof and way out."""
    covered: Covered | None = None
    """For which resource one of `findings` stands in the alert's place; None = they are told beside each other."""
    checks: tuple[Check, ...] = ()
    """Its place in the phases."""
    see: str = ""
    """Further ids, of checks, of the handbook, and of the notes that its ids come from."""

    @property
    def more(self) -> str:
        """Ids of everything else about it: its findings, its checks, related conditions."""
        return " ".join((*self.findings, *(check.id for check in self.checks), *self.see.split()))


YES = (Rung("warn", 1.0, 1.0),)
YES_ERROR = (Rung("error", 1.0, 1.0),)
"""Limits of what either is so or not."""
NOTHING: tuple[Reading, ...] = ()
SO = (Reading("", 1.0),)
"""It is so, of the one resource there is."""


def say_text(view: Facts, reading: Reading, since: float) -> str:
    """Give the words that were read."""
    return str(reading.about)


def level(rungs: Sequence[Rung], value: float) -> str | None:
    """Return the level of a value where large ones are bad, without any memory; None = below all rungs."""
    return next((rung.level for rung in reversed(rungs) if value >= rung.at), None)


def passed(evidence: str, at: float | None = None) -> Verdict:
    """Proved."""
    return Verdict(CheckStatus.PASSED, evidence, at)


def failed(evidence: str, at: float | None = None) -> Verdict:
    """Disproved."""
    return Verdict(CheckStatus.FAILED, evidence, at)


def warn(evidence: str, at: float | None = None) -> Verdict:
    """Neither proved nor disproved, and worth a look."""
    return Verdict(CheckStatus.WARN, evidence, at)


def waiting(evidence: str, at: float | None = None) -> Verdict:
    """Nothing to evaluate yet."""
    return Verdict(CheckStatus.WAITING, evidence, at)


def absent(seen: Facts, evidence: str, at: float | None = None) -> Verdict:
    """There is nothing to check yet, or it could not be checked, which is not the same."""
    return Verdict(CheckStatus.WAITING, seen.untold or evidence, at)


def person(evidence: str) -> Verdict:
    """Only a person can say."""
    return Verdict(CheckStatus.PERSON, evidence)


def graded(evidence: str, found: str | None, at: float | None = None) -> Verdict:
    """Turn the `level` of a reading into a verdict."""
    return {"error": failed, "warn": warn}.get(found or "", passed)(evidence, at)


# What a box must have before a condition or a handbook page has anything to check.
#
# Each costs a fraction of what it spares, and several ask for the same: of a box that is well, most need not
# be read.


class Signs:
    """The signs of one view, each asked for once."""

    __slots__ = ("_known", "_view")

    def __init__(self, view: Facts) -> None:
        self._view = view
        self._known: dict[Sign, bool] = {}

    def lack(self, sign: Sign | None) -> bool:
        """Tell whether a sign is not there; where nothing is needed, nothing lacks."""
        if sign is None:
            return False
        there = self._known.get(sign)
        if there is None:
            there = self._known[sign] = bool(sign(self._view))
        return not there


def unreachable(view: Facts) -> object:
    """The box does not answer."""
    return view.box.link is Link.UNREACHABLE


def stale(view: Facts) -> object:
    """There is no figure of now."""
    return view.stale


def queued(view: Facts) -> object:
    """A queue."""
    return view.box.queues


def work(view: Facts) -> object:
    """A queue, or a training that was found."""
    return view.box.queues or view.box.found


def named_work(view: Facts) -> object:
    """A running cell, or a training that was found."""
    return view.running or view.box.found


def running(view: Facts) -> object:
    """A running cell."""
    return view.running


def going_on(view: Facts) -> object:
    """An active run."""
    return view.running or view.beside


def standing(view: Facts) -> object:
    """A run that has not advanced for so long that something may hang."""
    return view.progress_age is not None and view.progress_age >= LEAST_STAND_S


def resumed(view: Facts) -> object:
    """A run that resumed from a checkpoint."""
    return any(run.resumes for run in view.box.runs)


def odd_loss(view: Facts) -> object:
    """A loss that is no number."""
    return any(run.loss is not None and not math.isfinite(run.loss) for run in view.box.runs)


def waiting_run(view: Facts) -> object:
    """A run that waits with unsaved work in memory."""
    return any(run.wait is not None for run in view.box.runs)


def over(view: Facts) -> object:
    """A found training whose processes are gone."""
    return any(not run.alive for run in view.box.found)


def armed(view: Facts) -> object:
    """This computer has armed it to stop itself."""
    return view.box.self_stop


def unread_mount(view: Facts) -> object:
    """A mount that could not be read."""
    sample = view.box.sample
    return sample is not None and any(disk.error is not None for disk in sample.disks)


def ailing_card(view: Facts) -> object:
    """A card that does not answer, is throttled, or has reported errors."""
    sample = view.box.sample
    return view.news.hard or (
        sample is not None
        and any(
            gpu.error is not None or gpu.throttle or gpu.xid is not None or gpu.ecc_uncorrected
            for gpu in sample.gpus
        )
    )


def stopped_process(view: Facts) -> object:
    """A process that a signal has stopped."""
    return any(proc.state == "T" for proc in _procs(view))


def ranks(view: Facts) -> object:
    """A process that is a rank of a distributed training."""
    return any(proc.dist is not None for proc in _procs(view))


def _procs(view: Facts) -> tuple[Proc, ...]:
    if view.box.sample is not None:
        return view.box.sample.procs
    return ()
