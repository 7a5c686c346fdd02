"""An immutable view of a box, and every threshold, defined once.

Alerts, findings, the checklist and the gate all use this module, so they cannot disagree.
"""

from __future__ import annotations

from operator import attrgetter, is_
from typing import TYPE_CHECKING

import msgspec

from rgt_tui.health.remembered import EventNews, RememberedBox, gather_event_news
from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    BoxState,
    Checkpoint,
    DiskReading,
    FrozenStruct,
    GpuReading,
    Lifecycle,
    LinkState,
    Profile,
    QueueCell,
    QueueState,
    RunState,
    Sample,
    TrainingProcess,
    training_of,
)
from rgt_tui.profiles import (
    byte_pct,
    inode_pct,
    no_agent,
    stale_after,
)

if TYPE_CHECKING:
    from rgt_tui.profiles import JudgedStorage


class HealthLimits(FrozenStruct):
    """The limits from which conditions, findings, the checklist and the gate report something."""

    # Space and memory, in percent.
    disk_warn_pct: float = 80.0
    """Percent of bytes or inodes in use from which a disk raises a warning."""
    disk_error_pct: float = 95.0
    """Percent of bytes or inodes in use from which a disk raises an error."""
    disk_margin_pct: float = 3.0
    """Percentage points below its limit that usage must fall before there is room again."""
    memory_warn_pct: float = 90.0
    """Percent of memory in use that raises a warning."""
    memory_error_pct: float = 97.0
    """Percent of memory in use that raises an error."""
    memory_margin_pct: float = 3.0
    """Percentage points below its limit that memory must fall before the alert ends."""
    checkpoints_ahead: int = 3
    """How many more checkpoints must fit: one being written, one kept, one best."""
    files_per_checkpoint: int = 64
    """Inodes assumed for a checkpoint."""
    # GPUs.
    busy_pct: float = 20.0
    """GPU utilisation from which the GPU counts as computing, even if no training process is
    recognised."""
    held_bytes: int = 1 << 30
    """Video memory in use from which a process counts as holding the GPU; the driver itself uses
    less."""
    typed_s: float = 300.0
    """Seconds since the last keystroke at a terminal of the box for which its user counts as
    present."""
    # Progress.
    moving_s: float = 10.0
    """A run that advanced within this many seconds is alive, even if the process list disagrees."""
    no_queue_moving_s: float = 60.0
    """The same for a run without a queue that records when it started."""
    no_queue_stall_s: float = 600.0
    """Stall limit in seconds for a run without a queue that records when it started."""
    busy_stalls: float = 3.0
    """A GPU that is busy without progress is reported after this many times the usual stall limit.
    """
    first_step_s: float = 600.0
    """Seconds without a logged first step after which a cell is reported. Loading weights and data
    takes time."""
    hopeless_stalls: float = 10.0
    """A cell that has made no progress for this many stall limits will not recover without help."""
    checkpoint_old_s: float = 1800.0
    """Seconds of unsaved work that count as too much on a box that can disappear at any time."""
    layer_old_s: float = 120.0
    """Seconds without news after which a log, a curve or a session counts as silent."""
    oom_recent_s: float = 600.0
    """Seconds for which a kill by the kernel's OOM killer stays an alert."""
    # The connection and the clock.
    lost_s: float = 120.0
    """Seconds without a connection before an alert is raised."""
    skew_noted_s: float = 2.0
    """Seconds of difference between the two clocks that are shown."""
    skew_warn_s: float = 30.0
    """Seconds of difference between the two clocks that raise a warning."""
    skew_clear_s: float = 15.0
    """Seconds of difference below which that warning ends."""
    # Money.
    meter_old_s: float = 120.0
    """Age in seconds from which the provider's last status no longer counts as current."""
    answers_s: float = 30.0
    """Minimum seconds since its last sample for which a box with a live connection still counts as
    answering."""
    meter_lost_s: float = 600.0
    """Seconds without a readable provider status before an alert is raised."""
    danger_warn_s: float = 5 * 86400.0
    """Seconds left on a danger clock that raise a warning."""
    danger_error_s: float = 2 * 86400.0
    """Seconds left on a danger clock that raise an error."""
    session_part: float = 1.0 / 120.0
    """Fraction of the two limits above for the end of a running machine (session, walltime). That
    end is known and often within a day, so its limits are 1 h and 24 min."""
    balance_warn_s: float = 24 * 3600.0
    """Seconds until the account's balance is used up that raise a warning."""
    balance_error_s: float = 6 * 3600.0
    """Seconds until the account's balance is used up that raise an error."""


