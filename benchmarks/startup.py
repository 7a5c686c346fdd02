"""How long a person waits for `rgt demo`: until the first painted frame, and the first reading of a box."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.product import HEADER, READING, TRACE, last_words, read_trace, rgt
from benchmarks.report import BenchmarkError, Row, main, say
from benchmarks.terminal import Terminal

NAME = "startup"

BASE = "import textual.app"
"""The floor: what a Textual program has to load before it can paint anything."""

LATE = ("torch", "numpy", "asyncssh", "httpx")
"""Libraries that the first frame must not wait for."""

FRAME_WAIT, SAMPLE_WAIT = 30.0, 60.0


@dataclass(frozen=True)
class Start:
    """One start of the demo, seconds from the start of the process."""

    frame: float
    sample: float | None
    early: tuple[str, ...] | None
    """The late libraries that were loaded before the first frame; None when the program did not
    say.
    """


def base_seconds() -> float:
    """One run of the floor."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", BASE], check=True)
    return time.perf_counter() - start


def shows_a_sample(terminal: Terminal, trace: Path) -> bool:
    """Whether a reading is on the screen: the program's word where it keeps a trace, else what it painted."""
    events = read_trace(trace)
    if events:
        return "first-sample" in events
    return re.search(READING, terminal.text()) is not None


def start_once(command: Sequence[str], wait_for_sample: bool) -> Start:
    """Starts the demo in a terminal, waits for what is measured, and ends it."""
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as folder:
        trace = Path(folder) / "trace.jsonl"
        with Terminal(command, {TRACE: str(trace)}) as terminal:
            frame = terminal.wait_for(HEADER, FRAME_WAIT)
            if frame is None:
                words = last_words(terminal.text())
                raise BenchmarkError(
                    f"no frame within {FRAME_WAIT:.0f} s; the program painted:\n{words}"
                )
            sample = None
            if wait_for_sample:
                painted = terminal.wait_until(
                    lambda: shows_a_sample(terminal, trace), SAMPLE_WAIT, every=0.02
                )
                if painted is None:
                    words = last_words(terminal.text())
                    raise BenchmarkError(
                        f"no sample within {SAMPLE_WAIT:.0f} s; the program painted:\n{words}"
                    )
                told = read_trace(trace).get("first-sample")
                sample = told.at if told else painted
            first = read_trace(trace).get("first-frame")
            if first:
                modules = first.fields.get("modules")
            else:
                modules = None
            if isinstance(modules, list):
                early = tuple(name for name in LATE if name in modules)
            else:
                early = None
            started = terminal.started
    return Start(frame - started, sample - started if sample else None, early)


def run(quick: bool) -> list[Row]:
    """Starts the demo a few times, each time beside the floor."""
    command = [rgt(), "demo"]
    deadline = time.monotonic() + (35 if quick else 600)
    rounds = 3 if quick else 9
    base: list[float] = []
    starts: list[Start] = []
    (
        base_seconds(),
        start_once(command, wait_for_sample=False),
    )  # brings the files into memory, compiled
    for turn in range(rounds):
        if starts and time.monotonic() > deadline:
            break
        base.append(base_seconds())
        starts.append(start_once(command, wait_for_sample=True))
        say(f"{NAME}: {turn + 1} of {rounds}: first frame {starts[-1].frame:.2f} s")
    floor = statistics.median(base)
    frame = statistics.median(start.frame for start in starts)
    samples = [start.sample for start in starts if start.sample is not None]
    of = f'python -c "{BASE}"'
    rows = [
        Row("first_frame", frame * 1000, "ms", frame / floor, of, ratio_goal=1.25),
        Row(
            "first_sample",
            statistics.median(samples) * 1000,
            "ms",
            statistics.median(samples) / floor,
            of,
        ),
        Row("import_textual", floor * 1000, "ms"),
    ]
    told = [start.early for start in starts if start.early is not None]
    if told:
        early = sorted({name for names in told for name in names})
        say(
            f"{NAME}: loaded before the first frame: {', '.join(early) or 'none'} of "
            f"{', '.join(LATE)}"
        )
        rows.append(Row("late_libraries_before_first_frame", len(early), "modules"))
    else:
        say(f"{NAME}: the program did not tell which modules it had loaded at its first frame")
    return rows


if __name__ == "__main__":
    sys.exit(main(NAME, run))
