"""How fast results come off a box, hashes and fsync included, beside ``rsync -W`` over the same sshd.

Both begin with their connection and end with the last file in place; the files are in memory on the box. The runs take
turns, and the median of the ratios of neighbours counts: whatever else the machine does slows both.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.agent_box import real_sshd
from benchmarks.report import BenchmarkError, Row, main, say
from rgt_tui.fleet.pulls.pull_way import PullRequest
from rgt_tui.fleet.pulls.pulling import pull
from rgt_tui.model.box import BoxSpec

NAME = "transfer"
LEAST = 1.2
CIPHER = "aes128-gcm@openssh.com"
"""What rgt and a new OpenSSH agree on as well."""
FEW = 100
SMALL_FILES = 5000
SMALL_BYTES = (1000, 79_000)


def fill_big(folder: Path, size: int) -> int:
    """Write one file of random bytes; return its size."""
    block = random.Random(0).randbytes(16 << 20)
    with (folder / "big.pt").open("wb") as file:
        for at in range(0, size, len(block)):
            file.write(block[: size - at])
    return size


def fill_small(folder: Path, count: int) -> int:
    """Write many files as logs and metrics are; return their bytes."""
    draw = random.Random(1)
    total = 0
    for number in range(count):
        path = folder / f"run-{number % 50:02}" / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        data = draw.randbytes(draw.randint(*SMALL_BYTES))
        path.write_bytes(data)
        total += len(data)
    return total


def ours(spec: BoxSpec, source: Path, target: Path, env: dict[str, str]) -> None:
    """Pull everything with rgt."""
    request = PullRequest(paths=(str(source),), destination=target)
    report = asyncio.run(pull(spec, request, env=env))
    if not report.whole or report.landed != report.files:
        raise BenchmarkError(f"the pull was not whole: {report.refused[:3]}")


def theirs(spec: BoxSpec, source: Path, target: Path) -> None:
    """Copy everything with rsync."""
    way = (
        f"ssh -F none -i {spec.identity} -o UserKnownHostsFile={spec.known_hosts} -o IdentitiesOnly=yes "
        f"-o BatchMode=yes -c {CIPHER} -p {spec.port}"
    )
    words = ["rsync", "-aW", "-e", way, f"{spec.user}@{spec.host}:{source}/", f"{target}/"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"rsync: {done.stderr.strip()}")


def seconds(work: Callable[[Path], None], folder: Path) -> float:
    """Return how long a copy into a new directory takes; the disk is at rest before and after it.

    A single file is removed at once. Many stay until all is measured: ext4 steps over each inode that was freed a few
    seconds ago whenever it looks for a new one, which costs both sides more than the copying does.
    """
    target = Path(tempfile.mkdtemp(prefix="target-", dir=folder))
    os.sync()
    begun = time.perf_counter()
    work(target)
    took = time.perf_counter() - begun
    if sum(path.is_file() for path in target.rglob("*")) < FEW:
        shutil.rmtree(target)
    shutil.rmtree(folder / "state", ignore_errors=True)
    os.sync()
    return took


def side_by_side(name: str, spec: BoxSpec, source: Path, size: int, folder: Path, rounds: int) -> list[Row]:
    """Measure both in turns."""
    env = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    pairs = []
    for turn in range(rounds + 1):
        mine = seconds(lambda target: ours(spec, source, target, env), folder)
        rsync = seconds(lambda target: theirs(spec, source, target), folder)
        if turn:  # the first is to warm up
            pairs.append((mine, rsync))
            say(f"{name}: rgt {size / mine / 1e6:.0f} MB/s, rsync {size / rsync / 1e6:.0f} MB/s")
    ratio = statistics.median(rsync / mine for mine, rsync in pairs)
    mine, rsync = (statistics.median(times) for times in zip(*pairs, strict=True))
    return [
        Row(f"rsync_{name}", size / rsync / 1e6, "MB/s"),
        Row(f"rgt_{name}", size / mine / 1e6, "MB/s"),
        Row(f"pull_{name}_over_rsync", ratio, "times as fast", ratio, "rsync -W", ratio_least=LEAST),
    ]


def run(quick: bool) -> list[Row]:
    """One big file and many small ones, both ways in turns."""
    if shutil.which("rsync") is None:
        raise BenchmarkError("no rsync on this machine")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sshd = folder / "sshd"
        sshd.mkdir()
        with real_sshd(sshd) as spec:
            spec = msgspec.structs.replace(spec, name="bench")
            for case, fill, size in (
                ("big", fill_big, 500_000_000 if quick else 2_000_000_000),
                ("small", fill_small, SMALL_FILES),
            ):
                source = sshd / "box" / case
                source.mkdir(parents=True)
                total = fill(source, size)
                rows += side_by_side(case, spec, source, total, folder, 3 if quick else 5)
                shutil.rmtree(source)
    return rows


if __name__ == "__main__":
    sys.exit(main(NAME, run))
