"""A platform profile: facts about one kind of rented box, loaded from ``profiles/*.toml``."""

from __future__ import annotations

import enum

import msgspec


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a fact comes from."""

    fact: str
    url: str | None = None
    cited_as: str | None = None
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a platform charges for storage, as it said in the month of `verified`. Not a bill: prices change."""

    amount: float
    currency: str
    """Three letters, such as CNY."""
    per: str
    """``GB-month`` or ``GB-day``; a GB is 10^9 bytes unless the platform says otherwise."""
    verified: str
    """Month of the last check, ``YYYY-MM``."""
    url: str
    when: str = "always"
    """running, stopped or always: in which state of the box it is charged."""
    above_gb: float = 0.0
    """It is charged for what lies above so many GB, up to where the next price begins; below the first it is free."""
    grade: str | None = None
    """The platform's own word for the kind of storage, where one tier has several; None = the usual one."""


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of storage of a platform. Tri-states: True, False, or None = the source does not say."""

    name: str
    mounts: tuple[str, ...] = ()
    survives_stop: bool | None = None
    survives_destroy: bool | None = None
    bills_while_stopped: bool | None = None
    scope: str | None = None
    inode_cap: int | None = None
    prices: tuple[Price, ...] = ()
    """Empty = no figure is published, which is not the same as free."""
    note: str | None = None
    role: str | None = None
    """system, data or durable, where the platform has one for it."""


class BillingAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One billing verb of a platform."""

    verb: str
    native_label: str
    kind: str
    """park, destroy or other."""
    stops_gpu_meter: bool | None
    stops_storage_meter: bool | None
    reversible: bool | None
    keeps: tuple[str, ...] = ()
    """Names of tiers."""
    loses: tuple[str, ...] = ()
    note: str | None = None
    how: tuple[str, ...] = ()


class ClockMode(enum.StrEnum):
    """How a danger makes itself felt before it has happened."""

    COUNTDOWN = "countdown"
    """Time runs down from a beginning that can be known."""
    CHARGE = "charge"
    """A rate goes on, without an end."""
    TRIPWIRE = "tripwire"
    """It comes without notice; an alert watches for it."""
    NOTICE = "notice"
    """Nothing can watch for it: it is said when the platform is first met, and before a billing action."""


class ClockStart(enum.StrEnum):
    """What a countdown counts from."""

    STOP = "stop"
    START = "start"
    WALLTIME = "walltime"
    """The end that the scheduler gave the job."""
    END_DATE = "end_date"
    """The end of the rental, as the provider tells it."""
    BALANCE = "balance"
    """The account's balance at what the account costs an hour."""
    QUOTA = "quota"
    """What is left of the hours that the platform allots."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one source says of a danger clock."""

    says: str | None = None
    """In words, where the figure alone does not tell it, or where sources disagree."""
    after_s: float | None = None
    """Seconds from the beginning to the end; None = the source gives none."""
    approx: bool = False
    url: str | None = None
    cited_as: str | None = None
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""


class DangerClock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that will happen to the tenant's data or money by itself."""

    what: str
    consequence: str
    applies_when: str
    mode: ClockMode
    claims: tuple[Claim, ...]
    """One for each source; where they disagree, the worse counts, and all are said."""
    counts_from: ClockStart | None = None
    """Of a countdown."""
    runs: str | None = None
    """Of a charge: while the machine is ``stopped``, ``running``, or in every state (``always``)."""
    watched_by: str | None = None
    """Of a tripwire: the id of the alert that watches for it."""

    @property
    def worst(self) -> Claim | None:
        """The claim that leaves the least time; None where no source gives a figure."""
        timed = [claim for claim in self.claims if claim.after_s is not None]
        return min(timed, key=lambda claim: claim.after_s or 0.0, default=None)

    @property
    def after_s(self) -> float | None:
        """Seconds from the beginning to the end by the worst claim; None = not driven by time, or not published."""
        return self.worst.after_s if self.worst is not None else None

    @property
    def approx(self) -> bool:
        """The worst claim is rounded or unofficial."""
        return self.worst is not None and self.worst.approx

    @property
    def dispute(self) -> str | None:
        """What the sources say, where they disagree; None where they do not."""
        said = tuple(dict.fromkeys(claim.says for claim in self.claims if claim.says is not None))
        if len({claim.after_s for claim in self.claims}) < 2 or len(said) < 2:
            return None
        return "; another source: ".join(said)


class Traffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether bytes that leave a box cost money."""

    metered: bool
    note: str
    """What is charged, by whom, in words."""
    url: str
    verified: str
    """Month of the last check, ``YYYY-MM``."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A platform."""

    id: str
    name: str
    kind: str
    confidence: str
    top_danger: str
    detach: str
    tiers: tuple[Tier, ...] = ()
    billing: tuple[BillingAction, ...] = ()
    clocks: tuple[DangerClock, ...] = ()
    sources: tuple[Source, ...] = ()
    name_zh: str | None = None
    home_url: str | None = None
    confidence_note: str | None = None
    spot_available: bool | None = None
    spot_grace_s: float | None = None
    spot_signal: str | None = None
    inode_cap: int | None = None
    inode_cap_note: str | None = None
    meter_stop_verb: str | None = None
    china_mirror_needed: bool | None = None
    hosts: tuple[str, ...] = ()
    """Patterns of the host names that the platform hands out, such as ``*.seetacloud.com``."""
    user: str | None = None
    """Who logs in where neither the fleet file nor ssh_config says it; None = the name of the local user."""
    python: tuple[str, ...] = ()
    """Interpreters to try first."""
    conveniences: tuple[str, ...] = ()
    data_dir: str | None = None
    durable_dir: str | None = None
    traffic: Traffic | None = None
    """None = no source says it, which is not the same as free."""
