"""What watching 500 boxes costs the client: CPU, memory, lag of its loop, time to connect; and what others cost.

The boxes are simulated by asyncssh servers in other processes (`benchmarks.fleet_boxes` says what
of them is real); the client is the real engine. CPU counts, not the clock: servers and client share
the machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent_box import real_sshd
from benchmarks.fleet_client import host
from benchmarks.fleet_recording import Recording, record
from benchmarks.report import BenchmarkError, Row, main, say

NAME = "fleet"
BOXES = 500
CONNECT = 100
GPUS = (1, 1, 8)
"""Of every three boxes one has eight GPUs."""


@dataclass(frozen=True)
class Plan:
    """How long each case takes."""

    recorded: float
    """Seconds between the recorded samples."""
    stream: float
    connects: int
    """Repetitions."""
    execs: int
    """Boxes of the exec poller."""
    exec_s: float
    sshs: int
    """Calls of ssh."""


QUICK, FULL = Plan(0.15, 8, 1, 30, 4, 10), Plan(1.0, 30, 5, 100, 15, 40)


class Boxes:
    """A process full of simulated boxes."""

    def __init__(
        self, keys: Path, home: Path, recordings: Sequence[Path], *, far: bool = False
    ) -> None:
        words = [
            sys.executable,
            "-m",
            "benchmarks.fleet_boxes",
            "--keys",
            str(keys),
            "--home",
            str(home),
        ]
        words += ["--far"] if far else []
        self._process = subprocess.Popen(
            [*words, *map(str, recordings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._said() or 0)

    def _said(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the simulated boxes ended with {self._process.wait()}")
        return line

    def _asked(self, words: str = "") -> dict[str, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._said())
        return found

    def refused(self) -> int:
        """Connections that were refused because too many had not logged in."""
        return self._asked()["refused"]

    def live(self) -> int:
        """Boxes that send samples."""
        return self._asked()["live"]

    def move(self, round_trip: float) -> None:
        """Put them so far away, in seconds; they must have been made for that."""
        self._asked(f"{round_trip / 2}")

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def keygen(path: Path) -> None:
    """Make a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@contextlib.contextmanager
def simulated(
    folder: Path, recordings: Sequence[Path], processes: int, *, far: bool = False
) -> Iterator[list[Boxes]]:
    """Servers, and in `folder` the keys and the known_hosts for all their boxes."""
    keygen(folder / "host_key")
    keygen(folder / "id")
    boxes = [Boxes(folder, folder / f"home{n}", recordings, far=far) for n in range(processes)]
    try:
        key = (folder / "host_key.pub").read_text().strip()
        lines = [f"[{host(n)}]:{boxes[n % processes].port} {key}" for n in range(BOXES)]
        (folder / "known_hosts").write_text("\n".join(lines) + "\n")
        yield boxes
    finally:
        for box in boxes:
            box.stop()


