"""The client's data about a box: its description, alerts, and the immutable state on screens."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

import msgspec
from rgt_wire.kubernetes_job import parse_claim

from rgt_tui.language import load_text, store_text, translate
from rgt_tui.model.autostop import SelfStopState
from rgt_tui.model.evidence import Finding
from rgt_tui.model.plain import FrozenStruct
from rgt_tui.model.protocol import BoxEvent, Checkpoints, FoundRun, Hello, QueueState, Sample
from rgt_tui.model.renting import AccountBill, Meter
from rgt_tui.model.run import RunState

LOOPBACK = "127.0.0.1"
SOCKS = "socks"
# IPv6 in brackets, as ssh writes it: its colons would else separate the parts.
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]")


class Tunnel(FrozenStruct):
    """The two ends of a tunnel."""

    local: int
    """Port on this machine's loopback."""
    host: str = "localhost"
    """Host name on the box's side; empty = a SOCKS proxy, where each connection names its
    target."""
    port: int = 0

    def __str__(self) -> str:
        if self.host:
            return f"{self.local}:{self.host}:{self.port}"
        return f"{SOCKS}:{self.local}"

    @property
    def remote_end(self) -> str:
        """The remote end as text."""
        if self.host:
            return translate("{address} there", address=f"{self.host}:{self.port}")
        return translate("wherever the box can reach (SOCKS)")


def parse_tunnel(text: str) -> Tunnel:
    """Parse ``PORT``, ``LOCAL:PORT``, ``LOCAL:HOST:PORT`` or ``socks:PORT``.

    Raises:
        ValueError: it has none of these forms.
    """
    # Not split(":"): brackets contain colons of their own.
    parts = re.findall(r"\[[^\]]*\]|[^:]+", text)
    wrong = ValueError(
        translate(
            "{value!r} is no tunnel; write PORT, LOCAL:PORT, LOCAL:HOST:PORT or {socks}:PORT",
            value=text,
            socks=SOCKS,
        )
    )
    # findall skips what does not match: "1::2" would pass.
    if ":".join(parts) != text or not 1 <= len(parts) <= 3:
        raise wrong
    if len(parts) == 2 and parts[0] == SOCKS:
        return Tunnel(_parse_port(parts[1], wrong), "")
    local, end = _parse_port(parts[0], wrong), _parse_port(parts[-1], wrong)
    if len(parts) == 3:
        host = parts[1]
    else:
        host = "localhost"
    if not _HOST.fullmatch(host):
        raise wrong
    return Tunnel(local, host, end)


def pasted_tunnel(option: str, value: str) -> Tunnel | None:
    """Parse the value of ``-L`` or ``-D`` of an ssh command, ignoring its listen address.

    Returns:
        None for values without ports, such as Unix sockets.
    """
    parts = re.findall(
        r"\[[^\]]*\]|[^:]+", value.replace("/", ":") if value.count("/") >= 2 else value
    )
    # From the end, because the listen address in front is optional.
    wanted = 3 if option == "L" else 1
    try:
        return parse_tunnel(":".join(parts[-wanted:]) if option == "L" else f"{SOCKS}:{parts[-1]}")
    except (ValueError, IndexError):
        return None


def _parse_port(text: str, wrong: ValueError) -> int:
    # isdecimal() is true for digits of other scripts, too; six digits are always out of range.
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= 65535):
        raise wrong
    return int(text)


class LinkState(enum.StrEnum):
    """The state of the connection, not of the machine: a refused connection is not a dead box."""

    CONNECTING = "connecting"
    LIVE = "live"
    UNREACHABLE = "unreachable"
    REFUSED_KEY = "host-key-refused"
    REFUSED_LOGIN = "login-refused"
    """The box answers and refuses the login: automatic retries would only trigger bans."""
    ASKING = "asking"
    """Waits for a person's answer, see `FleetState.questions`."""
    PAUSED = "paused"
    """A person has paused the connection."""
    NOT_KEPT = "not-kept"
    """For a past moment: the history has no data of the box."""


# The order of the members is that of sorting in the fleet table.
class BoxHealth(enum.StrEnum):
    """The state of a row in one word, worst first."""

    TROUBLE = "trouble"
    UNREACHABLE = "unreachable"
    WARN = "warn"
    UNKNOWN = "unknown"
    """Its readings are current, but whether a training runs is unknown."""
    STALE = "stale"
    CONNECTING = "connecting"
    PAUSED = "paused"
    """A person has paused the connection, so the box is not being watched."""
    RUNNING = "running"
    IDLE = "idle"
    FINISHED = "finished"
    STOPPED = "stopped"
    GONE = "gone"


