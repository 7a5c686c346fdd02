"""A box that stops itself: its arming, its clock, and its reports afterwards.

The agent's verb ``autostop`` uses exactly these fields (docs/autostop.md). Times are epoch seconds
by the box's clock unless another one is named; durations are seconds. Unknown values are ``None``,
never 0 or "no".
"""

from __future__ import annotations

import enum

from rgt_tui.language import translate
from rgt_tui.model.formats import parse_seconds
from rgt_tui.model.plain import FrozenStruct


def parse_idle_condition(text: str) -> float:
    """Return the seconds of ``no-progress[=TIME]``: an hour without a time, 0 for ``never``.

    Raises:
        ValueError: It is something else.
    """
    name, _, duration = text.partition("=")
    if text == "never":
        return 0.0
    if name != "no-progress":
        raise ValueError(
            translate("{words!r} is not no-progress, no-progress=TIME or never", words=text)
        )
    return parse_seconds(duration or "1h")


class AutostopMode(enum.StrEnum):
    """What ends the box's work."""

    IDLE = "idle"
    """A time without activity."""
    LEASE = "lease"
    """A fixed end, even if something runs."""


# No destroy: a box must not be able to delete anything by a wrong count of idle time.
class EndAction(enum.StrEnum):
    """What the box does at the end."""

    PARK = "park"
    ASK = "ask"
    """It stops nothing and notifies a person."""


class StopMethod(FrozenStruct, kw_only=True):
    """How a box stops its own billing: with a key from its platform, or with a command."""

    kind: str
    """``runpod``, ``vastai`` or ``command``."""
    # Empty = the platform's own server, which the agent knows. Another one must be https or
    # loopback.
    url: str = ""
    """URL of the platform's own server; empty for a command."""
    command: tuple[str, ...] = ()


class HolderId(FrozenStruct, kw_only=True):
    """A unique identification of a process; a pid alone may be reused."""

    pid: int
    started: float


class IdleHolder(FrozenStruct, kw_only=True):
    """An idle process that holds memory, such as a forgotten notebook.

    The box is not idle until the process is accepted.
    """

    pid: int
    started: float
    cmd: str = ""
    bytes: int | None = None

    @property
    def id(self) -> HolderId:
        """The identification used to accept it."""
        return HolderId(pid=self.pid, started=self.started)


class ArmRequest(FrozenStruct, kw_only=True):
    """The parameters that a box is armed with, for one instance and one boot."""

    mode: AutostopMode
    action: EndAction
    boot: str
    """Boot of the `Hello` that the person saw; the box refuses another one."""
    instance: str
    box: str
    """Its name in the fleet file."""
    idle_s: float = 0.0
    lease_s: float = 0.0
    # Ten minutes: time to type `rgt keep`, and short against the limits that make sense.
    warn_s: float = 600.0
    """Seconds before the end at which it warns."""
    inspect_s: float = 0.0
    """Seconds for which a failed cell delays the stop, so that a person can inspect it."""
    no_progress_s: float = 0.0
    """Seconds without any progress after which a live run counts as idle; 0 = it never does."""
    stop: StopMethod | None = None
    """None only with `EndAction.ASK`."""
    jobs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    pattern: str | None = None
    durable: tuple[str, ...] = ()
    """Directories that survive a park."""
    accept_holders: tuple[HolderId, ...] = ()
    accept_unsaving: tuple[str, ...] = ()
    """Runs that do not save on SIGTERM, but may be ended by a lease."""

    @property
    def limit_s(self) -> float:
        """The limit of its mode in seconds."""
        if self.mode is AutostopMode.IDLE:
            return self.idle_s
        return self.lease_s


class OwnKeyCheck(FrozenStruct, kw_only=True):
    """Whether the box can stop itself: results of a read with its own key, never the key."""

    proved: bool = False
    text: str = ""
    at: float | None = None


