"""The measured side: one process that does one thing to the simulated boxes, and says what it cost as JSON."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh
import msgspec

from rgt_tui.fleet import Fleet
from rgt_tui.health import HANDBOOK
from rgt_tui.model import BoxSpec, FleetState, LinkState, Sample

HEARTBEAT = 0.01
SETTLE = 3.0
"""Seconds after the last connection before anything is measured."""
CONNECT_WAIT = 120.0
CATCH_UP_WAIT = 60.0
CAUGHT_UP = 1.1
"""Samples a second that a box without a backlog sends at most."""


def cpu() -> float:
    """CPU seconds of this process and of the children that have ended."""
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def rss_kib() -> float:
    """Resident memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def spec(number: int, options: argparse.Namespace) -> BoxSpec:
    """How to reach a box: every one has an address of its own."""
    return BoxSpec(
        name=f"box{number:03d}",
        host=host(number),
        port=options.ports[number % len(options.ports)],
        user="root",
        identity=str(options.keys / "id"),
        known_hosts=str(options.keys / "known_hosts"),
    )


def host(number: int) -> str:
    """Loopback address of a box."""
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


class Lag:
    """How late the loop runs what is due."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def beat(self) -> None:
        """Note it until cancelled."""
        while True:
            due = time.perf_counter() + HEARTBEAT
            await asyncio.sleep(HEARTBEAT)
            self.late.append(time.perf_counter() - due)

    def p99_ms(self) -> float:
        """The 99th percentile, in milliseconds."""
        return statistics.quantiles(self.late, n=100)[98] * 1000


class Watched:
    """A running fleet of so many boxes."""

    def __init__(self, options: argparse.Namespace, count: int, audit: Path) -> None:
        self.fleet = Fleet([spec(n, options) for n in range(count)], audit=audit)
        self._live = asyncio.Event()
        self.fleet.subscribe(self._published)

    def _published(self, state: FleetState) -> None:
        if not self._live.is_set() and all(
            box.link is LinkState.LIVE and box.sample for box in state.boxes
        ):
            self._live.set()

    async def start(self) -> float:
        """Connect all; return the seconds until each has told something of itself."""
        begin = time.perf_counter()
        await self.fleet.start()
        try:
            async with asyncio.timeout(CONNECT_WAIT):
                await self._live.wait()
        except TimeoutError:
            boxes = self.fleet.state.boxes
            missing = next(box for box in boxes if box.link is not LinkState.LIVE)
            raise SystemExit(f"a box did not connect: {missing.reason}") from None
        return time.perf_counter() - begin

    async def catch_up(self) -> None:
        """Wait until each box's backlog has been received: only what it sends from now on is measured."""
        await asyncio.sleep(SETTLE)
        boxes = len(self.fleet.state.boxes)
        received = self.samples()
        async with asyncio.timeout(CATCH_UP_WAIT):
            while True:
                await asyncio.sleep(1.0)
                before, received = received, self.samples()
                if received - before <= CAUGHT_UP * boxes:
                    return

    def samples(self) -> int:
        """Samples received by all boxes."""
        return sum(box.counters.samples for box in self.fleet.state.boxes)

    def faults(self) -> int:
        """What went wrong on the wire."""
        counters = [box.counters for box in self.fleet.state.boxes]
        return sum(c.gaps + c.duplicates + c.bad_frames for c in counters)


async def warm_up(options: argparse.Namespace, audit: Path) -> None:
    """Load what is loaded late, and let each server find out what the deployment's commands say."""
    len(HANDBOOK)
    for _ in range(3):
        few = Watched(options, len(options.ports), audit)
        await few.start()
        await few.fleet.stop()


async def stream(options: argparse.Namespace, audit: Path) -> dict[str, float]:
    """The engine while all boxes stream, and what it holds of them."""
    await warm_up(options, audit)
    gc.collect()
    before = rss_kib()
    watched = Watched(options, options.boxes, audit)
    connect_s = await watched.start()
    await watched.catch_up()
    lag = Lag()
    beat = asyncio.create_task(lag.beat())
    begin, used, samples = time.perf_counter(), cpu(), watched.samples()
    await asyncio.sleep(options.seconds)
    seconds, used, samples = time.perf_counter() - begin, cpu() - used, watched.samples() - samples
    beat.cancel()
    gc.collect()
    rss = (rss_kib() - before) / options.boxes
    faults = watched.faults()
    await watched.fleet.stop()
    return {
        "percent": used / seconds * 100,
        "ms_per_sample": used / samples * 1000,
        "samples_per_s": samples / seconds,
        "rss_kib": rss,
        "lag_p99_ms": lag.p99_ms(),
        "connect_s": connect_s,
        "faults": faults,
    }


