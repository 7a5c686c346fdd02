"""What differs between two moments of a box, the likeliest cause of a slower or other run first."""

from __future__ import annotations

import itertools
import math
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from rgt_tui.health.rows.conditions_queue import describe_resource
from rgt_tui.language import translate
from rgt_tui.model import (
    TIME,
    BoxState,
    DiskReading,
    FrozenStruct,
    GpuReading,
    RunState,
    Sample,
    TrainingProcess,
    pct,
)
from rgt_tui.profiles import byte_pct, inode_pct, memory_pct


class MomentChange(FrozenStruct):
    """One thing that is not the same at both moments."""

    what: str
    before: str
    after: str
    weight: float
    """From 0 to 1: how likely it explains another speed or another course of the loss."""
    note: str = ""
    """How much, e.g. ``-44%``."""


class MomentComparison(FrozenStruct):
    """What differs between two moments."""

    effects: tuple[MomentChange, ...]
    """What a person asks about: step time, loss, throughput of the runs."""
    causes: tuple[MomentChange, ...]
    """Likeliest first."""
    unknown: tuple[str, ...]
    """Parts that cannot be compared, because one moment has no reading of it."""


def compare_moments(before: BoxState, after: BoxState) -> MomentComparison:
    """Return what differs between two states of a box. Pure.

    Args:
        before: The earlier moment, with the curves up to it.
        after: The later one.
    """
    # Effects apart from causes: slower steps explain nothing, they are the question.
    effects = [change for pair in _shared_runs(before, after) for change in _compare_speed(*pair)]
    causes = [change for reader in _STATE_READERS for change in reader(before, after)]
    unknown = []
    if before.sample is None or after.sample is None:
        unknown.append(
            translate("GPU, processes, memory and disks: no reading of one of the moments")
        )
    else:
        for read in _SAMPLE_READERS:
            causes += read(before.sample, after.sample)
    pairs = _shared_runs(before, after)
    # Said, because no effect in the list would otherwise look like no change.
    if all(step_seconds(old) is None and old.throughput is None for old, _ in pairs):
        unknown.append(translate("step time: no run logged the time of its steps at both moments"))
    causes.sort(key=lambda change: -change.weight)
    return MomentComparison(tuple(effects), tuple(causes), tuple(unknown))


def _shared_runs(before: BoxState, after: BoxState) -> list[tuple[RunState, RunState]]:
    """Return the runs of both moments that advanced in between; all of them if none did."""
    known = {run.name: run for run in before.runs}
    pairs = [(known[run.name], run) for run in after.runs if run.name in known]
    return [pair for pair in pairs if pair[0].step != pair[1].step] or pairs


def step_seconds(run: RunState, most_points: int = 40) -> float | None:
    """Return the usual seconds per step of the newest points; None if it logs no time."""
    times = run.series.get(TIME)
    if times is None:
        return None
    # One more point than steps, since each step is a difference of two.
    points = list(times.last_points(most_points + 1))
    rates = [
        (later - earlier) / (step - last)
        for (last, earlier), (step, later) in itertools.pairwise(points)
        # A resume jumps back in steps, and a clock that is set back in time.
        if step > last and later > earlier
    ]
    if not rates:
        return None
    return median(rates)


def recent_level(run: RunState, metric: str = "loss", most_points: int = 20) -> float | None:
    """Return the median of the newest finite values of a metric; None without any."""
    series = run.series.get(metric)
    if series is None:
        return None
    values = [y for _, y in series.last_points(most_points) if math.isfinite(y)]
    if not values:
        return None
    return median(values)


def _compare_speed(before: RunState, after: RunState) -> Iterator[MomentChange]:
    name = after.name
    # A run that hangs has the same step time as before, so only this shows it.
    if before.step is not None and before.step == after.step:
        yield MomentChange(
            translate("{name} step", name=name),
            f"{before.step:,}",
            f"{before.step:,}",
            1.0,
            translate("no progress"),
        )
    old, new = step_seconds(before), step_seconds(after)
    yield from _compare_numbers(
        translate("{name} step time", name=name), old, new, "{:.3g} s", 1.0, least=0.05
    )
    yield from _compare_numbers(
        translate("{name} throughput", name=name),
        before.throughput,
        after.throughput,
        "{:,.0f} tok/s",
        1.0,
        least=0.05,
    )
    old, new = recent_level(before), recent_level(after)
    yield from _compare_numbers(
        translate("{name} loss", name=name), old, new, "{:.4g}", 1.0, least=0.01
    )


