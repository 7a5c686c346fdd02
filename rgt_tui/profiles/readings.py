"""Figures of a sample: percentages, how old it is, and the usual speed of a run."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Sequence

from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    Checkpoint,
    DiskReading,
    FoundRun,
    GpuReading,
    MemoryReading,
    QueueCell,
    RunState,
    Series,
    TrainingPause,
    time_of_day,
)

# "as" the same name: re-exported on purpose, which linters accept in this form.
from rgt_tui.model import how_many as how_many
from rgt_tui.model import pct as pct
from rgt_tui.model import size as size

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
"""File systems whose files are lost when the machine restarts."""
# Two would be exceeded by one late sample of a busy box.
STALE_INTERVALS = 3
"""A sample older than this many intervals is stale."""


def compute_percent(used: float | None, total: float | None) -> float | None:
    """Return ``used`` in percent of ``total``.

    None if either is unknown, or the total is not positive.
    """
    # 0 is what file systems without a fixed number of inodes report.
    if used is None or total is None or total <= 0:
        return None
    return 100.0 * used / total


MOST_CARDS = 8
"""Maximum number of GPUs per box with a history of their own."""
CARD_FIGURES = ("util", "vram", "temp", "power")
"""Recorded per GPU on a box with several, as ``util:0``: percent, of the limit for ``power``; °C
for ``temp``.
"""


def card_figures(gpus: Sequence[GpuReading]) -> dict[str, float]:
    """Return the recorded figures of each GPU.

    Empty for one GPU, whose box has the same figures.
    """
    found: dict[str, float] = {}
    # Limited, because each figure is a series of hours in memory, per card and box.
    for gpu in gpus[:MOST_CARDS] if len(gpus) > 1 else ():
        util, vram, temp, power = _card_names(gpu.index)
        if gpu.util is not None:
            found[util] = gpu.util
        if (used := compute_percent(gpu.vram_used, gpu.vram_total)) is not None:
            found[vram] = used
        if gpu.temp_c is not None:
            found[temp] = gpu.temp_c
        if (drawn := compute_percent(gpu.power_w, gpu.power_limit_w)) is not None:
            found[power] = drawn
    return found


@functools.lru_cache(256)
def _card_names(index: int) -> tuple[str, ...]:
    return tuple(f"{name}:{index}" for name in CARD_FIGURES)


def is_of_card(name: str) -> bool:
    """Return whether a figure of `rgt_tui.model.box.Past` belongs to one GPU."""
    return name.partition(":")[0] in CARD_FIGURES and ":" in name


def inode_pct(disk: DiskReading) -> float | None:
    """Return the percentage of inodes in use; None if the file system has no fixed number."""
    return compute_percent(disk.inodes_used, disk.inodes_total)


def byte_pct(disk: DiskReading) -> float | None:
    """Return the percentage of bytes in use as computed by ``df``, without root's reserve."""
    if disk.bytes_used is None:
        return None
    if disk.bytes_free is not None:
        # As df: of what an unprivileged user could use, so 100% means that writes fail.
        return compute_percent(disk.bytes_used, disk.bytes_used + disk.bytes_free)
    return compute_percent(disk.bytes_used, disk.bytes_total)


def memory_pct(mem: MemoryReading) -> float | None:
    """Return the non-reclaimable memory in percent of the cgroup's limit."""
    if mem.used is None:
        return None
    # Cache is freed before anything is killed, so it is no danger.
    return compute_percent(max(0, mem.used - (mem.cache or 0)), mem.limit)


def disk_of(disks: tuple[DiskReading, ...], path: str) -> DiskReading | None:
    """Return the disk that contains `path`: the one with the longest mount point above it."""
    # With the slash, /data does not contain /database.
    target = path.rstrip("/") + "/"
    above = [disk for disk in disks if target.startswith(disk.mount.rstrip("/") + "/")]
    return max(above, key=lambda disk: len(disk.mount), default=None)


# The agent sends the system's own text, which Linux and macOS word alike.
MISSING = os.strerror(errno.ENOENT)


def is_absent(disk: DiskReading, box: BoxState) -> bool:
    """Return whether a mount of the platform's profile, not named by a person, is missing."""
    return disk.error == MISSING and disk.mount not in box.spec.mounts


def no_agent(box: BoxState) -> str:
    """Return why a box has no logs, runs and queues; empty if an agent runs there."""
    # A box that is watched by plain shell commands, without the agent.
    plain = box.hello is not None and box.hello.agent == "sh"
    if plain and box.limited:
        return box.limited[0]
    return ""


def find_sample_interval(box: BoxState) -> float:
    """Return the expected seconds between samples of `box`: the last requested interval, if any."""
    min_interval = 1.0
    if box.interval is not None:
        return max(box.interval, min_interval)
    agreed = 0.0
    if box.hello is not None:
        # An agent may be slower than asked for, e.g. on a box with many mounts.
        agreed = box.hello.interval
    return max(box.spec.interval, agreed, min_interval)


def stale_after(box: BoxState) -> float:
    """Return the age in seconds beyond which a sample of `box` is stale."""
    return STALE_INTERVALS * find_sample_interval(box)


