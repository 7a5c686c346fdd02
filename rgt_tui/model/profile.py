"""A platform profile: facts about one kind of rented box, loaded from ``profiles/*.toml``.

Eight sections: launch, storage (`Tier`, `Storage`), network, interruption, billing, daemon, gotchas, overrides; beside
them the danger clocks, what sources contradict each other in, and the sources. Tri-states: True, False, or None = no
source says it, which is never shown as "no", as free or as safe.
"""

from __future__ import annotations

import enum

import msgspec


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a fact comes from."""

    fact: str
    id: str | None = None
    """By which tiers, billing actions and sections name it; None = nothing names it."""
    url: str | None = None
    cited_as: str | None = None
    """How the source is named where it has no address of its own; `url` is then the nearest page."""
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a platform charges for storage, as it said in the month of `verified`. Not a bill: prices change."""

    amount: float
    currency: str
    """Three letters, such as CNY."""
    per: str
    """``GB-month``, ``GiB-month``, ``GB-day`` or ``GB-hour``; a GB is 10^9 bytes unless the platform says otherwise."""
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
    """One kind of storage of a platform."""

    name: str
    mounts: tuple[str, ...] = ()
    """Literal mount points, as ``df`` shows them."""
    survives_stop: bool | None = None
    survives_destroy: bool | None = None
    bills_while_stopped: bool | None = None
    scope: str | None = None
    """Where it can be reached from: one machine, one region, the account."""
    inode_cap: int | None = None
    prices: tuple[Price, ...] = ()
    """Empty = no figure is published, which is not the same as free."""
    note: str | None = None
    role: str | None = None
    """system, data or durable, where the platform has one for it."""
    region_lock: bool | None = None
    """It cannot be used from another region or datacenter: said before one is chosen."""
    where: str | None = None
    """In words, where no literal mount point tells it: ``$TMPDIR``, ``a bucket of your own``."""
    size: str | None = None
    speed: str | None = None
    sources: tuple[str, ...] = ()
    """Ids of `Source`: who says what survives and what bills."""


class BillingAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One billing verb of a platform."""

    verb: str
    native_label: str
    kind: str
    """park, destroy or other."""
    stops_gpu_meter: bool | None = None
    stops_storage_meter: bool | None = None
    reversible: bool | None = None
    keeps: tuple[str, ...] = ()
    """Names of tiers."""
    loses: tuple[str, ...] = ()
    note: str | None = None
    how: tuple[str, ...] = ()
    """Ways to do it by hand, such as ``console: Stop``; empty = the source names the step and no way to do it."""
    uncertain: tuple[str, ...] = ()
    """Names of tiers of which the sources do not say, or not alike, what becomes of them: nobody may count on them."""
    keeps_for_s: dict[str, float] = {}
    """Tier → seconds for which it outlives the action."""
    kills_processes: bool | None = None
    reversible_window_s: float | None = None
    """Seconds within which it can be undone; None = no source says that it ends."""
    confirm_with: str | None = None
    """How one sees that it has really happened."""
    first: str | None = None
    """What has to be done or looked at before it."""
    trap: bool = False
    """It looks as if it stopped the bill and does not: never offered."""
    sources: tuple[str, ...] = ()
    """Ids of `Source`: who says what it stops, keeps and loses."""


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
    """Something that will happen to the tenant's data or money without a person's doing."""

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
    in_scripts: bool = False
    """It concerns only scripts, not what a person does: the review of a billing action leaves it out."""

    @property
    def worst(self) -> Claim | None:
        """The claim that leaves the least time; None where no source gives a figure."""
        timed = [claim for claim in self.claims if claim.after_s is not None]
        return min(timed, key=lambda claim: claim.after_s or 0.0, default=None)

    @property
    def after_s(self) -> float | None:
        """Seconds from the beginning to the end by the worst claim; None = not driven by time, or not published."""
        if self.worst is not None:
            return self.worst.after_s
        return None

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


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to get a machine or a job."""

    via: str
    """console, cli, rest, ssh, sdk or manual."""
    call: str
    """What to type; with ``console``, what to click."""
    note: str | None = None