class ProviderRef(FrozenStruct):
    """The control plane that owns the box, and the box's id there."""

    kind: str
    """e.g. ``runpod``."""
    instance: str
    base_url: str | None = None
    """Only for a server that is not the vendor's own (the demo's local provider)."""
    key_env: str | None = None
    """Environment variable with the key; the key itself is never stored."""
    via: str | None = None
    """Where the platform's own commands run: the SSH host of a Slurm login node, or a context of
    kubeconfig. None = this machine, or the current context."""

    @property
    def account(self) -> str:
        """Identifies the account by key and server.

        Two accounts may have machines with the same id.
        """
        if self.base_url:
            # One server may be written with and without the slash.
            server = self.base_url.rstrip("/")
        else:
            server = self.via or "vendor"
        return f"{self.key_env or 'default'}@{server}"


BY_HAND = "by-hand"
"""`ProviderRef.kind` of a box without a provider: a person stops its billing on the platform's
console."""


class KubectlRoute(FrozenStruct, kw_only=True):
    """The container of a pod that is a box: every command there is a ``kubectl exec``.

    One of `pod`, `selector` and `job` names the pod.
    """

    context: str
    """A context of kubeconfig. The current one would change the box silently."""
    namespace: str
    pod: str | None = None
    """Name of the pod."""
    selector: str | None = None
    """Label selector that exactly one running pod has, such as ``app=trainer``: its name may
    change.
    """
    job: str | None = None
    """A Job, whose pod it is."""
    container: str | None = None
    """None = kubectl's choice: the annotated default, or the first."""
    image: str | None = None
    """With `job`: the image with which ``rgt run`` creates the Job; None = rgt never creates it."""
    gpus: int = 1
    """GPUs of that Job's pod."""
    claims: tuple[str, ...] = ()
    """Its persistent volume claims, each ``NAME:/MOUNT``; results go to the first."""
    # Kubernetes' own 30 s are too short for a large checkpoint.
    grace_s: int = 210
    """Seconds between SIGTERM and SIGKILL for its pod: time to save a checkpoint."""

    @property
    def results_directory(self) -> str:
        """``$RGT_OUT`` of its Job: on its first claim, otherwise in the pod."""
        top = "/tmp/rgt"
        if self.claims:
            top = parse_claim(self.claims[0])[1]
        return f"{top}/{self.job}"

    @property
    def pod_selector(self) -> str:
        """The selector of its pods, if it is not named."""
        # The label that the Job controller gives its pods.
        return self.selector or f"job-name={self.job}"

    @property
    def place_text(self) -> str:
        """``NAMESPACE/POD``, with the selector or ``job/NAME`` if the pod is not named."""
        return f"{self.namespace}/{self.pod or self.selector or f'job/{self.job}'}"

    @property
    def cluster_options(self) -> tuple[str, ...]:
        """The options of every kubectl command about the box."""
        return (f"--context={self.context}", f"--namespace={self.namespace}")

    @property
    def option_text(self) -> str:
        """The same options, for a person's command line."""
        return f"-n {self.namespace} --context {self.context}"

    @property
    def instance_id(self) -> str | None:
        """The cluster's id of the object to delete; None = unknown before the pod is found."""
        # A selector for exactly one Job means that Job; with any other label, the object is
        # unknown.
        found = re.fullmatch(r"(?:batch\.kubernetes\.io/)?job-name=([^,=]+)", self.selector or "")
        if self.pod is not None:
            return f"{self.namespace}/pod/{self.pod}"
        if self.job is not None:
            return f"{self.namespace}/job/{self.job}"
        if found is not None:
            return f"{self.namespace}/job/{found[1]}"
        return None


class RentalTerms(FrozenStruct, kw_only=True):
    """The terms under which a box was rented; other charges raise an alert."""

    spot: bool | None = None
    """Whether it may be interrupted for a lower price; None = unspecified."""
    max_per_hour: float | None = None
    """Maximum hourly price of compute and disk together."""
    currency: str = "USD"
    """Currency of `max_per_hour`."""
    gpu: str | None = None
    """A model's common name, e.g. ``A100``."""
    gpu_count: int | None = None


# A list of stored fields, not of excluded ones: a new field with a secret is safe by default.
STORED_FIELDS = (
    "name host port user profile mounts jobs logs durable tiers interval runs pattern "
    "per_hour currency"
)
"""Fields of a description that recordings and the history store."""


