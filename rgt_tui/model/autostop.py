"""A box that stops itself: how it is armed, what its clock says, and what it reports afterwards.

The agent's verb ``autostop`` speaks exactly these fields (docs/autostop.md). Times are epoch seconds by the box's clock
unless another one is named; spans are seconds. What the box cannot tell is ``None``, never 0 and never "no".
"""

from __future__ import annotations

import enum

import msgspec


class Mode(enum.StrEnum):
    """What ends the box's work."""

    IDLE = "idle"
    """Nothing has happened on it for so long."""
    LEASE = "lease"
    """A hard end, whatever runs."""


class EndsBy(enum.StrEnum):
    """What the box does then."""

    PARK = "park"
    ASK = "ask"
    """It stops nothing: it calls for a person."""


class StopWay(msgspec.Struct, frozen=True, kw_only=True):
    """How a box stops its own meter: with the key of its own that its platform gives it, or by a command."""

    kind: str
    """``runpod``, ``vastai`` or ``command``."""
    url: str = ""
    """Of the platform's own server; empty for a command."""
    command: tuple[str, ...] = ()


class HolderId(msgspec.Struct, frozen=True, kw_only=True):
    """A process, for ever: a number alone is soon another's."""

    pid: int
    started: float


class IdleHolder(msgspec.Struct, frozen=True, kw_only=True):
    """An idle process that holds memory, such as a forgotten notebook: the box is not idle before it was accepted."""

    pid: int
    started: float
    cmd: str = ""
    bytes: int | None = None

    @property
    def id(self) -> HolderId:
        """What it is accepted by."""
        return HolderId(pid=self.pid, started=self.started)


class ArmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a box is armed with, for one instance and one boot."""

    mode: Mode
    action: EndsBy
    boot: str
    """That of the `Hello` which the person has armed by; the box refuses another one."""
    instance: str
    box: str
    """Its name in the fleet file."""
    idle_s: float = 0.0
    lease_s: float = 0.0
    warn_s: float = 600.0
    """So long before the end it warns."""
    inspect_s: float = 0.0
    """So long a cell that failed holds the box, for a person who wants to look."""
    stop: StopWay | None = None
    """None only with `EndsBy.ASK`."""
    jobs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    pattern: str | None = None
    durable: tuple[str, ...] = ()
    """Directories that outlive a park."""
    accept_holders: tuple[HolderId, ...] = ()
    accept_unsaving: tuple[str, ...] = ()
    """Runs that do not save on SIGTERM, and may be ended by a lease all the same."""

    @property
    def limit_s(self) -> float:
        """Of its mode."""
        if self.mode is Mode.IDLE:
            return self.idle_s
        return self.lease_s


class OwnKey(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the box can stop itself: what its own key has read, never the key."""

    proved: bool = False
    text: str = ""
    at: float | None = None


class StopEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the box's own story."""

    at: float
    event: str
    """``armed``, ``kept``, ``warned``, ``withdrawn``, ``sealed``, ``mirrored``, ``intent``, ``asked``, ``answered``,
    ``refused``, ``failed``, ``unknown``, ``disarmed``, ``stopped-lease`` or ``terminated``."""
    text: str = ""
    boot: str = ""


class AutostopStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a box's own stop, as the box reports it."""

    armed: bool = False
    mode: str | None = None
    action: str | None = None
    state: str = "none"
    """``armed``, ``warned``, ``stopping``, ``failed``, ``disarmed`` or ``none``."""
    boot: str | None = None
    instance: str | None = None
    box: str | None = None
    since: float | None = None
    limit_s: float | None = None
    idle_s: float | None = None
    """Unbroken so far; None = it cannot be told."""
    unknown_s: float | None = None
    """For so long it could not be told."""
    stops_in_s: float | None = None
    kept_until: float | None = None
    why: tuple[str, ...] = ()
    """What keeps it from being idle, or what cannot be told."""
    holders: tuple[IdleHolder, ...] = ()
    unsaving: tuple[str, ...] = ()
    """Runs that do not save on SIGTERM, as far as known."""
    saving: tuple[str, ...] = ()
    key: OwnKey | None = None
    last: StopEvent | None = None
    lease: AutostopStatus | None = None
    """The same of a lease, beside that of the idle clock."""


class ArmAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the box says to a request, rehearsed or not."""

    ok: bool
    reasons: tuple[str, ...] = ()
    """Why it is not armed, or would not be."""
    status: AutostopStatus = AutostopStatus()


class AutostopReading(msgspec.Struct, frozen=True, kw_only=True):
    """What each sample says of an armed box."""

    mode: str = Mode.IDLE
    action: str = EndsBy.PARK
    state: str = "armed"
    """As `AutostopStatus.state`."""
    idle_s: float | None = None
    unknown_s: float | None = None
    limit_s: float | None = None
    stops_in_s: float | None = None
    kept_until: float | None = None
    why: tuple[str, ...] = ()
    """The first three."""
    unsaving: tuple[str, ...] = ()
    """Runs that the lease would end although they do not save, and that nobody has accepted."""


class Armed(msgspec.Struct, frozen=True, kw_only=True):
    """What the client remembers of having armed a box; it outlives rgt, and the box."""

    box: str
    kind: str
    """Of its provider."""
    account: str
    instance: str
    boot: str
    mode: Mode
    action: EndsBy
    limit_s: float
    at: float
    """Client clock."""
    who: str = ""
    per_hour: float | None = None
    """What the compute of it cost an hour, where that was known."""
    currency: str = "USD"
    durable: tuple[str, ...] = ()
    """Directories of the box that outlive a park: into each it copies its story."""


class SelfStop(msgspec.Struct, frozen=True, kw_only=True):
    """What is known here of a box that was armed: kept in its state, for every screen and command. Client clock."""

    armed: tuple[Armed, ...] = ()
    """At most one per mode."""
    stopping_at: float | None = None
    """When the box itself was heard to say that it stops now; None = nobody heard it."""
    off_at: float | None = None
    """When its provider first said that it is off."""
    story: tuple[StopEvent, ...] = ()
    """What the box told once it was started again, the newest last."""
    told_at: float | None = None
    """When it told that."""
    saved: float | None = None
    """What its compute would have cost from `off_at` until it was looked at again: at least so much was saved."""
