"""Builders of box states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    CheckResult,
    CheckStatus,
    ClockClaim,
    ClockMode,
    ClockStart,
    CpuReading,
    DangerClock,
    DetachedSessions,
    DiskReading,
    Finding,
    FixStep,
    FleetEvent,
    FleetState,
    GpuReading,
    Lifecycle,
    LinkState,
    LogView,
    MemoryReading,
    Meter,
    MeterKind,
    Overrides,
    Profile,
    ProviderRef,
    QueueCell,
    QueueState,
    RowSparklines,
    RunResume,
    RunState,
    Sample,
    Series,
    Severity,
    StorageTier,
    TrainingProcess,
)

NOW = 1_795_255_331.0
"""The frozen clock starts here."""
GIB = 1 << 30


def gpu(
    util: float = 92.0,
    *,
    index: int = 0,
    name: str = "RTX 4090",
    sim: bool = True,
    vram: float = 15.8,
) -> GpuReading:
    return GpuReading(
        index=index,
        name=name,
        util=util,
        vram_used=int(vram * GIB),
        vram_total=24 * GIB,
        temp_c=71.0,
        power_w=398.0,
        power_limit_w=450.0,
        clock_mhz=2520.0,
        clock_max_mhz=2610.0,
        throttle=(),
        sim=sim,
    )


def disk(
    mount: str, used: float, inodes: float | None, *, gib: int = 100, inode_total: int = 65_536
) -> DiskReading:
    total = gib * GIB
    return DiskReading(
        mount=mount,
        bytes_total=total,
        bytes_used=int(total * used / 100),
        bytes_free=int(total * (100 - used) / 100),
        inodes_total=None if inodes is None else inode_total,
        inodes_used=None if inodes is None else int(inode_total * inodes / 100),
    )


def sample(
    seq: int = 1,
    *,
    at: float = NOW,
    gpus: Sequence[GpuReading] = (),
    disks: Sequence[DiskReading] = (),
    used: float = 37.0,
    limit: float | None = 100.0,
    procs: Sequence[TrainingProcess] = (),
    uptime: float = 11_220.0,
) -> Sample:
    return Sample(
        boot="boot-1",
        seq=seq,
        at=at,
        gpus=tuple(gpus) or (gpu(),),
        mem=MemoryReading(
            cgroup=2,
            used=int(used * GIB),
            cache=int(8 * GIB),
            limit=None if limit is None else int(limit * GIB),
            peak=None,
            oom_kills=0,
            host_used=251 * GIB,
            host_total=503 * GIB,
        ),
        cpu=CpuReading(quota=16.0, cores=16, load1=7.2, throttled_pct=0.0),
        disks=tuple(disks)
        or (disk("/root/autodl-tmp", 41, 12), disk("/root/autodl-fs", 18, 73), disk("/", 33, 8)),
        procs=tuple(procs)
        or (
            TrainingProcess(
                pid=2231,
                started=at - 7_000,
                cmd="python -m rgt_train --config c.toml",
                rss=4 * GIB,
                threads=11,
                state="R",
            ),
        ),
        session=DetachedSessions(tmux=("rgt",), uptime_s=uptime),
    )


@cache
def curve(
    steps: int, *, start: float = 4.0, end: float = 1.6, every: int = 1, nan_at: int | None = None
) -> Series:
    points = []
    for step in range(0, steps + 1, every):
        value = (
            end + (start - end) * math.exp(-4 * step / max(1, steps)) + 0.03 * math.sin(step / 7)
        )
        points.append((step, math.nan if step == nan_at else value))
    return Series().with_points(points)


def run(
    name: str, step: int = 655, *, loss: float = 1.702, at: float = NOW, total: int | None = 2_400
) -> RunState:
    return RunState(
        name,
        step,
        2.0,
        loss,
        loss - 0.02,
        2.9e-4,
        0.81,
        41_200.0,
        at,
        at,
        {"loss": curve(step, end=loss)},
        (),
        total,
    )


def cell(name: str, state: str = "waiting", **changes: object) -> QueueCell:
    base = QueueCell(
        name=name,
        cfg=f"configs/{name}.toml",
        task="chargpt",
        epochs=4,
        state=state,
        log=f"/jobs/demo/logs/{name}.log",
    )
    return msgspec.structs.replace(base, **changes)


def queue(*cells: QueueCell, at: float = NOW, done: bool = False) -> QueueState:
    return QueueState(
        path="/jobs/demo/queue.txt",
        at=at,
        cells=cells,
        runner_pid=4242,
        runner_alive=not done,
        done=done,
    )


def spec(name: str, profile: str = "autodl", *, interval: float = 1.0) -> BoxSpec:
    return BoxSpec(
        name,
        "127.0.0.1",
        2222,
        profile=profile,
        interval=interval,
        provider=ProviderRef("demo", name),
    )


def meter(
    per_hour: float | None = 0.42, spent: float | None = 1.11, currency: str = "USD"
) -> Meter:
    return Meter(
        MeterKind.COMPUTE_AND_STORAGE if per_hour is not None else MeterKind.UNKNOWN,
        Lifecycle.RUNNING if per_hour is not None else Lifecycle.UNKNOWN,
        per_hour,
        None if per_hour is None else per_hour * 0.95,
        None if per_hour is None else per_hour * 0.05,
        spent,
        NOW - 9_480,
        currency,
        NOW,
        "demo provider" if per_hour is not None else "no provider",
    )


def wave(level: float, *, low: float | None = None, count: int = 60) -> tuple[float | None, ...]:
    low = level - 12 if low is None else low
    return tuple(low + (level - low) * (0.5 + 0.5 * math.sin(i / 5)) for i in range(count))


LOG = tuple(
    f"step {step}  loss {1.9 - step / 3000:.4f}  lr 2.9e-4  gnorm {0.8 + (step % 7) / 100:.2f}"
    f"  41.{step % 10} k tok/s"
    for step in range(456, 656)
)


def running_box(name: str = "autodl-demo", *, at: float = NOW) -> BoxState:
    cells = (
        cell(
            "gpt-a",
            "done",
            started=at - 9000,
            ended=at - 6540,
            exit_code=0,
            durable="verified",
            best=1.611,
        ),
        cell(
            "gpt-b",
            "done",
            started=at - 6500,
            ended=at - 4160,
            exit_code=0,
            durable="verified",
            best=1.588,
        ),
        cell("gpt-c", "running", started=at - 720, attempts=1),
        cell("gpt-d"),
    )
    return BoxState(
        spec(name),
        LinkState.LIVE,
        "ssh",
        at - 11_000,
        None,
        sample(at=at),
        at,
        0.0,
        RowSparklines(wave(92), wave(66), wave(37)),
        (queue(*cells, at=at),),
        (run("gpt-a", 2400, loss=1.611), run("gpt-b", 2400, loss=1.588), run("gpt-c", at=at)),
        (),
        (
            LogView("/jobs/demo/logs/gpt-c.log", LOG, 0, at),
            LogView("/jobs/demo/master.log", ("START gpt-c",), 0, at),
        ),
        (),
        (),
        meter(1.98, 5.12, "CNY"),
    )


def inode_finding(at: float = NOW) -> Finding:
    return Finding(
        "U7",
        "checkpoint save failed at step 812",
        Severity.FATAL,
        "inodes of /workspace",
        "OSError: [Errno 28] No space left on device: '/workspace/ckpt/lstm-b/.tmp-00812'",
        "/jobs/demo/logs/lstm-b.log",
        (
            FixStep("Check: it is the inodes, not the bytes", "df -i -- '/workspace'"),
            FixStep(
                "First inspect /workspace/.cache/viz (228 MB)",
                "ls -A -- '/workspace/.cache/viz' | head",
            ),
            FixStep(
                "58,204 files in /workspace/.cache/viz can be recreated: remove them, "
                "the cell then resumes from step 800",
                "rm -rf -- '/workspace/.cache/viz'",
            ),
        ),
        "do not destroy the box: the last checkpoint is only here",
        "65,536 of 65,536 inodes used (bytes 63%)",
        "lstm-b",
        812,
        at - 134,
        action="free-space",
        confidence=0.95,
        line_no=41,
    )


def trouble_box(name: str = "vast-demo", *, at: float = NOW) -> BoxState:
    cells = (
        cell(
            "lstm-a",
            "done",
            exit_code=0,
            durable="verified",
            started=at - 8000,
            ended=at - 5000,
            best=1.301,
        ),
        cell("lstm-b", "running", started=at - 1400, attempts=1),
        cell("lstm-c"),
    )
    stuck = msgspec.structs.replace(run("lstm-b", 812, loss=1.284, at=at - 134), epoch=3.0)
    return msgspec.structs.replace(
        running_box(name, at=at),
        spec=spec(name, "vast"),
        sample=sample(
            at=at,
            gpus=(gpu(4, name="RTX 3090", vram=16.9),),
            disks=(disk("/workspace", 63, 100), disk("/", 21, 4)),
            used=41,
        ),
        rings=RowSparklines(wave(80)[:30] + wave(6, low=2, count=30), wave(70), wave(41)),
        queues=(queue(*cells, at=at),),
        runs=(run("lstm-a", 1200, loss=1.301), stuck),
        findings=(inode_finding(at),),
        meter=meter(0.42, 1.11),
        logs=(
            LogView(
                "/jobs/demo/logs/lstm-b.log", (*LOG[:40], inode_finding().evidence), 0, at - 134
            ),
        ),
    )


def warn_box(name: str = "runpod-demo", *, at: float = NOW) -> BoxState:
    cells = (cell("moe-a", "running", started=at - 1400, attempts=2),)
    resumed = msgspec.structs.replace(
        run("moe-a", 340, loss=0.913, at=at - 1),
        epoch=1.0,
        resumes=(RunResume(320, "SIGTERM", 320),),
    )
    finding = Finding(
        "U4",
        "interrupted and resumed",
        Severity.DEGRADING,
        "spot capacity",
        "SIGTERM received, checkpoint flushed at step 338",
        "/jobs/demo/logs/moe-a.log",
        (FixStep("nothing to do: the run goes on from step 320"),),
        run="moe-a",
        step=338,
        since=at - 40,
        action="resume-from-latest",
        confidence=0.95,
    )
    return msgspec.structs.replace(
        running_box(name, at=at),
        spec=spec(name, "runpod"),
        sample=sample(
            at=at,
            gpus=(gpu(97, name="A40"),),
            disks=(disk("/workspace", 34, 2), disk("/", 11, 3)),
            used=58,
        ),
        rings=RowSparklines(wave(97), wave(80), wave(58)),
        queues=(queue(*cells, at=at),),
        runs=(resumed,),
        findings=(finding,),
        meter=meter(0.69, 1.87),
    )


def stale_box(name: str = "lab-a100-2", *, at: float = NOW) -> BoxState:
    return msgspec.structs.replace(
        running_box(name, at=at),
        spec=spec(name, "generic-ssh"),
        link=LinkState.LIVE,
        sample=sample(
            at=at - 42, gpus=(gpu(88, name="A100", sim=False),), disks=(disk("/", 12, 3),), used=71
        ),
        sample_at=at - 42,
        runs=(run("vit-e", 9120, loss=0.441, at=at - 42, total=12_000),),
        queues=(
            queue(
                *(cell(f"vit-{c}", "done", exit_code=0) for c in "abcd"),
                cell("vit-e", "running"),
                at=at,
            ),
        ),
        meter=Meter(),
    )


def lost_box(name: str = "lost-demo", *, at: float = NOW) -> BoxState:
    return msgspec.structs.replace(
        stale_box(name, at=at),
        link=LinkState.UNREACHABLE,
        reason="ssh: connection refused",
        since=at - 200,
        sample_at=at - 200,
        retry_at=at + 12,
    )


def demo_state(at: float = NOW) -> FleetState:
    """The four boxes of the sketch, in the order of a fleet file."""
    return FleetState(
        (running_box(at=at), runpod := warn_box(at=at), trouble_box(at=at), stale_box(at=at)),
        (
            FleetEvent(
                at - 20,
                runpod.spec.name,
                "preempted at step 338 (SIGTERM, 5 s grace) → back after 9 s → resumed from step 320",
            ),
        ),
        at,
    )


def many_boxes(count: int, *, at: float = NOW) -> FleetState:
    """A big fleet: mostly fine, a few not."""
    makers = (
        running_box,
        running_box,
        running_box,
        warn_box,
        stale_box,
        running_box,
        lost_box,
        trouble_box,
    )
    return FleetState(
        tuple(makers[i % len(makers)](f"box-{i:03d}", at=at) for i in range(count)), (), at
    )


AUTO_RELEASE = DangerClock(
    what="auto-release",
    consequence="all data lost",
    applies_when="stopped",
    mode=ClockMode.COUNTDOWN,
    counts_from=ClockStart.STOP,
    claims=(ClockClaim(after_s=15 * 86_400, cited_as="test"),),
)


def profile(box: str = "autodl") -> Profile:
    return Profile(
        id=box,
        name={"autodl": "AutoDL", "vast": "Vast.ai", "runpod": "RunPod"}.get(box, "generic SSH"),
        kind="ssh",
        confidence="from-docs",
        top_danger="a stopped box is released after 15 days",
        overrides=Overrides(detach="tmux"),
        tiers=(
            StorageTier("data", ("/root/autodl-tmp",), True, False, False, role="data"),
            StorageTier("file storage", ("/root/autodl-fs",), True, True, None, role="durable"),
            StorageTier("workspace", ("/workspace",), True, False, True, role="data"),
            StorageTier("system", ("/",), True, False, None, role="system"),
        ),
        clocks=(AUTO_RELEASE,) if box == "autodl" else (),
    )


def default_checks(at: float = NOW) -> tuple[CheckResult, ...]:
    return (
        CheckResult(
            "0.1", 0, "read the profile", CheckStatus.PASSED, "autodl, confidence high", at
        ),
        CheckResult("1.1", 1, "detached launch", CheckStatus.PASSED, "tmux session rgt", at),
        CheckResult(
            "4.1", 4, "four layers reporting", CheckStatus.PASSED, "session, log, curve, cgroup", at
        ),
        CheckResult(
            "4.2",
            4,
            "progress, not utilisation",
            CheckStatus.PASSED,
            "step 655 advanced 1 s ago",
            at,
        ),
        CheckResult(
            "4.3", 4, "inodes below 80% everywhere", CheckStatus.WARN, "/root/autodl-fs 73%", at - 2
        ),
        CheckResult(
            "4.4", 4, "you compared two val samples", CheckStatus.PERSON, "tick with a note"
        ),
        CheckResult("5.1", 5, "manifest made", CheckStatus.WAITING, "nothing to evaluate yet"),
        CheckResult(
            "5.2", 5, "results pulled", CheckStatus.FAILED, "2 of 214 files differ", at - 60
        ),
    )
