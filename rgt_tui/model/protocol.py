"""The frames between the agent on a box and the client: one JSON object per line.

The agent (``remote/rgt_box``) writes plain dictionaries of exactly these fields, tagged by ``t``.
Times are seconds since the epoch by the *box's* clock; sizes are bytes; percentages are 0 to 100. A
field that the box could not read is ``None``, never zero. Unknown fields are ignored, so that an
older client can read a newer agent.

The client cleans every text of a frame when it decodes it (`rgt_tui.ssh.read_frame`), except
`Exact` and `Name`: these are compared with other frames, used in commands, or sent back to the box.
A text with a maximum length is also `Exact`: cleaning can lengthen it (tabs), and a snapshot of it
could then not be decoded again.

A frame refers only to objects made before it, so it is never part of a reference cycle. The garbage
collector can skip it (``gc=False``), which matters because hundreds of boxes send thousands per
second. The same holds for the states made of frames.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rgt_tui.model.autostop import AutostopReading
from rgt_tui.model.plain import EXACT, Exact, FrozenStruct

# New optional fields do not raise it: unknown fields are ignored, missing ones have a default.
PROTOCOL_VERSION = 1
"""Incremented when a frame changes its meaning; the agent sends its own version in `Hello`."""

DEFAULT_PATTERN = "rgt_train"
"""Default pattern of a training process; with `WatchConfig.find` it means the agent's own
detection."""

# Both sides know it: the agent splits what would be longer.
MAX_FRAME_BYTES = 1 << 20
"""A longer line is dropped and counted, so that buffers are limited."""

# A limit for text that becomes a key of dictionaries: a hostile box could else fill the memory.
Name = Annotated[str, msgspec.Meta(max_length=8192), EXACT]
"""A path or name exactly as on the box; at most twice the length of a path on Linux."""


class GpuProcess(FrozenStruct, kw_only=True, gc=False):
    """A process with memory on a GPU, as listed by the driver."""

    pid: int
    """The driver's process number: a pid in the agent's namespace only if `mapped`."""
    bytes: int | None = None
    # In a container, the driver lists pids of the host, which mean another process here.
    mapped: bool = False


class GpuHolder(FrozenStruct, kw_only=True, gc=False):
    """A process that has a GPU's device open but is not listed by the driver.

    Its memory may be orphaned.
    """

    pid: int
    started: float
    cmd: str


class MigSlice(FrozenStruct, kw_only=True, gc=False):
    """A part of a partitioned card (Multi-Instance GPU); a program uses one part, not the card."""

    name: str
    """The driver's profile, ``1g.10gb``."""
    vram_used: int | None = None
    vram_total: int | None = None
    uuid: str | None = None
    """``MIG-…``"""


