"""One immutable view of a box, and every threshold, defined once.

The alerts, the findings, the checklist and the gate all ask here, so that two of them cannot disagree.
"""

from __future__ import annotations

from operator import attrgetter, is_

import msgspec

from rgt_tui.health.remembered import Memory, News, news_of
from rgt_tui.model import (
    BoxState,
    Cell,
    Checkpoint,
    Disk,
    Gpu,
    Lifecycle,
    Link,
    Proc,
    Profile,
    QueueState,
    RunState,
    Sample,
    Verb,
    training_of,
)
from rgt_tui.profiles import (
    Storage,
    byte_pct,
    inode_pct,
    load_profile,
    no_agent,
    stale_after,
    storage_of,
)

# Space and memory, in percent.
DISK_WARN_PCT, DISK_ERROR_PCT = 80.0, 95.0
"""Of bytes and of inodes alike."""
DISK_MARGIN_PCT = 3.0
"""What was short of something has room again only this far below its limit."""
MEMORY_WARN_PCT, MEMORY_ERROR_PCT = 90.0, 97.0
MEMORY_MARGIN_PCT = 3.0
CHECKPOINTS_AHEAD = 3
"""Room for that many more: one being written, one kept, one best."""
FILES_PER_CHECKPOINT = 64

# The cards.
BUSY_PCT = 20.0
"""GPU utilisation from which something computes, even if no training process is recognised."""

HELD_BYTES = 1 << 30
"""Video memory in use from which somebody holds it; less is taken by the driver itself."""
TYPED_S = 300.0
"""Whoever has typed at a terminal of the box within so many seconds is still there."""

# Progress, in seconds.
MOVING_S = 10.0
"""A run that advanced within so many seconds is alive, whatever the list of processes says."""
NO_QUEUE_MOVING_S, NO_QUEUE_STALL_S = 60.0, 600.0
"""The same, and when it counts as stalled, for a run of which no queue tells when it was started."""
STANDS = 3.0
"""Times the usual stall after which a card that is busy without any progress is told."""
READ_ANEW_S = 60.0
"""So long after a connection a curve of which nothing new came may still be on its way."""
FIRST_STEP_S = 600.0
"""A cell that has not logged a step by then is worth a look; loading weights and data takes its time."""
HOPELESS_STALL = 10.0
"""A cell that stands that many times longer than a stall does not come back by itself."""
TOGETHER_S = 600.0
"""Of several curves of one training, those that advanced within so many seconds of the newest are still written."""
CHECKPOINT_OLD_S = 1800.0
"""Work of that long would be lost on a box that can go away at any time."""
LAYER_OLD_S = 120.0
"""A log, a curve or a session that has told nothing for so long is silent."""
OOM_RECENT_S = 600.0
"""A kill by the kernel is an alert for this long."""
PREEMPTED = 75
"""Exit status of a trainer that was asked to stop by a signal, saved, and left."""

# The connection and the clock, in seconds.
LOST_S = 120.0
"""A box may drop out for this long before anyone is told."""
SKEW_NOTED_S, SKEW_WARN_S, SKEW_CLEAR_S = 2.0, 30.0, 15.0

# Money.
METER_OLD_S = 120.0
"""What the provider was last read to say is not *now* after so long."""
ANSWERS_S = 30.0
"""A box that reports over a connection that stands answers for so long after its last sample, at least."""
METER_LOST_S = 600.0
"""A provider that could not be read for this long is an alert."""
DANGER_WARN_S, DANGER_ERROR_S = 5 * 86400.0, 2 * 86400.0
"""Time left on a danger clock."""
SESSION_PART = 1.0 / 120.0
"""So much of that for what ends a machine that runs (a session, a walltime), which is known and often within a day: 1 h
and 24 min."""
BALANCE_WARN_S, BALANCE_ERROR_S = 24 * 3600.0, 6 * 3600.0
"""For so long the account's balance lasts."""

RUNNER_GONE = (Lifecycle.STOPPED, Lifecycle.GONE)
Running = tuple[QueueState, Cell, RunState | None]