LIMITS = HealthLimits()

PREEMPTED = 75
"""Exit status of a trainer that received a stop signal, saved, and exited."""

RUNNER_GONE = (Lifecycle.STOPPED, Lifecycle.GONE)
Running = tuple[QueueState, QueueCell, RunState | None]


class BoxFacts(FrozenStruct):
    """A box at one moment, with the values that several conditions need, computed once."""

    box: BoxState
    now: float
    """Client clock, Unix time."""
    sample_age: float | None
    stale: bool
    marked_running: tuple[Running, ...]
    """Cells that their queue calls running, with their metrics, even if the processes cannot be
    seen.
    """
    beside: tuple[tuple[RunState, ...], ...]
    """Trainings running outside of the queues: per training the runs still being written, newest
    first.
    """
    progress_age: float | None
    live: bool
    """The figures are current."""
    trains: bool
    """A training process exists."""
    unseen: str | None
    """Why trainings may run unseen; then queues and curves are not read either. None = everything
    is seen.
    """
    off: bool
    """The provider says that the machine is stopped or gone, and no newer evidence contradicts it.
    """
    memory: RememberedBox
    """What earlier views have shown."""
    news: EventNews
    """What the box's events report."""
    given_profile: Profile | None = None
    page_seen: bool = False
    """A person has seen the current version of the platform's page."""

    @property
    def is_blind(self) -> bool:
        """Whether there may be trainings that cannot be seen."""
        return self.unseen is not None

    def is_curve_unread(self, run: RunState) -> bool:
        """Return whether a run may be further than known.

        Its curve has not been read since the connection.
        """
        box, moved = self.box, run.progressed_at
        if box.looked or moved is None:
            return False
        # Seconds after connecting during which new points of a curve may not have arrived yet.
        read_anew_s = 60.0
        return moved < box.since <= self.now < box.since + read_anew_s

    def is_step_unknown(self, run: RunState, limit_s: float) -> bool:
        """Return whether a run may go on although its step does not.

        Its log names no step, or grew within `limit_s` by lines whose step is not understood.
        """
        at = run.unread_at
        return run.counts_rows or (
            at is not None and at > (run.progressed_at or 0.0) and self.now - at < limit_s
        )

    @property
    def running_cells(self) -> tuple[Running, ...]:
        """Cells known to be running.

        None while trainings are unseen, since the marks may be out of date.
        """
        if self.is_blind:
            return ()
        return self.marked_running

    @property
    def cells(self) -> tuple[QueueCell, ...]:
        """The cells of all queues."""
        return tuple(cell for queue in self.box.queues for cell in queue.cells)

    @property
    def newest_checkpoint(self) -> tuple[str, Checkpoint] | None:
        """Run and checkpoint that was published last, or None."""
        points = [(entry.run, entry.items[-1]) for entry in self.box.checkpoints if entry.items]
        return max(points, key=lambda pair: pair[1].at, default=None)

    @property
    def profile(self) -> Profile:
        """The platform's profile."""
        if self.given_profile is not None:
            return self.given_profile
        from rgt_tui.profiles.loader import load_profile  # not needed for the first frame

        return load_profile(self.box.spec.profile)

    def storage_for(self, verb: BillingVerb) -> JudgedStorage:
        """Return each mount's tier, and where fleet file, provider and box disagree about it."""
        from rgt_tui.profiles.survival import storage_of  # not needed for the first frame

        return storage_of(self.box, self.profile, verb)

    @property
    def box_now(self) -> float:
        """The box's own clock now, corrected by the skew if known."""
        return self.now + (self.box.clock_skew or 0.0)

    def to_client_time(self, box_time: float | None) -> float | None:
        """Convert a time of the box's clock to the client's clock."""
        if box_time is None:
            return None
        return box_time - (self.box.clock_skew or 0.0)

    @property
    def meter_unread(self) -> bool:
        """The box's provider has not been read yet, as right after the start of rgt."""
        meter = self.box.meter
        return (
            self.box.spec.provider is not None
            and meter.at is None
            and meter.lifecycle is Lifecycle.UNKNOWN
        )

    @property
    def unread_reason(self) -> str | None:
        """Why nothing is known of queues, runs and logs; None if they were read."""
        box = self.box
        if box.queues or box.runs or box.checkpoints:
            return None
        if box.hello is None and box.sample is None:
            return translate("unknown: {value}, no data from the box yet", value=box.link.value)
        if no_agent(box):
            return translate("unknown: no agent runs on the box")
        if self.unseen is not None:
            return translate("unknown: {why}", why=self.unseen)
        return None

    @property
    def queue_done(self) -> bool:
        """Whether every queue of the box is done, according to its runner."""
        return bool(self.box.queues) and all(queue.done for queue in self.box.queues)

    @property
    def provider_word(self) -> Lifecycle:
        """The provider's status; unknown if it is *stopped* and the box answers."""
        return provider_word(self.box, self.now)

    @property
    def contested(self) -> bool:
        """Whether the provider calls the machine stopped or gone although it answers."""
        return contested(self.box, self.now)