class GpuReading(FrozenStruct, kw_only=True, gc=False):
    """One accelerator as reported by its driver (NVML, nvidia-smi, sysfs) or a replayed trace."""

    index: int
    name: str
    util: float | None = None
    vram_used: int | None = None
    vram_total: int | None = None
    temp_c: float | None = None
    fan_pct: float | None = None
    """Share of full speed that the card requests; None = cooled by the host's fans."""
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    sim: bool = False
    """True when the numbers are replayed from a trace: every screen marks them ``SIM``."""
    error: str | None = None
    bus: str | None = None
    """PCI address, ``0000:3b:00.0``, which the kernel log uses for a GPU."""
    ecc_corrected: int | None = None
    """Memory errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    # Low while the card is idle; the width is what a bad slot changes.
    pcie_gen: int | None = None
    """Present generation of the link; an idle GPU lowers it to save power, which is not a fault."""
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    xid: int | None = None
    """Number of the last Xid in the kernel log for this GPU."""
    procs: tuple[GpuProcess, ...] = ()
    orphans: tuple[GpuHolder, ...] = ()
    uuid: str | None = None
    """The driver's id of this card, ``GPU-…``, which stays the same when cards are renumbered.
    NVIDIA only."""
    temp_slow_c: float | None = None
    """Temperature at which the driver slows the card down."""
    nvlinks_up: int | None = None
    """Active NVLinks; None = the card has none, or they could not be queried."""
    nvlinks: int | None = None
    """NVLinks of the card, bridged or not."""
    mig: tuple[MigSlice, ...] | None = None
    """Partitions of the card; None = not partitioned, or unknown. A partitioned card has no
    `util`."""


class MemoryReading(FrozenStruct, kw_only=True, gc=False):
    """The container's memory (cgroup), and separately the host's, which the tenant cannot use."""

    cgroup: int | None = None
    """Cgroup version, 1 or 2; None = no memory controller is visible."""
    used: int | None = None
    """Bytes charged to the cgroup, page cache included."""
    # Subtracted by the client: a cgroup whose cache fills its limit is not about to be killed.
    cache: int | None = None
    """The inactive file cache in `used`, which the kernel frees before it kills."""
    # The container's, not the host's: `free` shows the host's in most containers.
    limit: int | None = None
    """None = the cgroup has no limit."""
    peak: int | None = None
    oom_kills: int | None = None
    host_used: int | None = None
    host_total: int | None = None
    swap_used: int | None = None
    """Bytes of the cgroup that were swapped out."""
    swap_limit: int | None = None
    host_swap_used: int | None = None
    host_swap_total: int | None = None


class CpuReading(FrozenStruct, kw_only=True, gc=False):
    """CPU granted by the cgroup quota, and the host's load."""

    quota: float | None = None
    """Cores granted; None = no quota."""
    cores: int | None = None
    """Cores that this process may run on (affinity)."""
    load1: float | None = None
    throttled_pct: float | None = None
    # What a training can really use; `nproc` shows the host's cores under a quota.
    usable: float | None = None
    """Usable cores: the smaller of quota and affinity."""
    throttled_s: float | None = None
    """Seconds for which the quota throttled the cgroup's threads, since the cgroup was created."""
    oversubscribed: bool = False
    """True while the training has many more threads than usable cores, which slows it down."""
    steal_pct: float | None = None
    """Percentage of CPU time that the host gave to other machines since the last sample."""


class InodeHog(FrozenStruct, kw_only=True, gc=False):
    """A directory with many inodes, found by a limited scan when a mount runs short of them."""

    path: Exact
    inodes: int
    bytes: int


class DiskReading(FrozenStruct, kw_only=True, gc=False):
    """One mount: bytes *and* inodes (``statvfs``)."""

    mount: Exact
    bytes_total: int | None = None
    bytes_used: int | None = None
    # statvfs's f_bavail: root's reserve is not usable for a training.
    bytes_free: int | None = None
    """Free to an unprivileged user."""
    inodes_total: int | None = None
    """None = the file system has no fixed number of inodes."""
    inodes_used: int | None = None
    read_only: bool = False
    hogs: tuple[InodeHog, ...] = ()
    error: str | None = None
    """Why this mount could not be read (missing, stale NFS handle, timed out)."""
    kind: str | None = None
    """Type of the file system in the mount table."""
    # E.g. /workspace on a machine without a volume, which only looks like storage of its own.
    on: Exact | None = None
    """The mount point that contains it, if it is an ordinary directory or a link."""


# array_like: a job of a thousand ranks would else repeat the names of the fields.
class LostRank(FrozenStruct, array_like=True, gc=False):
    """A missing rank on this machine, while others of its launch are running."""

    rank: int
    pid: int | None = None
    """Its last pid; None = never seen."""


class Heartbeat(FrozenStruct, kw_only=True, gc=False):
    """Progress reported by a rank of our own trainer, or of one with our callback."""

    phase: str
    """``loop`` (the loop's own code), ``data``, ``forward``, ``backward``, ``collective``,
    ``optimizer``, ``checkpoint``, ``evaluation``, ``start`` or ``end``."""
    for_s: float
    """Seconds since that phase began."""
    step: int
    """Optimizer steps done."""
    step_s: float
    """Seconds since the last step ended."""
    usual_s: float = 0.0
    slowest_s: float = 0.0
    """Usual and longest duration of a step, without saves and evaluations."""
    steps: int = 0
    """Steps done by this process."""