class Facts(msgspec.Struct, frozen=True):
    """A box at one moment, with what several conditions need worked out once."""

    box: BoxState
    now: float
    """Client clock."""
    sample_age: float | None
    stale: bool
    marked_running: tuple[Running, ...]
    """Cells that their queue calls running, with their metrics, also where nobody can look."""
    beside: tuple[tuple[RunState, ...], ...]
    """Trainings that go on outside of the queues: per training its runs that are still written, the newest first."""
    progress_age: float | None
    live: bool
    """The figures are of now."""
    trains: bool
    """A process that trains is there."""
    unseen: str | None
    """Why others may train that nobody sees; nor are queues and curves read then. None = all is seen."""
    off: bool
    """The provider says that the machine is stopped or gone, and nothing newer speaks against it."""
    memory: Memory
    """What earlier views have shown."""
    news: News
    """What the box's events tell."""
    given_profile: Profile | None = None
    page_seen: bool = False
    """A person was shown the platform's page as it is now."""

    @property
    def blind(self) -> bool:
        """There may be trainings that cannot be seen."""
        return self.unseen is not None

    def unread(self, run: RunState) -> bool:
        """Say whether a run may be further than is known: its curve is read for the first time since the connection."""
        box, moved = self.box, run.progressed_at
        if box.looked or moved is None:
            return False
        return moved < box.since <= self.now < box.since + READ_ANEW_S

    @property
    def running(self) -> tuple[Running, ...]:
        """Cells that are known to be run. What no agent reads any more, another one told before."""
        if self.blind:
            return ()
        return self.marked_running

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all queues."""
        return tuple(cell for queue in self.box.queues for cell in queue.cells)

    @property
    def newest(self) -> tuple[str, Checkpoint] | None:
        """Run and checkpoint that was published last."""
        points = [(entry.run, entry.items[-1]) for entry in self.box.checkpoints if entry.items]
        return max(points, key=lambda pair: pair[1].at, default=None)

    @property
    def profile(self) -> Profile:
        """The platform."""
        if self.given_profile is not None:
            return self.given_profile
        return load_profile(self.box.spec.profile)

    def storage(self, verb: Verb) -> Storage:
        """Return which tier each mount is on, and where fleet file, provider and box disagree about it."""
        return storage_of(self.box, self.profile, verb)

    @property
    def box_now(self) -> float:
        """The box's own clock now, as far as the skew is known."""
        return self.now + (self.box.clock_skew or 0.0)

    def client(self, box_time: float | None) -> float | None:
        """Return a time of the box's clock by the client's."""
        if box_time is None:
            return None
        return box_time - (self.box.clock_skew or 0.0)

    @property
    def meter_unread(self) -> bool:
        """The box has a provider that has not been read yet: right after the start of rgt."""
        meter = self.box.meter
        return (
            self.box.spec.provider is not None
            and meter.at is None
            and meter.lifecycle is Lifecycle.UNKNOWN
        )

    @property
    def untold(self) -> str | None:
        """Why nothing is known of queues, runs and logs; None where they were read."""
        box = self.box
        if box.queues or box.runs or box.checkpoints:
            return None
        if box.hello is None and box.sample is None:
            return f"not known: {box.link.value}, and the box has told nothing yet"
        if no_agent(box):
            return "not known: no agent runs on the box"
        if self.unseen is not None:
            return f"not known: {self.unseen}"
        return None

    @property
    def queue_done(self) -> bool:
        """Every queue of the box is through, as its runner wrote."""
        return bool(self.box.queues) and all(queue.done for queue in self.box.queues)

    @property
    def provider_word(self) -> Lifecycle:
        """The provider's word where it is to be believed: *stopped* is not, of a box that answers."""
        return provider_word(self.box, self.now)

    @property
    def contested(self) -> bool:
        """The provider calls the machine stopped or gone, and it answers."""
        return contested(self.box, self.now)


def facts_of(
    box: BoxState,
    now: float,
    memory: Memory | None = None,
    news: News | None = None,
    profile: Profile | None = None,
    *,
    page_seen: bool = False,
) -> Facts:
    """Return what is known of `box` at `now` (client clock).

    Args:
        box: The state.
        now: Client clock.
        memory: What the alert state remembers; None = nobody has watched.
        news: What `news_of` made of the same events, where that is known already.
        profile: Platform of the box; None = the one that its spec names.
        page_seen: A person was shown the platform's page as it is now.
    """
    sample_age = None if box.sample_at is None else max(0.0, now - box.sample_at)
    stale = sample_age is None or sample_age > stale_after(box)
    marked = _marked(box) if box.queues else ()
    why = unseen(box.sample)
    running = marked if why is None else ()
    trains = bool(trainers(box.sample))
    beside = _beside(box, running, trains) if why is None else ()
    moved = [
        run.progressed_at
        for _, _, run in running
        if run is not None and run.progressed_at is not None
    ]
    moved += [runs[0].progressed_at or 0.0 for runs in beside]
    if not moved and not box.queues:
        # Nothing goes on: for how long is worth showing.
        last = max((run.progressed_at or 0.0 for run in box.runs), default=0.0)
        moved = [last] if last else []
    return Facts(
        box=box,
        now=now,
        sample_age=sample_age,
        stale=stale,
        marked_running=marked,
        beside=beside,
        progress_age=max(0.0, now - min(moved)) if moved else None,
        live=box.link is Link.LIVE and not stale,
        trains=trains,
        unseen=why,
        off=provider_word(box, now) in RUNNER_GONE,
        memory=memory if memory is not None else Memory(),
        news=news if news is not None else news_of(box.events),
        given_profile=profile,
        page_seen=page_seen,
    )


