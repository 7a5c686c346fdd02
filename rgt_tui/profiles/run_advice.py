"""Advice from measurements: save interval, loader workers, room for a larger batch. Never an alarm.

Pure. Without a measurement there is no advice.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator
from statistics import median
from typing import NamedTuple

from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    Checkpoint,
    FoundRun,
    FrozenStruct,
    LogView,
    MeterKind,
    MoneyAmount,
    QueueCell,
    RunState,
    format_duration,
    format_money,
    how_many,
    is_exact_path,
    memory,
    pct,
    size,
)
from rgt_tui.model.run import TIME
from rgt_tui.profiles.prices import find_hourly_cost, project_cost
from rgt_tui.profiles.readings import IN_MEMORY, disk_of, stall_after

# Two gaps: with one, a pause in the training would count as the interval.
LEAST_SAVES = 3
FAR = 2.0
"""Factor off the optimum from which advice is given: below it, the loss differs by a quarter at
most.
"""
ROOM_PCT, LEAST_POINTS = 60.0, 30
"""A GPU never fuller than this percentage, over this many samples, has room."""
_COST = re.compile(r"^(?:\S+ )?checkpoint \d[\d,]* .* stalled ([\d,]+) ms")


class Advice(FrozenStruct, kw_only=True):
    """One piece of advice about a run."""

    run: str
    about: str
    """``save``, ``resume``, ``cache``, ``workers``, ``memory``, ``batch`` or ``speed``."""
    text: str
    page: str | None = None
    """Page of the handbook."""
    seconds: float | None = None
    """For ``save``: the interval that would lose the least; None if the cost of a save is unknown.
    """


def compute_daly_interval(cost_s: float, mtbf_s: float) -> float:
    """Return the seconds of work between two saves that lose the least.

    J. T. Daly, *A higher order estimate of the optimum checkpoint interval for restart dumps*, 2006
    (https://doi.org/10.1016/j.future.2004.11.016); its first order is Young's √(2·cost·mtbf) of
    1974.

    Args:
        cost_s: Seconds of training time taken by a save, above 0.
        mtbf_s: Mean seconds between failures, above 0.
    """
    # Daly's formula is not valid there.
    if cost_s >= 2.0 * mtbf_s:
        return mtbf_s
    part = cost_s / (2.0 * mtbf_s)
    return math.sqrt(2.0 * cost_s * mtbf_s) * (1.0 + math.sqrt(part) / 3.0 + part / 9.0) - cost_s


def collect_advice(box: BoxState, now: float) -> tuple[Advice, ...]:
    """Return the advice for the active runs of a box.

    Args:
        box: Its state.
        now: Client clock.
    """
    found: list[Advice] = []
    for name in _list_active_runs(box):
        found += _advise_box_saves(box, name, now)
        found += _advise_resume(box, name)
        found += _advise_cache_location(box, name)
        found += _advise_workers(box, name)
        found += _advise_batch_size(box, name)
    return (*found, *_advise_free_memory(box))


def _list_active_runs(box: BoxState) -> list[str]:
    cells = [cell.name for queue in box.queues for cell in queue.cells if cell.state == "running"]
    return list(dict.fromkeys([*cells, *(found.name for found in box.found if found.alive)]))


def _advise_box_saves(box: BoxState, name: str, now: float) -> Iterator[Advice]:
    items = next((entry.items for entry in box.checkpoints if entry.run == name), ())
    every, run = (
        _find_save_interval(items),
        next((run for run in box.runs if run.name == name), None),
    )
    begun = _find_run_start(box, name, items)
    if every is None or begun is None:
        return
    # `begun` is by the box's clock.
    watched = now + (box.clock_skew or 0.0) - begun
    yield from advise_save_interval(
        name,
        every,
        watched,
        _count_failures(run),
        _save_cost(box, name),
        lambda lost: _price_of(box, lost),
    )


def advise_save_interval(
    name: str,
    every: float,
    watched: float,
    fails: int,
    cost: float | None,
    price: Callable[[float], str],
) -> Iterator[Advice]:
    """Yield advice about the interval between saves.

    Args:
        name: Name of the run.
        every: Seconds between two saves.
        watched: Seconds of observation.
        fails: Failures in that time.
        cost: Seconds of training time taken by a save; None = unknown.
        price: Returns the text for the cost of some seconds of work.
    """
    # Minimum seconds of observation for estimating how often a machine fails.
    least_seen_s = 3600.0
    if watched < least_seen_s:
        return
    # Without a failure, the time watched is the least that can be said.
    mtbf = watched / max(1, fails)
    if fails:
        often = f"{how_many(fails, 'failure')} in {format_duration(watched)}"
    else:
        often = translate("no failure in {watched}", watched=format_duration(watched))
    # Seconds of work whose loss is worth mentioning, whatever a save costs.
    long_s = 1800.0
    if cost is not None:
        best = compute_daly_interval(cost, mtbf)
        if not 1.0 / FAR <= every / best <= FAR:
            text = translate(
                "saves every {every}; {best} would lose less (a save costs {cost:.1f} s, {often})",
                every=format_duration(every),
                best=format_duration(best),
                cost=cost,
                often=often,
            )
            yield Advice(run=name, about="save", text=text, seconds=round(best, 1))
    elif every >= long_s:
        # A failure comes at any time between two saves: half of the interval on average.
        lost = every / 2.0
        text = translate(
            "saves every {every}: a failure costs {lost} of work{lost_2} on average ({often})",
            every=format_duration(every),
            lost=format_duration(lost),
            lost_2=price(lost),
            often=often,
        )
        yield Advice(run=name, about="save", text=text)


def _price_of(box: BoxState, seconds: float) -> str:
    # A box that bills nothing for the GPU has no price of lost work.
    if box.meter.kind is MeterKind.COMPUTE_AND_STORAGE:
        per_hour = find_hourly_cost(box.meter)
    else:
        per_hour = None
    if per_hour is None:
        return ""
    return _format_price_part(project_cost(per_hour, seconds))


def _format_price_part(amount: MoneyAmount) -> str:
    return f", {format_money(amount.value, amount.currency, amount.at_least)},"


def _find_save_interval(items: tuple[Checkpoint, ...]) -> float | None:
    """Return the usual seconds between two saves; the median ignores gaps left by retention."""
    times = sorted(item.at for item in items)
    gaps = [later - before for before, later in itertools.pairwise(times) if later > before]
    if len(gaps) >= LEAST_SAVES - 1:
        return median(gaps)
    return None


def _find_run_start(box: BoxState, name: str, items: tuple[Checkpoint, ...]) -> float | None:
    """Return since when the run is known to be active, by the box's clock."""
    known = [cell.started for queue in box.queues for cell in queue.cells if cell.name == name]
    known += [found.started for found in box.found if found.name == name]
    return min(
        (at for at in (*known, *(item.at for item in items)) if at is not None), default=None
    )


def _count_failures(run: RunState | None) -> int:
    if run is not None:
        # The trainer rolls back by itself after a loss spike: no failure of the machine.
        return sum("rollback" not in resume.reason for resume in run.resumes)
    return 0


def _save_cost(box: BoxState, name: str) -> float | None:
    """Return the seconds of training time that a save takes, as logged.

    None if it is not logged.
    """
    logs = _list_run_logs(box, name)
    told = [
        match.group(1) for log in logs for line in log.lines[-200:] if (match := _COST.match(line))
    ]
    costs = [int(text.replace(",", "")) / 1000.0 for text in told[-5:]]
    if costs:
        # Not 0: an asynchronous save logs 0 ms, and the formula divides by it.
        return max(median(costs), 1e-3)
    return None


def _list_run_logs(box: BoxState, name: str) -> list[LogView]:
    paths = {cell.log for queue in box.queues for cell in queue.cells if cell.name == name}
    paths |= {
        path for found in box.found if found.name == name for path in (found.log, *found.logs)
    }
    return [log for log in box.logs if log.path in paths]


def _advise_resume(box: BoxState, name: str) -> Iterator[Advice]:
    found = _find_run(box, name)
    if found is None:
        return
    for text, fault in faults_of(found.uses, found.marks):
        yield Advice(run=name, about="resume", text=text, page=fault.page)


def _find_run(box: BoxState, name: str) -> FoundRun | None:
    return next((found for found in box.found if found.name == name), None)


def _advise_cache_location(box: BoxState, name: str) -> Iterator[Advice]:
    """Report a large model cache on a small system disk next to an emptier data disk."""
    found, sample = _find_run(box, name), box.sample
    if found is None or found.cache is None or sample is None:
        return
    disk = disk_of(sample.disks, found.cache)
    writable = [other for other in sample.disks if not other.read_only and other.error is None]
    others = [
        other
        for other in writable
        if other.mount != "/"
        and is_exact_path(other.mount)
        and other.on is None
        and other.kind not in IN_MEMORY
    ]
    # Only a suggestion: which disk survives a stop is said elsewhere.
    roomy = max(others, key=lambda other: other.bytes_free or 0, default=None)
    if disk is None or disk.mount != "/" or disk.bytes_free is None or roomy is None:
        return
    if (roomy.bytes_free or 0) > FAR * disk.bytes_free:
        text = translate(
            "Hugging Face's cache is on the system disk ({bytes_free} free), {mount} has "
            "{bytes_free_2}: HF_HOME={mount_2}/hf",
            bytes_free=size(disk.bytes_free),
            mount=roomy.mount,
            bytes_free_2=size(roomy.bytes_free),
            mount_2=shlex.quote(roomy.mount),
        )
        yield Advice(run=name, about="cache", text=text, page="CN3")


def _advise_workers(box: BoxState, name: str) -> Iterator[Advice]:
    sample = box.sample
    found = _find_run(box, name)
    if sample is None or found is None or sample.cpu.usable is None:
        return
    ranks = [proc for proc in sample.procs if proc.run == name]
    # Loader workers are forks of the ranks, with the same command line.
    workers = len(set(found.pids) - {proc.pid for proc in ranks})
    cores = sample.cpu.usable
    spare = max(1, math.floor(cores) - len(ranks))
    # Maximum processes of a training that are neither ranks nor loader workers (a shell, a
    # launcher).
    spare_limit = 2
    if ranks and workers - spare_limit > cores:
        text = translate(
            "about {workers} loader workers share {cores:g} cores: {spare} are as fast, and "
            "take less memory",
            workers=workers,
            cores=cores,
            spare=spare,
        )
        yield Advice(run=name, about="workers", text=text)


def _advise_free_memory(box: BoxState) -> Iterator[Advice]:
    # Over minutes: right after its start, a training has not filled its memory yet.
    known = [value for value in box.rings.vram_pct if value is not None]
    gpus = [
        gpu
        for gpu in (box.sample.gpus if box.sample is not None else ())
        if not gpu.sim and gpu.vram_total
    ]
    runs = _list_active_runs(box)
    if not gpus or not runs or len(known) < LEAST_POINTS or not 0.0 < max(known) < ROOM_PCT:
        return
    free = (gpus[0].vram_total or 0) * (1.0 - max(known) / 100.0)
    text = translate(
        "the cards were never fuller than {pct} ({free} free): a larger batch fits",
        pct=pct(max(known)),
        free=memory(free),
    )
    yield Advice(run=runs[0], about="memory", text=text)


def _advise_batch_size(box: BoxState, name: str) -> Iterator[Advice]:
    found = _find_run(box, name)
    sample = box.sample
    if found is None:
        before = 0
    else:
        before = found.world_before or 0
    if sample is None or found is None or before < 1:
        return
    worlds = {
        proc.dist.world for proc in sample.procs if proc.run == name and proc.dist is not None
    }
    # Several launches at once: which of them is the continued one is unknown.
    if len(worlds) != 1 or (world := worlds.pop()) == before or world < 1:
        return
    marks = () if "SyncBatchNorm" in found.marks else found.marks
    yield from ranks_changed(name, before, world, batch_norm="BatchNorm" in marks)


def ranks_changed(name: str, before: int, now: int, *, batch_norm: bool) -> Iterator[Advice]:
    """Yield how a different number of ranks affects a training resumed with its old settings.

    Args:
        name: Name of the run.
        before: Ranks of the previous attempt.
        now: Ranks of this one.
        batch_norm: The model normalises over each rank's batch separately.
    """
    text = translate(
        "{now} ranks now, {before} before: the effective batch is {value:.3g} times what it "
        "was, unless accumulation or the learning rate were changed with it",
        now=now,
        before=before,
        value=now / before,
    )
    yield Advice(run=name, about="batch", text=text, page="D11")
    if batch_norm:
        text = translate(
            "BatchNorm has the statistics of each rank alone: SyncBatchNorm, or the batch of "
            "a rank as it was"
        )
        yield Advice(run=name, about="batch", text=text, page="D10")


class RunCost(FrozenStruct, kw_only=True):
    """What the box costs while a run is active. Runs that share a box also share this cost."""

    per_1000_steps: MoneyAmount
    left_s: float | None = None
    """Seconds to its last step at the current pace; None = the number of steps is unknown, or it is
    stalled.
    """
    to_end: MoneyAmount | None = None
    """Cost of the box for `left_s`."""

    @property
    def short_text(self) -> str:
        """In short, e.g. ``$0.12/1k steps, $0.45 to go``."""
        price = self.per_1000_steps
        text = f"{format_money(price.value, price.currency, price.at_least)}/1k steps"
        end = self.to_end
        if end is None:
            return text
        return translate(
            "{words}, {value} to go",
            words=text,
            value=format_money(end.value, end.currency, end.at_least),
        )


def stalled_seconds(box: BoxState, run: RunState, now: float) -> float | None:
    """Return the seconds without progress of a stalled run; None while it moves, or it is unknown."""
    cells = {cell.name: cell for queue in box.queues for cell in queue.cells}
    still = now - (run.progressed_at or now)
    if run.counts_rows or still < stall_after(cells.get(run.name), run):
        return None
    return still


def run_cost(box: BoxState, name: str, now: float) -> RunCost | None:
    """Return what an active run costs; None if price, pace or start is unknown: never free.

    The price per step goes by the whole current attempt, including start-up, which is paid as well.
    Time spent waiting for room is left out.

    Args:
        box: Its state.
        name: Name of the run.
        now: Client clock.
    """
    meter = box.meter
    per_hour = find_hourly_cost(meter)
    if per_hour is None or meter.kind is not MeterKind.COMPUTE_AND_STORAGE:
        return None
    pace = seconds_per_step(box, name, now)
    if pace is None:
        return None
    left = seconds_left(box, name, now)
    to_end = None
    if left is not None:
        to_end = project_cost(per_hour, left)
    return RunCost(per_1000_steps=project_cost(per_hour, 1000.0 * pace), left_s=left, to_end=to_end)


def seconds_left(box: BoxState, name: str, now: float) -> float | None:
    """Return the seconds to the last step of an active run; None if pace or steps are unknown.

    They go by the pace of the last quarter of the recorded points, if their times are known:
    start-up says nothing about them, and an average with it would promise too late an end.

    Args:
        box: Its state.
        name: Name of the run.
        now: Client clock.
    """
    pace = seconds_per_step(box, name, now)
    run = next((run for run in box.runs if run.name == name), None)
    if pace is None or run is None or run.step is None or run.total_steps is None:
        return None
    if run.total_steps < run.step or stalled_seconds(box, run, now) is not None:
        return None
    return (run.total_steps - run.step) * (list_quarter_paces(run) or [pace])[-1]


def list_quarter_paces(run: RunState) -> list[float]:
    """Return the seconds per step of each quarter of the points whose times are known."""
    times = run.series.get(TIME)
    if times is None:
        return []
    most_points = 2000
    points = [(step, at) for step, at in times.last_points(most_points) if math.isfinite(at)]
    # Fewer points say nothing about a pace.
    least_points = 8
    size = max(least_points, len(points) // 4)
    paces: list[float] = []
    for end in range(len(points), least_points - 1, -size):
        part = points[max(0, end - size) : end]
        steps, seconds = part[-1][0] - part[0][0], part[-1][1] - part[0][1]
        if steps > 0 and seconds > 0:
            paces.insert(0, seconds / steps)
    return paces


def seconds_per_step(box: BoxState, name: str, now: float) -> float | None:
    """Return the seconds per step of an active run, without time spent waiting for room.

    None if that is unknown, and while the run waits.
    """
    run = next((run for run in box.runs if run.name == name), None)
    if run is None or run.step is None or run.wait is not None or run.counts_rows:
        return None
    begun = _attempt_began(box, run)
    if begun is None:
        return None
    started, first = begun
    took, steps = now + (box.clock_skew or 0.0) - started - run.held_s, run.step - first
    if took > 0 and steps > 0:
        return took / steps
    return None


def _attempt_began(box: BoxState, run: RunState) -> tuple[float, int] | None:
    """Return when the current attempt of a run began (box clock), and at which step."""
    cells: dict[str, QueueCell] = {cell.name: cell for queue in box.queues for cell in queue.cells}
    cell = cells.get(run.name)
    if cell is not None:
        if cell.state != "running" or cell.started is None:
            return None
        return cell.started, run.resumes[-1].step if run.resumes else 0
    found: FoundRun | None = next((one for one in box.found if one.name == run.name), None)
    if found is None or not found.alive or not from_its_start(run):
        return None
    return found.started, 0


def from_its_start(run: RunState) -> bool:
    """Return whether all steps were made by the current process; a resumed one made some before."""
    loss = run.series.get("loss")
    # A curve that starts at 0 begins within this many of its own intervals.
    most_off = 2
    if run.resumes or loss is None or loss.dropped or len(loss) < most_off:
        return False
    steps = loss.backing_columns()[0]
    return steps[0] <= most_off * (steps[1] - steps[0])


class FrameworkFault(NamedTuple):
    """A way in which a framework is known to lose work."""

    frameworks: tuple[str, ...]
    has: tuple[str, ...]
    """Marks that the script must have, all of them (`FoundRun.marks`)."""
    lacks: str
    """A mark that it must not have; empty = none."""
    page: str
    text: str
    source: str
    """Where it is documented."""
    verified: str
    """Month of the check."""
    first: str = ""
    """Oldest version with the fault; empty = all versions."""
    last: str = ""
    """Newest version with the fault."""


HUGGING, LIGHTNING = ("transformers", "trl"), ("lightning", "pytorch-lightning")
HF_TRAINER = "https://huggingface.co/docs/transformers/main/en/main_classes/trainer"
LIGHTNING_SAVING = "https://lightning.ai/docs/pytorch/stable/common/checkpointing_basic.html"
ACCELERATE_SAVING = "https://huggingface.co/docs/accelerate/usage_guides/checkpoint"
TRIED = "tried, with the version named"
FAULTS = (
    FrameworkFault(HUGGING, ("train()",), "resume", "C9",
          "starts from scratch after a preemption: trainer.train(resume_from_checkpoint=True)",
          HF_TRAINER, "2026-11"),
    FrameworkFault(HUGGING, ("save_total_limit=1",), "", "C9",
          "save_total_limit=1 leaves nothing where a save is cut off: keep 2 or more",
          "https://github.com/huggingface/transformers/issues/25129", "2026-11"),
    FrameworkFault(("transformers",), ("newest",), "", "C9",
          "a save that was cut off is taken as the newest checkpoint: remove an incomplete "
          "checkpoint-* first",
          "https://github.com/huggingface/transformers/issues/35782", "2026-11", "5.23.0",
          "5.23.0"),
    FrameworkFault(LIGHTNING, ("fit",), "resume", "C11",
          'starts from scratch after a preemption: trainer.fit(model, ckpt_path="last")',
          LIGHTNING_SAVING, "2026-11"),
    FrameworkFault(LIGHTNING, ("ModelCheckpoint",), "save_last", "C11",
          "top-k alone may remove the newest checkpoint: ModelCheckpoint(save_last=True)",
          LIGHTNING_SAVING, "2026-11"),
    FrameworkFault(LIGHTNING, ("fit", "resume"), "", "C13",
          "a resumed run sees its data in the order of epoch 0 again", TRIED, "2026-11", "2.6.6",
          "2.6.6"),
    FrameworkFault(LIGHTNING, ("AsyncCheckpointIO", "save_top_k=1"), "", "C17",
          "no checkpoint is on the disk during each save: save_top_k=2 or more", TRIED, "2026-11",
          "2.6.6", "2.6.6"),
    FrameworkFault(HUGGING, ("load_best_model_at_end",), "", "C17",
          "the weights at the end are those of the best checkpoint: pull it and the newest, "
          "which a resume needs",
          HF_TRAINER, "2026-11"),
    FrameworkFault(("accelerate",), ("save_state",), "load_state", "C10",
          "saves and never calls accelerator.load_state: a relaunch starts from scratch",
          ACCELERATE_SAVING, "2026-11"),
    FrameworkFault(("accelerate",), ("save_state",), "register_for_checkpointing", "C10",
          "save_state leaves out what is not prepared (step, EMA, a schedule of your own): "
          "accelerator.register_for_checkpointing(part)", ACCELERATE_SAVING, "2026-11"),
    FrameworkFault(("accelerate",), ("load_state",), "skip_first_batches", "C13",
          "load_state does not move the data: accelerator.skip_first_batches(loader, n) in "
          "the epoch that goes on",
          ACCELERATE_SAVING, "2026-11"),
    FrameworkFault(("accelerate",), ("load_state", "automatic_checkpoint_naming"), "iteration",
                   "C10",
          "a resumed run names its saves from checkpoint_0 again, removes them as the oldest, "
          "and fails at a name that "
          "exists: accelerator.project_configuration.iteration = the newest number + 1", TRIED,
          "2026-11",
          "1.15", "1.15"),
    FrameworkFault(("accelerate",), ("total_limit=1",), "", "C17",
          "the old checkpoint goes before the new one is written: total_limit=2 or more", TRIED,
          "2026-11",
          "1.15", "1.15"),
    FrameworkFault(("accelerate",), ("StatefulDataLoader", "resume"), "", "C13",
          "a stateful loader is reported to repeat samples under DDP: compare their ids once",
          "https://github.com/huggingface/accelerate/issues/4195", "2026-11"),
    FrameworkFault(("torchdata",), ("StatefulDataLoader",), "", "C13",
          "a resumed StatefulDataLoader is reported to repeat or drop samples: compare their "
          "ids once",
          "https://github.com/meta-pytorch/data/issues/1437", "2026-11"),
    FrameworkFault(("deepspeed",), ("DeepSpeed",), "", "C8",
          "a ZeRO checkpoint is refused by another number of ranks: rent the same number to resume",
          "https://github.com/deepspeedai/DeepSpeed/issues/2898", "2026-11"),
)  # fmt: skip
"""By framework. Each has a source."""


def faults_of(uses: Iterable[str], marks: Collection[str]) -> Iterator[tuple[str, FrameworkFault]]:
    """Yield how a script's frameworks lose work, with what is known about their versions.

    Args:
        uses: Frameworks with versions, as ``transformers 5.23.0``; without one if unknown.
        marks: The script's marks about saving and resuming.
    """
    known = list(uses)
    for fault in FAULTS:
        used = next((use for use in known if use.split(" ")[0] in fault.frameworks), None)
        if (
            used is None
            or not set(fault.has) <= set(marks)
            or (fault.lacks and fault.lacks in marks)
        ):
            continue
        yield (
            (
                f"{used}: "
                f"{translate(fault.text)}{_describe_version_doubt(used.partition(' ')[2], fault)}"
            ),
            fault,
        )


def _describe_version_doubt(version: str, fault: FrameworkFault) -> str:
    """Return what is unknown about a version: the fault may be fixed, or not exist yet."""
    if not fault.first:
        return ""
    if fault.first == fault.last:
        seen = fault.first
    else:
        seen = f"{fault.first} to {fault.last}"
    if parse_version(version) is None:
        return translate(" (seen on {seen}; which version is here is unknown: check it)", seen=seen)
    if is_version_in_range(version, fault.first, fault.last):
        return ""
    return translate(
        " (seen on {seen}; unknown for {version}: check it)", seen=seen, version=version
    )


def is_version_in_range(version: str, first: str, last: str) -> bool:
    """Return whether a version is in a range.

    Parts that a limit omits (``1.15``) match any value.
    """
    here, low, high = parse_version(version), parse_version(first), parse_version(last)
    if here is None or low is None or high is None:
        return False
    # Cut to the limit's length, so that 1.15.2 is within "1.15".
    return here[: len(low)] >= low and here[: len(high)] <= high


def parse_version(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a version; None for none, or a pre-release (``5.0.0rc1``)."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6}){0,4})(?:\.post\d+)?(?:\+[\w.]*)?", version.strip())
    if match:
        return tuple(int(part) for part in match.group(1).split("."))
    return None
