"""The fleet screen at 200 boxes whose every cell changes once a second: CPU beside a DataTable, and how fast keys act.

`python -m benchmarks.ui_fleet dashboard|table` shows either in this terminal, on the same made-up
boxes; `python -m benchmarks.ui_fleet keys 600` measures only the keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.product import HEADER, last_words
from benchmarks.report import BenchmarkError, Row, say, table
from benchmarks.terminal import Terminal, cpu_seconds
from benchmarks.ui_keys import key_to_paint, presses, rows, slowest_table, without_others
from benchmarks.ui_trace import FILE, Timeline, record
from rgt_tui.fleet import ReadOnlyFleet
from rgt_tui.model import (
    BoxSpec,
    BoxState,
    CheckResult,
    DiskReading,
    FleetState,
    GpuReading,
    Lifecycle,
    LinkState,
    MemoryReading,
    Meter,
    MeterKind,
    Profile,
    QueueCell,
    QueueState,
    RowSparklines,
    RunState,
    Sample,
    Series,
    TrainingProcess,
)
from rgt_tui.profiles import load_profile

BOXES = 200
GIB = 1 << 30
RATIO, CPU_PERCENT, KEY_MS = 0.2, 10.0, 20.0


class Wave(ReadOnlyFleet):
    """200 boxes that train: no value of a box is what it was a second before."""

    chronicle = None

    def __init__(self) -> None:
        self._callbacks: list[Callable[[FleetState], None]] = []
        self._profile = load_profile("runpod")
        self._series = [Series() for _ in range(BOXES)]
        self._task: asyncio.Task[None] | None = None
        self.began = time.time()
        self.tick = 0
        self._state = self.make_state()

    @property
    def state(self) -> FleetState:
        """All boxes as they were at the last second."""
        return self._state

    def evaluate_checks(self, box: str) -> tuple[CheckResult, ...]:
        """Return no checks."""
        return ()

    def now(self) -> float:
        """The client clock."""
        return time.time()

    def profile_of(self, box: str) -> Profile:
        """The same for all."""
        return self._profile

    def subscribe(self, callback: Callable[[FleetState], None]) -> Callable[[], None]:
        """Call `callback` with every new state."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    async def start(self) -> None:
        """Begin to change."""
        self._task = asyncio.create_task(self._go_on())

    async def stop(self) -> None:
        """Stand still."""
        if self._task is not None:
            self._task.cancel()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.tick += 1
            boxes: list[BoxState] = []
            # Real frames come one by one: making all boxes at once would stop the keys for 5 to 10
            # ms that the product never spends.
            for number in range(BOXES):
                boxes.append(self._box(number, time.time()))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            self._state = FleetState(boxes=tuple(boxes), at=time.time())
            for callback in self._callbacks:
                callback(self._state)

    def make_state(self) -> FleetState:
        """Return all boxes as they are now."""
        now = time.time()
        return FleetState(boxes=tuple(self._box(number, now) for number in range(BOXES)), at=now)

    def _box(self, number: int, now: float) -> BoxState:
        turn = self.tick + 7 * number
        share = 0.5 + 0.4 * math.sin(turn)
        step = 1000 + 10 * self.tick + number
        loss = 0.5 + 2 * math.exp(-step / 900) + 0.01 * math.sin(step)
        self._series[number] = self._series[number].with_points([(step, loss)])
        gpu = GpuReading(
            index=0,
            name="RTX 4090",
            util=100 * share,
            vram_used=int(24 * GIB * (1 - share)),
            vram_total=24 * GIB,
            temp_c=50 + 20 * share,
            power_w=200 + 200 * share,
            power_limit_w=450.0,
        )
        used = int(100 * GIB * share)
        disk = DiskReading(
            mount="/workspace",
            bytes_total=100 * GIB,
            bytes_used=used,
            bytes_free=100 * GIB - used,
            inodes_total=1_000_000,
            inodes_used=int(700_000 * (1 - share)),
        )
        running = QueueCell(
            name="run",
            cfg="run.toml",
            task="chargpt",
            epochs=4,
            state="running",
            started=self.began - 3600,
        )
        waiting = tuple(
            QueueCell(name=f"next-{n}", cfg="run.toml", task="chargpt", epochs=4, state="waiting")
            for n in range(1 + self.tick % 8)
        )
        ring = tuple(50 + 40 * math.sin(turn - back) for back in range(60))
        return BoxState(
            spec=BoxSpec(f"box-{number:03d}", "127.0.0.1", profile="runpod"),
            link=LinkState.LIVE,
            sample=Sample(
                boot="b",
                seq=self.tick,
                at=now,
                gpus=(gpu,),
                mem=MemoryReading(cgroup=2, used=int(80 * GIB * share), cache=0, limit=100 * GIB),
                disks=(disk,),
                procs=(
                    TrainingProcess(
                        pid=1,
                        started=self.began,
                        cmd="python train.py",
                        rss=GIB,
                        threads=8,
                        state="R",
                    ),
                ),
            ),
            sample_at=now,
            rings=RowSparklines(gpu_util=ring),
            queues=(
                QueueState(
                    path="/q", at=now, cells=(running, *waiting), runner_pid=2, runner_alive=True
                ),
            ),
            runs=(
                RunState(
                    "run",
                    step,
                    float(self.tick),
                    loss,
                    last_at=now,
                    progressed_at=now - self.tick % 7,
                    series={"loss": self._series[number]},
                    total_steps=1_000_000,
                ),
            ),
            meter=Meter(
                MeterKind.COMPUTE_AND_STORAGE,
                Lifecycle.RUNNING,
                0.40 + 0.01 * (turn % 30),
                spent=3.0 + 0.01 * self.tick,
                at=now,
            ),
            alerts_kept=True,
        )