def alike(like: Facts, box: BoxState, now: float, memory: Memory, news: News) -> Facts:
    """Return what `facts_of` returns, from what it made of the same box, whose findings and past may be others by now.

    Where anything else is another, it is worked out anew.
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
"""Of a box all that `facts_of` works with itself."""
_read = attrgetter(*_READ)


def trainers(sample: Sample | None) -> tuple[Proc, ...]:
    """Return the processes that train. A zombie (Z) computes nothing: its exit code just has not been fetched."""
    if sample is None or not sample.procs:
        return ()
    return tuple(proc for proc in sample.procs if proc.state != "Z")


def unseen(sample: Sample | None) -> str | None:
    """Say why there may be trainings that cannot be seen; None where every process is seen, or nothing was read yet."""
    if sample is not None:
        return sample.unseen
    return None


def computing(sample: Sample | None) -> tuple[Gpu, ...]:
    """Return the real cards that are computing, whoever started it."""
    gpus = sample.gpus if sample is not None else ()
    return tuple(
        gpu for gpu in gpus if not gpu.sim and gpu.util is not None and gpu.util >= BUSY_PCT
    )


def holding(sample: Sample | None) -> tuple[Gpu, ...]:
    """Return the real cards whose memory is in use, computing or not."""
    gpus = sample.gpus if sample is not None else ()
    return tuple(gpu for gpu in gpus if not gpu.sim and _held(gpu))


def _held(gpu: Gpu) -> bool:
    if gpu.orphans or (gpu.vram_used is not None and gpu.vram_used >= HELD_BYTES):
        return True
    return any(proc.bytes is None or proc.bytes >= HELD_BYTES for proc in gpu.procs)


def short_of(disk: Disk, margin: float = 0.0, need: int | None = None) -> str | None:
    """Return what `disk` is short of, ``inodes`` or ``bytes``, or None. Inodes win: bytes then look fine.

    Args:
        disk: A reading.
        margin: Percentage points by which the limit is lowered.
        need: Bytes of one more checkpoint, where known and wanted: less room than that is short, too.
    """
    if disk.read_only:
        return None
    for what, used in (("inodes", inode_pct(disk)), ("bytes", byte_pct(disk))):
        if used is not None and used >= DISK_ERROR_PCT - margin:
            return what
    if need is not None and disk.bytes_free is not None and disk.bytes_free < need:
        return "bytes"
    return None


def provider_word(box: BoxState, now: float) -> Lifecycle:
    """Return what the provider says of the machine; *unknown* where the machine itself speaks against it."""
    if contested(box, now):
        return Lifecycle.UNKNOWN
    return box.meter.lifecycle


def contested(box: BoxState, now: float) -> bool:
    """Tell whether the provider calls the machine stopped or gone, and it answers.

    Which of the two was read last does not count: a sample comes every few seconds, and a word of the provider every
    minute or so, and one that took turns with the other would begin and end clocks and alerts each time.
    """
    if box.meter.lifecycle not in RUNNER_GONE or box.link is not Link.LIVE or box.sample_at is None:
        return False
    return now - box.sample_at <= max(ANSWERS_S, stale_after(box))


def _marked(box: BoxState) -> tuple[Running, ...]:
    found = [
        (queue, cell) for queue in box.queues for cell in queue.cells if cell.state == "running"
    ]
    if not found:
        return ()
    runs = {run.name: run for run in box.runs}
    return tuple((queue, cell, runs.get(cell.name)) for queue, cell in found)


def _beside(
    box: BoxState, running: tuple[Running, ...], trains: bool
) -> tuple[tuple[RunState, ...], ...]:
    """Gather the runs that go on and are no cell's: those of found trainings that live, each training by itself.

    Of runs whose processes nobody looks for (named directories), the newest goes on while something trains.
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
    return tuple(_written(runs) for runs in groups.values())


def _written(runs: list[RunState]) -> tuple[RunState, ...]:
    newest_first = sorted(runs, key=lambda run: run.progressed_at or 0.0, reverse=True)
    since = (newest_first[0].progressed_at or 0.0) - TOGETHER_S
    return tuple(run for run in newest_first if (run.progressed_at or 0.0) >= since)