def facts_of(
    box: BoxState,
    now: float,
    memory: RememberedBox | None = None,
    news: EventNews | None = None,
    profile: Profile | None = None,
    *,
    page_seen: bool = False,
) -> BoxFacts:
    """Return what is known of `box` at `now` (client clock).

    Args:
        box: The state.
        now: Client clock.
        memory: What the alert state remembers; None = the box was not watched before.
        news: The result of `gather_event_news` for the same events, if already computed.
        profile: Platform of the box; None = the one that its spec names.
        page_seen: A person has seen the current version of the platform's page.
    """
    if box.sample_at is None:
        sample_age = None
    else:
        sample_age = max(0.0, now - box.sample_at)
    stale = sample_age is None or sample_age > stale_after(box)
    if box.queues:
        marked = _running_by_queue(box)
    else:
        marked = ()
    why = unseen_reason(box.sample)
    running = marked if why is None else ()
    trains = bool(training_processes(box.sample))
    if why is None:
        beside = _runs_outside_cells(box, running, trains)
    else:
        beside = ()
    moved = [
        run.progressed_at
        for _, _, run in running
        if run is not None and run.progressed_at is not None
    ]
    moved += [runs[0].progressed_at or 0.0 for runs in beside]
    if not moved and not box.queues:
        # No run is active: show how long ago the last one advanced.
        last = max((run.progressed_at or 0.0 for run in box.runs), default=0.0)
        moved = [last] if last else []
    return BoxFacts(
        box=box,
        now=now,
        sample_age=sample_age,
        stale=stale,
        marked_running=marked,
        beside=beside,
        progress_age=max(0.0, now - min(moved)) if moved else None,
        live=box.link is LinkState.LIVE and not stale,
        trains=trains,
        unseen=why,
        off=provider_word(box, now) in RUNNER_GONE,
        memory=memory if memory is not None else RememberedBox(),
        news=news if news is not None else gather_event_news(box.events),
        given_profile=profile,
        page_seen=page_seen,
    )


def reuse_facts(
    like: BoxFacts, box: BoxState, now: float, memory: RememberedBox, news: EventNews
) -> BoxFacts:
    """Return the result of `facts_of`, reusing `like` of the same box at the same time.

    Only findings and history may differ; if anything else has changed, everything is recomputed.
    """
    if like.now != now or not all(map(is_, _read(like.box), _read(box))):
        return facts_of(box, now, memory, news)
    return msgspec.structs.replace(like, box=box, memory=memory, news=news)


_READ = (
    "sample",
    "sample_at",
    "queues",
    "runs",
    "found",
    "link",
    "meter",
    "interval",
    "hello",
    "spec",
)
"""All fields of a box that `facts_of` itself reads."""
_read = attrgetter(*_READ)


def training_processes(sample: Sample | None) -> tuple[TrainingProcess, ...]:
    """Return the training processes.

    Zombies (Z) are left out: they compute nothing and only await reaping.
    """
    if sample is None or not sample.procs:
        return ()
    return tuple(proc for proc in sample.procs if proc.state != "Z")


