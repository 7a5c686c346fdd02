"""What the client knows about a box: its description, its alerts, and the immutable state that screens read."""

from __future__ import annotations

import enum
import re

import msgspec

from rgt_tui.model.autostop import SelfStop
from rgt_tui.model.evidence import Finding
from rgt_tui.model.protocol import Checkpoints, Event, FoundRun, Hello, QueueState, Sample
from rgt_tui.model.renting import AccountBill, Meter
from rgt_tui.model.run import RunState

LOOPBACK = "127.0.0.1"
SOCKS = "socks"
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]")


class Tunnel(msgspec.Struct, frozen=True):
    """Where it begins and ends."""

    local: int
    """Port on this machine's loopback."""
    host: str = "localhost"
    """As the box names it; empty = a SOCKS proxy: each connection says where to."""
    port: int = 0

    def __str__(self) -> str:
        if self.host:
            return f"{self.local}:{self.host}:{self.port}"
        return f"{SOCKS}:{self.local}"

    @property
    def end(self) -> str:
        """Where it leads, in words."""
        if self.host:
            return f"{self.host}:{self.port} there"
        return "wherever the box can reach (SOCKS)"


def parse_tunnel(text: str) -> Tunnel:
    """Return what ``PORT``, ``LOCAL:PORT``, ``LOCAL:HOST:PORT`` or ``socks:PORT`` says.

    Raises:
        ValueError: it is none of these.
    """
    parts = re.findall(r"\[[^\]]*\]|[^:]+", text)
    wrong = ValueError(
        f"{text!r} is no tunnel; write PORT, LOCAL:PORT, LOCAL:HOST:PORT or {SOCKS}:PORT"
    )
    if ":".join(parts) != text or not 1 <= len(parts) <= 3:
        raise wrong
    if len(parts) == 2 and parts[0] == SOCKS:
        return Tunnel(_port(parts[1], wrong), "")
    local, end = _port(parts[0], wrong), _port(parts[-1], wrong)
    host = parts[1] if len(parts) == 3 else "localhost"
    if not _HOST.fullmatch(host):
        raise wrong
    return Tunnel(local, host, end)


def pasted_tunnel(option: str, value: str) -> Tunnel | None:
    """Return what ``-L`` or ``-D`` of an ssh command says, without the address that it would listen on.

    Returns:
        None for what is no pair of ports, such as sockets in the file system.
    """
    parts = re.findall(
        r"\[[^\]]*\]|[^:]+", value.replace("/", ":") if value.count("/") >= 2 else value
    )
    wanted = 3 if option == "L" else 1
    try:
        return parse_tunnel(":".join(parts[-wanted:]) if option == "L" else f"{SOCKS}:{parts[-1]}")
    except (ValueError, IndexError):
        return None


def _port(text: str, wrong: ValueError) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= 65535):
        raise wrong
    return int(text)


class Link(enum.StrEnum):
    """The state of the connection. It says nothing about the machine: a refused connection is not a dead box."""

    CONNECTING = "connecting"
    LIVE = "live"
    UNREACHABLE = "unreachable"
    REFUSED_KEY = "host-key-refused"
    REFUSED_LOGIN = "login-refused"
    """The box answers and does not let us in: retrying by itself would only trip its bans."""
    ASKING = "asking"
    """A person has to answer first, see `FleetState.questions`."""
    PAUSED = "paused"
    """Someone said not to connect for now."""
    NOT_KEPT = "not-kept"
    """Of a moment of the past: the history has nothing of the box then."""


class Health(enum.StrEnum):
    """The one word of a row, worst first."""

    TROUBLE = "trouble"
    UNREACHABLE = "unreachable"
    WARN = "warn"
    UNKNOWN = "unknown"
    """Its figures are of now, and whether anything trains cannot be told."""
    STALE = "stale"
    CONNECTING = "connecting"
    PAUSED = "paused"
    """Somebody said not to connect; what it does nobody sees."""
    RUNNING = "running"
    IDLE = "idle"
    FINISHED = "finished"
    STOPPED = "stopped"
    GONE = "gone"