class BoxSpec(FrozenStruct):
    """A box as described in the fleet file (or the demo)."""

    name: str
    host: str
    """Host name, address, or an alias of ssh_config; with `kubectl`, the pod's place for display.
    """
    port: int | None = None
    """None = from ssh_config, otherwise 22."""
    user: str | None = None
    """None = from ssh_config, otherwise the profile's, otherwise the local user's name."""
    profile: str = "generic-ssh"
    identity: str | None = None
    """Private key file, the only one used; None = from ssh_config: the agent and the default
    keys."""
    known_hosts: str | None = None
    """known_hosts file, the only one used; None = from ssh_config."""
    ssh_config: str | None = None
    """ssh_config file, the only one used; None = the user's and the system's; ``none`` = no file at
    all."""
    mounts: tuple[str, ...] = ()
    """Mount points to watch; empty = those of the profile."""
    jobs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    durable: str | None = None
    """Durable directory on the box."""
    tiers: dict[str, str] = {}
    """Mount point → name of the profile's tier, where the mount point alone is ambiguous."""
    python: str | None = None
    env: dict[str, str] = {}
    """Environment of the jobs started here, such as ``WANDB_ENTITY``; ``--env`` overrides it."""
    gpu_trace: str | None = None
    interval: float = 1.0
    """Seconds between samples while a person is watching."""
    provider: ProviderRef | None = None
    runs: tuple[str, ...] = ()
    """Run directories outside of jobs; globs allowed. Empty = found from the training processes."""
    pattern: str | None = None
    """Regular expression for the command line of a training process; None = the agent's own
    detection."""
    per_hour: float | None = None
    """Hourly price, if no provider can be queried."""
    currency: str = "USD"
    """Currency of `per_hour`."""
    results: tuple[str, ...] = ()
    """Absolute paths or globs on the box of results, in addition to files written by cells and
    runs."""
    ignore: tuple[str, ...] = ()
    """Absolute paths or globs on the box of directories without results, unless a cell or run owns
    them."""
    protected: bool = False
    """No billing action until this is lifted in a separate step."""
    idle_if: str | None = None
    """Default of ``rgt autostop --idle-if``, for `parse_idle_condition`; it arms nothing."""
    asked: RentalTerms | None = None
    """The terms under which it was rented; written by ``rgt up``."""
    kubectl: KubectlRoute | None = None
    """Reached with ``kubectl exec`` instead of SSH."""
    tunnels: tuple[str, ...] = ()
    """Local ports that lead to the box, in the format of `rgt_tui.model.tunnel`."""
    untrusted: bool = False
    """The fleet file that describes it is not trusted: the box is reached only as a host of the
    person's own ssh_config. Not a key of the file."""

    @property
    def billing_ref(self) -> ProviderRef:
        """The provider, or a substitute under which the person's console actions are recorded."""
        return self.provider or ProviderRef(kind=BY_HAND, instance=self.endpoint, via=self.profile)

    def without_secrets(self) -> BoxSpec:
        """Return the description without key files, known hosts, ssh_config files and names of keys."""
        provider = self.provider
        if provider is not None:
            # The name of a key's variable is no secret, but says where to look for one.
            provider = msgspec.structs.replace(provider, base_url=None, key_env=None)
        return BoxSpec(
            **{name: getattr(self, name) for name in STORED_FIELDS.split()}, provider=provider
        )

    @property
    def creates_job(self) -> bool:
        """Whether the box is a Job of a cluster that rgt itself creates for its work."""
        return self.kubectl is not None and self.kubectl.image is not None

    @property
    def transport(self) -> str:
        """First word of messages about its connection: ``ssh`` or ``kubectl``."""
        if self.kubectl is None:
            return "ssh"
        return "kubectl"

    def login_words(self, default_user: str | None = None) -> list[str]:
        """Return the command with which a person logs in, according to the description.

        Args:
            default_user: User name if neither the description nor an ssh_config of its own sets
                one.
        """
        if self.kubectl is not None:
            return ["rgt", "ssh", self.name]
        files = (("-F", self.ssh_config), ("-i", self.identity))
        words = [
            "ssh",
            *(word for flag, path in files if path is not None for word in (flag, path)),
        ]
        words += (
            ["-o", f"UserKnownHostsFile={self.known_hosts}"] if self.known_hosts is not None else []
        )
        words += ["-p", str(self.port)] if self.port is not None else []
        # A file of one's own may set a user, which -l would override.
        user = self.user or (default_user if self.ssh_config is None else None)
        words += ["-l", user] if user else []
        # Otherwise ssh would read it as an option.
        if self.host.startswith("-"):
            return [*words, "--", self.host]
        return [*words, self.host]

    @property
    def endpoint(self) -> str:
        """``user@host:port`` according to the description; ssh_config may add missing parts."""
        # Without brackets, the port would look like a part of an IPv6 address.
        if ":" in self.host and self.port:
            host = f"[{self.host}]"
        else:
            host = self.host
        return (
            (f"{self.user}@" if self.user else "")
            + host
            + (f":{self.port}" if self.port is not None else "")
        )