def _compare_numbers(
    what: str,
    before: float | None,
    after: float | None,
    form: str,
    weight: float,
    *,
    least: float,
) -> Iterator[MomentChange]:
    """Yield a change of at least the share `least`; the larger, the more of `weight` it gets."""
    if before is None or after is None or before == after:
        return
    # Not zero, which a loss or a learning rate may be.
    share = (after - before) / max(abs(before), 1e-12)
    if abs(share) < least:
        return
    factor = max(abs(after), 1e-12) / max(abs(before), 1e-12)
    note = pct(100.0 * abs(share))
    if share < 0:
        note = f"-{note}"
    else:
        note = f"+{note}"
    # From twice as much, "×3.0" is easier to read than "+200%".
    if factor >= 2.0:
        note = f"×{factor:.1f}"
    # The logarithm, so that half as much weighs like twice as much.
    grade = min(1.0, abs(math.log2(factor)))
    yield MomentChange(what, form.format(before), form.format(after), weight * grade, note)


# Of the whole state.


def _read_resumes(before: BoxState, after: BoxState) -> Iterator[MomentChange]:
    for old, new in _shared_runs(before, after):
        # The list only grows, so those after the old ones are new.
        fresh = new.resumes[len(old.resumes) :]
        if fresh:
            last = fresh[-1]
            text = translate("from step {step:,} ({reason})", step=last.step, reason=last.reason)
            yield MomentChange(
                translate("{name} resumed", name=new.name),
                translate("no"),
                text,
                0.9,
                f"{len(fresh)}×",
            )
        then, now = (getattr(run.wait, "what", "") for run in (old, new))
        yield from _compare_texts(translate("{name} waits to save", name=new.name), then, now, 0.95)
    names = {run.name for run in before.runs}
    started = [run.name for run in after.runs if run.name not in names]
    # Three, so that the many runs of a sweep leave room for other causes.
    for name in started[:3]:
        yield MomentChange(
            translate("run"), translate("not there"), translate("{name} started", name=name), 0.8
        )


def _read_findings(before: BoxState, after: BoxState) -> Iterator[MomentChange]:
    known = {(found.gotcha, found.resource) for found in before.findings}
    for found in after.findings:
        if (found.gotcha, found.resource) not in known:
            yield MomentChange(
                f"{found.gotcha} {describe_resource(found.resource)}",
                translate("no"),
                translate(found.title),
                0.85,
            )


def _read_learning_rates(before: BoxState, after: BoxState) -> Iterator[MomentChange]:
    for old, new in _shared_runs(before, after):
        yield from _compare_numbers(
            translate("{name} learning rate", name=new.name),
            old.lr,
            new.lr,
            "{:.3g}",
            0.7,
            least=0.01,
        )
        yield from _compare_numbers(
            translate("{name} gradient norm", name=new.name),
            old.grad_norm,
            new.grad_norm,
            "{:.3g}",
            0.3,
            least=0.5,
        )


def _read_code(before: BoxState, after: BoxState) -> Iterator[MomentChange]:
    """Compare the commands and working directories, which hold the pushed version."""
    known = {found.name: found for found in before.found}
    for found in after.found:
        old = known.get(found.name)
        if old is None:
            continue
        yield from _compare_texts(
            translate("{name} command", name=found.name), old.command, found.command, 0.85
        )
        yield from _compare_texts(
            translate("{name} version", name=found.name), old.cwd, found.cwd, 0.85
        )
        yield from _compare_texts(
            translate("{name} packages", name=found.name),
            ", ".join(old.uses),
            ", ".join(found.uses),
            0.85,
        )
    if before.hello is not None and after.hello is not None:
        if before.hello.boot != after.hello.boot:
            yield MomentChange(
                translate("machine"), translate("running"), translate("started again since"), 0.9
            )
        yield from _compare_texts(translate("host"), before.hello.host, after.hello.host, 0.9)