class RankReading(FrozenStruct, kw_only=True, gc=False):
    """Readings of a rank's process in a distributed training, every 5 s."""

    rank: int
    world: int
    group: str
    """Distinguishes its launch from others."""
    # "At least", because ranks are sampled: the time before the first sample is unknown.
    still_s: float | None = None
    """Seconds, at least, for which its main thread has not run at all; None = unreadable."""
    spin_s: float | None = None
    """Seconds, at least, for which its main thread has run nearly all the time; None = not
    spinning."""
    wait: str | None = None
    """The kernel function in which it sleeps, such as ``futex_do_wait``; None = it runs, or is
    unreadable."""
    # /proc/PID/stack is readable for root only.
    stack: str | None = None
    """The innermost kernel functions, if readable (root)."""
    dump: Exact | None = None
    """Path of the dump by torch's flight recorder for this attempt."""
    # In torch's own format: the same code reads it from files, see `rgt_tui.handbook.collectives`.
    flight: dict[str, Any] | None = None
    """Content of the dump in torch's own format, cut to the relevant entries, with ``age_s``, its
    age in seconds, and ``open_s``, the age of its oldest open call at that time. Only if a rank of
    the launch is stuck."""
    ras: dict[str, Any] | None = None
    """Output of ``ncclras -f json`` for a stuck launch, the same in two queries, cut to lagging or
    missing ranks by their number in the launch; with its first rank here."""
    beat: Heartbeat | None = None
    """None = another trainer, or unreadable."""
    lost: tuple[LostRank, ...] = ()


class WorkerSums(FrozenStruct, kw_only=True, gc=False):
    """Sums over a process's forked copies, such as DataLoader workers."""

    count: int
    threads: int
    """Of all workers together."""
    states: dict[Annotated[Exact, msgspec.Meta(max_length=1)], int] = {}
    """State letter of /proc/PID/stat → number of workers in it."""


class TrainingProcess(FrozenStruct, kw_only=True, gc=False):
    """A training process, by its pid in the agent's own namespace."""

    pid: int
    # A pid alone is reused; the pair identifies a process until the next boot.
    started: float
    """Start time (epoch seconds); `pid` and `started` uniquely identify the process."""
    cmd: str
    rss: int | None = None
    threads: int | None = None
    state: str | None = None
    """One letter of /proc/PID/stat: R S D T Z."""
    cpu_pct: float | None = None
    age_s: float | None = None
    fds: int | None = None
    """Open file descriptors; None = another user's process."""
    run: Exact | None = None
    """Name of its cell in the queue."""
    dist: RankReading | None = None
    """None = not a rank, or unreadable."""
    ppid: int | None = None
    """Its parent, which may or may not be listed."""
    user: Annotated[Exact, msgspec.Meta(max_length=256)] | None = None
    """Its user: a name in the box's own list of users, otherwise the number."""
    workers: WorkerSums | None = None
    """None = it has no workers, or the agent is older."""
    omp: int | None = None
    """``OMP_NUM_THREADS`` in its environment; None = not set, or not readable."""


class SlurmJob(FrozenStruct, kw_only=True, gc=False):
    """A job of this user in Slurm's queue."""

    id: str
    name: str
    state: str
    """Slurm's state: RUNNING, PENDING, …"""
    elapsed_s: float | None = None
    left_s: float | None = None
    """Seconds until the time limit ends it."""
    reason: str | None = None
    """Why it waits, or where it runs."""


class DetachedSessions(FrozenStruct, kw_only=True, gc=False):
    """Sessions in which detached programs run."""

    tmux: tuple[Exact, ...] = ()
    """Names of the tmux sessions of this user."""
    uptime_s: float | None = None
    slurm: tuple[SlurmJob, ...] = ()
    slurm_error: str | None = None
    """Why Slurm's queue could not be read, on a box that has Slurm."""


class ExposedToken(FrozenStruct, gc=False):
    """A key found in one of the usual places, without its value."""

    path: Exact
    why: str
    """The kind of key that it looks like."""
    open: str | None = None
    """Why others may read it; None = only this user can."""


