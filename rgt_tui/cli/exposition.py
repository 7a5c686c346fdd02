"""The state of a fleet as Prometheus reads it. Pure.

GPU readings are named as NVIDIA's dcgm-exporter names them, so that boards made for it show them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from rgt_tui.health import Assessment, assess
from rgt_tui.model.box import BoxState, Health, Link
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.plain import clean
from rgt_tui.model.protocol import Gpu, Sample

MIB = 1 << 20
_HEAD = re.compile(rb"^(# [A-Z]+ \w+_TOTAL)_total ", re.MULTILINE)

Value = float | int | None


class Seen(NamedTuple):
    """One box as the families below look at it."""

    box: BoxState
    state: Assessment
    now: float

    @property
    def up(self) -> bool:
        """The figures are of now."""
        return self.box.link is Link.LIVE and not self.state.stale

    @property
    def sample(self) -> Sample | None:
        """The newest sample; None where it is old, so that nobody takes it for the present."""
        return self.box.sample if self.up else None


Rows = Iterator[tuple[dict[str, str], Value]]


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: str
    help: str
    rows: Callable[[Seen], Rows]


def _gpu(read: Callable[[Gpu], Value]) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        for gpu in seen.sample.gpus if seen.sample else ():
            labels = {
                "gpu": str(gpu.index),
                "UUID": clean(gpu.uuid or ""),
                "device": f"nvidia{gpu.index}",
                "modelName": gpu.name,
            }
            labels |= {"pci_bus_id": gpu.bus or "", "hostname": seen.box.hello.host if seen.box.hello else ""}
            if gpu.sim:
                labels["sim"] = "true"
            yield labels, read(gpu)

    return rows


def _mib(value: int | None) -> Value:
    return None if value is None else value / MIB


def _free(gpu: Gpu) -> Value:
    known = gpu.vram_used is not None and gpu.vram_total is not None
    return _mib((gpu.vram_total or 0) - (gpu.vram_used or 0)) if known else None


def _disk(field: str) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        for disk in seen.sample.disks if seen.sample else ():
            if disk.error is None:
                yield {"mount": disk.mount, "kind": disk.kind or ""}, getattr(disk, field)

    return rows


def _one(read: Callable[[Seen], Value]) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        yield {}, read(seen)

    return rows


def _sampled(read: Callable[[Sample], Value]) -> Callable[[Seen], Rows]:
    return _one(lambda seen: read(seen.sample) if seen.sample else None)


def _run(field: str) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        for run in seen.box.runs if seen.up else ():
            yield {"run": run.name}, getattr(run, field)

    return rows


def _progress(seen: Seen) -> Rows:
    for run in seen.box.runs if seen.up else ():
        if run.progressed_at is not None:
            yield {"run": run.name}, max(0.0, seen.now - run.progressed_at)


def _cells(seen: Seen) -> Rows:
    for queue in seen.box.queues if seen.up else ():
        states = [cell.state for cell in queue.cells]
        for state in ("waiting", "running", "done", "failed", "interrupted"):
            yield {"queue": queue.path, "state": state}, states.count(state)


def _states(seen: Seen) -> Rows:
    for health in Health:
        yield {"state": health.value}, int(seen.state.health is health)


def _alerts(seen: Seen) -> Rows:
    for alert in seen.state.alerts:
        yield {"kind": alert.kind, "id": alert.id, "level": alert.level, "muted": str(alert.muted).lower()}, 1


def _meter(read: Callable[[Seen], Value]) -> Callable[[Seen], Rows]:
    def rows(seen: Seen) -> Rows:
        meter = seen.box.meter
        yield {"currency": meter.currency, "kind": meter.kind.value, "source": meter.source}, read(seen)

    return rows


def _meter_age(seen: Seen) -> Value:
    at = seen.box.meter.at
    return None if at is None else max(0.0, seen.now - at)


def _training_processes(sample: Sample) -> Value:
    return None if sample.unseen is not None and not sample.procs else len(sample.procs)


FAMILIES: tuple[Family, ...] = (
    Family("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", _gpu(lambda gpu: gpu.util)),
    Family("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", _gpu(lambda gpu: _mib(gpu.vram_used))),
    Family("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", _gpu(_free)),
    Family("DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory (in MiB).", _gpu(lambda gpu: _mib(gpu.vram_total))),
    Family("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", _gpu(lambda gpu: gpu.temp_c)),
    Family("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", _gpu(lambda gpu: gpu.power_w)),
    Family("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Power limit (in W).", _gpu(lambda gpu: gpu.power_limit_w)),
    Family("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", _gpu(lambda gpu: gpu.clock_mhz)),
    Family("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last Xid.", _gpu(lambda gpu: gpu.xid)),
    Family("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected memory errors.", _gpu(lambda gpu: gpu.ecc_corrected)),
    Family(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected ones.", _gpu(lambda gpu: gpu.ecc_uncorrected)
    ),
    Family("rgt_box_up", "gauge", "1 while a box is reached and its figures are fresh.", _one(lambda s: int(s.up))),
    Family("rgt_box_state", "gauge", "1 for the state that a box is in.", _states),
    Family("rgt_sample_age_seconds", "gauge", "Age of the newest sample.", _one(lambda s: s.state.sample_age)),
    Family("rgt_alert", "gauge", "1 for each alert that holds.", _alerts),
    Family("rgt_meter_per_hour", "gauge", "What an hour costs now.", _meter(lambda seen: seen.box.meter.per_hour)),
    Family("rgt_meter_spent", "gauge", "What the box has cost so far.", _meter(lambda seen: seen.box.meter.spent)),
    Family("rgt_meter_age_seconds", "gauge", "Age of the provider's reading.", _one(_meter_age)),
    Family("rgt_memory_used_bytes", "gauge", "Charged to the container, with cache.", _sampled(lambda s: s.mem.used)),
    Family("rgt_memory_cache_bytes", "gauge", "Of it, inactive file cache.", _sampled(lambda s: s.mem.cache)),
    Family("rgt_memory_limit_bytes", "gauge", "The container's limit.", _sampled(lambda s: s.mem.limit)),
    Family("rgt_oom_kills", "gauge", "Kills by the kernel for memory.", _sampled(lambda s: s.mem.oom_kills)),
    Family("rgt_cpu_usable_cores", "gauge", "Cores that can be used.", _sampled(lambda s: s.cpu.usable)),
    Family("rgt_cpu_throttled_percent", "gauge", "Periods cut short.", _sampled(lambda s: s.cpu.throttled_pct)),
    Family("rgt_disk_total_bytes", "gauge", "Size of a file system.", _disk("bytes_total")),
    Family("rgt_disk_used_bytes", "gauge", "Used of it.", _disk("bytes_used")),
    Family("rgt_disk_free_bytes", "gauge", "Free to an unprivileged user.", _disk("bytes_free")),
    Family("rgt_inodes_total", "gauge", "Inodes of a file system.", _disk("inodes_total")),
    Family("rgt_inodes_used", "gauge", "Used of them.", _disk("inodes_used")),
    Family("rgt_training_processes", "gauge", "Processes that train.", _sampled(_training_processes)),
    Family("rgt_cells", "gauge", "Cells of a queue by their state.", _cells),
    Family("rgt_run_step", "gauge", "Newest step of a run.", _run("step")),
    Family("rgt_run_total_steps", "gauge", "Steps that it will have.", _run("total_steps")),
    Family("rgt_run_epoch", "gauge", "Newest epoch of a run.", _run("epoch")),
    Family("rgt_run_loss", "gauge", "Newest training loss.", _run("loss")),
    Family("rgt_run_best", "gauge", "Lowest validation loss.", _run("best")),
    Family("rgt_run_throughput", "gauge", "Tokens, images or samples a second.", _run("throughput")),
    Family("rgt_run_progress_age_seconds", "gauge", "Since the step last advanced.", _progress),
)  # fmt: skip
"""In the order in which they are written. A row without a value is left out: absent, never 0."""


class Exposition(Collector):
    """The figures of a fleet, for `prometheus_client`.

    Args:
        state: Its state.
        now: Client clock.
    """

    def __init__(self, state: FleetState, now: float) -> None:
        self._state, self._now = state, now

    def collect(self) -> Iterator[Metric]:
        """Yield every family that has values."""
        for family, rows in series(self._state, self._now):
            metric = Metric(family.name, family.help, family.kind)
            for labels, value in rows:
                metric.add_sample(family.name, labels, value)
            yield metric


def exposition(state: FleetState, now: float) -> bytes:
    """Return the text for a fleet as it is at `now` (client clock)."""
    # dcgm-exporter's counters end in _TOTAL; the client library would add its own _total to their head lines.
    return _HEAD.sub(rb"\1 ", generate_latest(Exposition(state, now)))


def series(state: FleetState, now: float) -> Iterator[tuple[Family, list[tuple[dict[str, str], float]]]]:
    """Yield every family that has values, with its labels and values; the labels' texts are harmless."""
    boxes = [Seen(box, assess(box, now), now) for box in state.boxes]
    for family in FAMILIES:
        rows: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}
        for seen in boxes:
            for labels, value in family.rows(seen):
                named = {key: clean(text) for key, text in {"box": seen.box.spec.name, **labels}.items()}
                if value is not None:
                    # A series that comes twice would make Prometheus refuse all of them.
                    rows.setdefault(tuple(named.values()), (named, value))
        if rows:
            yield family, list(rows.values())