class Shell(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of SSH access, and what it can carry."""

    name: str
    scp: bool | None = None
    rsync: bool | None = None
    sftp: bool | None = None
    forwards: bool | None = None
    """Port forwarding."""
    note: str | None = None


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section *launch*: how one gets a box, and gets into it."""

    ways: tuple[Way, ...] = ()
    api: str | None = None
    """Which control plane there is, in words; None = no source says."""
    address: str | None = None
    """Where the SSH address is found."""
    user: str | None = None
    """Who logs in where neither the fleet file nor ssh_config says it; None = the name of the local user."""
    hosts: tuple[str, ...] = ()
    """Patterns of the host names that the platform hands out, such as ``*.seetacloud.com``."""
    shells: tuple[Shell, ...] = ()
    moves_on_restart: bool | None = None
    """The address or the port is another one after a restart."""
    moves_on_recreate: bool | None = None
    environment: str | None = None
    """What is the Python environment there, and what must not be done to it."""
    first_check: str | None = None
    """The first command to run in a new box."""
    notes: tuple[str, ...] = ()


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section *storage*, apart from the tiers: where checkpoints belong, and how full it is."""

    checkpoints: str | None = None
    """Where live checkpoints belong, and what has to be done before the box ends."""
    space_probes: tuple[str, ...] = ()
    """Commands that say how full it is."""
    inodes: str | None = None
    """What is known of limits on the number of files."""
    notes: tuple[str, ...] = ()


class Traffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether bytes that leave a box cost money."""

    metered: bool
    note: str
    """What is charged, by whom, in words."""
    url: str | None = None
    cited_as: str | None = None
    verified: str | None = None
    """Month of the last check, ``YYYY-MM``; None = never dated by the source."""
    most_per_gib: float | None = None
    """What each GiB costs at most; None = that depends on the machine, or nobody says."""
    currency: str = "USD"


class TensorBoard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The platform's own TensorBoard: it shows one directory only."""

    logdir: str
    port: int
    note: str | None = None


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section *network*: mirrors, proxy, ports, and what traffic costs."""

    mirror_needed: bool | None = None
    """Hugging Face, PyPI and GitHub are slow or out of reach without a mirror or a proxy."""
    proxy_required: bool | None = None
    proxy_note: str | None = None
    mirrors: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()
    """Where mirror and proxy fail."""
    ports: tuple[str, ...] = ()
    """How a port of the box is reached from outside."""
    tensorboard: TensorBoard | None = None
    traffic: Traffic | None = None
    """None = no source says it, which is not the same as free."""
    notes: tuple[str, ...] = ()


class Interruption(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section *interruption*: who may end a running box, with what warning."""

    model: str | None = None
    """Who ends it, and when."""
    spot_available: bool | None = None
    spot_grace_s: float | None = None
    """Seconds between the warning and the end; 0 = none; None = there is no spot, or nobody says."""
    spot_signal: str | None = None
    detect: str | None = None
    """By what one sees that it has happened."""
    resume: str | None = None
    losses: tuple[str, ...] = ()
    """Other ways in which work is lost."""
    sources: tuple[str, ...] = ()
    """Ids of `Source`."""


class Daemon(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section *daemon*: how work continues without the terminal."""

    survives_ssh_drop: bool | None = None
    survives_stop: bool | None = None
    survives_restart: bool | None = None
    install: str | None = None
    fallback: str | None = None
    """A command line that does without the tool."""
    native_queue: str | None = None
    notes: tuple[str, ...] = ()


class Gotcha(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known trap of the platform."""

    id: str
    symptom: str
    cause: str
    fix: str
    log_signature: str | None = None
    """RE2-compatible expression that is searched for; None = no line tells it."""
    signature_in: str | None = None
    """Which text is searched."""
    example: str | None = None
    """A line that the signature matches."""
    inferred: bool = False
    """The signature was written from what the tools are known to print, no source has it."""
    probe: str | None = None
    """What to look at, where no line tells it."""
    note: str | None = None


class Contradiction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What sources say differently. All sides are kept, and the worse one counts."""

    about: str
    sides: tuple[str, ...]
    counts: str
    """What rgt goes by."""
    sources: tuple[str, ...] = ()
    """Ids of `Source`."""


class Overrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Section *overrides*: defaults for settings that the fleet file leaves out."""

    detach: str
    """What keeps work going: tmux, setsid, sbatch, k8s-job …"""
    python: tuple[str, ...] = ()
    """Interpreters to try first (PY)."""
    python_note: str | None = None
    data_dir: str | None = None
    """Absolute path for live checkpoints; None = it differs from box to box."""
    durable_dir: str | None = None
    """Absolute path of what outlives the box; None = there is none, or it differs from box to box."""
    durable_note: str | None = None
    env: dict[str, str] = {}
    """Environment of jobs, such as HF_HOME and HF_ENDPOINT; literal values."""
    env_hook: str | None = None
    """Shell line to run before a job, such as ``module load cuda``."""
    proxy_hook: str | None = None
    """Shell line that turns the platform's proxy on, and the one that turns it off."""
    no_proxy: tuple[str, ...] = ()
    """Domains that go through the proxy by the platform's own list, and must not."""
    proxy_unhook: str | None = None
    credentials: str | None = None
    """Where keys belong, and where they must not lie."""
    scratch: str | None = None
    """What may be deleted at any time."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A platform."""

    id: str
    name: str
    kind: str
    """ssh, ssh-rental, cloud-api, slurm, kubernetes, notebook or workstation."""
    confidence: str
    """battle-tested (used daily) or from-docs (read only)."""
    top_danger: str
    overrides: Overrides
    launch: Launch = Launch()
    tiers: tuple[Tier, ...] = ()
    storage: Storage = Storage()
    network: Network = Network()
    interruption: Interruption = Interruption()
    billing: tuple[BillingAction, ...] = ()
    daemon: Daemon = Daemon()
    gotchas: tuple[Gotcha, ...] = ()
    clocks: tuple[DangerClock, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    sources: tuple[Source, ...] = ()
    name_zh: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names by which people know it."""
    home_url: str | None = None
    docs_url: str | None = None
    confidence_note: str | None = None
    stops_gpu: str | None = None
    """What it takes to stop paying for the GPU, in the platform's own words."""
    billed: bool = True
    """False = nobody charges money for a machine there: your own, a free tier, a quota."""
    stops_all: str | None = None
    """What it takes to spend nothing at all."""
    conveniences: tuple[str, ...] = ()