class Hello(FrozenStruct, kw_only=True, tag_field="t", tag="hello", gc=False):
    """First frame of a channel."""

    proto: int
    agent: str
    """Content hash of the running zipapp."""
    boot: Exact
    """Boot id (the kernel's, or the box's own in a container): a new one means a reboot."""
    host: str
    python: str
    pid: int
    at: float
    utc_offset: float | None = None
    """Seconds of local time east of UTC; None = the agent is older."""
    gpu_source: str = "none"
    """nvml, smi, amd, ascend, sim or none."""
    interval: float = 1.0
    limited: tuple[str, ...] = ()
    """Messages about this agent's limitations here."""
    packed_lines: bool = False
    """Each following line is a zlib stream, most of them with an earlier line as dictionary."""
    identity: dict[
        Annotated[Exact, msgspec.Meta(max_length=64)],
        Annotated[Exact, msgspec.Meta(max_length=256)],
    ] = {}
    """The box's own ids, by the name of their source: ``RUNPOD_POD_ID``, ``CONTAINER_ID``,
    ``SLURM_JOB_ID``, ``pod_uid``, … Empty = no ids, or the agent is older."""
    exposed: tuple[ExposedToken, ...] | None = None
    """Keys in the usual places; None = not searched yet."""


class CopyProgram(FrozenStruct, kw_only=True, gc=False):
    """A program copying files on the box, other than rgt's own."""

    pid: int
    name: Annotated[Exact, msgspec.Meta(max_length=64)]
    """``rsync``, ``sftp-server``, ``aws s3``, …"""


class PreemptionNotice(FrozenStruct, kw_only=True, gc=False):
    """The platform's announcement that it takes the machine away."""

    source: str
    """Name of the platform."""
    action: str
    """What the platform calls it."""
    ends: float | None = None
    """When the machine is taken away (the box's clock); None = unknown."""
    at: float
    """When the box read it first."""
    boot: Exact
    asked: tuple[Exact, ...] | None = None
    """Runs that were asked to save; None = none yet, because there is time."""
    unasked: tuple[Exact, ...] = ()
    """Runs that were not asked, because they are not known to save on SIGTERM."""


class Sample(FrozenStruct, kw_only=True, tag_field="t", tag="sample", gc=False):
    """One reading of a box.

    ``(boot, seq)`` identifies it: the sequence has no gap and no repeat.
    """

    boot: Exact
    seq: int
    at: float
    gpus: tuple[GpuReading, ...] = ()
    mem: MemoryReading = MemoryReading()
    cpu: CpuReading = CpuReading()
    disks: tuple[DiskReading, ...] = ()
    procs: tuple[TrainingProcess, ...] = ()
    session: DetachedSessions = DetachedSessions()
    agent_rss: int | None = None
    """Resident bytes of all of the agent's processes on the box."""
    # Left out on purpose, so the client does not count them as gaps.
    skipped: int = 0
    """Samples left out just before this one, because the reader was slow."""
    unseen: str | None = None
    """Why `procs` may lack a training process; None = it is complete."""
    # None is not (): an unknown copy must keep a box from being parked.
    transfers: tuple[CopyProgram, ...] | None = None
    """Programs copying files now (checked every 10 s); empty = none; None = unknown."""
    # 0 and None differ: no input on any terminal is idle, an unreadable terminal is not.
    input_at: float | None = None
    """Newest input of a person at any terminal of the box, except rgt's own; 0 = no input on the
    existing ones; None = unknown."""
    autostop: AutostopReading | None = None
    """Status of the box's self-stop, from its recorder; None = it is not armed, or no recorder
    runs."""
    lease: AutostopReading | None = None
    """The same for a lease."""
    notice: PreemptionNotice | None = None
    """None = the platform has announced nothing, or cannot."""


# Minimum and maximum, so that a short peak survives the summary.
class HistoryRow(FrozenStruct, kw_only=True, array_like=True, gc=False):
    """The samples of one time slot, summed up."""

    at: float
    """Time of the newest sample."""
    count: int
    """Number of samples; 0 = nothing was recorded then."""
    values: tuple[tuple[float, float, float] | None, ...]
    """For each name of the frame: minimum, mean, maximum."""


class RecordedHistory(FrozenStruct, kw_only=True, tag_field="t", tag="history", gc=False):
    """The recorder's history at reduced resolution; only sent to a client that requested it."""

    boot: Exact
    # Numbers without gaps: a missing one is a lost sample, and is counted.
    seq: int
    """The newest sample counted here. It moves no cursor."""
    width: float
    """Width of a row in seconds, by a clock that does not jump."""
    names: tuple[Exact, ...] = ()
    """``util`` and ``vram`` (percent, mean of the GPUs), ``cgroup``, ``disk:MOUNT``,
    ``inodes:MOUNT`` (percent); for each of several cards ``util:0``, ``vram:0``, ``power:0``
    (percent) and ``temp:0`` (°C)."""
    rows: tuple[HistoryRow, ...] = ()
    """Oldest first."""