def client(
    case: str, keys: Path, ports: Sequence[int], boxes: int, **more: object
) -> dict[str, float]:
    """Run a case in a process of its own."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.fleet_client",
        case,
        "--keys",
        str(keys),
        "--boxes",
        str(boxes),
    ]
    words += ["--ports", ",".join(map(str, ports))]
    for name, value in more.items():
        words += [f"--{name}", str(value)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{case}: the client ended with {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def recorded(folder: Path, interval: float) -> list[Path]:
    """What real agents send, one after the other in time of the slowest."""
    folders = {gpus: folder / f"gpus{gpus}" for gpus in set(GPUS)}
    for path in folders.values():
        path.mkdir()
    with ThreadPoolExecutor() as pool:
        jobs = {gpus: pool.submit(record, path, gpus, interval) for gpus, path in folders.items()}
        return [jobs[gpus].result() for gpus in GPUS]


def by_ssh(folder: Path, recording: Path, plan: Plan) -> float:
    """CPU milliseconds of a sample by one ``ssh`` process each."""
    folder.mkdir()
    with real_sshd(folder) as spec:
        (folder / "sample.json").write_bytes(Recording(recording).whole(1))
        found = client("ssh", folder, [spec.port or 22], plan.sshs, user=spec.user)
    return found["ms_per_sample"]


def connecting(
    folder: Path, recordings: Sequence[Path], plan: Plan, loop: str
) -> tuple[float, int, float]:
    """Median seconds to connect to 100 boxes behind one sshd's MaxStartups; how many were refused; loop lag."""
    found, refused = [], 0
    with simulated(folder, recordings, 1) as boxes:
        for _ in range(plan.connects):
            found.append(client("connect", folder, [boxes[0].port], CONNECT, loop=loop))
        refused = boxes[0].refused()
    found.sort(key=lambda item: item["seconds"])
    middle = found[len(found) // 2]
    return middle["seconds"], refused, middle["lag_p99_ms"]


def run(quick: bool) -> list[Row]:
    """Measure everything; the loop is uvloop where it is installed, and asyncio's own beside it."""
    plan = QUICK if quick else FULL
    fast = importlib.util.find_spec("uvloop") is not None
    loop = "uvloop" if fast else "asyncio"
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as name:
        folder = Path(name)
        say(f"{NAME}: recording what a real agent sends")
        recordings = recorded(folder, plan.recorded)
        (folder / "many").mkdir()
        (folder / "one").mkdir()
        with simulated(folder / "many", recordings, 2) as boxes:
            ports = [item.port for item in boxes]
            say(f"{NAME}: {BOXES} boxes stream for {plan.stream:.0f} s")
            streams = {
                kind: client(
                    "stream", folder / "many", ports, BOXES, seconds=plan.stream, loop=kind
                )
                for kind in ((loop, "asyncio") if fast and not quick else (loop,))
            }
            say(f"{NAME}: exec per tick")
            polled = client(
                "exec", folder / "many", ports, plan.execs, seconds=plan.exec_s, loop=loop
            )
        say(f"{NAME}: connecting to {CONNECT} boxes")
        connect_s, refused, connect_lag = connecting(folder / "one", recordings, plan, loop)
        say(f"{NAME}: ssh per tick")
        ssh_ms = by_ssh(folder / "ssh", recordings[0], plan)
    return rows(streams, loop, polled["ms_per_sample"], ssh_ms, connect_s, refused, connect_lag)


def rows(
    streams: dict[str, dict[str, float]],
    loop: str,
    exec_ms: float,
    ssh_ms: float,
    connect_s: float,
    refused: int,
    connect_lag: float,
) -> list[Row]:
    """The table."""
    best = streams[loop]
    if best["faults"] or best["samples_per_s"] < 0.95 * BOXES:
        raise BenchmarkError(
            f"{best['faults']:.0f} faults, {best['samples_per_s']:.0f} samples/s: not what was sent"
        )
    stream_ms = best["ms_per_sample"]
    found = [
        Row("engine_percent_of_core_500", best["percent"], "% of a core", goal=12),
        Row("stream_ms_per_box_sample", stream_ms, "ms"),
        Row("rss_kib_per_box", best["rss_kib"], "KiB", goal=60),
        Row("loop_lag_p99_ms", best["lag_p99_ms"], "ms", goal=20),
        Row("connect_100_s", connect_s, "s", goal=2),
        Row("connect_100_refused", refused, "boxes", goal=0),
        Row("connect_100_lag_p99_ms", connect_lag, "ms"),
        Row("connect_500_s", best["connect_s"], "s"),
        Row("exec_per_tick_over_stream", exec_ms / stream_ms, "×"),
        Row("exec_per_tick_ms_per_box_sample", exec_ms, "ms"),
        Row("ssh_per_tick_over_stream", ssh_ms / stream_ms, "×"),
        Row("ssh_per_tick_ms_per_box_sample", ssh_ms, "ms"),
    ]
    if loop != "asyncio" and "asyncio" in streams:
        plain = streams["asyncio"]
        found += [
            Row("engine_percent_of_core_500_asyncio", plain["percent"], "% of a core"),
            Row("rss_kib_per_box_asyncio", plain["rss_kib"], "KiB"),
            Row("loop_lag_p99_ms_asyncio", plain["lag_p99_ms"], "ms"),
        ]
    return found


if __name__ == "__main__":
    sys.exit(main(NAME, run))