# gc=False here and below: hundreds of boxes make thousands of states a second, and none is part of
# a cycle (see protocol.py).
class ReducedHistory(FrozenStruct, gc=False):
    """History of hours at reduced resolution, oldest first; unwatched times are gaps in `at`."""

    names: tuple[str, ...] = ()
    """``util``, ``vram``, ``cgroup``, ``disk:MOUNT``, ``inodes:MOUNT``: percent. For each of
    several cards ``util:0``, ``vram:0``, ``power:0`` (of its limit), and ``temp:0`` in °C."""
    at: tuple[float, ...] = ()
    """Client clock at the end of each slot."""
    values: tuple[tuple[float | None, ...], ...] = ()
    """For each slot and name: the mean."""
    width: float = 60.0
    """Width of a slot in seconds."""

    def only(self, slots: Sequence[int]) -> ReducedHistory:
        """Return some of its slots."""
        return msgspec.structs.replace(
            self,
            at=tuple(self.at[slot] for slot in slots),
            values=tuple(self.values[slot] for slot in slots),
        )

    def until(self, at: float) -> ReducedHistory:
        """Return the slots that had ended by a time (client clock)."""
        return self.only([slot for slot, end in enumerate(self.at) if end <= at])


class MachineLife(FrozenStruct, gc=False):
    """Known events of the machine's life, stored across restarts of rgt. Client clock."""

    existed: bool = False
    """The provider has reported it."""
    ran: bool = False
    """It was seen running since it last stopped."""
    asked: str = ""
    """The verb requested through rgt since then: park or destroy."""
    rested: bool = False
    """The provider has reported it as stopped or gone since it ran."""
    stopped_at: float | None = None
    """When the provider first reported it as stopped: it had stopped by then."""
    seen_at: float | None = None
    """When it was last known to run, to within minutes: it had not stopped before."""
    parked_at: float | None = None
    """When a park through rgt was confirmed."""
    started_at: float | None = None
    """When it was first seen running since it last stopped: it had started by then."""


class RowSparklines(FrozenStruct, gc=False):
    """The last values of the sparklines in a row, oldest first (at most 120 each)."""

    gpu_util: tuple[float | None, ...] = ()
    """Mean over the box's GPUs, percent."""
    vram_pct: tuple[float | None, ...] = ()
    cgroup_pct: tuple[float | None, ...] = ()


class LogView(FrozenStruct, gc=False):
    """The newest lines of one followed log."""

    # Lines are strings in a tuple, so that a state of a past moment stays as it was.
    path: str
    lines: tuple[str, ...] = ()
    """At most 2,000, oldest first; without control sequences."""
    dropped: int = 0
    """Lines on the box before or between these that were not sent or not kept."""
    at: float | None = None
    """When the newest line arrived (client clock); if there was never one, when the log was found
    empty."""
    counted: bool = False
    """`dropped` counts every earlier line: the log was followed from its beginning."""
    written: float | None = None
    """When the newest line was written (client clock); None = unknown."""
    is_open: bool = False
    """The last line is unfinished; the next frame replaces it."""

    @property
    def complete_lines(self) -> tuple[str, ...]:
        """The lines without an unfinished one."""
        if self.is_open:
            return self.lines[:-1]
        return self.lines

    @property
    def open_line(self) -> str | None:
        """The unfinished line, or None."""
        if self.is_open and self.lines:
            return self.lines[-1]
        return None


class StreamCounters(FrozenStruct, gc=False):
    """Statistics of the stream."""

    samples: int = 0
    gaps: int = 0
    """Missing sequence numbers, except those that the agent reported as skipped."""
    duplicates: int = 0
    skipped: int = 0
    # 1 = connected once; each reconnect counts.
    connects: int = 0
    bad_frames: int = 0
    boot: str = ""
    """Boot and sequence number of the newest sample or event; they share one sequence."""
    seq: int = 0


