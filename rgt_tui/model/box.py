"""What the client knows of one box: its description, and the immutable state that every screen and command reads."""

from __future__ import annotations

import enum

import msgspec

from rgt_tui.model.evidence import Finding
from rgt_tui.model.money import Meter
from rgt_tui.model.protocol import Checkpoints, Event, Hello, QueueState, Sample
from rgt_tui.model.run import RunState


class Link(enum.StrEnum):
    """How the connection stands. It says nothing about the machine: a refused connection is not a dead box."""

    CONNECTING = "connecting"
    LIVE = "live"
    UNREACHABLE = "unreachable"
    REFUSED_KEY = "host-key-refused"
    PAUSED = "paused"


class Health(enum.StrEnum):
    """The one word of a row, worst first."""

    TROUBLE = "trouble"
    UNREACHABLE = "unreachable"
    WARN = "warn"
    STALE = "stale"
    CONNECTING = "connecting"
    RUNNING = "running"
    IDLE = "idle"
    FINISHED = "finished"
    STOPPED = "stopped"
    GONE = "gone"


class ProviderRef(msgspec.Struct, frozen=True):
    """Which control plane owns the box, and by which id it knows it."""

    kind: str
    """e.g. ``runpod``."""
    instance: str
    base_url: str | None = None
    """Only for a server that is not the vendor's own (the demo's local provider)."""
    key_env: str | None = None
    """Environment variable that holds the key; the key itself is never stored."""


class BoxSpec(msgspec.Struct, frozen=True):
    """A box as the fleet file (or the demo) describes it."""

    name: str
    host: str
    port: int = 22
    user: str = "root"
    profile: str = "generic-ssh"
    identity: str | None = None
    """Private key file; None = the agent and the default keys."""
    known_hosts: str | None = None
    """known_hosts file; None = the user's own."""
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
    provider: ProviderRef | None = None


class Rings(msgspec.Struct, frozen=True):
    """The last values of what the rows draw as sparklines, oldest first (at most 120 each)."""

    gpu_util: tuple[float | None, ...] = ()
    """Mean over the box's GPUs, percent."""
    vram_pct: tuple[float | None, ...] = ()
    cgroup_pct: tuple[float | None, ...] = ()


class LogView(msgspec.Struct, frozen=True):
    """The newest lines of one followed log."""

    path: str
    lines: tuple[str, ...] = ()
    """At most 2,000, oldest first; control sequences already stripped."""
    dropped: int = 0
    """Lines that exist on the box before these or between them, but were not sent or not kept."""
    at: float | None = None
    """When the newest line arrived (client clock)."""


class Counters(msgspec.Struct, frozen=True):
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


class BoxState(msgspec.Struct, frozen=True):
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