class ProviderRef(msgspec.Struct, frozen=True):
    """Which control plane owns the box, and the box's id there."""

    kind: str
    """e.g. ``runpod``."""
    instance: str
    base_url: str | None = None
    """Only for a server that is not the vendor's own (the demo's local provider)."""
    key_env: str | None = None
    """Environment variable that holds the key; the key itself is never stored."""
    via: str | None = None
    """Where the platform's own commands run or lead to: the SSH host of a Slurm login node, a context of kubeconfig.

    None = this very machine, the current context.
    """

    @property
    def account(self) -> str:
        """Which account it is: the key and the server. Two accounts may have machines of the same id."""
        server = self.base_url.rstrip("/") if self.base_url else self.via or "vendor"
        return f"{self.key_env or 'default'}@{server}"


BY_HAND = "by-hand"
"""`ProviderRef.kind` of a box without a provider: a person stops its meter on the platform's console."""


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for when a box was rented; what is billed otherwise is an alert."""

    spot: bool | None = None
    """May be taken away for a lower price, or may not; None = nobody said."""
    max_per_hour: float | None = None
    """The most that compute and disk together were to cost an hour."""
    currency: str = "USD"
    """Of `max_per_hour`."""
    gpu: str | None = None
    """A model as people say it, e.g. ``A100``."""
    gpu_count: int | None = None


class BoxSpec(msgspec.Struct, frozen=True):
    """A box as the fleet file (or the demo) describes it."""

    name: str
    host: str
    """Host name, address, or an alias of ssh_config."""
    port: int | None = None
    """None = as ssh_config says, else 22."""
    user: str | None = None
    """None = as ssh_config says, else the profile's, else the name of the local user."""
    profile: str = "generic-ssh"
    identity: str | None = None
    """Private key file, used alone; None = as ssh_config says: the agent and the default keys."""
    known_hosts: str | None = None
    """known_hosts file, used alone; None = as ssh_config says."""
    ssh_config: str | None = None
    """ssh_config file, used alone; None = the user's and the system's; ``none`` = no file at all."""
    mounts: tuple[str, ...] = ()
    """Mount points to watch; empty = those of the profile."""
    jobs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    durable: str | None = None
    """Durable directory on the box."""
    tiers: dict[str, str] = {}
    """Mount point → name of the profile's tier, where the mount point alone does not tell."""
    python: str | None = None
    gpu_trace: str | None = None
    interval: float = 1.0
    """Seconds between samples while someone looks."""
    provider: ProviderRef | None = None
    runs: tuple[str, ...] = ()
    """Run directories outside of jobs; globs allowed. Empty = found from the training processes."""
    pattern: str | None = None
    """Regular expression on the command line that tells a training process; None = the agent's own guess."""
    per_hour: float | None = None
    """What an hour costs, where no provider can be asked."""
    currency: str = "USD"
    """Of `per_hour`."""
    results: tuple[str, ...] = ()
    """Absolute paths or globs on the box of what is a result, besides what cells and runs write."""
    ignore: tuple[str, ...] = ()
    """Absolute paths or globs on the box of directories that are no result, as long as no cell or run owns them."""
    protected: bool = False
    """No billing action without a separate act that lifts this."""
    asked: Agreed | None = None
    """What it was rented as; written by ``rgt up``."""
    tunnels: tuple[str, ...] = ()
    """Ports of this machine that lead to the box, as `rgt_tui.model.tunnel` has them."""
    untrusted: bool = False
    """Nobody has trusted the fleet file that names it: it is reached as a host of the person's own ssh_config, or not.
    No key of the file."""

    @property
    def billing_ref(self) -> ProviderRef:
        """The provider; without one a stand-in, under which the person's own click on the console is recorded."""
        return self.provider or ProviderRef(kind=BY_HAND, instance=self.endpoint, via=self.profile)

    def ssh_words(self, default_user: str | None = None) -> list[str]:
        """Return the command with which a person logs in, as far as the description says how.

        Args:
            default_user: Who logs in where the description names nobody, and ssh_config may not either.
        """
        files = (("-F", self.ssh_config), ("-i", self.identity))
        words = [
            "ssh",
            *(word for flag, path in files if path is not None for word in (flag, path)),
        ]
        words += (
            ["-o", f"UserKnownHostsFile={self.known_hosts}"] if self.known_hosts is not None else []
        )
        words += ["-p", str(self.port)] if self.port is not None else []
        user = self.user or (default_user if self.ssh_config is None else None)
        words += ["-l", user] if user else []
        if self.host.startswith("-"):
            return [*words, "--", self.host]
        return [*words, self.host]

    @property
    def endpoint(self) -> str:
        """``user@host:port`` as far as the description says it; ssh_config may add what is left out."""
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return (
            (f"{self.user}@" if self.user else "")
            + host
            + (f":{self.port}" if self.port is not None else "")
        )