def shown(what: str) -> None:
    """Show the boxes in this terminal until the person leaves."""
    source = Wave()
    if what == "table":
        from benchmarks.plain_table import PlainTable

        PlainTable(source).run()
    else:
        from rgt_tui.ui import RgtApp

        if os.environ.get(FILE):
            record(Path(os.environ[FILE]), (Wave, "_box"))
        RgtApp(lambda: source).run()


@contextlib.contextmanager
def program(what: str, home: str, trace: Path | None = None) -> Iterator[Terminal]:
    """Either of the two, once it shows a box."""
    command = [sys.executable, "-m", "benchmarks.ui_fleet", what]
    settings = {"XDG_STATE_HOME": home, "RGT_ASCII": "0", FILE: str(trace or "")}
    with Terminal(command, settings) as terminal:
        for pattern in (HEADER, r"box-00\d"):
            if terminal.wait_for(pattern, 60) is None:
                raise BenchmarkError(
                    f"the {what} shows no box; it painted:\n{last_words(terminal.text())}"
                )
        yield terminal


def key_rows(count: int, settle_s: float) -> list[Row]:
    """Press so many keys; say which were the slowest, and what the dashboard did meanwhile."""
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as home:
        trace = Path(home) / "trace"
        with program("dashboard", home, trace) as ours:
            time.sleep(settle_s)
            say(f"ui: {count} keys")
            found = key_to_paint(ours, presses(count))
        timeline = Timeline(trace)
    say(f"ui: the slowest 2 %:\n{slowest_table(found, timeline)}")
    own = without_others(found, timeline)
    return [*rows("key_to_paint", found, KEY_MS), *rows("key_to_paint_own", own, KEY_MS)]


def fleet_cases(quick: bool) -> list[Row]:
    """Measure both at the same time, and then the keys."""
    warm_up, seconds, keys = (2.0, 4.0, 80) if quick else (6.0, 30.0, 600)
    with (
        tempfile.TemporaryDirectory(prefix="rgt-bench-") as home,
        program("dashboard", home) as ours,
        program("table", home) as plain,
    ):
        time.sleep(warm_up)
        say(f"ui: {BOXES} boxes change for {seconds:.0f} s")
        begin = time.monotonic()
        before = [(cpu_seconds(one.pid), one.written) for one in (ours, plain)]
        time.sleep(seconds)
        took = time.monotonic() - begin
        costs = [
            100 * (cpu_seconds(one.pid) - cpu) / took
            for one, (cpu, _) in zip((ours, plain), before, strict=True)
        ]
        # The table may be too busy to paint at all; the dashboard is not to be cheap because it
        # shows nothing.
        if ours.written - before[0][1] < 1000 * seconds or not plain.running:
            raise BenchmarkError("the dashboard painted next to nothing, or the table ended")
    return [
        Row(
            "fleet_200_over_datatable",
            costs[0] / costs[1],
            "×",
            costs[0] / costs[1],
            "a DataTable updated cell by cell, CPU in the same run",
            ratio_goal=RATIO,
        ),
        Row("fleet_200_cpu_percent", costs[0], "% of a core", goal=CPU_PERCENT),
        Row("fleet_200_datatable_cpu_percent", costs[1], "% of a core"),
        *key_rows(keys, warm_up),
    ]


if __name__ == "__main__":
    if sys.argv[1] == "keys":
        print(table("keys", key_rows(int(sys.argv[2]), 6.0)))
    else:
        shown(sys.argv[1])