def _read_cells(before: BoxState, after: BoxState) -> Iterator[MomentChange]:
    known = {(queue.path, cell.name): cell for queue in before.queues for cell in queue.cells}
    for queue in after.queues:
        for cell in queue.cells:
            old = known.get((queue.path, cell.name))
            if old is None:
                yield MomentChange(
                    translate("cell {name}", name=cell.name),
                    translate("not queued"),
                    translate(cell.state),
                    0.3,
                )
                continue
            yield from _compare_texts(
                translate("cell {name}", name=cell.name),
                translate(old.state),
                translate(cell.state),
                0.5,
            )
            yield from _compare_texts(
                translate("{name} config", name=cell.name), old.cfg, cell.cfg, 0.85
            )
            told = {**(old.told or {}), **(cell.told or {})}
            for key in told:
                then, now = (old.told or {}).get(key), (cell.told or {}).get(key)
                # Without both sets of values, every key would look new.
                if old.told is not None and cell.told is not None:
                    yield from _compare_texts(f"{cell.name} {key}", then, now, 0.85)


def _compare_texts(
    what: str, before: str | None, after: str | None, weight: float
) -> Iterator[MomentChange]:
    if before != after:
        yield MomentChange(what, before or translate("none"), after or translate("none"), weight)


# Of the samples.


def _read_gpus(before: Sample, after: Sample) -> Iterator[MomentChange]:
    known = {gpu.index: gpu for gpu in before.gpus}
    if len(before.gpus) != len(after.gpus):
        yield MomentChange(translate("GPUs"), str(len(before.gpus)), str(len(after.gpus)), 0.95)
    for gpu in after.gpus:
        old = known.get(gpu.index)
        if old is not None:
            yield from _compare_gpu(old, gpu)


def _compare_gpu(old: GpuReading, new: GpuReading) -> Iterator[MomentChange]:
    name = f"GPU {new.index}"
    yield from _compare_texts(translate("{name} model", name=name), old.name, new.name, 0.95)
    # The same model in another slot or machine: not every source of figures reports the UUID.
    if old.uuid is not None and new.uuid is not None:
        yield from _compare_texts(translate("{name} card", name=name), old.uuid, new.uuid, 0.8)
    yield from _compare_texts(translate("{name} error", name=name), old.error, new.error, 0.95)
    # An idle card is always "throttled" in the driver's words.
    then, now = (", ".join(one for one in gpu.throttle if "idle" not in one) for gpu in (old, new))
    yield from _compare_texts(translate("{name} throttled", name=name), then, now, 0.9)
    yield from _compare_numbers(
        translate("{name} clock", name=name),
        old.clock_mhz,
        new.clock_mhz,
        "{:,.0f} MHz",
        0.8,
        least=0.05,
    )
    yield from _compare_numbers(
        translate("{name} power limit", name=name),
        old.power_limit_w,
        new.power_limit_w,
        "{:.0f} W",
        0.85,
        least=0.01,
    )
    yield from _compare_points(
        translate("{name} utilisation", name=name), old.util, new.util, 15.0, 0.3
    )
    if old.temp_c is not None and new.temp_c is not None and new.temp_c - old.temp_c >= 8.0:
        text = f"{new.temp_c:.0f} °C"
        yield MomentChange(
            translate("{name} temperature", name=name), f"{old.temp_c:.0f} °C", text, 0.3
        )
    if new.ecc_uncorrected and new.ecc_uncorrected != old.ecc_uncorrected:
        text = f"{new.ecc_uncorrected:,}"
        yield MomentChange(
            translate("{name} memory errors", name=name), f"{old.ecc_uncorrected or 0:,}", text, 0.9
        )
    others = len(new.procs) - len(old.procs)
    if others:
        yield MomentChange(
            translate("{name} processes", name=name),
            str(len(old.procs)),
            str(len(new.procs)),
            0.75,
            f"{others:+d}",
        )


def _compare_points(
    what: str, before: float | None, after: float | None, least: float, weight: float
) -> Iterator[MomentChange]:
    """Yield a change of a percentage by at least `least` points."""
    if before is None or after is None or abs(after - before) < least:
        return
    grade = min(1.0, abs(after - before) / 50.0)
    note = translate("{change:+.0f} points", change=after - before)
    yield MomentChange(what, pct(before), pct(after), weight * max(0.4, grade), note)