def saved_point(point: Checkpoint) -> str:
    """Return the name of a checkpoint: its step, else its epoch, else its file name."""
    if point.step is not None:
        return f"step {point.step:,}"
    if point.epoch is not None:
        return f"epoch {point.epoch:,}"
    return point.path.rpartition("/")[2]


def how_ended(run: FoundRun) -> str:
    """Return what is known of how a found training ended."""
    if run.exit_code is None:
        known = []
    else:
        known = [f"exit {run.exit_code}"]
    # COMPLETED adds nothing to an exit status of 0.
    if run.outcome is not None and run.outcome != "COMPLETED":
        known.append(translate("Slurm says {outcome}", outcome=run.outcome))
    return ", ".join(known) or translate("exit status unknown")


STALL_MIN_S = 30.0


def step_time(cell: QueueCell, run: RunState) -> float | None:
    """Return the usual seconds per logged point in the cell's current attempt; None = unknown.

    This is the mean over the attempt, including start-up: rather too long than too short, which
    makes an alarm late rather than wrong.
    """
    loss = run.series.get("loss")
    if loss is None or run.last_at is None or cell.started is None:
        return None
    # Of this attempt only: the time since its start is known, that of earlier ones is not.
    first: int | None = 0
    if run.resumes:
        first = run.resumes[-1].index
    elif cell.attempts > 1:
        first = _last_fall(loss)
    if first is None:
        return None
    points = len(loss) - first
    span = run.last_at - cell.started - run.held_s
    # Two points may follow each other at once, long before the next one.
    least_points = 3
    if points >= least_points and span > 0:
        return span / points
    return None


def _last_fall(curve: Series) -> int | None:
    """Return the index of the newest point whose step is not above the one before.

    A script that knows nothing of rgt names no resume: its steps begin again. None = no such
    point: the attempt may have continued exactly at the next step, and its points are unknown.
    """
    steps, _, count = curve.backing_columns()
    # An attempt with more points has a pace that earlier ones hardly change.
    most_points = 20_000
    for at in range(count - 1, max(0, count - most_points), -1):
        if steps[at] <= steps[at - 1]:
            return at
    return None


def stall_after(cell: QueueCell | None, run: RunState) -> float:
    """Return the seconds without progress from which `run` is stalled: 30, or ten usual steps.

    Ten minutes while its pace is unknown.
    """
    per_step = None
    if cell is not None:
        per_step = step_time(cell, run)
    if per_step is None:
        return 600.0
    stall_steps = 10.0
    # Ten steps, because evaluations and saves come between steps.
    return max(STALL_MIN_S, stall_steps * per_step)


def find_redone_cells(box: BoxState) -> frozenset[tuple[str, str]]:
    """Return the failed cells, by queue and name, whose command a later job has completed."""
    good = [
        queue
        for queue in box.queues
        if queue.cells and all(cell.state == "done" for cell in queue.cells)
    ]
    return frozenset(
        (queue.path, cell.name)
        for queue in box.queues
        # A queue that still runs may try the cell again itself.
        if queue.same_command is not None and not queue.runner_alive
        for cell in queue.cells
        if cell.state in ("failed", "interrupted")
        and any(
            later.same_command == queue.same_command
            and min(each.started or 0.0 for each in later.cells) > (cell.started or 0.0)
            for later in good
        )
    )


# The runner's own words: a test holds both sides to them.
_STOPPED_BY_PERSON = "the queue was stopped by rgt stop;"


def stopped_by_person(cell: QueueCell) -> bool:
    """Return whether a person ended the cell with ``rgt stop``, as recorded by its runner."""
    return cell.state == "interrupted" and (cell.reason or "").startswith(_STOPPED_BY_PERSON)


def find_held_runs(box: BoxState) -> tuple[RunState, ...]:
    """Return the runs that wait with unsaved work in memory, until they can save or give up."""
    states = {cell.name: cell.state for queue in box.queues for cell in queue.cells}
    return tuple(
        run
        for run in box.runs
        if run.wait is not None
        and run.alive is not False
        and states.get(run.name, "running") == "running"
    )


def wait_left(box: BoxState, wait: TrainingPause, now: float) -> float | None:
    """Return the seconds until a waiting run gives up; None = unknown."""
    if wait.until is None:
        return None
    # `until` is by the box's clock.
    return max(0.0, wait.until - (now + (box.clock_skew or 0.0)))


def wait_text(wait: TrainingPause, skew: float | None, now: float) -> str:
    """Return what a run waits for, what it would lose, and when it gives up (client clock).

    Events keep the text, so it has the time instead of the minutes left.
    """
    if wait.what == "mirror":
        what = translate("waits for the mirror")
    else:
        what = translate("no room to save")
    if wait.unsaved is None:
        unsaved = ""
    else:
        unsaved = translate(", {unsaved} not saved", unsaved=how_many(wait.unsaved, "step"))
    if wait.until is None:
        return f"{what}{unsaved}"
    at = time_of_day(wait.until - (skew or 0.0), now)
    return f"{what}{unsaved}" + translate(", gives up at {at}", at=at)
