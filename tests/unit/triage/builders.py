"""A healthy box in the middle of its queue: what a test then spoils in one place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    Checkpoint,
    Checkpoints,
    CpuReading,
    DetachedSessions,
    DiskReading,
    GpuReading,
    Hello,
    InodeHog,
    Lifecycle,
    LinkState,
    LogView,
    MemoryReading,
    Meter,
    MeterKind,
    ProviderRef,
    QueueCell,
    QueueState,
    RunState,
    Sample,
    Series,
    StreamCounters,
    TrainingProcess,
)

NOW = 1_790_000_000.0
LOG = "/root/job/logs/lstm-b.log"
OUT = "/workspace/runs/lstm-b"
VIZ = InodeHog(path="/workspace/.cache/viz", inodes=3900, bytes=15_600_000)
ROOT = DiskReading(
    mount="/",
    bytes_total=50_000_000_000,
    bytes_used=16_000_000_000,
    bytes_free=34_000_000_000,
    inodes_total=3_000_000,
    inodes_used=240_000,
)
DATA = DiskReading(
    mount="/workspace",
    bytes_total=20_000_000_000,
    bytes_used=600_000_000,
    bytes_free=19_400_000_000,
    inodes_total=4096,
    inodes_used=180,
)
FULL = msgspec.structs.replace(DATA, inodes_used=4096, hogs=(VIZ,))


def cell(name: str = "lstm-b", **over: Any) -> QueueCell:
    base = QueueCell(
        name=name,
        cfg=f"cfg/{name}.toml",
        task="lm",
        epochs=4,
        state="running",
        attempts=1,
        started=NOW - 600,
        durable="pending",
        out=OUT if name == "lstm-b" else f"/workspace/runs/{name}",
        log=LOG if name == "lstm-b" else f"/root/job/logs/{name}.log",
    )
    return msgspec.structs.replace(base, **over)


def queue(*cells: QueueCell, **over: Any) -> QueueState:
    base = QueueState(
        path="/root/job/queue.txt",
        at=NOW - 1,
        cells=cells or (cell("lstm-a", state="done", exit_code=0, durable="verified"), cell()),
        runner_pid=77,
        runner_alive=True,
    )
    return msgspec.structs.replace(base, **over)


def run(
    name: str = "lstm-b", step: int = 812, losses: Iterable[float] | None = None, **over: Any
) -> RunState:
    values = list(losses) if losses is not None else [4.0 - i / 300 for i in range(200)]
    base = RunState(
        name=name,
        step=step,
        loss=values[-1] if values else None,
        last_at=NOW - 1,
        progressed_at=NOW - 1,
        series={
            "loss": Series().with_points(
                [(step - len(values) + 1 + i, v) for i, v in enumerate(values)]
            )
        },
        total_steps=2400,
    )
    return msgspec.structs.replace(base, **over)


def checkpoints(*steps: int, name: str = "lstm-b", size: int = 40_000_000) -> Checkpoints:
    items = tuple(
        Checkpoint(
            path=f"/workspace/runs/{name}/checkpoints/step-{step:08d}",
            step=step,
            bytes=size,
            at=NOW - 2 * (900 - step),
        )
        for step in steps
    )
    return Checkpoints(run=name, at=NOW - 5, items=items)


def sample(*disks: DiskReading, **over: Any) -> Sample:
    base = Sample(
        boot="boot-1",
        seq=9,
        at=NOW,
        gpus=(
            GpuReading(
                index=0,
                name="RTX 4090",
                util=93.0,
                vram_used=15_800_000_000,
                vram_total=24_000_000_000,
                sim=True,
            ),
        ),
        mem=MemoryReading(
            cgroup=2, used=12_000_000_000, cache=4_000_000_000, limit=32_000_000_000, oom_kills=0
        ),
        cpu=CpuReading(quota=8.0),
        disks=disks or (ROOT, DATA),
        procs=(
            TrainingProcess(pid=2231, started=NOW - 600, cmd="python -m rgt_train --config lstm-b"),
        ),
        session=DetachedSessions(tmux=("rgt",)),
    )
    return msgspec.structs.replace(base, **over)


def log(*lines: str, path: str = LOG) -> LogView:
    return LogView(
        path=path, lines=lines or ("step 811  loss 1.2861", "step 812  loss 1.2843"), at=NOW - 1
    )


def box(**over: Any) -> BoxState:
    base = BoxState(
        spec=BoxSpec(
            name="vast-demo",
            host="127.0.0.1",
            profile="vastai",
            provider=ProviderRef("vastai", "9918231"),
        ),
        link=LinkState.LIVE,
        reason="connected",
        since=NOW - 900,
        hello=Hello(
            proto=1,
            agent="0123abcd9999",
            boot="boot-1",
            host="c1",
            python="3.11.2",
            pid=50,
            at=NOW - 900,
            gpu_source="sim",
        ),
        sample=sample(),
        sample_at=NOW - 0.5,
        clock_skew=0.02,
        queues=(queue(),),
        runs=(run("lstm-a", 2400), run()),
        checkpoints=(checkpoints(600, 640),),
        logs=(log(),),
        meter=Meter(
            kind=MeterKind.COMPUTE_AND_STORAGE,
            lifecycle=Lifecycle.RUNNING,
            per_hour=0.42,
            at=NOW - 10,
            source="Vast.ai",
            native_status="running",
        ),
        counters=StreamCounters(samples=900, connects=1),
    )
    return msgspec.structs.replace(base, **over)
