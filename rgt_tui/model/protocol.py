"""The frames between the agent on a box and the client: one JSON object per line.

The agent (``remote/rgt_box``) writes plain dictionaries of exactly these fields, tagged by ``t``. Times are
seconds since the epoch by the *box's* clock; sizes are bytes; percentages are 0 to 100. A field that the box
could not read is ``None``, never zero. Unknown fields are ignored, so that an older client reads a newer agent.

The client cleans every text of a frame when it decodes it (`rgt_tui.ssh.read_frame`), except `Exact` and `Name`: these
are compared with other frames, used in commands, or sent back to the box. A text with a bound is `Exact`, too: cleaning
can make it longer (tabs), and no snapshot of it could be read again.

A frame is made once, of what was made before it: it is in no cycle, and the garbage collector need not look at it, of
which hundreds of boxes make thousands a second (``gc=False``). So are the states that are made of frames.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rgt_tui.model.autostop import AutostopReading
from rgt_tui.model.plain import EXACT, Exact

PROTOCOL_VERSION = 1
"""Raised when a frame changes its meaning; the agent says its own in `Hello`."""

DEFAULT_PATTERN = "rgt_train"
"""Tells a training process where nobody says otherwise; with `WatchConfig.find` it stands for the agent's own guess."""

MAX_FRAME_BYTES = 1 << 20
"""A line longer than this is dropped and counted, never buffered without bound."""

Name = Annotated[str, msgspec.Meta(max_length=8192), EXACT]
"""A path, or what something is called by, exactly as the box has it; twice what a path may have on Linux."""


