"""What the dashboard costs while a person only looks: CPU and bytes to the terminal, three boxes at 1 Hz.

The demo's fleet runs in a process of its own, so that only the dashboard is measured. A plain DataTable with
as many values is measured in the same way, right after and beside the same fleet.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.product import HEADER, READING, last_words, rgt
from benchmarks.report import BenchmarkError, Row, main, say
from benchmarks.terminal import Terminal, cpu_seconds

NAME = "idle"

ROOT = Path(__file__).resolve().parent.parent

FLEET_WAIT = 60.0
"""Seconds for the embedded fleet to write its description."""


@dataclass(frozen=True)
class Cost:
    """What a program used in a second."""

    cpu_percent: float
    bytes_per_s: float


@dataclass(frozen=True)
class Plan:
    """How long to warm up and to measure."""

    warm_up: float
    measure: float


QUICK, FULL = Plan(5, 10), Plan(15, 60)


@contextlib.contextmanager
def embedded_fleet(folder: Path) -> Iterator[Path]:
    """The demo's fleet without a dashboard; gives the file that describes it."""
    description = folder / "fleet.toml"
    output = folder / "fleet.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [rgt(), "demo", "--fleet-only", "--write-fleet", str(description)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + FLEET_WAIT
        while not (description.exists() and description.stat().st_size):
            if process.poll() is not None or time.monotonic() > deadline:
                words = last_words(output.read_text(encoding="utf-8", errors="replace"))
                raise BenchmarkError(f"the embedded fleet did not come up; it said:\n{words}")
            time.sleep(0.05)
        yield description
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the fleet as Ctrl-C does; it takes its boxes with it."""
    for number, seconds in ((signal.SIGINT, 20), (signal.SIGTERM, 10)):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def cost_of(command: Sequence[str], plan: Plan, shown: str, beat: Callable[[str], None] = say) -> Cost:
    """Runs a program in a terminal, waits until it shows readings, warms up and measures."""
    environment = {"PYTHONPATH": str(ROOT)}
    with Terminal(command, environment) as terminal:
        for pattern in (HEADER, shown):
            if terminal.wait_for(pattern, 45) is None:
                raise BenchmarkError(
                    f"{command[0]} did not show {pattern!r}; it painted:\n{last_words(terminal.text())}"
                )
        time.sleep(plan.warm_up)
        beat(f"{NAME}: measuring {Path(command[0]).name} for {plan.measure:.0f} s")
        begin, cpu, written = time.monotonic(), cpu_seconds(terminal.pid), terminal.written
        time.sleep(plan.measure)
        if not terminal.running:
            raise BenchmarkError(f"{command[0]} ended while it was measured:\n{last_words(terminal.text())}")
        seconds = time.monotonic() - begin
        cost = Cost(
            (cpu_seconds(terminal.pid) - cpu) / seconds * 100,
            (terminal.written - written) / seconds,
        )
    if cost.bytes_per_s == 0:
        raise BenchmarkError(f"{command[0]} painted nothing in {seconds:.0f} s: it does not show live values")
    return cost


def run(quick: bool) -> list[Row]:
    """Measures the dashboard, then the plain table."""
    plan = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as folder, embedded_fleet(Path(folder)) as fleet:
        ours = cost_of([rgt(), "--fleet", str(fleet)], plan, READING)
        plain = cost_of([sys.executable, "-m", "benchmarks.plain_table"], plan, READING)
    of = "DataTable, cell by cell"
    return [
        Row("cpu_percent", ours.cpu_percent, "% of a core", ours.cpu_percent / plain.cpu_percent, of),
        Row("bytes_per_s", ours.bytes_per_s, "B/s", ours.bytes_per_s / plain.bytes_per_s, of),
        Row("plain_cpu_percent", plain.cpu_percent, "% of a core"),
        Row("plain_bytes_per_s", plain.bytes_per_s, "B/s"),
    ]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
