"""What a checkpoint costs the training, how soon it is safe, and what it takes to know that it is whole.

Every method saves the same 500 MB state (a language model with AdamW) inside the same training
loop, in a process of its own; the methods take turns, forwards and backwards, and before each turn
the disk finishes what was written before. A ratio is that of two turns of one round, and the median
over the rounds: whatever else the machine does meets both. *Read back* is the same guarantee for
    both sides: fsynced, checksums, and every byte read again. Stall: the
training thread stood still. Total: all the time the steps from the save until it was on the disk
    took longer than
usual, the stall included. Durable: from the call until the last fsync. All is measured from outside
    the saving.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import BenchmarkError, Row, main, say

NAME = "checkpoint"
ROOT = Path(__file__).resolve().parent.parent
METHODS = (
    "naive", "atomic", "dcp", "dcp_async", "dcp_async_reused", "dcp_async_staging",
    "dcp_async_process",
    "dcp_async_read_back", "ours", "ours_read_back",
)  # fmt: skip
WATCHED = ("ours", "dcp_async_reused")
"""Methods whose memory is looked at, in a full run (the quick one's state is too small to tell)."""
FLIPS = 20
HEADERS = 4096
"""Bytes at the start of a file in which `torch.load` does notice some flips: looked at apart."""


@dataclass(frozen=True)
class Measured:
    """What one method took, medians in seconds, and its extra memory as a multiple of the state.

    `rounds` has (stall, total, durable) of each round.
    """

    stall: float
    total: float
    durable: float
    memory: float
    rounds: tuple[tuple[float, float, float], ...]

    def ratio_to(self, other: Measured, what: int) -> float:
        """Return the median over the rounds of `what` (an index into them) by that of `other`."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return statistics.median(mine[what] / theirs[what] for mine, theirs in pairs)


STALL, TOTAL, DURABLE = range(3)


def measure(rounds: int, saves: int, size: tuple[int, int], folder: Path) -> dict[str, Measured]:
    """Run the loop with each method in turn, and those that are watched once more to look at the memory.

    Args:
        rounds: How often each method's turn comes.
        saves: How many are timed in a turn.
        size: Width and layers of the model.
        folder: Where to save.
    """
    taken: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for number in range(rounds):
        for method in METHODS if number % 2 == 0 else reversed(METHODS):
            taken[method].append(_loop(method, saves, size, folder))
    found = {}
    for method, turns in taken.items():
        if method in WATCHED and rounds > 1:
            watched = _loop(method, 2, size, folder, "memory")
        else:
            watched = {}
        medians = [_medians(turn) for turn in turns]
        stall, total, durable = (statistics.median(column) for column in zip(*medians, strict=True))
        cost = found[method] = Measured(
            stall, total, durable, watched.get("memory", 0) / turns[0]["bytes"], tuple(medians)
        )
        say(
            f"{method}: stall {1000 * cost.stall:.1f} ms, total {1000 * cost.total:.0f} ms, "
            f"durable {1000 * cost.durable:.0f} ms (medians of {rounds} rounds of {saves} saves; "
            f"totals of the rounds {', '.join(f'{1000 * one[TOTAL]:.0f}' for one in medians)}; "
            f"step {1000 * turns[0]['step']:.0f} ms, state {turns[0]['bytes'] / 1e6:.0f} MB, load "
            f"{os.getloadavg()[0]:.1f})"
        )
    return found


def _medians(turn: dict[str, Any]) -> tuple[float, float, float]:
    stall, total, durable = (
        statistics.median(turn[what]) for what in ("stall", "total", "durable")
    )
    return stall, max(total, stall), durable  # the stall is a part of it: less is noise


def settle(most_s: float = 30.0, most_kb: int = 8192) -> None:
    """Wait until the disk has written what earlier turns left in the page cache."""
    os.sync()
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        lines = Path("/proc/meminfo").read_text().splitlines()
        waiting = [
            int(line.split()[1]) for line in lines if line.startswith(("Dirty:", "Writeback:"))
        ]
        if sum(waiting) <= most_kb:
            return
        time.sleep(0.1)


def _loop(
    method: str, saves: int, size: tuple[int, int], folder: Path, *more: str
) -> dict[str, Any]:
    settle()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        words = [method, place, str(saves), *map(str, size), *more]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'remote'}{os.pathsep}{ROOT}",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.checkpoint_loop", *words],
            env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise BenchmarkError(f"{method} ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


LOADS = """
import sys, time
import torch
from rgt_train.checkpoint import LoadedCheckpoint, manifest

kind, path = sys.argv[1:]
work = {
    "torch": lambda: torch.load(path, weights_only=True),
    "verify": lambda: manifest.verify_checkpoint(path),
    "alone": lambda: manifest.verify_checkpoint(path, threads=1),
    "load": lambda: LoadedCheckpoint(path),
}[kind]
begin = time.perf_counter()
loaded = work()
print(time.perf_counter() - begin)
"""


def time_loads(paths: dict[str, Path], times: int) -> dict[str, list[float]]:
    """Seconds of each way to load, in rounds that they take turns in, after one to warm up the page cache.

    Each is the first load of a process, as after a kill. In one process the memory of an earlier
    load is sometimes used again, for which the kernel need not give pages, and sometimes not: the
    same load then differs severalfold.
    """
    taken: dict[str, list[float]] = {name: [] for name in paths}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "remote")}
    for number in range(times + 1):
        for name, path in paths.items():
            command = [sys.executable, "-c", LOADS, name, str(path)]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise BenchmarkError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
            if number:
                taken[name].append(float(done.stdout))
    return taken


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """The file with one bit flipped."""

    def flip() -> None:
        with path.open("r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))

    flip()
    try:
        yield
    finally:
        flip()


def finds(path: Path, load: Callable[[], Any], draw: random.Random, first: int, end: int) -> int:
    """How many of `FLIPS` single flipped bits between two bytes `load` complains about."""
    found = 0
    for _ in range(FLIPS):
        with flipped(path, draw.randrange(8 * first, 8 * end)):
            try:
                load()
            except Exception:
                found += 1
    return found


def verifying(megabytes: int, times: int, folder: Path) -> list[Row]:
    """Looking at every byte, beside `torch.load`."""
    import torch

    sys.path.insert(0, str(ROOT / "remote"))
    from rgt_train.checkpoint import manifest
    from rgt_train.checkpoint.safetensors import MODEL_FILE, STATE_FILE, write_tensors

    state = {f"weight{n}": torch.rand(1_000_000) for n in range(megabytes // 4)}
    plain = folder / "plain.pt"
    torch.save(state, plain)
    ours = folder / "ours"
    ours.mkdir()
    shutil.copy(plain, ours / "model")
    with (ours / "model").open("rb") as file:
        facts = {"model": manifest.file_facts(memoryview(file.read()))}
    (ours / "manifest.json").write_bytes(manifest.build_manifest(1, facts, {}))
    tensors = folder / "tensors"
    tensors.mkdir()
    write_tensors(tensors / MODEL_FILE, state, {})
    (tensors / STATE_FILE).write_text("{}")
    both = {
        file.name: manifest.file_facts(memoryview(file.read_bytes()))
        for file in (tensors / MODEL_FILE, tensors / STATE_FILE)
    }
    (tensors / "manifest.json").write_bytes(manifest.build_manifest(1, both, {}))
    taken = time_loads({"torch": plain, "verify": ours, "alone": ours, "load": tensors}, times)

    def compared(case: str, name: str, goal: float | None = None) -> Row:
        pairs = zip(taken[name], taken["torch"], strict=True)
        ratio = statistics.median(mine / theirs for mine, theirs in pairs)
        value = statistics.median(taken[name]) * 1000
        return Row(case, value, "ms", ratio, "torch.load", ratio_goal=goal)

    size = plain.stat().st_size
    weights, headers = (HEADERS, size - 64 * HEADERS), (0, HEADERS)

    def theirs(place: tuple[int, int]) -> int:
        return finds(plain, lambda: torch.load(plain, weights_only=True), random.Random(1), *place)

    def mine(place: tuple[int, int]) -> int:
        return finds(
            ours / "model", lambda: manifest.verify_checkpoint(ours), random.Random(1), *place
        )

    return [
        compared("verify_over_torch_load", "verify", 0.3),
        compared("verify_one_thread", "alone"),
        compared("verified_load_over_torch_load", "load", 1.2),
        Row("flips_missed", FLIPS - mine(weights), f"of {FLIPS} in the weights", goal=0),
        Row("flips_missed_by_torch_load", FLIPS - theirs(weights), f"of {FLIPS} in the weights"),
        Row("flips_missed_in_headers", FLIPS - mine(headers), f"of {FLIPS}", goal=0),
        Row("flips_missed_in_headers_by_torch_load", FLIPS - theirs(headers), f"of {FLIPS}"),
    ]


def run(quick: bool) -> list[Row]:
    """Measure all methods."""
    rounds, saves, size = (3, 2, (256, 4)) if quick else (4, 3, (656, 6))
    base = Path(os.environ.get("RGT_BENCH_DIR", tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="rgt-bench-", dir=base) as place:
        found = measure(rounds, saves, size, Path(place))
        rows = verifying(100 if quick else 500, 5 if quick else 9, Path(place))
    ours, atomic = found["ours"], found["atomic"]
    names = [name for name in METHODS if name.startswith("dcp_async") and "read" not in name]
    modes = {name: found[name] for name in names}
    cheapest = min(modes, key=lambda name: modes[name].total)
    soonest = min(modes, key=lambda name: modes[name].durable)
    table = [
        row
        for name, cost in found.items()
        for row in (
            Row(f"stall_{name}", cost.stall * 1000, "ms"),
            Row(f"total_{name}", cost.total * 1000, "ms"),
            Row(f"durable_{name}", cost.durable * 1000, "ms"),
        )
    ]
    same, theirs = found["ours_read_back"], found["dcp_async_read_back"]

    def compared(
        case: str, mine: Measured, other: Measured, what: int, of: str, goal: float
    ) -> Row:
        value = (mine.stall, mine.total, mine.durable)[what] * 1000
        return Row(case, value, "ms", mine.ratio_to(other, what), of, ratio_goal=goal)

    best = ", its best mode"
    return [
        *table,
        compared("stall_ours_over_atomic", ours, atomic, STALL, "atomic", 0.02),
        compared("total_ours_over_atomic", ours, atomic, TOTAL, "atomic", 0.17),
        compared("total_ours_over_dcp_async", ours, modes[cheapest], TOTAL, cheapest + best, 0.5),
        compared("durable_ours_over_dcp_async", ours, modes[soonest], DURABLE, soonest + best, 0.5),
        compared("same_guarantee_total", same, theirs, TOTAL, "dcp_async_read_back", 0.5),
        compared("same_guarantee_durable", same, theirs, DURABLE, "dcp_async_read_back", 0.5),
        *rows,
        Row("load_average", os.getloadavg()[0], "runnable"),
        *(
            Row(
                f"extra_memory_{name}",
                found[name].memory,
                "x state",
                goal=1.1 if name == "ours" else None,
            )
            for name in (() if quick else WATCHED)
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
