"""What a checkpoint costs the training, how soon it is safe, and what it takes to know that it is whole.

Every method saves the same 500 MB state (a language model with AdamW) inside the same training loop, in a process of
its own, one after the other. Stall: the training thread stood still. Total: all the time the steps from the save until
it was on the disk took longer than usual, the stall included. Durable: from the call until the last fsync.
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


@dataclass(frozen=True)
class Measured:
    """What one method took, medians in seconds, and its extra memory as a multiple of the state."""

    stall: float
    total: float
    durable: float
    memory: float


def measure(method: str, saves: int, size: tuple[int, int], folder: Path) -> Measured:
    """Run the loop with one method, and once more to look at the memory.

    Args:
        method: One of `METHODS`.
        saves: How many are timed.
        size: Width and layers of the model.
        folder: Where to save.
    """
    timed = _loop(method, saves, size, folder)
    watched = _loop(method, 2, size, folder, "memory") if method in WATCHED and saves > 3 else {}
    found = Measured(
        statistics.median(timed["stall"]),
        statistics.median(timed["total"]),
        statistics.median(timed["durable"]),
        watched.get("memory", 0) / timed["bytes"],
    )
    say(
        f"{method}: stall {1000 * found.stall:.0f} ms, total {1000 * found.total:.0f} ms, durable "
        f"{1000 * found.durable:.0f} ms (step {1000 * timed['step']:.0f} ms, state {timed['bytes'] / 1e6:.0f} MB)"
    )
    return found


def _loop(method: str, saves: int, size: tuple[int, int], folder: Path, *more: str) -> dict[str, Any]:
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


def finds(path: Path, load: Callable[[], Any], draw: random.Random) -> int:
    """How many of `FLIPS` single flipped bits `load` complains about; the first eight are in the first 4 KiB."""
    found = 0
    size = path.stat().st_size
    for number in range(FLIPS):
        bit = draw.randrange(8 * (min(4096, size) if number < 8 else size))
        with flipped(path, bit):
            try:
                load()
            except Exception:
                found += 1
    return found


def verifying(megabytes: int, times: int, folder: Path) -> list[Row]:
    """Looking at every byte, beside `torch.load`."""
    import torch

    sys.path.insert(0, str(ROOT / "remote"))
    from rgt_train import digest, manifest

    state = {f"weight{n}": torch.rand(1_000_000) for n in range(megabytes // 4)}
    plain = folder / "plain.pt"
    torch.save(state, plain)
    ours = folder / "ours"
    ours.mkdir()
    shutil.copy(plain, ours / "model")
    with (ours / "model").open("rb") as file:
        facts = {"model": digest.facts(memoryview(file.read()))}
    (ours / "manifest.json").write_bytes(manifest.encode(1, facts, {}))
    loading = median_of(lambda: torch.load(plain, weights_only=True), times)
    checking = median_of(lambda: manifest.verify(ours), times)
    theirs = finds(plain, lambda: torch.load(plain, weights_only=True), random.Random(1))
    mine = finds(ours / "model", lambda: manifest.verify(ours), random.Random(1))
    return [
        Row("verify_over_torch_load", checking * 1000, "ms", checking / loading, "torch.load"),
        Row("flips_found", mine, f"of {FLIPS}", None, None),
        Row("flips_found_by_torch_load", theirs, f"of {FLIPS}", None, None),
    ]


def run(quick: bool) -> list[Row]:
    """Measure all methods."""
    saves, size = (3, (256, 4)) if quick else (7, (656, 6))
    base = Path(os.environ.get("RGT_BENCH_DIR", tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="rgt-bench-", dir=base) as place:
        found = {method: measure(method, saves, size, Path(place)) for method in METHODS}
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
    total, other = max(ours.total, 0.0), modes[cheapest].total
    return [
        *table,
        Row("stall_ours_over_atomic", ours.stall * 1000, "ms", ours.stall / atomic.stall, "atomic"),
        Row("total_ours_over_atomic", total * 1000, "ms", total / atomic.total, "atomic"),
        Row("total_ours_over_dcp_async", total * 1000, "ms", total / max(other, 1e-9), cheapest),
        Row(
            "durable_ours_over_dcp_async",
            ours.durable * 1000,
            "ms",
            ours.durable / modes[soonest].durable,
            soonest,
        ),
        *rows,
        *([] if quick else [Row(f"extra_memory_{name}", found[name].memory, "x state") for name in WATCHED]),
    ]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
