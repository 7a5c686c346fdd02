"""A platform profile: facts about one kind of rented box, loaded from ``profiles/*.toml``.

Eight sections: launch, storage (`StorageTier`, `StorageFacts`), network, interruption, billing,
    daemon,
gotchas, overrides; in addition the danger clocks, contradictions between sources, and the sources.
Tri-states: True, False, or None = in no source, which is never shown as "no", free or safe.
"""

from __future__ import annotations

import enum

from rgt_tui.language import translate

# All structs forbid unknown fields: a misspelt key in a profile would else be a missing fact, and a
# missing fact about money looks like "unknown".
from rgt_tui.model.plain import FrozenStruct


class FactSource(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """The source of a fact."""

    fact: str
    id: str | None = None
    """Used by tiers, billing actions and sections to refer to it; None = no reference."""
    url: str | None = None
    cited_as: str | None = None
    """Name of a source without an address of its own; `url` is then the nearest page."""
    # Months, not days: vendors' pages carry no date of their own.
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""


class StoragePrice(FrozenStruct, forbid_unknown_fields=True):
    """A platform's storage price as published in the month of `verified`.

    Not a bill: prices change.
    """

    # Published prices are kept with their unit, because platforms count a month as 720 or 730
    # hours.
    amount: float
    currency: str
    """Three letters, such as CNY."""
    per: str
    """``GB-month``, ``GiB-month``, ``GB-day`` or ``GB-hour``; a GB is 10^9 bytes unless the
    platform defines it otherwise."""
    verified: str
    """Month of the last check, ``YYYY-MM``."""
    url: str
    when: str = "always"
    """The state of the box in which it is charged: running, stopped or always."""
    above_gb: float = 0.0
    """It applies to the part above this many GB, up to the start of the next price; below the first
    price it is free."""
    grade: str | None = None
    """The platform's own name of the kind of storage, if one tier has several; None = the usual
    one."""


class StorageTier(FrozenStruct, forbid_unknown_fields=True):
    """One kind of storage of a platform."""

    name: str
    mounts: tuple[str, ...] = ()
    """Literal mount points, as shown by ``df``."""
    # None and False differ: unknown blocks a destroy, but is not shown as "erased".
    survives_stop: bool | None = None
    survives_destroy: bool | None = None
    bills_while_stopped: bool | None = None
    scope: str | None = None
    """Where it can be reached from: one machine, one region, the account."""
    inode_cap: int | None = None
    prices: tuple[StoragePrice, ...] = ()
    """Empty = no price is published, which is not the same as free."""
    note: str | None = None
    role: str | None = None
    """system, data or durable, if the platform has one for it."""
    region_lock: bool | None = None
    """It cannot be used from another region or datacenter: shown before one is chosen."""
    where: str | None = None
    """As text, without a literal mount point: ``$TMPDIR``, ``a bucket of your own``."""
    size: str | None = None
    speed: str | None = None
    sources: tuple[str, ...] = ()
    """Ids of `FactSource` about survival and billing."""


class BillingAction(FrozenStruct, forbid_unknown_fields=True):
    """One billing verb of a platform."""

    verb: str
    native_label: str
    kind: str
    """park, destroy or other."""
    # Its own field: a stop may free the GPU's charge and leave the disk's.
    stops_gpu_meter: bool | None = None
    stops_storage_meter: bool | None = None
    reversible: bool | None = None
    keeps: tuple[str, ...] = ()
    """Names of tiers."""
    loses: tuple[str, ...] = ()
    note: str | None = None
    how: tuple[str, ...] = ()
    """Ways to do it by hand, such as ``console: Stop``; empty = the source names the action but no
    way to do it."""
    uncertain: tuple[str, ...] = ()
    """Names of tiers whose fate is unknown or disputed in the sources: do not rely on them."""
    keeps_for_s: dict[str, float] = {}
    """Tier → seconds for which it survives the action."""
    kills_processes: bool | None = None
    reversible_window_s: float | None = None
    """Seconds within which it can be undone; None = no known limit."""
    confirm_with: str | None = None
    """How to see that it has really happened."""
    first: str | None = None
    """What to do or check before it."""
    # E.g. DigitalOcean's power-off: the machine is off and bills in full.
    trap: bool = False
    """It appears to stop the billing but does not: never offered."""
    sources: tuple[str, ...] = ()
    """Ids of `FactSource` about what it stops, keeps and loses."""


# In the order of urgency, by which the page sorts.
class ClockMode(enum.StrEnum):
    """How a danger can be noticed before it happens."""

    COUNTDOWN = "countdown"
    """Time runs down from a known start."""
    CHARGE = "charge"
    """A charge continues without a limit."""
    TRIPWIRE = "tripwire"
    """It comes without notice; an alert monitors it."""
    NOTICE = "notice"
    """It cannot be monitored: shown when the platform is first seen, and before a billing
    action."""


class ClockStart(enum.StrEnum):
    """The start of a countdown."""

    STOP = "stop"
    START = "start"
    WALLTIME = "walltime"
    """The scheduler's time limit of the job."""
    END_DATE = "end_date"
    """The end of the rental, as reported by the provider."""
    BALANCE = "balance"
    """The account's balance at its present hourly costs."""
    QUOTA = "quota"
    """The remaining hours of the platform's quota."""


class ClockClaim(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """One source's claim about a danger clock."""

    says: str | None = None
    """As text, if the figure alone is not enough, or sources disagree."""
    after_s: float | None = None
    """Seconds from start to end; None = not in the source."""
    approx: bool = False
    url: str | None = None
    cited_as: str | None = None
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""


class DangerClock(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Something that will happen to the tenant's data or money without a person's action."""

    what: str
    consequence: str
    applies_when: str
    mode: ClockMode
    claims: tuple[ClockClaim, ...]
    """One for each source; if they disagree, the worst applies and all are shown."""
    counts_from: ClockStart | None = None
    """Of a countdown."""
    runs: str | None = None
    """Of a charge: while the machine is ``stopped``, ``running``, or in every state
    (``always``)."""
    watched_by: str | None = None
    """Of a tripwire: the id of the alert that monitors it."""
    in_scripts: bool = False
    """It only concerns scripts, not a person's actions: reviews of billing actions omit it."""

    @property
    def worst_claim(self) -> ClockClaim | None:
        """The claim with the least time, or None without figures."""
        timed = [claim for claim in self.claims if claim.after_s is not None]
        # The least time is the worst case: data that is gone earlier than expected is lost.
        return min(timed, key=lambda claim: claim.after_s or 0.0, default=None)

    @property
    def after_s(self) -> float | None:
        """Seconds from start to end by the worst claim; None = not time-based, or not published."""
        if self.worst_claim is not None:
            return self.worst_claim.after_s
        return None

    @property
    def is_approximate(self) -> bool:
        """The worst claim is rounded or unofficial."""
        return self.worst_claim is not None and self.worst_claim.approx

    @property
    def dispute_text(self) -> str | None:
        """The sources' claims as text if they disagree, otherwise None."""
        said = tuple(dict.fromkeys(claim.says for claim in self.claims if claim.says is not None))
        # Sources that name the same figure in other words do not disagree.
        if len({claim.after_s for claim in self.claims}) < 2 or len(said) < 2:
            return None
        return translate("; another source: ").join(said)


class LaunchMethod(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """One way to get a machine or a job."""

    via: str
    """console, cli, rest, ssh, sdk or manual."""
    call: str
    """What to type; with ``console``, what to click."""
    note: str | None = None


class SshAccess(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """One kind of SSH access, and what it supports."""

    name: str
    scp: bool | None = None
    rsync: bool | None = None
    sftp: bool | None = None
    forwards: bool | None = None
    """Port forwarding."""
    note: str | None = None


class LaunchFacts(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Section *launch*: how to get a box, and how to log in."""

    ways: tuple[LaunchMethod, ...] = ()
    api: str | None = None
    """The control plane, as text; None = in no source."""
    address: str | None = None
    """Where to find the SSH address."""
    key_step: str | None = None
    """How a person's public key gets there; None = in no source."""
    user: str | None = None
    """User name if neither the fleet file nor ssh_config sets it; None = the local user's name."""
    # Used by `rgt add` to recognise a platform; no request is made for it.
    hosts: tuple[str, ...] = ()
    """Patterns of the platform's host names, such as ``*.seetacloud.com``."""
    shells: tuple[SshAccess, ...] = ()
    moves_on_restart: bool | None = None
    """The address or the port changes with a restart."""
    moves_on_recreate: bool | None = None
    environment: str | None = None
    """The Python environment there, and what must not be done to it."""
    first_check: str | None = None
    """The first command to run in a new box."""
    notes: tuple[str, ...] = ()


class StorageFacts(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Section *storage*, except the tiers: where checkpoints belong, and how full it is."""

    checkpoints: str | None = None
    """Where live checkpoints belong, and what to do before the box ends."""
    space_probes: tuple[str, ...] = ()
    """Commands that print how full it is."""
    inodes: str | None = None
    """Known limits on the number of files."""
    notes: tuple[str, ...] = ()


class TrafficFacts(FrozenStruct, forbid_unknown_fields=True):
    """Whether a box's outgoing traffic costs money."""

    metered: bool
    note: str
    """The charge and the party that charges it, as text."""
    url: str | None = None
    cited_as: str | None = None
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""
    most_per_gib: float | None = None
    """Maximum price per GiB; None = it depends on the machine, or is unknown."""
    currency: str = "USD"


class TensorBoard(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """The platform's own TensorBoard: it shows one directory only."""

    logdir: str
    port: int
    note: str | None = None


class NetworkFacts(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Section *network*: mirrors, proxy, ports, and traffic prices."""

    mirror_needed: bool | None = None
    """Hugging Face, PyPI and GitHub are slow or unreachable without a mirror or a proxy."""
    proxy_required: bool | None = None
    proxy_note: str | None = None
    mirrors: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()
    """Where mirror and proxy fail."""
    ports: tuple[str, ...] = ()
    """How to reach a port of the box from outside."""
    tensorboard: TensorBoard | None = None
    traffic: TrafficFacts | None = None
    """None = in no source, which is not the same as free."""
    notes: tuple[str, ...] = ()


class Interruption(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Section *interruption*: what may end a running box, with which warning."""

    model: str | None = None
    """What ends it, and when."""
    spot_available: bool | None = None
    spot_grace_s: float | None = None
    """Seconds between the warning and the end; 0 = no warning; None = no spot offers, or
    unknown."""
    spot_signal: str | None = None
    # Listed per platform: an agent must not query 169.254.169.254 on an unknown network.
    notices: tuple[str, ...] = ()
    """Metadata services that announce it and that a box may poll (``ec2``, ``gce``, ``azure``).
    Only a machine that its own firmware tables call one of that platform's polls one."""
    detect: str | None = None
    """How to detect that it has happened."""
    resume: str | None = None
    losses: tuple[str, ...] = ()
    """Other ways in which work is lost."""
    sources: tuple[str, ...] = ()
    """Ids of `FactSource`."""


class DaemonFacts(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Section *daemon*: how programs keep running without the terminal."""

    survives_ssh_drop: bool | None = None
    survives_stop: bool | None = None
    survives_restart: bool | None = None
    install: str | None = None
    fallback: str | None = None
    """A command line without the tool."""
    native_queue: str | None = None
    # The default of an ordinary machine; containers have neither.
    on_start: tuple[str, ...] = ("systemd", "cron")
    """Hooks by which something runs when a box starts, the best first: ``file``, ``command``,
    ``systemd``, ``cron``. Empty = none, or none is needed."""
    on_start_file: str | None = None
    """For ``file``: the script that the platform runs."""
    on_start_note: str | None = None
    """Why it has no hook."""
    notes: tuple[str, ...] = ()


class Gotcha(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """A known trap of the platform."""

    id: str
    symptom: str
    cause: str
    fix: str
    # RE2, because it runs over every line of every log: linear time.
    log_signature: str | None = None
    """RE2-compatible expression to search for; None = not detectable in a log line."""
    signature_in: str | None = None
    """The text that is searched."""
    example: str | None = None
    """A line that the signature matches."""
    inferred: bool = False
    """The signature was written from known outputs of the tools, without a source."""
    probe: str | None = None
    """What to check, if no line shows it."""
    note: str | None = None


class Contradiction(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """A disagreement between sources. All sides are kept, and the worst one applies."""

    about: str
    sides: tuple[str, ...]
    # Written by a person: rgt's code relies on this side, so it cannot be computed.
    counts: str
    """The side that rgt uses."""
    sources: tuple[str, ...] = ()
    """Ids of `FactSource`."""


class Overrides(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """Section *overrides*: defaults for settings missing in the fleet file."""

    detach: str
    """How programs are kept running: tmux, setsid, sbatch, k8s-job …"""
    python: tuple[str, ...] = ()
    """Interpreters to try first (PY)."""
    python_note: str | None = None
    data_dir: str | None = None
    """Absolute path for live checkpoints; None = differs between boxes."""
    durable_dir: str | None = None
    """Absolute path of storage that outlives the box; None = no such storage, or it
    differs between boxes."""
    durable_note: str | None = None
    # Literal: a `$` would be expanded by some shells and not by others.
    env: dict[str, str] = {}
    """Environment of jobs, such as HF_HOME and HF_ENDPOINT; literal values."""
    env_hook: str | None = None
    """Shell line to run before a job, such as ``module load cuda``."""
    proxy_hook: str | None = None
    """Shell line that turns on the platform's proxy (`proxy_unhook` turns it off)."""
    no_proxy: tuple[str, ...] = ()
    """Domains that the platform's own list sends through the proxy, but must be accessed
    directly."""
    proxy_unhook: str | None = None
    credentials: str | None = None
    """Where keys belong, and where they must not be stored."""
    scratch: str | None = None
    """Storage that may be deleted at any time."""


class Profile(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """A platform."""

    id: str
    name: str
    kind: str
    """ssh, ssh-rental, cloud-api, slurm, kubernetes, notebook or workstation."""
    confidence: str
    """battle-tested (used daily) or from-docs (read only)."""
    top_danger: str
    overrides: Overrides
    launch: LaunchFacts = LaunchFacts()
    tiers: tuple[StorageTier, ...] = ()
    storage: StorageFacts = StorageFacts()
    network: NetworkFacts = NetworkFacts()
    interruption: Interruption = Interruption()
    billing: tuple[BillingAction, ...] = ()
    daemon: DaemonFacts = DaemonFacts()
    gotchas: tuple[Gotcha, ...] = ()
    clocks: tuple[DangerClock, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    sources: tuple[FactSource, ...] = ()
    name_zh: str | None = None
    aliases: tuple[str, ...] = ()
    """Its other common names."""
    home_url: str | None = None
    docs_url: str | None = None
    confidence_note: str | None = None
    stops_gpu: str | None = None
    """How to stop paying for the GPU, in the platform's own terms."""
    # True by default: a platform that is not known must not look free.
    billed: bool = True
    """False = machines there cost no money: your own, a free tier, a quota."""
    stops_all: str | None = None
    """How to stop all spending."""
    conveniences: tuple[str, ...] = ()
