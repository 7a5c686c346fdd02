"""Conditions of GPUs and speed: idle, throttled, broken, starved, waiting steps, a silent log."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rgt_tui.health.condition import (
    NOTHING,
    EntryProof,
    Reading,
    Verdict,
    failed_verdict,
    passed_verdict,
    waiting_verdict,
    warn_verdict,
)
from rgt_tui.health.facts import LIMITS, BoxFacts, training_processes
from rgt_tui.health.remembered import HARDWARE, xid_level
from rgt_tui.health.rows.conditions_runs import runs_of
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    BoxState,
    Finding,
    GpuReading,
    RunState,
    Sample,
    Series,
    format_duration,
    how_many,
    memory,
    pct,
    training_of,
)
from rgt_tui.model.gpu_names import describe_gpu_mismatch
from rgt_tui.profiles import stall_after, step_time

SLOWED = frozenset(("hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"))
"""Throttle reasons that no healthy GPU reports under load; the same as in the agent's
``gpu-health``.
"""
THROTTLE_WORDS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "held to the clock of another card",
    "sw_thermal": "thermal slowdown",
    "hw_thermal": "thermal slowdown by the hardware",
    "hw_power_brake": "power brake of the host",
}
"""The agent's names of the driver's reasons.

Source: "NvmlClocksEventReasons",
https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html (2026-08).
"""
CAPPED, CAPPED_CLOCK, FULL_PCT = "sw_power_cap", 0.7, 90.0
"""A power cap is normal under load: it counts only if a busy GPU runs below this fraction of its
clock.
"""
SPINS_PCT, SPINS_POWER = 95.0, 0.45
"""A GPU waiting for others spins: it reports high utilisation and draws far less power than its
limit.
"""
SILENT_S, MOVED_S = 1800.0, 300.0
"""A log silent for this long, while the curve or a checkpoint is newer than the second limit, is
buffered.
"""


def _list_gpus(view: BoxFacts) -> tuple[GpuReading, ...]:
    sample = view.box.sample
    if sample is not None:
        return sample.gpus
    return ()


def _gpu_name(gpu: GpuReading) -> str:
    # In every text: a simulated card must never pass for a real one.
    return f"GPU {gpu.index}{' (SIM)' if gpu.sim else ''}"


def may_be_pausing(view: BoxFacts) -> bool:
    """Return whether the run may be loading, evaluating or saving, which makes idle GPUs normal."""
    if view.running_cells:
        # One pausing run is enough: which of the cards is its own is not known.
        return any(_cell_pauses(view, place) for place in range(len(view.running_cells)))
    if view.progress_age is None:
        return False
    return LIMITS.no_queue_moving_s < view.progress_age <= LIMITS.no_queue_stall_s


def _cell_pauses(view: BoxFacts, place: int) -> bool:
    _, cell, run = view.running_cells[place]
    if run is None or run.progressed_at is None:
        return True  # still loading; if it takes too long, another alert reports it
    still = view.now - run.progressed_at
    if still <= LIMITS.moving_s:
        return False
    # A run that advanced within this many usual steps, or `moving_s`, is not in an evaluation or a
    # pause.
    moving_steps = 3.0
    return moving_steps * (step_time(cell, run) or 0.0) < still <= stall_after(cell, run)


def read_idle(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the utilisation of each GPU while something trains.

    None during a pause of the training.
    """
    gpus = _list_gpus(view)
    if not gpus or not (
        view.trains or any(queue.runner_alive for queue, _, _ in view.running_cells)
    ):
        if view.is_blind:
            return None
        return NOTHING
    if may_be_pausing(view):
        return None
    # A card that does not answer has an alert of its own.
    return [Reading(str(gpu.index), gpu.util, gpu) for gpu in gpus if gpu.error is None]


