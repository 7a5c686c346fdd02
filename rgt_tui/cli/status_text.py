"""One line about one box, for people. Pure."""

from __future__ import annotations

from rgt_tui.cli.status_line import MeterLine, RunLine, StatusLine
from rgt_tui.model.plain import clean
from rgt_tui.model.protocol import Sample
from rgt_tui.profiles.readings import age, byte_pct, inode_pct, memory_pct, money, pct

NAME_WIDTH, STATE_WIDTH = 16, 11


def text_line(line: StatusLine) -> str:
    """Return the line, e.g. ``lab  running  2.1 s  gpu 97 %  …``, with nothing of a terminal's in it."""
    parts = [line.reason, *_sample(line.sample), *_runs(line.runs, line.reason), *_meter(line.meter)]
    said = "no sample" if line.age_s is None else f"{age(line.age_s)} old"
    text = " · ".join(part for part in parts if part)
    return clean(f"{line.box:<{NAME_WIDTH}} {line.state:<{STATE_WIDTH}} {said:<10} {text}")


def _sample(sample: Sample | None) -> list[str]:
    if sample is None:
        return []
    utils = [gpu.util for gpu in sample.gpus if gpu.util is not None]
    sim = " SIM" if any(gpu.sim for gpu in sample.gpus) else ""
    parts = [f"gpu {sum(utils) / len(utils):.0f} %{sim}"] if utils else []
    if (share := memory_pct(sample.mem)) is not None:
        parts.append(f"mem {pct(share)}")
    fullest = max(
        ((share, disk.mount, what) for disk in sample.disks if not disk.read_only
         for share, what in ((byte_pct(disk), "disk"), (inode_pct(disk), "inodes")) if share is not None),
        default=None,
    )  # fmt: skip
    if fullest is not None:
        parts.append(f"{fullest[2]} {fullest[1]} {pct(fullest[0])}")
    return parts


def _runs(runs: tuple[RunLine, ...], reason: str) -> list[str]:
    running = [run for run in runs if run.state == "running" or (run.state is None and run.step is not None)]
    parts = []
    for run in running[:3]:
        loss = "" if run.loss is None else f" loss {run.loss:.4g}"
        if loss or run.name not in reason:
            step = "" if run.step is None else f" step {run.step:,}"
            total = "" if run.total_steps is None else f"/{run.total_steps:,}"
            parts.append(f"{run.name}{step}{total}{loss}")
    done = sum(run.state == "done" for run in runs)
    queued = sum(run.state is not None for run in runs)
    return [*parts, f"{done}/{queued} cells done"] if queued else parts


def _meter(meter: MeterLine) -> list[str]:
    if meter.age_s is None and meter.per_hour is None:
        return []
    spent = "" if meter.spent is None else f", {money(meter.spent, meter.currency)} so far"
    rate = "price unknown" if meter.per_hour is None else f"{money(meter.per_hour, meter.currency)}/h"
    return [f"{rate}{spent}"]
