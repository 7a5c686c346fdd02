"""What the agent costs the box and the wire: CPU, memory, bytes, time to the first sample, lines of logs.

Each figure stands beside one tick of the usual way: a subprocess per reading, as who polls
nvidia-smi does it. The stand-in program does nothing at all, so the real one costs more.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent_box import (
    PackedAgent,
    cpu_seconds,
    crowd,
    real_sshd,
    rss_mib,
    subprocess_tick_seconds,
    write_trace,
)
from benchmarks.report import BenchmarkError, Row, main, say
from rgt_tui.model import BoxSpec, protocol
from rgt_tui.ssh import build_agent, connect, deploy_agent, open_channel
from rgt_tui.ssh.channel import PackedLines

NAME = "agent"


@dataclass(frozen=True)
class Plan:
    """How long each case takes."""

    cpu: float
    wire: float
    hours: float
    starts: int
    logs: float


QUICK, FULL = Plan(10, 8, 2, 5, 4), Plan(60, 65, 24, 25, 10)


def steady_cost(folder: Path, plan: Plan, find: bool = False) -> tuple[float, float, float, float]:
    """CPU percent and MiB of the recorder, and of a watch beside it, at 1 Hz with 8 GPUs.

    Args:
        folder: Where to work.
        plan: How long.
        find: Have trainings found that nobody named (docs/agent.md), as rgt itself does.
    """
    agent = PackedAgent(folder)
    trace = write_trace(folder / "trace8.json", 8)
    try:
        with agent.watch(
            interval=1.0, gpu_trace=str(trace), packed_lines=True, find=find
        ) as process:
            pids = [agent.recorder_pid(), process.pid]
            time.sleep(FIND_SETTLED if find else 5)
            begin, before = time.monotonic(), [cpu_seconds(pid) for pid in pids]
            time.sleep(plan.cpu)
            seconds = time.monotonic() - begin
            used = [
                (cpu_seconds(pid) - was) / seconds * 100
                for pid, was in zip(pids, before, strict=True)
            ]
            return used[0], used[1], rss_mib(pids[0]), rss_mib(pids[1])
    finally:
        agent.stop()


def a_day(folder: Path, plan: Plan) -> dict[str, float]:
    """Memory over a time-accelerated day."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.agent_day",
        str(folder / "day"),
        str(folder / "trace8.json"),
    ]
    done = subprocess.run([*words, str(plan.hours)], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


CROWD = 200
FIND_SETTLED = 25.0
"""Seconds after which the finder has looked at every process as often as it does at first."""

TRAINING = "rgt_bench_train"
"""On the command line of the one process that is taken for training, whatever else runs on this
machine.
"""

WORK = """
import time
held = []
while True:
    held.append(bytes(50000))
    sum(range(300000))
    time.sleep(0.2)
"""


def wire(folder: Path, plan: Plan) -> tuple[float, float]:
    """Bytes per second of frames for one GPU and one training process: compressed, and as they are."""
    agent = PackedAgent(folder)
    trace = write_trace(folder / "trace1.json", 1)
    out = folder / "frames"
    training = subprocess.Popen([sys.executable, "-c", WORK, TRAINING])
    config = {"gpu_trace": str(trace), "packed_lines": True, "pattern": TRAINING}
    try:
        with out.open("wb") as file, agent.watch(file.fileno(), **config):
            time.sleep(plan.wire)
    finally:
        training.kill()
        training.wait()
        agent.stop()
    _, _, stream = out.read_bytes().partition(b"\n")
    lines, sizes, packed = PackedLines(), [], []
    rest: bytes | None = stream
    while rest:
        before = len(rest)
        line, rest = lines.feed_data(rest)
        if line.startswith(b'{"t":"sample') and line.endswith(b"\n"):
            sizes.append(len(line))
            packed.append(before - len(rest or b""))
    if len(sizes) < 5:
        raise BenchmarkError(f"only {len(sizes)} samples came")
    # The first sample is like nothing before it, and the second has what needs two readings.
    return statistics.mean(packed[2:]), statistics.mean(sizes[2:])


WRITER = """
import sys, time
path, rate, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
line = "step %09d loss 3.2101 lr 0.00030 grad_norm 0.812 tok/s 41200\\n"
with open(path, "w") as file:
    begin, done = time.monotonic(), 0
    while True:
        now = time.monotonic() - begin
        due = int(min(now, seconds) * rate)
        file.write("".join(line % n for n in range(done, due)))
        file.flush()
        done = due
        if now >= seconds:
            break
        time.sleep(0.01)
print(done)
"""


class Counter:
    """What arrives at a client."""

    def __init__(self) -> None:
        self.lines = self.skipped = self.pid = 0
        self.sample = asyncio.Event()
        self.last = 0.0

    def take(self, frame: protocol.Frame) -> None:
        """Account for a frame."""
        if isinstance(frame, protocol.Hello):
            self.pid = frame.pid
        elif isinstance(frame, protocol.Sample):
            self.sample.set()
        elif isinstance(frame, protocol.LogLines):
            self.lines += len(frame.lines)
            self.skipped += frame.skipped
            self.last = time.monotonic()


@dataclass(frozen=True)
class Flood:
    """What came of a log that grows fast."""

    lines_per_s: float
    skipped: int
    cpu_percent: float


async def over_ssh(spec: BoxSpec, folder: Path, plan: Plan) -> tuple[list[float], Flood, Flood]:
    """Seconds to the first sample, and logs at 50,000 lines/s and as fast as they can be written."""
    bundle = build_agent()
    async with await connect(spec) as connection:
        deployed = await deploy_agent(connection, bundle, (sys.executable,))
        firsts = []
        try:
            for _ in range(plan.starts + 1):
                counter = Counter()
                begin = time.perf_counter()
                config = protocol.WatchConfig(packed_lines=True)
                channel = await open_channel(
                    connection,
                    deployed.build_command("watch"),
                    config,
                    counter.take,
                    lambda _: None,
                )
                await asyncio.wait_for(counter.sample.wait(), 20)
                firsts.append(time.perf_counter() - begin)
                channel.close()
            floods = []
            for rate in (50_000, 400_000):
                log = folder / f"flood-{rate}.log"
                counter = Counter()
                config = protocol.WatchConfig(packed_lines=True, logs=(str(log),))
                channel = await open_channel(
                    connection,
                    deployed.build_command("watch"),
                    config,
                    counter.take,
                    lambda _: None,
                )
                await asyncio.wait_for(counter.sample.wait(), 20)
                begin, before = time.monotonic(), cpu_seconds(counter.pid)
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    WRITER,
                    str(log),
                    str(rate),
                    str(plan.logs),
                    stdout=subprocess.PIPE,
                )
                written = int((await process.communicate())[0])
                deadline = time.monotonic() + 20
                while counter.lines + counter.skipped < written:
                    if time.monotonic() > deadline:
                        raise BenchmarkError(
                            f"of {written} lines {counter.lines} came, {counter.skipped} skipped"
                        )
                    await asyncio.sleep(0.02)
                used = (cpu_seconds(counter.pid) - before) / (counter.last - begin) * 100
                floods.append(Flood(counter.lines / (counter.last - begin), counter.skipped, used))
                channel.close()
        finally:
            await connection.run(deployed.build_command("record", "--stop"))
    return firsts[1:], floods[0], floods[1]