def say_idle(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the duration, and what the run is doing meanwhile."""
    waited, value = format_duration(view.now - since), pct(reading.value)
    if view.progress_age is None:
        run = translate("a training process is alive")
    elif view.progress_age <= LIMITS.no_queue_moving_s:
        run = translate("the run advances without it")
    else:
        run = translate(
            "the run has not advanced for {progress_age}",
            progress_age=format_duration(view.progress_age),
        )
    return translate(
        "{about} at {value} for {waited}, while {run}",
        about=_gpu_name(reading.about),
        value=value,
        waited=waited,
        run=run,
    )


def read_throttled(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the GPUs that their driver slows down."""
    return [Reading(str(gpu.index), 1.0, gpu) for gpu in _list_gpus(view) if is_slowed(gpu)]


def is_slowed(gpu: GpuReading) -> bool:
    """Return whether a GPU is slowed down for a reason that no healthy one has."""
    if SLOWED & set(gpu.throttle):
        return True
    if CAPPED not in gpu.throttle or gpu.clock_mhz is None or not gpu.clock_max_mhz:
        return False
    return (gpu.util or 0.0) > FULL_PCT and gpu.clock_mhz / gpu.clock_max_mhz < CAPPED_CLOCK


def throttle_words(gpu: GpuReading) -> str:
    """Return why a GPU's clock is reduced. Unknown reasons of a newer agent keep their own name."""
    return ", ".join(translate(THROTTLE_WORDS.get(name, name)) for name in gpu.throttle[:8])


def say_throttled(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the driver's reasons, temperature and clock."""
    gpu: GpuReading = reading.about
    if gpu.temp_c is None:
        heat = ""
    else:
        heat = f", {gpu.temp_c:.0f} °C"
    if gpu.clock_mhz is None or gpu.clock_max_mhz is None:
        clock = ""
    else:
        clock = translate(
            ", {clock_mhz:.0f} of {clock_max_mhz:.0f} MHz",
            clock_mhz=gpu.clock_mhz,
            clock_max_mhz=gpu.clock_max_mhz,
        )
    return translate(
        "{gpu} is slowed down: {gpu_2}{heat}{clock}",
        gpu=_gpu_name(gpu),
        gpu_2=throttle_words(gpu),
        heat=heat,
        clock=clock,
    )


def read_xid(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the GPUs whose newest Xid, or an event of this boot, means broken hardware."""
    hard = view.news.hard
    found = [
        Reading(
            str(gpu.index),
            1.0,
            translate("{gpu}: Xid {xid} in the kernel log", gpu=_gpu_name(gpu), xid=gpu.xid),
        )
        for gpu in _list_gpus(view)
        # The event says more than the number, so it replaces the reading.
        if gpu.xid is not None and xid_level(gpu.xid) == HARDWARE and str(gpu.index) not in hard
    ]
    if hard:
        return [*found, *(Reading(gpu, 1.0, _xid_text(text)) for gpu, text in hard.items())]
    return found


def _xid_text(event: str) -> str:
    """Return the text of an Xid event of the agent, with the meaning in the person's language."""
    number, comma, meaning = event.partition(", ")
    return f"{number}{comma}{show_recorded(meaning)}"


def read_xid_soft(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the newest Xid that is usually the program's fault."""
    news = view.news
    if not news.soft_seq:
        return NOTHING
    if news.soft_at is None:
        ago = None
    else:
        ago = max(0.0, view.box_now - news.soft_at)
    return (Reading("", float(news.soft_seq), _xid_text(news.soft_text), age_s=ago),)


def read_ecc(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the uncorrectable memory errors since the driver was loaded."""
    return [
        Reading(str(g.index), float(g.ecc_uncorrected), g)
        for g in _list_gpus(view)
        if g.ecc_uncorrected
    ]


def say_ecc(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with both counters."""
    gpu: GpuReading = reading.about
    if gpu.ecc_corrected is None:
        fixed = "?"
    else:
        fixed = f"{gpu.ecc_corrected:,}"
    return translate(
        "{gpu}: {errors} ({fixed} corrected)",
        gpu=_gpu_name(gpu),
        errors=how_many(gpu.ecc_uncorrected or 0, "uncorrected memory error"),
        fixed=fixed,
    )


def read_other_gpus(view: BoxFacts) -> Sequence[Reading] | None:
    """Return how the GPUs differ from those that the box was rented with."""
    asked, sample = view.box.spec.asked, view.box.sample
    if asked is None or asked.gpu is None:
        return NOTHING
    # A GPU that does not answer has an alert of its own; a replayed trace proves nothing.
    if sample is None or any(gpu.error is not None or gpu.sim for gpu in sample.gpus):
        return None
    cards = [(gpu.name, gpu.vram_total) for gpu in sample.gpus]
    mismatch = describe_gpu_mismatch(asked.gpu, asked.gpu_count, cards)
    if mismatch is None:
        return NOTHING
    return (Reading("", 1.0, mismatch),)


def read_gpu_error(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the GPUs that do not answer."""
    return [Reading(str(gpu.index), 1.0, gpu) for gpu in _list_gpus(view) if gpu.error is not None]


def say_gpu_error(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the driver's message."""
    return translate(
        "{about} does not answer: {error}",
        about=_gpu_name(reading.about),
        error=reading.about.error,
    )


def read_cpu(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of the time in which the CPU quota throttled the training."""
    sample = view.box.sample
    if sample is None or sample.cpu.throttled_pct is None:
        return None
    # Without a training, a throttled CPU costs nothing.
    if view.trains:
        return (Reading("", sample.cpu.throttled_pct, sample.cpu),)
    return NOTHING


def say_cpu(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share and the quota."""
    cpu = reading.about
    if cpu.usable is None:
        usable = ""
    else:
        usable = translate(" ({usable:g} cores)", usable=cpu.usable)
    many = ""
    if cpu.oversubscribed:
        many = translate("; the training has many more threads than cores")
    return translate(
        "the CPU quota{usable} slows the training down {pct} of the time{many}",
        usable=usable,
        pct=pct(reading.value),
        many=many,
    )


def check_gpu_seen(view: BoxFacts) -> Verdict:
    """A card answers, as many and of the model that were asked for. A replayed trace proves nothing, and is named."""
    if view.box.sample is None:
        return waiting_verdict(translate("no sample yet"))
    gpus, at = view.box.sample.gpus, view.box.sample_at
    if not gpus:
        return failed_verdict(translate("no GPU found on this box"), at)
    broken = [gpu for gpu in gpus if gpu.error is not None]
    if broken:
        return failed_verdict(f"GPU {broken[0].index}: {broken[0].error}", at)
    asked = view.box.spec.asked
    if asked is not None:
        other = describe_gpu_mismatch(
            asked.gpu, asked.gpu_count, [(gpu.name, gpu.vram_total) for gpu in gpus]
        )
        if other is not None:
            return failed_verdict(other, at)
    names = f"{len(gpus)} × {gpus[0].name}"
    # Not failed: the checklist is also walked with replayed traces.
    if any(gpu.sim for gpu in gpus):
        return warn_verdict(
            translate("SIM: {names} replayed from a trace, no real GPU was seen", names=names), at
        )
    if view.box.hello is not None:
        source = view.box.hello.gpu_source
    else:
        source = "?"
    return passed_verdict(translate("{names}, by {source}", names=names, source=source), at)


_LOST = re.compile(r"(?i)fallen off the bus|GPU is lost|uncorrectable")


def card_of(finding: Finding) -> str | None:
    """Return the GPU that a finding is about."""
    what, _, index = finding.resource.partition(" ")
    if what == "GPU" and index:
        return index
    return None


def prove_lost(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the GPUs that the driver reports as lost."""
    for gpu in _list_gpus(view):
        if gpu.error is not None and _LOST.search(gpu.error):
            yield EntryProof(gpu.error, resource=f"GPU {gpu.index}")


_ACCELERATE = re.compile(r"\baccelerate(?:-| |\.commands\.)launch\b")
_CHOSEN = re.compile(r"--(?:num[_-]processes|multi[_-]gpu|gpu[_-]ids|cpu|use[_-]cpu)\b")


def prove_one_process(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the accelerate launch that keeps one GPU busy while all others are unused.

    Only if its command line does not set the number of processes.
    """
    # What the driver itself occupies on an unused card stays far below this.
    unused_bytes = 1 << 30
    gpus = [gpu for gpu in _list_gpus(view) if gpu.error is None]
    busy = [gpu for gpu in gpus if (gpu.util or 0.0) > 5.0]
    empty = [gpu for gpu in gpus if not gpu.util and (gpu.vram_used or 0) < unused_bytes]
    if len(gpus) < 2 or len(busy) != 1 or len(empty) != len(gpus) - 1:
        return
    launches = {
        **{
            proc.pid: (proc.cmd, proc.run, proc.started)
            for proc in training_processes(view.box.sample)
        },
        **{run.pid: (run.command, run.name, run.started) for run in view.box.found if run.alive},
    }
    found = [one for one in launches.values() if _ACCELERATE.search(one[0])]
    if len(found) != 1 or _CHOSEN.search(found[0][0]):
        return
    command, name, started = found[0]
    if view.now + (view.box.clock_skew or 0.0) - started < LIMITS.first_step_s:
        return  # it may still be loading
    yield EntryProof(
        translate(
            "{about} alone is busy, {count} unused: {command}",
            about=_gpu_name(busy[0]),
            count=how_many(len(empty), "GPU"),
            command=command[:200],
        ),
        run=name,
    )


def vram_reading(box: BoxState) -> str | None:
    """Return the memory use of the fullest GPU now."""
    if box.sample is None or not box.sample.gpus:
        return None
    # The fullest one is where a process ran out of memory.
    fullest = max(box.sample.gpus, key=lambda gpu: gpu.vram_used or 0)
    mark = "SIM " if fullest.sim else ""
    return translate(
        "{mark}GPU {index} now holds {vram_used} of {vram_total}",
        mark=mark,
        index=fullest.index,
        vram_used=memory(fullest.vram_used),
        vram_total=memory(fullest.vram_total),
    )


# Conditions of speed: starved GPUs, waiting steps, a noisy neighbour, thread counts, a silent log.


def read_starved(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the GPUs' mean utilisation over the last samples, while a run advances."""
    sample = view.box.sample
    if sample is not None:
        real = [gpu for gpu in sample.gpus if not gpu.sim and gpu.error is None]
    else:
        real = []
    if sample is None or not real or not view.trains:
        if view.is_blind:
            return None
        return NOTHING
    known = [value for value in view.box.rings.gpu_util if value is not None]
    if (
        view.progress_age is None
        or view.progress_age > LIMITS.no_queue_moving_s
        or may_be_pausing(view)
    ):
        return None
    # Samples needed for a mean utilisation: single ones prove nothing, as a step has pauses of its
    # own.
    least_points = 30
    if len(known) < least_points:
        return None
    return (Reading("", sum(known) / len(known), sample),)


def say_starved(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the mean, and the reason suggested by the CPU use."""
    many = len(reading.about.gpus)
    if many == 1:
        cards = translate("the GPU is")
    else:
        cards = translate("the {many} GPUs are", many=many)
    # What the trainer measured itself is better than a guess by CPU use.
    why = _longest_input_wait(view) or describe_bottleneck(reading.about)
    return translate(
        "{cards} {pct} busy, while the run advances: {why}",
        cards=cards,
        pct=pct(reading.value),
        why=why,
    )


def describe_bottleneck(sample: Sample) -> str:
    """Return what limits a training with idle GPUs, judged by the CPU use of its processes."""
    busy = sum(proc.cpu_pct or 0.0 for proc in training_processes(sample))
    # The quota, not the host's cores, which belong to all tenants.
    cores = sample.cpu.usable
    if sample.cpu.throttled_pct is not None and sample.cpu.throttled_pct >= 10.0:
        return translate(
            "CPU-bound, its quota runs out {throttled_pct} of the time",
            throttled_pct=pct(sample.cpu.throttled_pct),
        )
    # Share of the cores from which on the CPUs are the limit.
    all_cores = 0.85
    if cores and busy >= 100.0 * all_cores * cores:
        return translate("CPU-bound, all {cores:g} cores are busy", cores=cores)
    known = [proc.cpu_pct for proc in training_processes(sample) if proc.cpu_pct is not None]
    # CPU percentage of a process limited by one thread, e.g. with the data loader in the training
    # process.
    one_core_pct = 90.0
    if known and max(known) >= one_core_pct:
        return translate(
            "its main process keeps a core {known} busy: it loads or computes there (no workers?)",
            known=pct(max(known)),
        )
    if known:
        return translate(
            "the CPUs are idle, too: it waits for a disk, the network or the other ranks"
        )
    return translate("what it waits for is not known")


def read_spinning(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the runs without progress, if GPUs report high utilisation at low power."""
    if view.is_blind or not view.live or view.box.sample is None:
        return None
    # Collectives wait in a busy loop on the card: 100% utilisation, idle power.
    cards = [gpu for gpu in view.box.sample.gpus if _is_spinning(gpu)]
    stands = [
        (run, view.now - run.progressed_at)
        for _, cell, run in view.running_cells
        if run is not None
        and run.progressed_at is not None
        and view.now - run.progressed_at >= LIMITS.busy_stalls * stall_after(cell, run)
        and not view.is_step_unknown(run, stall_after(cell, run))
    ]
    stands += [
        (runs[0], view.now - runs[0].progressed_at)
        for runs in view.beside
        if runs[0].progressed_at is not None
        and view.now - runs[0].progressed_at >= LIMITS.no_queue_stall_s
        and not view.is_step_unknown(runs[0], LIMITS.no_queue_stall_s)
    ]
    if cards:
        return [Reading(run.name, 1.0, (still, cards)) for run, still in stands]
    return NOTHING


def _is_spinning(gpu: GpuReading) -> bool:
    if gpu.sim or gpu.util is None or gpu.power_w is None or not gpu.power_limit_w:
        return False
    return gpu.util >= SPINS_PCT and gpu.power_w < SPINS_POWER * gpu.power_limit_w


def say_spinning(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the spinning GPU, and how long nothing has advanced."""
    still, cards = reading.about
    gpu: GpuReading = cards[0]
    more = ""
    if len(cards) > 1:
        more = translate(" (and {cards} more)", cards=len(cards) - 1)
    return translate(
        "GPU {index}{more} is {util} busy at {power_w:.0f} of {power_limit_w:.0f} W, "
        "and {key} has not advanced for {still}: it hangs",
        index=gpu.index,
        more=more,
        util=pct(gpu.util),
        power_w=gpu.power_w,
        power_limit_w=gpu.power_limit_w,
        key=reading.key,
        still=format_duration(still),
    )


def read_stolen(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of CPU time that the host gave to other machines (steal)."""
    sample = view.box.sample
    if sample is None or sample.cpu.steal_pct is None:
        return None
    if view.trains:
        return (Reading("", sample.cpu.steal_pct),)
    return NOTHING


def say_stolen(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share."""
    return translate(
        "the host gives {pct} of the processors' time to other machines (steal)",
        pct=pct(reading.value),
    )


def read_crowded(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the training has far more threads than cores.

    With a CPU quota, `cpu-throttled` reports that instead.
    """
    sample = view.box.sample
    if sample is None:
        return None
    # With a quota the share of throttled time is the better measure of the same.
    if not sample.cpu.oversubscribed or sample.cpu.throttled_pct is not None:
        return NOTHING
    return (Reading("", 1.0, sample),)


def say_crowded(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with threads and cores."""
    sample: Sample = reading.about
    threads = sum(proc.threads or 0 for proc in training_processes(sample))
    if sample.cpu.usable is None:
        cores = "?"
    else:
        cores = f"{sample.cpu.usable:g}"
    return translate(
        "the training has {threads} on {cores} cores, and they slow each other down",
        threads=how_many(threads, "thread"),
        cores=cores,
    )


def read_held_back(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the logs that are silent for long, or empty, while curve or checkpoints advance."""
    if not view.live or view.is_blind:
        return None
    logs = {log.path: log for log in view.box.logs if log.at is not None}
    saved = {
        entry.run: view.to_client_time(entry.items[-1].at)
        for entry in view.box.checkpoints
        if entry.items
    }
    pairs: list[tuple[str, tuple[str | None, ...], RunState | None]]
    pairs = [(cell.name, (cell.log,), run) for _, cell, run in view.running_cells]
    runs = [runs[0] for runs in view.beside]
    for found in view.box.found:
        mine = next(
            (run for run in runs if training_of(run.name, {found.name}) == found.name), None
        )
        # All its logs: ranks write to files of their own, and one that speaks is enough.
        pairs += [(found.name, (found.log, *found.logs), mine)] if found.alive else []
    out = []
    for name, paths, run in pairs:
        # The log that spoke last.
        said = max(
            (logs[path] for path in paths if path in logs),
            key=lambda log: log.at or 0.0,
            default=None,
        )
        moved = max(
            (at for at in (_progressed_at(run), saved.get(name)) if at is not None), default=None
        )
        # Silence means something only for a run that is known to advance.
        if said is None or said.at is None or moved is None:
            continue
        silent = view.now - said.at
        held = silent >= SILENT_S and view.now - moved <= MOVED_S
        out += [Reading(name, 1.0, (said, silent, view.now - moved))] if held else []
    return out


def _progressed_at(run: RunState | None) -> float | None:
    if run is not None:
        return run.progressed_at
    return None


def say_held_back(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with how long the log has been silent, and the age of the last progress."""
    log, silent, moved = reading.about
    if log.lines:
        still = translate("silent for {silent}: buffered", silent=format_duration(silent))
    else:
        still = translate(
            "empty for {silent}: buffered, if it prints at all", silent=format_duration(silent)
        )
    return translate(
        "{key} is advancing (moved {moved} ago), but {path} has been {still}",
        key=reading.key,
        moved=format_duration(moved),
        path=log.path,
        still=still,
    )


# Where the time of a step goes, as measured by the trainer itself.

POINTS, LEAST = 50, 10
"""How many of the newest points are averaged, and how few suffice."""
STEP = ("step_time", "time", "iter_time", "batch_time", "step_time_s")
DATA = ("data_time", "data_time_s")
TALK = ("comm_time", "comm_time_s")
"""Names of curves in seconds per step: our own trainer's, and those of others that log both of a
pair (mmengine and detectron2: ``data_time`` and ``time``); also with the prefix ``train/``.
"""


class StepShare(NamedTuple):
    """The time that one thing takes, and the time of the whole step, in seconds."""

    part: float
    step: float

    @property
    def percent(self) -> float:
        """The share of the step in percent."""
        return 100.0 * self.part / self.step


def read_input(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of a step in which a run waits for its data."""
    return _read_shares(view, DATA)


def say_input(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share and the seconds."""
    return translate(
        "{key} is input-bound: it waits for its data {about}",
        key=reading.key,
        about=_describe_share(reading.about),
    )


def read_talk(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the percentage of a step in which a run waits for its other ranks."""
    return _read_shares(view, TALK)


def say_talk(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the share and the seconds."""
    return translate(
        "{key} is communication-bound: it exchanges, or waits for a slower rank, {about}",
        key=reading.key,
        about=_describe_share(reading.about),
    )


def _longest_input_wait(view: BoxFacts) -> str:
    """Return the largest wait for data that a run of the box measured; "" = none is logged."""
    found = [share for run in runs_of(view) if (share := measure_step_share(run, DATA)) is not None]
    worst = max(found, key=lambda share: share.percent, default=None)
    if worst is None:
        return ""
    return translate("it waits for its data {worst}", worst=_describe_share(worst))


def measure_step_share(run: RunState, names: Sequence[str]) -> StepShare | None:
    """Return the share of a run's newest steps in one of the curves `names`; None = not logged."""
    part, step = _mean_of_newest(run, names), _mean_of_newest(run, STEP)
    # A part that is longer than its step is not a part of it: such a pair proves nothing.
    if part is None or step is None or not 0.0 <= part <= step or step == 0.0:
        return None
    return StepShare(part, step)


def _read_shares(view: BoxFacts, names: Sequence[str]) -> Sequence[Reading] | None:
    if view.is_blind:
        return None
    found = [
        (run, share)
        for run in runs_of(view)
        if (share := measure_step_share(run, names)) is not None
    ]
    return [Reading(run.name, share.percent, share) for run, share in found]


def _mean_of_newest(run: RunState, names: Sequence[str]) -> float | None:
    series = next(_find_series(run, names), None)
    if series is None:
        return None
    _, values, count = series.backing_columns()
    newest = [value for value in values[max(0, count - POINTS) : count] if math.isfinite(value)]
    if len(newest) >= LEAST:
        return sum(newest) / len(newest)
    return None


def _find_series(run: RunState, names: Sequence[str]) -> Iterator[Series]:
    for name in names:
        for said in (name, f"train/{name}"):
            if said in run.series:
                yield run.series[said]


def _describe_share(share: StepShare) -> str:
    return translate(
        "{percent} of a step ({part:.3g} of {step:.3g} s)",
        percent=pct(share.percent),
        part=share.part,
        step=share.step,
    )