class LogLines(FrozenStruct, kw_only=True, tag_field="t", tag="log", gc=False):
    """Complete lines of one followed file.

    ``start`` and ``end`` are byte offsets in the file ``inode``.
    """

    path: Name
    # With the offset it identifies a place: a rotated log has another inode.
    inode: int
    start: int
    end: int
    lines: tuple[str, ...]
    skipped: int = 0
    """Lines left out just before these (the newest lines win)."""
    reset: bool = False
    """True when the file was truncated or replaced: lines shown before are of the old file."""
    # Sent again with each change, so it must not move the cursor.
    partial: str | None = None
    """The unfinished last line, e.g. a progress bar. Volatile: the next frame of this path replaces
    it, and no cursor counts it."""
    age: float | None = None
    """Seconds since the last of these lines was written; sent once for a file just opened."""


class ScalarPoint(FrozenStruct, kw_only=True, array_like=True, gc=False):
    """One logged step of a run."""

    step: int
    at: float | None
    epoch: float | None
    # Strings for NaN and infinities, because JSON has neither.
    values: dict[str, float | str | None]
    """Metric name → value. NaN and infinities are sent as the strings "nan", "inf" and "-inf"."""


class TrainingPause(FrozenStruct, kw_only=True, gc=False):
    """A paused training with unsaved work in memory, until it can save or gives up."""

    what: str
    """``disk``: waits for space to save; ``mirror``: for its copy; empty = no longer waits."""
    step: int = 0
    at: float | None = None
    """Box clock when it began."""
    until: float | None = None
    """Box clock when it gives up."""
    unsaved: int | None = None
    """Steps that are lost if it gives up or is killed."""


class Scalars(FrozenStruct, kw_only=True, tag_field="t", tag="scalar", gc=False):
    """New points of one run's metric source, in file order."""

    run: Name
    """Run name (the cell's name)."""
    source: Name
    """Path of the file on the box."""
    inode: int
    start: int
    end: int
    points: tuple[ScalarPoint, ...] = ()
    # Before the points: the client cuts the curve first, then appends.
    resumes: tuple[tuple[int, str], ...] = ()
    """``(step, reason)``: the curve continues from `step`. Resumes come before the points of the
    same frame; the agent begins a new frame at each resume."""
    written: float | None = None
    """When the source was last written, if its points have no times of their own: they are not
    newer."""
    wait: TrainingPause | None = None
    """Change of a wait; None = no change, and any new point means that the training continues."""
    axis: str = "step"
    """What the steps of the points count: ``step``, ``epoch``, ``samples`` or ``row``."""
    unread: float | None = None
    """Box clock when the run's log last grew by lines of progress that its reader does not
    understand; None = it understands them."""


class QueueCell(FrozenStruct, kw_only=True, gc=False):
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
    # None = not ended, or ended by a signal.
    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    """Why it failed, as text."""
    # "pending" blocks a destroy like "failed": a copy counts once it is verified.
    durable: str | None = None
    """verified, failed, pending; None = the job has no durable directory."""
    durable_path: Exact | None = None
    out: Exact | None = None
    log: Exact | None = None
    best: float | None = None
    flag: str | None = None
    """Why an apparent success is doubtful: it was much too fast, or the config has changed."""
    pruned: int | None = None
    """Bytes of its checkpoints deleted to make room, after their durable copy was verified
    again."""
    wait: TrainingPause | None = None
    """Its trainer's wait; only in the answer of ``queue status``. Streams send it with scalars."""
    told: dict[str, str] | None = None
    """Learning rate, batch size, seed and the like from its config; None = not started, or not
    read."""