class Past(msgspec.Struct, frozen=True, gc=False):
    """What was seen over hours, at reduced resolution, oldest first; times that nobody saw are gaps in `at`."""

    names: tuple[str, ...] = ()
    """``util``, ``vram``, ``cgroup``, ``disk:MOUNT``, ``inodes:MOUNT``: percent. Of each of several cards ``util:0``,
    ``vram:0``, ``power:0`` (of its limit), and ``temp:0`` in °C."""
    at: tuple[float, ...] = ()
    """Client clock at the end of each stretch."""
    values: tuple[tuple[float | None, ...], ...] = ()
    """Per stretch, per name: the mean."""
    width: float = 60.0
    """Seconds of one stretch."""


class Life(msgspec.Struct, frozen=True, gc=False):
    """What is known of the machine's life: kept when rgt ends. Times are client clock."""

    existed: bool = False
    """The provider has known it."""
    ran: bool = False
    """It has been seen running since it last stopped."""
    asked: str = ""
    """Verb that was asked for through rgt since then: park or destroy."""
    rested: bool = False
    """The provider has called it stopped or gone since it ran."""
    stopped_at: float | None = None
    """When the provider first called it stopped: it had stopped by then."""
    seen_at: float | None = None
    """When it was last known to run, to within minutes: it had not stopped before."""
    parked_at: float | None = None
    """When a park through rgt was confirmed."""
    started_at: float | None = None
    """When it was first seen running since it last stopped: it had started by then."""


class Rings(msgspec.Struct, frozen=True, gc=False):
    """The last values of what the rows draw as sparklines, oldest first (at most 120 each)."""

    gpu_util: tuple[float | None, ...] = ()
    """Mean over the box's GPUs, percent."""
    vram_pct: tuple[float | None, ...] = ()
    cgroup_pct: tuple[float | None, ...] = ()


class LogView(msgspec.Struct, frozen=True, gc=False):
    """The newest lines of one followed log."""

    path: str
    lines: tuple[str, ...] = ()
    """At most 2,000, oldest first; control sequences already stripped."""
    dropped: int = 0
    """Lines that exist on the box before these or between them, but were not sent or not kept."""
    at: float | None = None
    """When the newest line arrived (client clock); where there has never been one, when it was found to be empty."""
    counted: bool = False
    """`dropped` counts every line before these: the log was followed from its beginning."""
    written: float | None = None
    """When the newest line was written (client clock); None = nobody knows."""
    is_open: bool = False
    """The last line is not complete yet; the next frame replaces it."""

    @property
    def complete_lines(self) -> tuple[str, ...]:
        """The lines without one that is not complete yet."""
        if self.is_open:
            return self.lines[:-1]
        return self.lines

    @property
    def open_line(self) -> str | None:
        """The line that is not complete yet; None = there is none."""
        if self.is_open and self.lines:
            return self.lines[-1]
        return None