class DroppedCounts(FrozenStruct, gc=False):
    """Items that a box sent and the client dropped, counted since rgt began.

    Each box has memory limits, see `rgt_tui.fleet.attention.Budget`.
    """

    log_lines: int = 0
    points: int = 0
    """Points of curves."""
    surplus: int = 0
    """Points of curves above a run's maximum number."""
    runs: int = 0
    queues: int = 0
    checkpoints: int = 0
    """Lists of checkpoints, one per run."""
    found: int = 0
    """Trainings of the newest `Found` frame."""

    def with_added(self, **more: int) -> DroppedCounts:
        """Return the counts with additions; the same object if nothing is added."""
        changes = {name: getattr(self, name) + count for name, count in more.items() if count}
        # The same object otherwise: screens compare states by identity.
        if changes:
            return msgspec.structs.replace(self, **changes)
        return self


class ReceivedTimes(FrozenStruct, gc=False, kw_only=True):
    """When parts of a state were received, on the clock of `rgt_tui.model.evidence.steady`.

    None = not by this rgt.
    """

    sample: float | None = None
    queues: dict[str, float] = {}
    """By the path of the queue."""


class BoxState(FrozenStruct, gc=False):
    """All data of a box at one moment. Never mutated: a new frame makes a new state."""

    spec: BoxSpec
    link: LinkState = LinkState.CONNECTING
    reason: str = "not connected yet"
    """The reason for `link`, with its source (ssh, provider)."""
    since: float = 0.0
    """When `link` took this value (client clock)."""
    hello: Hello | None = None
    sample: Sample | None = None
    sample_at: float | None = None
    """Client clock when `sample` arrived; its age is measured from here."""
    clock_skew: float | None = None
    """Box clock minus client clock, in seconds."""
    rings: RowSparklines = RowSparklines()
    queues: tuple[QueueState, ...] = ()
    runs: tuple[RunState, ...] = ()
    """In the order in which the box's cells were queued."""
    checkpoints: tuple[Checkpoints, ...] = ()
    logs: tuple[LogView, ...] = ()
    events: tuple[BoxEvent, ...] = ()
    """The last 100, oldest first."""
    findings: tuple[Finding, ...] = ()
    """Current diagnoses, worst first."""
    meter: Meter = Meter()
    counters: StreamCounters = StreamCounters()
    retry_at: float | None = None
    """When the next connection is tried (client clock), while unreachable."""
    alerts: tuple[Alert, ...] = ()
    """Active alerts, worst first, including muted ones."""
    open_action: str = ""
    """A billing call that was sent and whose result is unknown, as text; empty = none."""
    account: AccountBill | None = None
    """Billed items of its account that belong to no box, on the first box of each account; None =
    not queried."""
    alerts_kept: bool = False
    """True when alerts are computed for this box; otherwise `alerts` means nothing."""
    limited: tuple[str, ...] = ()
    """Limitations of this box and their causes, a line each; empty = no limitation."""
    interval: float | None = None
    """Seconds between samples as requested now; None = `spec.interval`."""
    remembered_at: float | None = None
    """Client clock of the newest value from an earlier rgt; None = all values are from this one."""
    past: ReducedHistory = ReducedHistory()
    recent: ReducedHistory = ReducedHistory()
    """The newest part at finer resolution, as recorded by this rgt."""
    found: tuple[FoundRun, ...] = ()
    """Trainings found by their processes, newest last; their curves are in `runs`."""
    # Until then, "no training found" only means "not scanned yet".
    looked: bool = False
    """The agent has scanned everything once since it was last connected."""
    left_out: DroppedCounts = DroppedCounts()
    seen: ReceivedTimes = ReceivedTimes()
    peer: tuple[str, int] | None = None
    """Remote address and port of the present connection; None = not connected, or via a jump
    host or command."""
    life: MachineLife = MachineLife()
    """The machine's life as tracked by the alerts."""
    self_stop: SelfStopState | None = None
    """The local record of arming the box to stop itself; None = not armed from here."""