class QueueState(FrozenStruct, kw_only=True, tag_field="t", tag="queue", gc=False):
    """The complete state of one queue, sent when it changes."""

    path: Name
    at: float
    cells: tuple[QueueCell, ...] = ()
    runner_pid: int | None = None
    runner_alive: bool = False
    done: bool = False
    """The runner wrote QUEUE DONE."""
    error: str | None = None
    # By it, a cell that was run again elsewhere no longer counts as failed.
    same_command: Exact | None = None
    """The same for all jobs made by `rgt run` from one command, with any code; None = made
    otherwise."""
    code: Exact | None = None
    """Version of the code that its cells run, as NAME-HASH: pushed, or the commit of a git
    checkout; None = neither. The verb ``queue status`` appends ``+edits-HASH`` if the files were
    edited since."""


class Checkpoint(FrozenStruct, kw_only=True, gc=False):
    """One published checkpoint of a run."""

    path: Exact
    """Its directory, or its file of weights."""
    bytes: int
    at: float
    """When its newest file was written."""
    step: int | None = None
    """None = neither in its name nor in its content."""
    epoch: int | None = None
    best: bool = False
    group: Exact | None = None
    """The same for all checkpoints of one series."""
    why: str | None = None
    """Why it is incomplete."""


class Checkpoints(FrozenStruct, kw_only=True, tag_field="t", tag="ckpt", gc=False):
    """All checkpoints of one run, newest last; sent when the list changes."""

    run: Name
    at: float
    items: tuple[Checkpoint, ...] = ()
    """Complete ones."""
    # Apart from `items`, so that no reader can take an incomplete one for the newest.
    writing: tuple[Checkpoint, ...] = ()
    """Incomplete ones: being written, or never finished."""


class BoxEvent(FrozenStruct, kw_only=True, tag_field="t", tag="event", gc=False):
    """Something that happened on the box, e.g. ``agent-started``, ``rebooted``, ``oom-kill``."""

    boot: Exact
    seq: int
    """Number in the sequence shared with the samples; 0 = outside of it (from a run's metrics)."""
    at: float
    kind: str
    text: str
    level: str = "info"
    """info, warn or error."""


class FoundRun(FrozenStruct, kw_only=True, gc=False):
    """A training outside any queue, found by its processes."""

    name: Name
    """Directory and script; the same after a reconnect or a restart of the training."""
    pid: int
    """Root of its processes."""
    started: float
    """`pid` and `started` uniquely identify the root."""
    command: str
    """Its command line; secrets are masked."""
    pids: tuple[int, ...] = ()
    """Its processes, the root first (at most 64)."""
    why: str = ""
    """Why it was recognised as a training, as text."""
    cwd: Exact | None = None
    """Working directory; None = another user's process."""
    user: str | None = None
    session: str = "unknown"
    """The kind of session: tmux, screen, slurm, container, service, nohup, detached, shell or
    unknown."""
    place: str | None = None
    """Pane, job id, container, unit or terminal."""
    # Exact: the client sends it back to follow the log.
    log: Exact | None = None
    """Path of the `LogLines` with its output; ``tmux:PANE`` for a pane's screen. None = no log."""
    logs: tuple[Exact, ...] = ()
    """`log`, followed by its other logs."""
    sources: tuple[Exact, ...] = ()
    """Files that its curves come from."""
    alive: bool = True
    seen: float | None = None
    """When an ended training was last seen alive: it ended between `seen` and `ended`."""
    ended: float | None = None
    """When it was found to be gone; after a reboot, when the box started again."""
    exit_code: int | None = None
    """None = unknown, not success: only a process's parent learns it. Slurm reports it for its
    jobs."""
    # Slurm's accounting survives the job, while its exit status is gone with the parent.
    outcome: str | None = None
    """Slurm's final state of its job: ``COMPLETED``, ``TIMEOUT``, ``NODE_FAIL``, …; None = not
    reported."""
    uses: tuple[str, ...] = ()
    """Frameworks that its script imports, with the installed version, e.g. ``transformers
    4.57.1``."""
    marks: tuple[str, ...] = ()
    """Options about saving and resuming in its script or command line, e.g. ``resume``,
    ``save_total_limit=1``."""
    cache: Exact | None = None
    """Where Hugging Face stores models for it."""
    world: int | None = None
    """Number of its ranks; None = one, or unknown."""
    world_before: int | None = None
    """Number of ranks before it was restarted."""
    notes: tuple[str, ...] = ()
    """Messages about unknown facts and expected losses."""