async def connect(options: argparse.Namespace, audit: Path) -> dict[str, float]:
    """Seconds until so many boxes are connected and have sent their first samples."""
    await warm_up(options, audit)
    watched = Watched(options, options.boxes, audit)
    lag = Lag()
    beat = asyncio.create_task(lag.beat())
    used = cpu()
    seconds = await watched.start()
    used = cpu() - used
    beat.cancel()
    refused = sum(
        box.link is not LinkState.LIVE or box.counters.connects > 1
        for box in watched.fleet.state.boxes
    )
    await watched.fleet.stop()
    return {"seconds": seconds, "not_at_once": refused, "cpu_s": used, "lag_p99_ms": lag.p99_ms()}


async def exec_per_tick(options: argparse.Namespace, audit: Path) -> dict[str, float]:
    """One asyncssh connection per box, one command per tick, as asyncssh comes."""
    gate = asyncio.Semaphore(10)
    decode = msgspec.json.Decoder(Sample).decode

    async def open_one(number: int) -> asyncssh.SSHClientConnection:
        box = spec(number, options)
        async with gate:
            return await asyncssh.connect(
                box.host, box.port or 22, username="root", client_keys=[box.identity],
                known_hosts=box.known_hosts, config=None, agent_path=None,
            )  # fmt: skip

    connections = await asyncio.gather(*(open_one(n) for n in range(options.boxes)))
    samples = 0

    async def poll(connection: asyncssh.SSHClientConnection, wait: float) -> None:
        nonlocal samples
        await asyncio.sleep(wait)
        while True:
            done = await connection.run("sample", encoding=None)
            assert isinstance(done.stdout, bytes)
            samples += bool(decode(done.stdout).boot)
            await asyncio.sleep(1.0)

    spread = [n / options.boxes for n in range(options.boxes)]
    tasks = [
        asyncio.create_task(poll(c, wait)) for c, wait in zip(connections, spread, strict=True)
    ]
    await asyncio.sleep(1.5)
    used, before = cpu(), samples
    await asyncio.sleep(options.seconds)
    used, polled = cpu() - used, samples - before
    for task in tasks:
        task.cancel()
    for connection in connections:
        connection.abort()
    return {"ms_per_sample": used / polled * 1000}


async def ssh_per_tick(options: argparse.Namespace, audit: Path) -> dict[str, float]:
    """An ``ssh`` process per tick, as it comes, against a real sshd that prints a recorded sample."""
    decode = msgspec.json.Decoder(Sample).decode
    command = [
        "ssh", "-F", "none", "-p", str(options.ports[0]), "-i", str(options.keys / "id"), "-o",
        "BatchMode=yes",
        "-o", f"UserKnownHostsFile={options.keys / 'known_hosts'}", "-o", "IdentitiesOnly=yes",
        f"{options.user}@127.0.0.1", f"cat {options.keys / 'sample.json'}",
    ]  # fmt: skip
    used = cpu()
    for _ in range(options.boxes):
        done = await asyncio.to_thread(
            subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"ssh: {done.stderr.decode(errors='replace').strip()}")
        decode(done.stdout)
    return {"ms_per_sample": (cpu() - used) / options.boxes * 1000}


CASES: dict[str, Callable[[argparse.Namespace, Path], Awaitable[dict[str, float]]]] = {
    "stream": stream,
    "connect": connect,
    "exec": exec_per_tick,
    "ssh": ssh_per_tick,
}


async def measured(options: argparse.Namespace, audit: Path) -> dict[str, float]:
    """Run the case that is asked for."""
    return await CASES[options.case](options, audit)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_client")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument(
        "--ports", type=lambda text: [int(word) for word in text.split(",")], required=True
    )
    parser.add_argument("--boxes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--user", default="root")
    options = parser.parse_args()
    factory = None
    if options.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with (
        tempfile.TemporaryDirectory(prefix="rgt-bench-") as folder,
        asyncio.Runner(loop_factory=factory) as runner,
    ):
        found = runner.run(measured(options, Path(folder) / "audit.jsonl"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