def _read_processes(before: Sample, after: Sample) -> Iterator[MomentChange]:
    then = {(proc.pid, proc.started) for proc in before.procs}
    now = {(proc.pid, proc.started) for proc in after.procs}
    for key, procs, weight, words in (
        (then, after.procs, 0.7, (translate("not there"), "started")),
        (now, before.procs, 0.6, ("running", "gone")),
    ):
        others = [proc for proc in procs if (proc.pid, proc.started) not in key]
        for proc in others[:3]:
            program, _, rest = proc.cmd.partition(" ")
            name = f"{posixpath.basename(program)} {rest}"[:60]
            yield MomentChange(
                translate("pid {pid} {name}", pid=proc.pid, name=name), *words, weight
            )
    known = {(proc.pid, proc.started): proc for proc in before.procs}
    for proc in after.procs:
        old = known.get((proc.pid, proc.started))
        if old is not None:
            yield from _compare_threads(old, proc)


def _compare_threads(old: TrainingProcess, new: TrainingProcess) -> Iterator[MomentChange]:
    name = new.run or translate("pid {pid}", pid=new.pid)
    if old.workers is not None or new.workers is not None:
        then, now = (getattr(proc.workers, "count", 0) for proc in (old, new))
        if then != now:
            yield MomentChange(
                translate("{name} loader workers", name=name), str(then), str(now), 0.8
            )
    if old.threads is not None and new.threads is not None:
        yield from _compare_numbers(
            translate("{name} threads", name=name),
            old.threads,
            new.threads,
            "{:.0f}",
            0.5,
            least=0.25,
        )
    if new.state in ("D", "T"):
        # It waits for a disk, or was stopped; R and S alternate all the time.
        yield from _compare_texts(translate("{name} state", name=name), old.state, new.state, 0.9)
    yield from _compare_texts(f"{name} OMP_NUM_THREADS", str(old.omp), str(new.omp), 0.6)


def _read_memory(before: Sample, after: Sample) -> Iterator[MomentChange]:
    kills = (after.mem.oom_kills or 0) - (before.mem.oom_kills or 0)
    if kills > 0:
        yield MomentChange(
            translate("killed for lack of memory"),
            f"{before.mem.oom_kills or 0}",
            f"{after.mem.oom_kills}",
            0.95,
        )
    yield from _compare_points("memory", memory_pct(before.mem), memory_pct(after.mem), 10.0, 0.4)
    cpu, old = after.cpu, before.cpu
    yield from _compare_numbers(
        translate("CPU cores"), old.usable, cpu.usable, "{:g}", 0.8, least=0.01
    )
    for what, then, now in (
        (translate("CPU throttled by its quota"), old.throttled_pct, cpu.throttled_pct),
        (translate("CPU taken by other machines"), old.steal_pct, cpu.steal_pct),
    ):
        yield from _compare_points(what, then, now, 5.0, 0.7)


def _read_disks(before: Sample, after: Sample) -> Iterator[MomentChange]:
    known: Mapping[str, DiskReading] = {disk.mount: disk for disk in before.disks}
    for disk in after.disks:
        old = known.get(disk.mount)
        if old is None:
            yield MomentChange(
                translate("disk {mount}", mount=disk.mount),
                translate("not mounted"),
                translate("mounted"),
                0.5,
            )
            continue
        yield from _compare_texts(
            translate("{mount} error", mount=disk.mount), old.error, disk.error, 0.85
        )
        if old.read_only != disk.read_only:
            words = (translate("writable"), translate("read-only"))
            yield MomentChange(disk.mount, words[old.read_only], words[disk.read_only], 0.95)
        for what, share in (("bytes", byte_pct), ("inodes", inode_pct)):
            then, now = share(old), share(disk)
            full = now is not None and then is not None and now >= 95.0 > then
            if full and now is not None:
                yield MomentChange(f"{disk.mount} {what}", pct(then), pct(now), 0.9, "full")
            else:
                yield from _compare_points(f"{disk.mount} {what}", then, now, 5.0, 0.2)


_STATE_READERS: Sequence[Callable[[BoxState, BoxState], Iterator[MomentChange]]] = (
    _read_resumes,
    _read_findings,
    _read_learning_rates,
    _read_code,
    _read_cells,
)
_SAMPLE_READERS: Sequence[Callable[[Sample, Sample], Iterator[MomentChange]]] = (
    _read_gpus,
    _read_processes,
    _read_memory,
    _read_disks,
)
