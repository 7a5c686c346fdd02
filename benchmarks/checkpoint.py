"""What a checkpoint costs the training, how soon it is safe, and what it takes to know that it is whole.

Every method saves the same 500 MB state (a language model with AdamW) inside the same training loop, in a process of
its own; the methods take turns, forwards and backwards, so that a disk that gets slower meets all of them. Stall: the
training thread stood still. Total: all the time the steps from the save until it was on the disk took longer than
usual, the stall included. Durable: from the call until the last fsync. All is measured from outside the saving.
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
    "naive", "atomic", "dcp", "dcp_async", "dcp_async_reused", "dcp_async_staging", "dcp_async_process", "ours",
)  # fmt: skip
WATCHED = ("ours", "dcp_async_reused")
"""Methods whose memory is looked at, in a full run (the quick one's state is too small to tell)."""
FLIPS = 20
HEADERS = 4096
"""Bytes at the start of a file in which `torch.load` does notice some flips: looked at apart."""


@dataclass(frozen=True)
class Measured:
    """What one method took, medians in seconds, and its extra memory as a multiple of the state."""

    stall: float
    total: float
    durable: float
    memory: float


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
        stall, total, durable = (
            [value for turn in turns for value in turn[what]]
            for what in ("stall", "total", "durable")
        )
        cost = found[method] = Measured(
            statistics.median(stall),
            max(
                statistics.median(total), statistics.median(stall)
            ),  # which is a part of it: less is noise
            statistics.median(durable),
            watched.get("memory", 0) / turns[0]["bytes"],
        )
        say(
            f"{method}: stall {1000 * cost.stall:.1f} ms, total {1000 * cost.total:.0f} ms, durable "
            f"{1000 * cost.durable:.0f} ms (medians of {len(stall)}, {len(total)}, {len(durable)}; step "
            f"{1000 * turns[0]['step']:.0f} ms, state {turns[0]['bytes'] / 1e6:.0f} MB)"
        )
    return found


def _loop(
    method: str, saves: int, size: tuple[int, int], folder: Path, *more: str
) -> dict[str, Any]:
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


def median_of(work: Callable[[], Any], times: int) -> float:
    """Median seconds of `work`, after one run to warm up."""
    work()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


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

    state = {f"weight{n}": torch.rand(1_000_000) for n in range(megabytes // 4)}
    plain = folder / "plain.pt"
    torch.save(state, plain)
    ours = folder / "ours"
    ours.mkdir()
    shutil.copy(plain, ours / "model")
    with (ours / "model").open("rb") as file:
        facts = {"model": manifest.file_facts(memoryview(file.read()))}
    (ours / "manifest.json").write_bytes(manifest.build_manifest(1, facts, {}))
    loading = median_of(lambda: torch.load(plain, weights_only=True), times)
    checking = median_of(lambda: manifest.verify_checkpoint(ours), times)
    alone = median_of(lambda: manifest.verify_checkpoint(ours, threads=1), times)
    size = plain.stat().st_size
    weights, headers = (HEADERS, size - 64 * HEADERS), (0, HEADERS)

    def theirs(place: tuple[int, int]) -> int:
        return finds(plain, lambda: torch.load(plain, weights_only=True), random.Random(1), *place)

    def mine(place: tuple[int, int]) -> int:
        return finds(
            ours / "model", lambda: manifest.verify_checkpoint(ours), random.Random(1), *place
        )

    return [
        Row(
            "verify_over_torch_load",
            checking * 1000,
            "ms",
            checking / loading,
            "torch.load",
            ratio_goal=0.25,
        ),
        Row("verify_one_thread", alone * 1000, "ms", alone / loading, "torch.load"),
        Row("flips_missed", FLIPS - mine(weights), f"of {FLIPS} in the weights", goal=0),
        Row("flips_missed_by_torch_load", FLIPS - theirs(weights), f"of {FLIPS} in the weights"),
        Row("flips_missed_in_headers", FLIPS - mine(headers), f"of {FLIPS}", goal=0),
        Row("flips_missed_in_headers_by_torch_load", FLIPS - theirs(headers), f"of {FLIPS}"),
    ]


def run(quick: bool) -> list[Row]:
    """Measure all methods."""
    rounds, saves, size = (1, 3, (256, 4)) if quick else (2, 4, (656, 6))
    base = Path(os.environ.get("RGT_BENCH_DIR", tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="rgt-bench-", dir=base) as place:
        found = measure(rounds, saves, size, Path(place))
        rows = verifying(100 if quick else 500, 5 if quick else 9, Path(place))
    ours, atomic = found["ours"], found["atomic"]
    modes = {name: cost for name, cost in found.items() if name.startswith("dcp_async")}
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
    total, other = ours.total, modes[cheapest].total
    return [
        *table,
        Row(
            "stall_ours_over_atomic",
            ours.stall * 1000,
            "ms",
            ours.stall / atomic.stall,
            "atomic",
            ratio_goal=0.02,
        ),
        Row(
            "total_ours_over_atomic",
            total * 1000,
            "ms",
            total / atomic.total,
            "atomic",
            ratio_goal=0.17,
        ),
        Row(
            "total_ours_over_dcp_async",
            total * 1000,
            "ms",
            total / other,
            f"{cheapest}, its best mode",
            ratio_goal=0.33,
        ),
        Row(
            "durable_ours_over_dcp_async",
            ours.durable * 1000,
            "ms",
            ours.durable / modes[soonest].durable,
            f"{soonest}, its best mode",
            ratio_goal=0.5,
        ),
        *rows,
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
