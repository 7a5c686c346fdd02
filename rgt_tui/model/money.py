"""Money: what a box costs now, and what it has cost."""

from __future__ import annotations

import enum

import msgspec

FLEET_FILE = "fleet file"
"""`Meter.source` of a price that the person wrote down: no provider was asked."""


class MeterKind(enum.StrEnum):
    """What the provider charges for right now. ``unknown`` is never shown as free."""

    COMPUTE_AND_STORAGE = "compute+storage"
    STORAGE_ONLY = "storage_only"
    NONE = "none"
    UNKNOWN = "unknown"


class Lifecycle(enum.StrEnum):
    """A provider's state of the machine, in our words."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"
    GONE = "gone"
    UNKNOWN = "unknown"


def is_gone(meter: Meter) -> bool:
    """Tell whether the provider says, in its newest reading, that the machine is gone."""
    return meter.error is None and meter.lifecycle is Lifecycle.GONE


class Amount(msgspec.Struct, frozen=True):
    """A sum of money, or a price of an hour, in one currency. Amounts of two currencies are never added."""

    value: float
    currency: str = "USD"
    at_least: bool = False
    """A lower bound: a part of it has a price that nobody said."""
    estimated: bool = False
    """A part of it is price × time that nobody watched and nobody billed: neither a fact nor a lower bound."""


class Meter(msgspec.Struct, frozen=True):
    """The meter of one box, with the source that says so."""

    kind: MeterKind = MeterKind.UNKNOWN
    lifecycle: Lifecycle = Lifecycle.UNKNOWN
    per_hour: float | None = None
    """What one hour costs in the present state."""
    compute_per_hour: float | None = None
    storage_per_hour: float | None = None
    spent: float | None = None
    """Since the machine was created, or as long as we know of it (`spent_since`)."""
    spent_since: float | None = None
    currency: str = "USD"
    at: float | None = None
    """Client clock of the reading."""
    source: str = "no provider"
    native_status: str | None = None
    actions: tuple[str, ...] = ()
    """What the provider would accept now, in its own words."""
    error: str | None = None
    """Why the last reading failed; the values above are then the last good ones."""
    ssh_host: str | None = None
    """Where SSH answers now, as the provider says; it may change with every start."""
    ssh_port: int | None = None
    created: float | None = None
    """When the machine was made, by the provider's clock."""
    started: float | None = None
    """When it was started last, by the provider's clock; None = not told, as by some of a machine that is stopped."""
    balance: float | None = None
    """What is left on the account that pays for the box, where the provider says so."""
    burn_per_hour: float | None = None
    """What the whole account costs an hour, its other machines included."""
    at_least: bool = False
    """`per_hour` and `storage_per_hour` are lower bounds: what `unpriced` names is billed as well."""
    unpriced: tuple[str, ...] = ()
    """What is billed, or may be, at a price that nobody said, e.g. ``volume disk``."""
    spent_at_least: bool = False
    """`spent` is a lower bound: of a part nobody said, or saw, what it cost."""
    spent_estimated: bool = False
    """`spent` is price × time since `spent_since`, and nobody billed it."""
    clock_skew: float | None = None
    """Seconds that this computer's clock is ahead of the provider's (its ``Date`` header); None = they agree, or the
    provider does not say."""
    doubt: str | None = None
    """What the provider leaves open about the figures above, in words; they are then the higher reading."""
    booked: float | None = None
    """What the provider's own books say was spent, as they were last read at `booked_at`; `spent` may have run on."""
    booked_at: float | None = None
    books_differ: float | None = None
    """The books less rgt's own count (price × time) since `books_differ_since`; None = they agree, or none was made."""
    books_differ_since: float | None = None
    """Client clock from which on the two were compared."""
    names: tuple[str, ...] = ()
    """What else the machine may call itself, by the provider: a pod's UID, the number of an array's task."""
    spot: bool | None = None
    """Whether the machine may be taken away for its lower price; None = the platform does not say."""
    out_per_gb: float | None = None
    """What a GB costs that leaves the machine, where the provider says so."""
    tiers: dict[str, str] = {}
    """Mount point → name of the storage tier, as the provider says it of this machine."""
    ends_at: float | None = None
    """When the rental ends by its contract (client clock), where the provider says so."""

    def state_text(self, detail: str = "") -> str:
        """Say who reports which state, e.g. ``RunPod says stopped (EXITED)``, then what the source adds.

        Args:
            detail: Continues the first sentence.
        """
        source, _, note = self.source.partition("; ")
        if "not in the list" in (self.native_status or ""):
            text = f"{source} no longer lists it{detail}"
        else:
            native = f" ({self.native_status})" if self.native_status else ""
            text = f"{source} says {self.lifecycle.value}{native}{detail}"
        return f"{text}. {note[0].upper()}{note[1:]}" if note else text