class Counters(msgspec.Struct, frozen=True, gc=False):
    """What the stream proves about itself."""

    samples: int = 0
    gaps: int = 0
    """Sequence numbers that never arrived, apart from those the agent said it skipped."""
    duplicates: int = 0
    skipped: int = 0
    connects: int = 0
    bad_frames: int = 0
    boot: str = ""
    """Boot and sequence number of the newest sample or event; they share one sequence."""
    seq: int = 0


class LeftOut(msgspec.Struct, frozen=True, gc=False):
    """What a box told and the client does not keep, counted since rgt began: each box has a budget."""

    log_lines: int = 0
    points: int = 0
    """Of curves."""
    surplus: int = 0
    """Points of more curves than are kept of a run."""
    runs: int = 0
    queues: int = 0
    checkpoints: int = 0
    """Lists of them, one per run."""
    found: int = 0
    """Trainings of the newest `Found` frame."""

    def plus(self, **more: int) -> LeftOut:
        """Return the counts with more of some; the same object where there is no more."""
        changes = {name: getattr(self, name) + count for name, count in more.items() if count}
        if changes:
            return msgspec.structs.replace(self, **changes)
        return self


class Seen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """When what a state holds was taken in, on the clock of `rgt_tui.model.evidence.steady`; None = not by this rgt."""

    sample: float | None = None
    queues: dict[str, float] = {}
    """By the path of the queue."""


class BoxState(msgspec.Struct, frozen=True, gc=False):
    """Everything known of a box at one moment. Never mutated: a new frame makes a new state."""

    spec: BoxSpec
    link: Link = Link.CONNECTING
    reason: str = "not connected yet"
    """Why `link` is what it is, with the source that says so (ssh, provider)."""
    since: float = 0.0
    """When `link` took this value (client clock)."""
    hello: Hello | None = None
    sample: Sample | None = None
    sample_at: float | None = None
    """Client clock when `sample` arrived; its age is measured from here."""
    clock_skew: float | None = None
    """Box clock minus client clock, in seconds."""
    rings: Rings = Rings()
    queues: tuple[QueueState, ...] = ()
    runs: tuple[RunState, ...] = ()
    """In the order in which the box's cells were queued."""
    checkpoints: tuple[Checkpoints, ...] = ()
    logs: tuple[LogView, ...] = ()
    events: tuple[Event, ...] = ()
    """The last 100, oldest first."""
    findings: tuple[Finding, ...] = ()
    """Diagnoses that hold now, worst first."""
    meter: Meter = Meter()
    counters: Counters = Counters()
    retry_at: float | None = None
    """When the next connection is tried (client clock), while unreachable."""
    alerts: tuple[Alert, ...] = ()
    """What the fleet's alert machines say holds now, worst first; muted ones included."""
    open_action: str = ""
    """A billing call that went out, and of which nobody knows how it ended, in words; empty = there is none."""
    account: AccountBill | None = None
    """What its account is billed for that no box names, on the first box of each account; None = nobody has looked."""
    alerts_kept: bool = False
    """True when such machines watch this box; otherwise nobody does, and `alerts` says nothing."""
    limited: tuple[str, ...] = ()
    """What does not work on this box and why, a line each; empty = everything does."""
    interval: float | None = None
    """Seconds between samples as asked for now; None = `spec.interval`."""
    remembered_at: float | None = None
    """Client clock of the newest value that comes from an earlier rgt; None = everything is of this one."""
    past: Past = Past()
    recent: Past = Past()
    """The newest part of it more finely, as far as this very rgt has seen it."""
    found: tuple[FoundRun, ...] = ()
    """Trainings that nobody named, found by their processes, the newest last; their curves are in `runs`."""
    looked: bool = False
    """The agent has read all that there is once, since it was connected last."""
    left_out: LeftOut = LeftOut()
    seen: Seen = Seen()
    peer: tuple[str, int] | None = None
    """Address and port that the connection of now really leads to; None = not connected, or by a way that hides it."""
    life: Life = Life()
    """What the alert machines remember of the machine's life."""
    self_stop: SelfStop | None = None
    """What this computer remembers of having armed the box to stop itself; None = it has not."""