class FoundRuns(FrozenStruct, kw_only=True, tag_field="t", tag="found", gc=False):
    """All found trainings of a box, newest last.

    Sent when they change, to a client that requested it.
    """

    boot: Exact
    at: float
    runs: tuple[FoundRun, ...] = ()


class Pong(FrozenStruct, kw_only=True, tag_field="t", tag="pong", gc=False):
    """Answer to a ``ping`` control line.

    Also sent with number 0 when the clock was set or the first scan is done.
    """

    id: int
    at: float
    looked: bool = False
    """Everything was scanned once: logs, panes, curves, the queue. Sent once per channel."""


# Decoded by the tag `t`: msgspec chooses the struct without a second pass.
Frame = (
    Hello
    | Sample
    | LogLines
    | Scalars
    | QueueState
    | Checkpoints
    | BoxEvent
    | Pong
    | RecordedHistory
    | FoundRuns
)


class FileCursor(FrozenStruct, kw_only=True, gc=False):
    """A cursor in a file: everything before `offset` of file `inode` has been received."""

    inode: int
    offset: int


class SampleCursor(FrozenStruct, kw_only=True, gc=False):
    """The last sample or event received."""

    boot: str
    # Shared with the samples, so that one cursor continues both.
    seq: int


class HistoryRequest(FrozenStruct, kw_only=True, gc=False):
    """Request the history at reduced resolution instead of sample by sample."""

    seconds: float
    points: int = 240


class JobHooks(FrozenStruct, kw_only=True, omit_defaults=True, gc=False):
    """A platform's shell lines that run before the command of a cell."""

    env: str | None = None
    """A shell line, such as ``module load cuda``."""
    proxy: str | None = None
    """The shell line that turns on the platform's proxy."""
    no_proxy: tuple[str, ...] = ()
    """Domains to access without the proxy."""


class WatchConfig(FrozenStruct, kw_only=True, omit_defaults=True, gc=False):
    """First line that the client writes to ``watch``."""

    proto: int = PROTOCOL_VERSION
    interval: float = 1.0
    mounts: tuple[str, ...] = ()
    """Mount points to read, in addition to ``/``."""
    jobs: tuple[str, ...] = ()
    """Job directories (see docs/jobs.md): their queues, logs and metrics are followed
    automatically."""
    notices: tuple[str, ...] = ()
    """Platforms whose metadata service the box may poll for an announced preemption (``ec2``,
    ``gce``, ``azure``), if it is one of their machines."""
    logs: tuple[str, ...] = ()
    """Further files to follow; globs allowed."""
    runs: tuple[str, ...] = ()
    """Run directories outside of jobs; globs allowed. Metrics below them are found
    automatically."""
    pattern: str = DEFAULT_PATTERN
    """Regular expression for the command line of a training process."""
    find: bool = False
    """Find trainings, with their logs and metrics; with the default `pattern` by the agent's own
    detection."""
    gpu_trace: str | None = None
    """Path on the box of a recorded GPU trace to replay where no GPU is found."""
    # Enough for the screen; older lines are fetched on request.
    tail: int = 200
    """Lines to send of a log without a cursor."""
    samples_after: SampleCursor | None = None
    log_cursors: dict[str, FileCursor] = {}
    scalar_cursors: dict[str, FileCursor] = {}
    # The client asks for it, so that an older client never gets packed lines.
    packed_lines: bool = False
    """Lines after the `Hello` may be zlib streams, each of one line."""
    history: HistoryRequest | None = None
    """Request a summary of the recording; of the samples after the cursor, only the newest are then
    sent individually."""
    job_env: dict[str, str] | None = None
    """Environment of cells started from now on, if neither their job nor their runner sets it; None
    = unchanged."""
    durable: tuple[str, ...] = ()
    """Directories that outlive the box, or are shared with other machines: no key may be stored
    there."""
    job_hooks: JobHooks | None = None
    """Shell lines run before the command of cells from now on; None = unchanged."""


# One struct for all operations: unknown ones are ignored by older agents.
class ControlLine(FrozenStruct, kw_only=True, omit_defaults=True, gc=False):
    """A later line from the client: ``interval``, ``follow``, ``unfollow`` or ``ping``."""

    op: str
    seconds: float | None = None
    path: str | None = None
    id: int | None = None