def keep_named(state: BoxState) -> BoxState:
    """Return a state of an earlier time without items that its description no longer names.

    These are queues, and the runs and checkpoints of their cells: otherwise a job removed from the
    fleet file would still be shown, and an idle box would never count as finished.
    """
    spec = state.spec
    # By the path: a job that was renamed in the file is another one.
    queues = tuple(queue for queue in state.queues if queue.path in spec.jobs)
    runs = tuple(
        run for run in state.runs if not run.named_by or run.named_by in (*spec.jobs, *spec.runs)
    )
    kept = {cell.name for queue in queues for cell in queue.cells} | {run.name for run in runs}
    dropped = {cell.name for queue in state.queues for cell in queue.cells}
    dropped |= {run.name for run in state.runs}
    checkpoints = tuple(
        # Checkpoints of runs that no queue named (found by processes) stay.
        one
        for one in state.checkpoints
        if one.run in kept or one.run not in dropped
    )
    return msgspec.structs.replace(state, queues=queues, runs=runs, checkpoints=checkpoints)


# Alerts: a condition and since when it is true, the message for a sink, and the configurable
# settings.


class Alert(FrozenStruct):
    """One condition that is true now."""

    id: str
    """Stable while the condition lasts, e.g. ``inodes:/workspace``; the part before the first colon
    is its kind."""
    level: str
    """warn or error."""
    text: str
    """One line, with the reading that proves it."""
    word: str = ""
    """The word for it in a row, e.g. ``inodes``."""
    since: float | None = None
    """Client clock of its start; None = unknown."""
    muted: bool = False
    """A person has muted it: still shown, dimmed; never sent to a sink."""

    @property
    def kind(self) -> str:
        """The rule that it comes from."""
        # An id has one colon at most before a path, which may contain more.
        return self.id.partition(":")[0]

    def as_stored(self) -> Alert:
        """Return the alert as records keep it, without a language; see `in_language`."""
        return msgspec.structs.replace(self, text=store_text(self.text))

    def in_language(self) -> Alert:
        """Return a recorded alert with its text in the person's language."""
        return msgspec.structs.replace(self, text=load_text(self.text))


# omit_defaults: a webhook gets only keys that say something.
class AlertEvent(FrozenStruct, omit_defaults=True):
    """Message to a sink: an alert began, became worse or ended; or several of these at once."""

    what: str
    """raised, worse, resolved, digest or test."""
    at: float
    """Client clock, epoch seconds."""
    level: str
    """info, warn or error; in a digest, the worst of its events."""
    title: str
    """One line, e.g. ``vast-1: inodes``."""
    text: str
    """One line with the reading; a digest has a line per alert."""
    box: str = ""
    id: str = ""
    kind: str = ""
    since: float | None = None
    advice: str = ""
    """What to do, in one line."""
    items: tuple[AlertEvent, ...] = ()
    """The events of a digest."""


class KindSettings(FrozenStruct):
    """Settings of one kind of alert in the fleet file; None = default.

    Units: see docs/alerts.md.
    """

    enabled: bool | None = None
    warn: float | None = None
    """Threshold of level warn."""
    error: float | None = None
    clear_warn: float | None = None
    """Where the level ends again; None = at the default distance from the threshold."""
    clear_error: float | None = None
    hold_s: float | None = None
    """Seconds for which the condition must be true before the alert begins."""
    quiet_s: float | None = None
    """Seconds for which it must be false before the alert ends."""


class SinkSettings(FrozenStruct):
    """One table of ``[[sinks]]``.

    Addresses are secrets: the file only names where they are stored.
    """

    kind: str
    """bell, desktop, ntfy, webhook, command or apprise."""
    name: str = ""
    """Display name; empty = the kind."""
    url_env: str | None = None
    """Environment variable with the address."""
    url_file: str | None = None
    """File with the address."""
    token_env: str | None = None
    """Environment variable with an access token (ntfy, webhook)."""
    argv: tuple[str, ...] = ()
    """The program of a ``command`` and its arguments; no shell interprets them."""
    timeout_s: float = 10.0
    min_level: str = "warn"
    kinds: tuple[str, ...] = ()
    """Only these kinds of alert; empty = all."""
    boxes: tuple[str, ...] = ()
    """Only these boxes; empty = all."""
    resolved: bool = False
    """Also report the end of an alert."""
    quiet_hours: str | None = None
    """``22:00-07:00`` by the local clock: messages below error wait until its end."""
    # Ten minutes: an alert that flaps must not fill a phone.
    every_s: float = 600.0
    """Minimum seconds between two messages about one alert."""
    # A lost network makes all boxes unreachable at once.
    digest_over: int = 4
    """More alerts than this at once become one message."""


class AlertSettings(FrozenStruct):
    """``[alerts.KIND]`` and ``[[sinks]]`` of the fleet file."""

    kinds: dict[str, KindSettings] = {}
    sinks: tuple[SinkSettings, ...] = ()
