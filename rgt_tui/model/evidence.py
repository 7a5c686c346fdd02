"""Findings, checks, and the evidence and permit of a billing action."""

from __future__ import annotations

import enum
import time

import msgspec


def steady() -> float:
    """Return seconds of a clock that nobody can set and that goes on while the computer sleeps.

    Linux has such a clock (``clock_gettime(2)``, CLOCK_BOOTTIME); elsewhere the monotonic one serves.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Severity(enum.StrEnum):
    """How bad a finding is, worst first."""

    FATAL = "fatal"
    DEGRADING = "degrading"
    SILENT_WRONG = "silent-wrong"
    COST = "cost"


class Fix(msgspec.Struct, frozen=True):
    """One step out of trouble."""

    text: str
    command: str | None = None
    """A command to run on the box; it is shown, never run by itself."""


class Finding(msgspec.Struct, frozen=True):
    """A diagnosis: which gotcha, what proves it, and what to do."""

    gotcha: str
    """Stable id of the handbook entry, e.g. ``U7``."""
    title: str
    severity: Severity
    resource: str
    """What ran out or broke, e.g. ``inodes of /workspace``."""
    evidence: str
    """The very line of the log, or the reading, that proves it."""
    where: str
    """Where the evidence stands: a log path, or ``sample``."""
    fixes: tuple[Fix, ...] = ()
    never: str | None = None
    """What must not be done."""
    reading: str | None = None
    """The live reading beside the line, e.g. ``4,096 of 4,096 inodes used (bytes 3 %)``."""
    run: str | None = None
    step: int | None = None
    since: float = 0.0
    """Client clock when it was first seen."""
    cleared: bool = False
    """True when the cause is gone, but the run has not shown yet that it goes on."""


class CheckStatus(enum.StrEnum):
    """Result of one check."""

    PASSED = "passed"
    FAILED = "failed"
    WARN = "warn"
    WAITING = "waiting"
    """Nothing to evaluate yet."""
    PERSON = "person"
    """Only a person can say."""


class CheckResult(msgspec.Struct, frozen=True):
    """One item of the lifecycle with its evidence and the age of that evidence."""

    id: str
    """e.g. ``4.3``."""
    phase: int
    title: str
    status: CheckStatus
    evidence: str
    at: float | None = None
    """Client clock of the evidence; None where there is none."""


class Verb(enum.StrEnum):
    """The two ways to stop a meter."""

    PARK = "park"
    DESTROY = "destroy"


class EvidenceItem(msgspec.Struct, frozen=True):
    """One line of what the gate needs to know."""

    key: str
    """e.g. ``quiet``, ``queue``, ``durable``, ``provider``, ``name``."""
    ok: bool
    text: str
    at: float | None = None


class Evidence(msgspec.Struct, frozen=True):
    """Everything the gate looks at for one box and verb."""

    box: str
    verb: Verb
    instance: str
    items: tuple[EvidenceItem, ...]
    typed: str = ""
    """What the person typed."""


class Refusal(msgspec.Struct, frozen=True):
    """Why the gate stays closed, all reasons at once."""

    reasons: tuple[str, ...]


class Permit(msgspec.Struct, frozen=True):
    """The only value with which a provider's destructive call can be made. Built by `rgt_tui.gate` alone."""

    box: str
    verb: Verb
    instance: str
    digest: str
    """SHA-256 of the evidence it rests on."""
    expires: float
    """Client clock; a provider refuses an expired permit."""


class StopPhase(enum.StrEnum):
    """Where a billing action stands. A 2xx is *requested*, never *stopped*."""

    REQUESTED = "requested"
    CONFIRMED = "confirmed"
    METER_OFF = "meter-off"
    UNCONFIRMED = "unconfirmed"
    FAILED = "failed"


class StopProgress(msgspec.Struct, frozen=True):
    """One step of a billing action, as it happens."""

    phase: StopPhase
    at: float
    text: str


class Review(msgspec.Struct, frozen=True):
    """What a person must see before a billing action: made fresh when the dialog opens, and again at OK."""

    box: str
    verb: Verb
    native_label: str
    """The platform's own word for the verb."""
    instance: str
    irreversible: bool
    per_hour: float | None
    spent: float | None
    currency: str
    lost: tuple[str, ...]
    """What will be gone, a line each; empty = nothing, by the profile."""
    kept: tuple[str, ...]
    keeps_billing: tuple[str, ...]
    """What goes on costing money afterwards, a line each."""
    items: tuple[EvidenceItem, ...]
    refusals: tuple[str, ...]
    """Why the gate is closed now (the name not yet typed is not among them)."""
    will_send: str
    """The exact API call."""
    status: str
    """The provider's present state of the machine, re-read for this review."""
    at: float