class GpuProc(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that holds memory of a GPU, as the driver lists it."""

    pid: int
    """The driver's number: only where `mapped` is it a pid of the agent's namespace."""
    bytes: int | None = None
    mapped: bool = False


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that has a GPU's device open although the driver does not list it: its memory may be orphaned."""

    pid: int
    started: float
    cmd: str


class MigSlice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of a card that its owner has cut (Multi-Instance GPU): a program is given one, not the card."""

    name: str
    """The driver's profile, ``1g.10gb``."""
    vram_used: int | None = None
    vram_total: int | None = None
    uuid: str | None = None
    """``MIG-…``"""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One accelerator as its driver (NVML, nvidia-smi, sysfs) or a replayed trace reports it."""

    index: int
    name: str
    util: float | None = None
    vram_used: int | None = None
    vram_total: int | None = None
    temp_c: float | None = None
    fan_pct: float | None = None
    """Of the full speed that the card intends; None where the host's fans cool it."""
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    sim: bool = False
    """True when the numbers are replayed from a trace: every screen marks them ``SIM``."""
    error: str | None = None
    bus: str | None = None
    """PCI address, ``0000:3b:00.0``: the kernel log names a GPU by it."""
    ecc_corrected: int | None = None
    """Memory errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    pcie_gen: int | None = None
    """Generation of the link now; an idle GPU lowers it to save power, which is no fault."""
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    xid: int | None = None
    """Number of the last Xid that the kernel log tells of this GPU."""
    procs: tuple[GpuProc, ...] = ()
    orphans: tuple[GpuHolder, ...] = ()
    uuid: str | None = None
    """The driver's name of this very card, ``GPU-…``: it stays when cards are numbered anew. NVIDIA's alone."""
    temp_slow_c: float | None = None
    """From here on the driver slows the card down to cool it."""
    nvlinks_up: int | None = None
    """NVLinks that are active; None where the card has none, or nobody could ask."""
    nvlinks: int | None = None
    """NVLinks that the card has, bridged or not."""
    mig: tuple[MigSlice, ...] | None = None
    """What the card is cut into; None where it is whole, or nobody could ask. Its own `util` is then not told."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The container's memory (cgroup) apart from the host's, which is not the tenant's to use."""

    cgroup: int | None = None
    """Cgroup version, 1 or 2; None where no memory controller is visible."""
    used: int | None = None
    """Bytes charged to the cgroup, page cache included."""
    cache: int | None = None
    """Of these, inactive file cache, which the kernel gives back before it kills."""
    limit: int | None = None
    """None = no limit is set on the cgroup."""
    peak: int | None = None
    oom_kills: int | None = None
    host_used: int | None = None
    host_total: int | None = None
    swap_used: int | None = None
    """Bytes of the cgroup that were swapped out."""
    swap_limit: int | None = None
    host_swap_used: int | None = None
    host_swap_total: int | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """CPU granted by the cgroup quota, and the host's load."""

    quota: float | None = None
    """Cores granted; None = no quota."""
    cores: int | None = None
    """Cores this process may run on (affinity)."""
    load1: float | None = None
    throttled_pct: float | None = None
    usable: float | None = None
    """Cores that can really be used: the smaller of quota and affinity."""
    throttled_s: float | None = None
    """Seconds for which the quota held the cgroup's threads back, since it was made."""
    oversubscribed: bool = False
    """True while the training has many times more threads than usable cores, and they are in each other's way."""
    steal_pct: float | None = None
    """Of the time of the machine's processors since the last sample: what its host gave to others."""


class InodeHog(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A directory that holds many inodes, found by a bounded scan when a mount runs short of them."""

    path: Exact
    inodes: int
    bytes: int


class Disk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One mount: bytes *and* inodes (``statvfs``)."""

    mount: Exact
    bytes_total: int | None = None
    bytes_used: int | None = None
    bytes_free: int | None = None
    """Free to an unprivileged user."""
    inodes_total: int | None = None
    """None where the file system has no fixed number of inodes."""
    inodes_used: int | None = None
    read_only: bool = False
    hogs: tuple[InodeHog, ...] = ()
    error: str | None = None
    """Why this mount could not be read (missing, stale NFS handle, timed out)."""
    kind: str | None = None
    """Type of the file system, as the mount table says."""
    on: Exact | None = None
    """The mount point that holds it, where it is none itself: an ordinary directory, or a link."""


class LostRank(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rank of this machine that is gone although others of its launch are there."""

    rank: int
    pid: int | None = None
    """The one that it had; None = it was never seen."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a rank of our own trainer, or of one with our callback, says that it is at."""

    phase: str
    """``loop`` (the loop's own code), ``data``, ``forward``, ``backward``, ``collective``, ``optimizer``,
    ``checkpoint``, ``evaluation``, ``start`` or ``end``."""
    for_s: float
    """Seconds since that phase began."""
    step: int
    """Optimizer steps that are done."""
    step_s: float
    """Seconds since the last of them ended."""
    usual_s: float = 0.0
    slowest_s: float = 0.0
    """How long a step takes without saves and evaluations, and the slowest took."""
    steps: int = 0
    """How many this process has done."""


class RankReading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is read of a process that a launcher made a rank of a distributed training, every 5 s."""

    rank: int
    world: int
    group: str
    """Tells its launch from others."""
    still_s: float | None = None
    """For so long, at least, its main thread has not run at all; None where that cannot be read."""
    spin_s: float | None = None
    """For so long, at least, its main thread has run nearly all the time; None = it does not."""
    wait: str | None = None
    """The function of the kernel in which it sleeps, such as ``futex_do_wait``; None = it runs, or nobody says."""
    stack: str | None = None
    """The innermost functions of the kernel, where root may read them."""
    dump: Exact | None = None
    """What torch's flight recorder has written of this attempt."""
    flight: dict[str, Any] | None = None
    """What stands in it, in torch's own form, cut to the entries that count, with ``age_s``, its age in seconds, and
    ``open_s``, how old its oldest open call then was. Only where a rank of the launch has come to a stand."""
    ras: dict[str, Any] | None = None
    """What ``ncclras -f json`` says of a launch that stands, twice the same, cut to who is behind or missing, by number
    in the launch; with its first rank here."""
    beat: Heartbeat | None = None
    """None for any other trainer, and where it cannot be read."""
    lost: tuple[LostRank, ...] = ()


class Workers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Copies that a process has forked off itself, such as those of a DataLoader, summed up."""

    count: int
    threads: int
    """Of all of them together."""
    states: dict[Annotated[Exact, msgspec.Meta(max_length=1)], int] = {}
    """Letter of /proc/PID/stat → how many of them are in it."""


class Proc(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A training process, by its pid in the agent's own namespace."""

    pid: int
    started: float
    """Start time (epoch seconds); with `pid` it identifies the process for ever."""
    cmd: str
    rss: int | None = None
    threads: int | None = None
    state: str | None = None
    """One letter of /proc/PID/stat: R S D T Z."""
    cpu_pct: float | None = None
    age_s: float | None = None
    fds: int | None = None
    """Open file descriptors; None where they are another user's."""
    run: Exact | None = None
    """Name of the queue's cell that it belongs to."""
    dist: RankReading | None = None
    """None = it is no rank, or that cannot be read."""
    ppid: int | None = None
    """Its parent, which may or may not be listed."""
    user: Annotated[Exact, msgspec.Meta(max_length=256)] | None = None
    """Whose it is: a name of the box's own list of users, else the number."""
    workers: Workers | None = None
    """None = it has none, or the agent is older."""
    omp: int | None = None
    """``OMP_NUM_THREADS`` in its environment; None = not set there, or not ours to read."""


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job of this user in Slurm's queue."""

    id: str
    name: str
    state: str
    """Slurm's word: RUNNING, PENDING, …"""
    elapsed_s: float | None = None
    left_s: float | None = None
    """Until the time limit ends it."""
    reason: str | None = None
    """Why it waits, or where it runs."""


class Session(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What detached work lives in."""

    tmux: tuple[Exact, ...] = ()
    """Names of the tmux sessions of this user."""
    uptime_s: float | None = None
    slurm: tuple[SlurmJob, ...] = ()
    slurm_error: str | None = None
    """Why Slurm's queue could not be read, on a box that has Slurm."""


class ExposedToken(msgspec.Struct, frozen=True, gc=False):
    """A key found in one of the usual places, without its value."""

    path: Exact
    why: str
    """What it looks like."""
    open: str | None = None
    """Why others may read it; None = this user alone."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="hello", gc=False):
    """First frame of a channel."""

    proto: int
    agent: str
    """Content hash of the zipapp that speaks."""
    boot: Exact
    """Boot id (kernel's, or the box's own in a container): a new one means a reboot."""
    host: str
    python: str
    pid: int
    at: float
    utc_offset: float | None = None
    """Seconds that its local time is east of UTC; None = the agent is older."""
    gpu_source: str = "none"
    """nvml, smi, amd, ascend, sim or none."""
    interval: float = 1.0
    limited: tuple[str, ...] = ()
    """What this agent cannot do here, in words."""
    packed_lines: bool = False
    """Each line that follows is a zlib stream, told by one before it."""
    identity: dict[
        Annotated[Exact, msgspec.Meta(max_length=64)],
        Annotated[Exact, msgspec.Meta(max_length=256)],
    ] = {}
    """What the box calls itself, by the name of where it is said: ``RUNPOD_POD_ID``, ``CONTAINER_ID``,
    ``SLURM_JOB_ID``, ``pod_uid``, … Empty = it says nothing, or the agent is older."""
    exposed: tuple[ExposedToken, ...] | None = None
    """Keys in the usual places; None = nobody has looked."""


class Transfer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A program that copies files, at work on the box; rgt's own are none."""

    pid: int
    name: Annotated[Exact, msgspec.Meta(max_length=64)]
    """``rsync``, ``sftp-server``, ``aws s3``, …"""


class Sample(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="sample", gc=False):
    """One reading of a box. ``(boot, seq)`` identifies it: the sequence has no gap and no repeat."""

    boot: Exact
    seq: int
    at: float
    gpus: tuple[Gpu, ...] = ()
    mem: Memory = Memory()
    cpu: Cpu = Cpu()
    disks: tuple[Disk, ...] = ()
    procs: tuple[Proc, ...] = ()
    session: Session = Session()
    agent_rss: int | None = None
    """Resident bytes of the agent's processes on the box, added up."""
    skipped: int = 0
    """Samples left out right before this one, because the reader was slow."""
    unseen: str | None = None
    """Why a process that trains may be missing from `procs`, in words; None = all of them are there."""
    transfers: tuple[Transfer, ...] | None = None
    """What copies files now (looked at every 10 s); empty = nothing does; None = it is not known."""
    input_at: float | None = None
    """Newest input of a person at any terminal of the box, other than those of rgt; 0 = there was none on those that
    there are; None = it is not known."""
    autostop: AutostopReading | None = None
    """How the box's own stop stands, as its recorder says; None = it is not armed, or no recorder runs."""
    lease: AutostopReading | None = None
    """The same of a hard end."""


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The samples of one stretch of time, summed up."""

    at: float
    """Time of the newest of them."""
    count: int
    """How many samples were taken; 0 = nobody recorded then."""
    values: tuple[tuple[float, float, float] | None, ...]
    """Per name of the frame: minimum, mean, maximum."""


class History(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="history", gc=False):
    """What the recorder saw, at reduced resolution; only sent to a client that asked for it."""

    boot: Exact
    seq: int
    """The newest sample that is counted here. It moves no cursor."""
    width: float
    """Seconds that one row stands for, by a clock that does not jump."""
    names: tuple[Exact, ...] = ()
    """``util`` and ``vram`` (percent, mean of the GPUs), ``cgroup``, ``disk:MOUNT``, ``inodes:MOUNT`` (percent);
    of each of several cards ``util:0``, ``vram:0``, ``power:0`` (percent) and ``temp:0`` (°C)."""
    rows: tuple[HistoryRow, ...] = ()
    """Oldest first."""


class LogLines(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="log", gc=False):
    """Complete lines of one followed file; ``start`` and ``end`` are byte offsets in the file ``inode``."""

    path: Name
    inode: int
    start: int
    end: int
    lines: tuple[str, ...]
    skipped: int = 0
    """Lines left out right before these (the newest lines win)."""
    reset: bool = False
    """True when the file was truncated or replaced: what was shown before belongs to the old file."""
    partial: str | None = None
    """The last line as far as it is written, e.g. a progress bar. Volatile: the next frame of this path replaces
    it, and no cursor counts it."""
    age: float | None = None
    """Seconds since the last of these lines was written, told once of a file that was just opened."""


class ScalarPoint(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One logged step of a run."""

    step: int
    at: float | None
    epoch: float | None
    values: dict[str, float | str | None]
    """Metric name → value. NaN and infinities travel as the strings "nan", "inf" and "-inf"."""


class Wait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A training that stands still with unsaved work in memory, until it can save or gives up."""

    what: str
    """``disk``: for room to save; ``mirror``: for its copy; empty = it waits no more."""
    step: int = 0
    at: float | None = None
    """Box clock when it began."""
    until: float | None = None
    """Box clock when it gives up."""
    unsaved: int | None = None
    """Steps that are lost if it gives up, or is killed."""


class Scalars(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="scalar", gc=False):
    """New points of one run's metric source, in file order."""

    run: Name
    """Run name (the cell's name)."""
    source: Name
    """Path of the file on the box."""
    inode: int
    start: int
    end: int
    points: tuple[ScalarPoint, ...] = ()
    resumes: tuple[tuple[int, str], ...] = ()
    """``(step, reason)``: the curve goes on from `step`. They come before the points of the same frame; the agent
    begins a new frame at each resume."""
    written: float | None = None
    """When the source was last written to, where its points have no time of their own: they are not younger."""
    wait: Wait | None = None
    """News of a wait; None = there is none, and any new point means that the training goes on."""


class Cell(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of the queue and its state."""

    name: Name
    cfg: Exact
    task: Exact
    epochs: int | None = None
    state: str = "waiting"
    """waiting, running, done, failed, interrupted."""
    attempts: int = 0
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    """Why it failed, in words."""
    durable: str | None = None
    """verified, failed, pending; None where the job names no durable directory."""
    durable_path: Exact | None = None
    out: Exact | None = None
    log: Exact | None = None
    best: float | None = None
    flag: str | None = None
    """What is odd about an end that looks like success, in words: much too soon, or another config than before."""
    pruned: int | None = None
    """Bytes of its checkpoints that were removed to make room, after their durable copy was proved again."""
    wait: Wait | None = None
    """What its trainer waits for; only in the answer of ``queue status``. A stream sends it with the scalars."""
    told: dict[str, str] | None = None
    """What its config says of learning rate, batch, seed and the like; None = it has not started, or nobody read it."""


class QueueState(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="queue", gc=False):
    """The whole state of one queue, sent when it changes."""

    path: Name
    at: float
    cells: tuple[Cell, ...] = ()
    runner_pid: int | None = None
    runner_alive: bool = False
    done: bool = False
    """The runner wrote QUEUE DONE."""
    error: str | None = None
    same_command: Exact | None = None
    """The same for all jobs that `rgt run` has made of one command, whatever the code; None = it made none of it."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One published checkpoint of a run."""

    path: Exact
    """Its directory, or its file of weights."""
    bytes: int
    at: float
    """When its newest file was written."""
    step: int | None = None
    """None = neither its name nor its content says it."""
    epoch: int | None = None
    best: bool = False
    group: Exact | None = None
    """The same for all checkpoints of one series."""
    why: str | None = None
    """Why it is not complete."""


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="ckpt", gc=False):
    """All checkpoints of one run, newest last; sent when the list changes."""

    run: Name
    at: float
    items: tuple[Checkpoint, ...] = ()
    """Complete ones."""
    writing: tuple[Checkpoint, ...] = ()
    """Those that are not complete: being written, or never finished."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="event", gc=False):
    """Something that happened on the box, e.g. ``agent-started``, ``rebooted``, ``oom-kill``, ``bad-config``."""

    boot: Exact
    seq: int
    """Its place in the one sequence that it shares with the samples; 0 = outside of it (from a run's metrics)."""
    at: float
    kind: str
    text: str
    level: str = "info"
    """info, warn or error."""


class FoundRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A training that is in no queue, found by its processes."""

    name: Name
    """Directory and script; the same after a reconnect and after the training was started again."""
    pid: int
    """Root of its processes."""
    started: float
    """With `pid` it identifies the root for ever."""
    command: str
    """Its command line; secrets are masked."""
    pids: tuple[int, ...] = ()
    """Its processes, the root first (at most 64)."""
    why: str = ""
    """What told that it trains, in words."""
    cwd: Exact | None = None
    """Working directory; None where it is another user's."""
    user: str | None = None
    session: str = "unknown"
    """What it lives in: tmux, screen, slurm, container, service, nohup, detached, shell or unknown."""
    place: str | None = None
    """Pane, job id, container, unit or terminal."""
    log: Exact | None = None
    """Path of the `LogLines` that hold what it prints; ``tmux:PANE`` for a pane's screen. None = there is none."""
    logs: tuple[Exact, ...] = ()
    """The same, with its other logs behind."""
    sources: tuple[Exact, ...] = ()
    """Files that its curves come from."""
    alive: bool = True
    seen: float | None = None
    """When it was last seen alive, once it has ended: the end lies between `seen` and `ended`."""
    ended: float | None = None
    """When it was found to be gone; of one that a reboot ended, when the box began anew."""
    exit_code: int | None = None
    """None = unknown, not success: only a process's parent learns it. Slurm tells that of its jobs."""
    outcome: str | None = None
    """Slurm's word for how its job ended: ``COMPLETED``, ``TIMEOUT``, ``NODE_FAIL``, …; None where nobody says one."""
    uses: tuple[str, ...] = ()
    """Frameworks that its script imports, with the version that is installed, e.g. ``transformers 4.57.1``."""
    marks: tuple[str, ...] = ()
    """What its script or command line says of saving and resuming, e.g. ``resume``, ``save_total_limit=1``."""
    cache: Exact | None = None
    """Where Hugging Face keeps models for it."""
    world: int | None = None
    """How many ranks it has; None = one, or not known."""
    world_before: int | None = None
    """How many it had before it was started again."""
    notes: tuple[str, ...] = ()
    """What could not be found out, or will be lost, in words."""


class Found(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="found", gc=False):
    """All found trainings of a box, the newest last; sent when they change, to a client that asked for it."""

    boot: Exact
    at: float
    runs: tuple[FoundRun, ...] = ()


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", tag="pong", gc=False):
    """Answer to a ``ping`` control line; unasked, with number 0, when the clock was set or the first look is over."""

    id: int
    at: float
    looked: bool = False
    """Everything there is has been looked at once: logs, panes, curves, the queue. Said once a channel."""


Frame = (
    Hello | Sample | LogLines | Scalars | QueueState | Checkpoints | Event | Pong | History | Found
)


class Cursor(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The position in a file stream: everything before `offset` of file `inode` has been received."""

    inode: int
    offset: int


class SampleCursor(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last sample or event that has been received."""

    boot: str
    seq: int


class HistoryRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Ask for the past at reduced resolution instead of sample by sample."""

    seconds: float
    points: int = 240


class JobHooks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a platform wants done in the shell of a cell, before its command."""

    env: str | None = None
    """A shell line, such as ``module load cuda``."""
    proxy: str | None = None
    """The one that turns the platform's proxy on."""
    no_proxy: tuple[str, ...] = ()
    """Domains that the proxy must not be used for."""


class WatchConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """First line that the client writes to ``watch``."""

    proto: int = PROTOCOL_VERSION
    interval: float = 1.0
    mounts: tuple[str, ...] = ()
    """Mount points to read, beside ``/``."""
    jobs: tuple[str, ...] = ()
    """Job directories (see docs/jobs.md): their queues, logs and metrics are followed by themselves."""
    logs: tuple[str, ...] = ()
    """Further files to follow; globs allowed."""
    runs: tuple[str, ...] = ()
    """Run directories outside of jobs; globs allowed. The metrics below them are found by themselves."""
    pattern: str = DEFAULT_PATTERN
    """Regular expression on the command line that tells a training process."""
    find: bool = False
    """Find trainings, with their logs and metrics; with the default `pattern` by the agent's own guess."""
    gpu_trace: str | None = None
    """Path on the box of a recorded GPU trace to replay where no GPU is found."""
    tail: int = 200
    """Lines of history to send for a log that has no cursor."""
    samples_after: SampleCursor | None = None
    log_cursors: dict[str, Cursor] = {}
    scalar_cursors: dict[str, Cursor] = {}
    packed_lines: bool = False
    """Each line behind the `Hello` may come as a zlib stream of its own."""
    history: HistoryRequest | None = None
    """Sum up what was recorded; of the samples behind the cursor only the newest then come one by one."""
    job_env: dict[str, str] | None = None
    """What cells get from now on where neither their job nor their runner sets it; None = leave it as it was told."""
    durable: tuple[str, ...] = ()
    """Directories that outlive the box, or that other machines share: no key belongs there."""
    job_hooks: JobHooks | None = None
    """What is run before the command of cells from now on; None = leave it as it was told."""


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A later line from the client: ``interval``, ``follow``, ``unfollow`` or ``ping``."""

    op: str
    seconds: float | None = None
    path: str | None = None
    id: int | None = None
