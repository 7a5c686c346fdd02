"""Conditions of GPUs: idle while something trains, throttled, broken; and the CPU quota that slows them down."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rgt_tui.health.condition import NOTHING, Proof, Reading, Verdict, failed, passed, waiting, warn
from rgt_tui.health.facts import MOVING_S, NO_QUEUE_MOVING_S, NO_QUEUE_STALL_S, Facts
from rgt_tui.health.remembered import HARDWARE, xid_level
from rgt_tui.model import BoxState, Finding, Gpu, memory
from rgt_tui.model.gpu_names import gpus_not_as_asked
from rgt_tui.profiles import age, how_many, pct, stall_after, step_time

SLOWED = frozenset(("hw_slowdown", "hw_thermal", "hw_power_brake", "sw_thermal"))
"""Reasons that no healthy card gives under load; the same as in the agent's ``gpu-health``."""
THROTTLE_WORDS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "held to the clock of another card",
    "sw_thermal": "thermal slowdown",
    "hw_thermal": "thermal slowdown by the hardware",
    "hw_power_brake": "power brake of the host",
}
"""The agent's names of the driver's reasons.

Source: "NvmlClocksEventReasons", https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html (2026-08).
"""
CAPPED, CAPPED_CLOCK, FULL_PCT = "sw_power_cap", 0.7, 90.0
"""A power cap is normal under load: it counts only where it takes a busy card below this part of its clock."""
MOVING_STEPS = 3.0
"""A run that advanced within so many usual steps, or `MOVING_S`, is not in an evaluation or a pause."""


def _gpus(view: Facts) -> tuple[Gpu, ...]:
    sample = view.box.sample
    return sample.gpus if sample is not None else ()


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}{' (SIM)' if gpu.sim else ''}"


def pausing(view: Facts) -> bool:
    """Say whether the run may be loading, evaluating or saving: idle cards then mean nothing."""
    if view.running:
        return any(_cell_pauses(view, place) for place in range(len(view.running)))
    if view.progress_age is None:
        return False
    return NO_QUEUE_MOVING_S < view.progress_age <= NO_QUEUE_STALL_S


def _cell_pauses(view: Facts, place: int) -> bool:
    _, cell, run = view.running[place]
    if run is None or run.progressed_at is None:
        return True  # still loading; if it takes too long, that is an alert of its own
    still = view.now - run.progressed_at
    if still <= MOVING_S:
        return False
    return MOVING_STEPS * (step_time(cell, run) or 0.0) < still <= stall_after(cell, run)


def read_idle(view: Facts) -> Sequence[Reading] | None:
    """Utilisation of each card while something trains; nothing during a pause of the training."""
    gpus = _gpus(view)
    if not gpus or not (view.trains or any(queue.runner_alive for queue, _, _ in view.running)):
        return None if view.blind else NOTHING
    if pausing(view):
        return None
    return [Reading(str(gpu.index), gpu.util, gpu) for gpu in gpus if gpu.error is None]


def say_idle(view: Facts, reading: Reading, since: float) -> str:
    """Say for how long, and what the run is doing meanwhile."""
    waited, value = age(view.now - since), pct(reading.value)
    if view.progress_age is None:
        run = "a training process is alive"
    elif view.progress_age <= NO_QUEUE_MOVING_S:
        run = "the run advances without it"
    else:
        run = f"the run has not advanced for {age(view.progress_age)}"
    return f"{_name(reading.about)} at {value} for {waited}, while {run}"


def read_throttled(view: Facts) -> Sequence[Reading] | None:
    """Cards that their driver slows down."""
    return [Reading(str(gpu.index), 1.0, gpu) for gpu in _gpus(view) if slowed(gpu)]


def slowed(gpu: Gpu) -> bool:
    """Say whether a card is slowed down as no healthy one is."""
    if SLOWED & set(gpu.throttle):
        return True
    if CAPPED not in gpu.throttle or gpu.clock_mhz is None or not gpu.clock_max_mhz:
        return False
    return (gpu.util or 0.0) > FULL_PCT and gpu.clock_mhz / gpu.clock_max_mhz < CAPPED_CLOCK


def throttle_words(gpu: Gpu) -> str:
    """Return why a card's clock is held down; of a newer agent's reason its own name."""
    return ", ".join(THROTTLE_WORDS.get(name, name) for name in gpu.throttle[:8])


def say_throttled(view: Facts, reading: Reading, since: float) -> str:
    """Give the driver's reasons, temperature and clock."""
    gpu: Gpu = reading.about
    heat = "" if gpu.temp_c is None else f", {gpu.temp_c:.0f} °C"
    clock = (
        ""
        if gpu.clock_mhz is None or gpu.clock_max_mhz is None
        else f", {gpu.clock_mhz:.0f} of {gpu.clock_max_mhz:.0f} MHz"
    )
    return f"{_name(gpu)} is slowed down: {throttle_words(gpu)}{heat}{clock}"