def run(quick: bool) -> list[Row]:
    """Measures every case."""
    plan = QUICK if quick else FULL
    tick = subprocess_tick_seconds()
    of = "a tick that starts a program"
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as name:
        folder = Path(name)
        say(f"{NAME}: recorder and watch, {plan.cpu:.0f} s at 1 Hz with 8 GPUs")
        recorder, watch, recorder_mib, watch_mib = steady_cost(folder, plan)
        say(f"{NAME}: the same among {CROWD} processes, one of them a training that nobody named")
        with crowd(folder / "crowd", CROWD):
            finding = steady_cost(folder, plan, find=True)
        say(f"{NAME}: {plan.hours} h of samples, accelerated")
        day = a_day(folder, plan)
        say(f"{NAME}: bytes on the wire")
        small, whole = wire(folder, plan)
        say(f"{NAME}: over a real sshd")
        with real_sshd(folder) as spec:
            firsts, steady, flood = asyncio.run(over_ssh(spec, folder, plan))
    per_tick = tick * 100
    return [
        Row(
            "cpu_percent",
            recorder + watch,
            "% of a core",
            (recorder + watch) / per_tick,
            of,
            goal=0.5,
        ),
        Row("cpu_percent_recorder", recorder, "% of a core", recorder / per_tick, of),
        Row("cpu_percent_watch", watch, "% of a core", watch / per_tick, of),
        Row(
            "cpu_percent_found",
            sum(finding[:2]),
            f"% of a core, {CROWD} processes, a training found",
        ),
        Row("rss_mib_found", max(finding[2:]), "MiB, the larger process"),
        Row("rss_mib", max(recorder_mib, watch_mib), "MiB, the larger process", goal=25),
        Row("rss_mib_both", recorder_mib + watch_mib, "MiB"),
        Row("rss_growth_24h", day["end"] - day["tenth"], f"MiB in {plan.hours:.0f} h, accelerated"),
        Row(
            "first_sample_ms",
            statistics.median(firsts) * 1000,
            "ms",
            statistics.median(firsts) / tick,
            of,
            goal=200,
        ),
        Row("wire_bytes_per_s", small, "B/s", small / whole, "whole frames", goal=400),
        Row("wire_bytes_per_s_full", whole, "B/s"),
        Row(
            "log_lines_per_s", flood.lines_per_s, f"lines/s, {flood.skipped:,} skipped and counted"
        ),
        Row(
            "log_cpu_percent_50k",
            steady.cpu_percent,
            "% of a core",
            steady.cpu_percent / per_tick,
            of,
        ),
        Row(
            "log_lines_per_s_50k",
            steady.lines_per_s,
            f"lines/s, {steady.skipped:,} skipped and counted",
        ),
        Row("subprocess_tick_ms", tick * 1000, "ms of CPU"),
    ]


if __name__ == "__main__":
    os.environ.pop("TMUX", None)
    sys.exit(main(NAME, run))