class StopEvent(FrozenStruct, kw_only=True):
    """A line of the box's own story."""

    at: float
    event: str
    """``armed``, ``kept``, ``warned``, ``withdrawn``, ``sealed``, ``mirrored``, ``intent``,
    ``asked``, ``answered``, ``refused``, ``failed``, ``unknown``, ``disarmed``, ``stopped-lease``
    or ``terminated``."""
    text: str = ""
    boot: str = ""


class AutostopStatus(FrozenStruct, kw_only=True):
    """The status of a box's self-stop, as reported by the box."""

    armed: bool = False
    mode: str | None = None
    action: str | None = None
    # A str and not an enum: an older client must show the states of a newer agent.
    state: str = "none"
    """``armed``, ``warned``, ``stopping``, ``failed``, ``disarmed`` or ``none``."""
    boot: str | None = None
    instance: str | None = None
    box: str | None = None
    since: float | None = None
    limit_s: float | None = None
    idle_s: float | None = None
    """Uninterrupted idle time so far; None = unknown."""
    unknown_s: float | None = None
    """How long it has been unknown."""
    stops_in_s: float | None = None
    kept_until: float | None = None
    why: tuple[str, ...] = ()
    """Why the box is not idle, or why that is unknown."""
    holders: tuple[IdleHolder, ...] = ()
    unsaving: tuple[str, ...] = ()
    """Runs that do not save on SIGTERM, if known."""
    saving: tuple[str, ...] = ()
    no_progress: tuple[str, ...] = ()
    """Evidence of live runs that count as idle, because the person armed it so."""
    key: OwnKeyCheck | None = None
    last: StopEvent | None = None
    # Nested one level only: a lease has no lease of its own.
    lease: AutostopStatus | None = None
    """The status of a lease, in addition to that of the idle clock."""


class ArmAnswer(FrozenStruct, kw_only=True):
    """The box's answer to a request, rehearsed or not."""

    ok: bool
    reasons: tuple[str, ...] = ()
    """Why it is not armed, or would not be."""
    # Also with a refusal, so that the person sees what blocks.
    status: AutostopStatus = AutostopStatus()


class AutostopReading(FrozenStruct, kw_only=True):
    """The status of an armed box in each sample."""

    mode: str = AutostopMode.IDLE
    action: str = EndAction.PARK
    # A box that is not armed has no reading at all, so this is the usual one.
    state: str = "armed"
    """As `AutostopStatus.state`."""
    idle_s: float | None = None
    unknown_s: float | None = None
    limit_s: float | None = None
    stops_in_s: float | None = None
    kept_until: float | None = None
    why: tuple[str, ...] = ()
    """The first three reasons."""
    no_progress: tuple[str, ...] = ()
    """As `AutostopStatus.no_progress`, the first three."""
    unsaving: tuple[str, ...] = ()
    """Runs that the lease would end although they do not save and were not accepted."""


class ArmedRecord(FrozenStruct, kw_only=True):
    """The client's record of having armed a box; it survives rgt and the box."""

    box: str
    kind: str
    """Of its provider."""
    account: str
    instance: str
    boot: str
    mode: AutostopMode
    action: EndAction
    limit_s: float
    at: float
    """Client clock."""
    who: str = ""
    per_hour: float | None = None
    """Its hourly compute price, if known."""
    currency: str = "USD"
    # Kept here, because the fleet file may have changed by the time the machine is back.
    durable: tuple[str, ...] = ()
    """Directories of the box that survive a park: it copies its story to each."""
    no_progress_s: float = 0.0
    """As in `ArmRequest`."""


class SelfStopState(FrozenStruct, kw_only=True):
    """The client's knowledge about an armed box, kept in its state. Client clock."""

    armed: tuple[ArmedRecord, ...] = ()
    """At most one per mode."""
    stopping_at: float | None = None
    """When the box announced its stop; None = no announcement was received."""
    # Not the time of the stop, which the box knows: the provider may have been polled much later.
    off_at: float | None = None
    """When its provider first reported it as off."""
    story: tuple[StopEvent, ...] = ()
    """The box's story after it was started again, newest last."""
    told_at: float | None = None
    """When the story was received."""
    saved: float | None = None
    """Compute costs from `off_at` until the machine was started again: a lower bound of the
    savings."""