def read_xid(view: Facts) -> Sequence[Reading] | None:
    """Cards whose newest Xid, or an event of this boot, means broken hardware."""
    hard = view.news.hard
    found = [
        Reading(str(gpu.index), 1.0, f"{_name(gpu)}: Xid {gpu.xid} in the kernel log")
        for gpu in _gpus(view)
        if gpu.xid is not None and xid_level(gpu.xid) == HARDWARE and str(gpu.index) not in hard
    ]
    return [*found, *(Reading(gpu, 1.0, text) for gpu, text in hard.items())] if hard else found


def read_xid_soft(view: Facts) -> Sequence[Reading] | None:
    """Xids that are mostly the program's fault."""
    news = view.news
    if not news.soft_seq:
        return NOTHING
    ago = None if news.soft_at is None else max(0.0, view.box_now - news.soft_at)
    return (Reading("", float(news.soft_seq), news.soft_text, age_s=ago),)


def read_ecc(view: Facts) -> Sequence[Reading] | None:
    """Memory errors that could not be corrected, since the driver was loaded."""
    return [Reading(str(g.index), float(g.ecc_uncorrected), g) for g in _gpus(view) if g.ecc_uncorrected]


def say_ecc(view: Facts, reading: Reading, since: float) -> str:
    """Give both counters."""
    gpu: Gpu = reading.about
    fixed = "?" if gpu.ecc_corrected is None else f"{gpu.ecc_corrected:,}"
    return (
        f"{_name(gpu)}: {how_many(gpu.ecc_uncorrected or 0, 'uncorrected memory error')} ({fixed} corrected)"
    )


def read_gpu_error(view: Facts) -> Sequence[Reading] | None:
    """Cards that do not answer."""
    return [Reading(str(gpu.index), 1.0, gpu) for gpu in _gpus(view) if gpu.error is not None]


def say_gpu_error(view: Facts, reading: Reading, since: float) -> str:
    """Give the driver's words."""
    return f"{_name(reading.about)} does not answer: {reading.about.error}"


def read_cpu(view: Facts) -> Sequence[Reading] | None:
    """Percent of the time in which the CPU quota held the training back."""
    sample = view.box.sample
    if sample is None or sample.cpu.throttled_pct is None:
        return None
    return (Reading("", sample.cpu.throttled_pct, sample.cpu),) if view.trains else NOTHING


def say_cpu(view: Facts, reading: Reading, since: float) -> str:
    """Give the share and the quota."""
    cpu = reading.about
    usable = "" if cpu.usable is None else f" ({cpu.usable:g} cores)"
    many = "; the training has many more threads than cores" if cpu.oversubscribed else ""
    return f"the CPU quota{usable} holds the training back {pct(reading.value)} of the time{many}"


def check_gpu_seen(view: Facts) -> Verdict:
    """A card answers, as many and of the model that were asked for. A replayed trace proves nothing, and is named."""
    if view.box.sample is None:
        return waiting("no sample yet")
    gpus, at = view.box.sample.gpus, view.box.sample_at
    if not gpus:
        return failed("no GPU is seen on this box", at)
    broken = [gpu for gpu in gpus if gpu.error is not None]
    if broken:
        return failed(f"GPU {broken[0].index}: {broken[0].error}", at)
    asked = view.box.spec.asked
    if asked is not None:
        other = gpus_not_as_asked(asked.gpu, asked.gpu_count, [(gpu.name, gpu.vram_total) for gpu in gpus])
        if other is not None:
            return failed(other, at)
    names = f"{len(gpus)} × {gpus[0].name}"
    if any(gpu.sim for gpu in gpus):
        return warn(f"SIM: {names} replayed from a trace, no real GPU was seen", at)
    source = view.box.hello.gpu_source if view.box.hello is not None else "?"
    return passed(f"{names}, by {source}", at)


_LOST = re.compile(r"(?i)fallen off the bus|GPU is lost|uncorrectable")


def card_of(finding: Finding) -> str | None:
    """Return the card that a finding is about."""
    what, _, index = finding.resource.partition(" ")
    return index if what == "GPU" and index else None


def prove_lost(view: Facts) -> Iterator[Proof]:
    """Yield the cards whose driver says that they are lost."""
    for gpu in _gpus(view):
        if gpu.error is not None and _LOST.search(gpu.error):
            yield Proof(gpu.error, resource=f"GPU {gpu.index}")


def vram_reading(box: BoxState) -> str | None:
    """Return how full the fullest card is now."""
    if box.sample is None or not box.sample.gpus:
        return None
    fullest = max(box.sample.gpus, key=lambda gpu: gpu.vram_used or 0)
    mark = "SIM " if fullest.sim else ""
    return f"{mark}GPU {fullest.index} now holds {memory(fullest.vram_used)} of {memory(fullest.vram_total)}"
