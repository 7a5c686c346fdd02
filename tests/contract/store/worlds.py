"""States of boxes as a fleet has them, and a history to put them into."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rgt_tui.model import (
    BoxSpec,
    BoxState,
    DiskReading,
    EventFilter,
    FileCursor,
    FleetEvent,
    FleetState,
    GpuReading,
    Happening,
    LinkState,
    MemoryReading,
    Meter,
    MeterKind,
    ProviderRef,
    RunState,
    Sample,
    Series,
)
from rgt_tui.store import FLEET, Batch, BoxWrites, HistoryFile, ObservedCost, SlotMean
from rgt_tui.store.spending import day_of


def spec(name: str) -> BoxSpec:
    return BoxSpec(name=name, host="h", provider=ProviderRef("runpod", f"pod-{name}"))


def state(name: str, *, at: float | None = None, points: int = 100, runs: int = 1) -> BoxState:
    at = time.time() if at is None else at
    sample = Sample(
        boot="b",
        seq=points,
        at=at,
        gpus=tuple(GpuReading(index=i, name="NVIDIA H100 80GB HBM3", util=91.0) for i in range(2)),
        mem=MemoryReading(cgroup=2, used=10, limit=100),
        disks=(
            DiskReading(
                mount="/",
                bytes_total=100,
                bytes_used=50,
                bytes_free=50,
                inodes_total=1000,
                inodes_used=100,
            ),
            DiskReading(
                mount="/workspace",
                bytes_total=1000,
                bytes_used=10,
                bytes_free=990,
                inodes_total=10_000,
                inodes_used=50,
            ),
        ),
    )
    return BoxState(
        spec=spec(name),
        link=LinkState.LIVE,
        sample=sample,
        sample_at=at,
        runs=tuple(run(f"run{number}", points) for number in range(runs)),
        meter=Meter(
            kind=MeterKind.COMPUTE_AND_STORAGE,
            per_hour=2.0,
            at=at,
            spent=5.0,
            spent_since=at - 9000,
        ),
    )


def run(name: str, points: int) -> RunState:
    steps = list(range(points))
    series = {
        metric: Series(list(steps), [1 / (step + 1) for step in steps]) for metric in ("loss", "lr")
    }
    source = f"/out/{name}/metrics.jsonl"
    return RunState(
        name=name,
        step=points,
        series=series,
        cursors={source: FileCursor(inode=9, offset=100 * points)},
    )


def batch(names: Sequence[str], number: int, *, at: float | None = None) -> Batch:
    """Everything that a few seconds of boxes bring, all of it new with each `number`."""
    at = time.time() if at is None else at
    found = {}
    states = []
    for name in names:
        newest = state(name, at=at + number, points=10 * (number + 1))
        found[name] = BoxWrites(
            runs=newest,
            means=(SlotMean(name, int(at // 60) - number, 60, {"util": 50.0, "disk:/": 12.5}),),
            costs=(ObservedCost(day_of(at), "USD", billed=2.0 / 60, seconds=60.0),),
            events=(FleetEvent(at=at + number, box=name, text=f"event {number}"),),
        )
        states.append(newest)
    return {**found, FLEET: BoxWrites(moments=(FleetState(boxes=tuple(states), at=at + number),))}


def events_of(file: HistoryFile, count: int) -> tuple[Happening, ...]:
    """The last events of the file's fleet, oldest first."""
    return file.query_history(lambda past: past.read_event_page(EventFilter(), None, count)).rows