def unseen_reason(sample: Sample | None) -> str | None:
    """Return why there may be unseen trainings.

    None if every process is seen, or nothing was read yet.
    """
    if sample is not None:
        return sample.unseen
    return None


def gpus_computing(sample: Sample | None) -> tuple[GpuReading, ...]:
    """Return the real GPUs that are computing, for any process."""
    if sample is not None:
        gpus = sample.gpus
    else:
        gpus = ()
    return tuple(
        gpu for gpu in gpus if not gpu.sim and gpu.util is not None and gpu.util >= LIMITS.busy_pct
    )


def gpus_in_use(sample: Sample | None) -> tuple[GpuReading, ...]:
    """Return the real GPUs whose memory is in use, computing or not."""
    if sample is not None:
        gpus = sample.gpus
    else:
        gpus = ()
    return tuple(gpu for gpu in gpus if not gpu.sim and _holds_memory(gpu))


def _holds_memory(gpu: GpuReading) -> bool:
    if gpu.orphans or (gpu.vram_used is not None and gpu.vram_used >= LIMITS.held_bytes):
        return True
    return any(proc.bytes is None or proc.bytes >= LIMITS.held_bytes for proc in gpu.procs)


def find_shortage(disk: DiskReading, margin: float = 0.0, need: int | None = None) -> str | None:
    """Return what `disk` is short of, ``inodes`` or ``bytes``, or None.

    Inodes are checked first, because bytes look fine when inodes run out.

    Args:
        disk: A reading.
        margin: Percentage points by which the limit is lowered.
        need: Bytes of the next checkpoint, if it should fit; less free space than that is short,
            too.
    """
    if disk.read_only:
        return None
    for what, used in (("inodes", inode_pct(disk)), ("bytes", byte_pct(disk))):
        if used is not None and used >= LIMITS.disk_error_pct - margin:
            return what
    if need is not None and disk.bytes_free is not None and disk.bytes_free < need:
        return "bytes"
    return None


def provider_word(box: BoxState, now: float) -> Lifecycle:
    """Return the provider's status of the machine.

    *Unknown* if the machine's own samples contradict it.
    """
    if contested(box, now):
        return Lifecycle.UNKNOWN
    return box.meter.lifecycle


def contested(box: BoxState, now: float) -> bool:
    """Return whether the provider calls the machine stopped or gone although it answers.

    The order of the two readings does not matter: samples arrive every few seconds and the
    provider's status about once a minute, so comparing their times would start and end clocks and
    alerts each time.
    """
    if (
        box.meter.lifecycle not in RUNNER_GONE
        or box.link is not LinkState.LIVE
        or box.sample_at is None
    ):
        return False
    return now - box.sample_at <= max(LIMITS.answers_s, stale_after(box))


def _running_by_queue(box: BoxState) -> tuple[Running, ...]:
    found = [
        (queue, cell) for queue in box.queues for cell in queue.cells if cell.state == "running"
    ]
    if not found:
        return ()
    runs = {run.name: run for run in box.runs}
    return tuple((queue, cell, runs.get(cell.name)) for queue, cell in found)


def _runs_outside_cells(
    box: BoxState, running: tuple[Running, ...], trains: bool
) -> tuple[tuple[RunState, ...], ...]:
    """Return the active runs that belong to no cell, grouped by training.

    They are the runs of live found trainings. Runs in named directories have no known process; the
    newest counts as active while a training process exists.
    """
    cells = {cell.name for _, cell, _ in running}
    trainings = {found.name for found in box.found}
    groups: dict[str, list[RunState]] = {}
    for run in box.runs:
        if run.name in cells or run.progressed_at is None:
            continue
        if run.alive:
            groups.setdefault(training_of(run.name, trainings) or run.name, []).append(run)
        elif run.alive is None and trains and not box.queues:
            groups.setdefault("", []).append(run)
    return tuple(_runs_written_together(runs) for runs in groups.values())


def _runs_written_together(runs: list[RunState]) -> tuple[RunState, ...]:
    newest_first = sorted(runs, key=lambda run: run.progressed_at or 0.0, reverse=True)
    # Of several curves of one training, those within this many seconds of the newest are still
    # being written.
    together_s = 600.0
    since = (newest_first[0].progressed_at or 0.0) - together_s
    return tuple(run for run in newest_first if (run.progressed_at or 0.0) >= since)