def keep_named(state: BoxState) -> BoxState:
    """Return a state of an earlier time without what its description has stopped naming since.

    Queues, and the runs and checkpoints of their cells: else a job that was taken out of the fleet file would go on to
    be shown, and a box on which nothing is left to do would never count as done.
    """
    spec = state.spec
    queues = tuple(queue for queue in state.queues if queue.path in spec.jobs)
    runs = tuple(
        run for run in state.runs if not run.named_by or run.named_by in (*spec.jobs, *spec.runs)
    )
    kept = {cell.name for queue in queues for cell in queue.cells} | {run.name for run in runs}
    dropped = {cell.name for queue in state.queues for cell in queue.cells}
    dropped |= {run.name for run in state.runs}
    checkpoints = tuple(
        one for one in state.checkpoints if one.run in kept or one.run not in dropped
    )
    return msgspec.structs.replace(state, queues=queues, runs=runs, checkpoints=checkpoints)


# Alerts: a condition that holds and since when, what a sink is sent about it, and what a person may
# configure.


class Alert(msgspec.Struct, frozen=True):
    """One condition that holds now."""

    id: str
    """Stable while the condition lasts, e.g. ``inodes:/workspace``; what stands before the first colon is its kind."""
    level: str
    """warn or error."""
    text: str
    """One line, with the reading that proves it."""
    word: str = ""
    """The one word that a row shows for it, e.g. ``inodes``."""
    since: float | None = None
    """Client clock of the rise; None where nobody keeps count."""
    muted: bool = False
    """Someone said to be quiet about it: still shown, dimmed; never sent to a sink."""

    @property
    def kind(self) -> str:
        """The rule that it comes from."""
        return self.id.partition(":")[0]


class AlertEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sink is told: an alert began, became worse or is over; or several of these at once."""

    what: str
    """raised, worse, resolved, digest or test."""
    at: float
    """Client clock, epoch seconds."""
    level: str
    """info, warn or error; of a digest, the worst in it."""
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


class KindSettings(msgspec.Struct, frozen=True):
    """What the fleet file says of one kind of alert; None = as built in. Units are those of docs/alerts.md."""

    enabled: bool | None = None
    warn: float | None = None
    """Raise limit of level warn."""
    error: float | None = None
    clear_warn: float | None = None
    """Where the level ends again; None = as far from the raise limit as built in."""
    clear_error: float | None = None
    hold_s: float | None = None
    """Seconds for which it must be so before the alert rises."""
    quiet_s: float | None = None
    """Seconds for which it must be over before the alert ends."""


class SinkSettings(msgspec.Struct, frozen=True):
    """One table of ``[[sinks]]``. Addresses are secrets: the file says where they are kept, never what they are."""

    kind: str
    """bell, desktop, ntfy, webhook, command or apprise."""
    name: str = ""
    """For a person; empty = the kind."""
    url_env: str | None = None
    """Environment variable that holds the address."""
    url_file: str | None = None
    """File that holds it."""
    token_env: str | None = None
    """Environment variable that holds an access token (ntfy, webhook)."""
    argv: tuple[str, ...] = ()
    """The program of a ``command`` and its arguments; no shell looks at them."""
    timeout_s: float = 10.0
    min_level: str = "warn"
    kinds: tuple[str, ...] = ()
    """Only these kinds of alert; empty = all."""
    boxes: tuple[str, ...] = ()
    """Only these boxes; empty = all."""
    resolved: bool = False
    """Tell also that an alert is over."""
    quiet_hours: str | None = None
    """``22:00-07:00`` by the local clock: what is not an error waits for the end."""
    every_s: float = 600.0
    """At most one message per alert in so many seconds."""
    digest_over: int = 4
    """More than so many at once become one message."""


class AlertSettings(msgspec.Struct, frozen=True):
    """``[alerts.KIND]`` and ``[[sinks]]`` of the fleet file."""

    kinds: dict[str, KindSettings] = {}
    sinks: tuple[SinkSettings, ...] = ()
