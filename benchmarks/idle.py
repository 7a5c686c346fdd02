"""What the dashboard costs while a person only looks: CPU and bytes to the terminal, three boxes at 1 Hz.

The demo's fleet runs in a process of its own, so that only the dashboard is measured. The same
engine drawn with a plain DataTable watches the same fleet at the same time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.product import HEADER, READING, last_words, rgt
from benchmarks.report import BenchmarkError, Row, main, say
from benchmarks.terminal import Terminal, cpu_seconds
from rgt_tui.profiles import all_profiles, mark_seen

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


QUICK, FULL = Plan(5, 15), Plan(10, 45)


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


def who_knows_the_platforms(home: Path) -> dict[str, str]:
    """The environment of a person who was shown each platform's page: else the first of them hides the fleet."""
    env = {f"XDG_{what}_HOME": str(home) for what in ("STATE", "CONFIG")}
    for profile in all_profiles().values():
        mark_seen(profile, time.time(), env)
    return env


@contextlib.contextmanager
def shown(command: Sequence[str], home: Mapping[str, str]) -> Iterator[Terminal]:
    """A program in a terminal, once it shows readings."""
    with Terminal(command, {"PYTHONPATH": str(ROOT), **home}) as terminal:
        for pattern in (HEADER, READING):
            if terminal.wait_for(pattern, 45) is None:
                words = last_words(terminal.text())
                raise BenchmarkError(f"{command[0]} did not show {pattern!r}; it painted:\n{words}")
        yield terminal


def costs(terminals: Sequence[Terminal], plan: Plan) -> list[Cost]:
    """What each program costs, all in the same span of time: what there is to draw changes as training goes on."""
    time.sleep(plan.warm_up)
    say(f"{NAME}: measuring for {plan.measure:.0f} s")
    begin = time.monotonic()
    before = [(cpu_seconds(terminal.pid), terminal.written) for terminal in terminals]
    time.sleep(plan.measure)
    found = []
    for terminal, (cpu, written) in zip(terminals, before, strict=True):
        if not terminal.running:
            raise BenchmarkError(
                f"a program ended while it was measured:\n{last_words(terminal.text())}"
            )
        seconds = time.monotonic() - begin
        painted = terminal.written - written
        if painted == 0:
            raise BenchmarkError(
                f"nothing was painted in {seconds:.0f} s: no live values are shown"
            )
        found.append(Cost((cpu_seconds(terminal.pid) - cpu) / seconds * 100, painted / seconds))
    return found


def run(quick: bool) -> list[Row]:
    """Measures the dashboard and the plain table on the same fleet, at the same time."""
    plan = QUICK if quick else FULL
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rgt-bench-")))
        fleet = stack.enter_context(embedded_fleet(folder))
        home = who_knows_the_platforms(folder / "home")
        ours, plain = costs(
            [
                stack.enter_context(shown([rgt(), "--fleet", str(fleet)], home)),
                stack.enter_context(
                    shown([sys.executable, "-m", "benchmarks.plain_table", str(fleet)], home)
                ),
            ],
            plan,
        )
    of = "the same engine drawn with DataTable"
    return [
        Row(
            "cpu_percent",
            ours.cpu_percent,
            "% of a core",
            ours.cpu_percent / plain.cpu_percent,
            of,
            goal=3,
        ),
        Row(
            "bytes_per_s",
            ours.bytes_per_s,
            "B/s",
            ours.bytes_per_s / plain.bytes_per_s,
            of,
            goal=3000,
        ),
        Row("plain_cpu_percent", plain.cpu_percent, "% of a core"),
        Row("plain_bytes_per_s", plain.bytes_per_s, "B/s"),
    ]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
