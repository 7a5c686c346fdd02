"""How fast results come off a box, hashes and fsync included, beside ``rsync -W`` over the same sshd.

All begin with their connection and end with the last file in place; the files are in memory on the
box. The runs take turns, and the median of the ratios of neighbours counts: whatever else the
machine does slows all. The first ratio is that to plain ``rsync -W``, which neither hashes nor
syncs. A second one is that to what gives the same proof with it: ``rsync -W --fsync``, then
``openssl dgst`` on both sides at once, compared (``sha256sum`` may do without the chip's
instructions for it). The `ssh` of both is told to take the cipher that rgt takes; a third ratio is
that to plain ``rsync -W`` with the one that `ssh` prefers by itself, which is what people have.
Another is that to the least that standard parts need for the same proof, ``ssh``, ``tar`` and
``openssl dgst`` on both sides: what it costs beyond plain rsync is the price of the proof, whoever
    gives it. The last is rgt with the other SSH client: its own for the big file, the system's for
    the small ones. Processor time is that of all processes of both sides; what the kernel writes to
    the
disk later is nobody's.

``pull_…_bound`` is what nothing that goes through SSH and hashes on both sides can beat on this
machine: the processor time of ``ssh box cat > FILE`` and of two SHA-256 over bytes in memory,
    spread over all cores without a moment's pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import random
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.agent_box import real_sshd
from benchmarks.report import BenchmarkError, Row, main, say
from rgt_tui.fleet.pulls.pull_stream import PullRequest
from rgt_tui.fleet.pulls.pulling import pull_box
from rgt_tui.model import BoxSpec

NAME = "transfer"
LEAST = 1.2
SSH_FROM = PullRequest(destination=Path("/")).ssh_from
CIPHER = ("-c", "aes128-gcm@openssh.com")
"""What rgt agrees on with any OpenSSH, and the cheapest where the chip has instructions for it;
`ssh` by itself prefers ChaCha20 (https://man.openbsd.org/ssh_config#Ciphers)."""
FEW = 100
PATIENCE_S = 5.0
HASHED_BYTES, HASHED_BLOCKS = 1 << 20, 128
"""Memory that stays in the processor's cache, as what was just received or sent does."""
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


def ours(spec: BoxSpec, source: Path, target: Path, env: dict[str, str], ssh_from: float) -> None:
    """Pull everything with rgt, through the system's `ssh` from `ssh_from` bytes on."""
    request = PullRequest(paths=(str(source),), destination=target, ssh_from=ssh_from)
    report = asyncio.run(pull_box(spec, request, env=env))
    if not report.is_complete or report.landed != report.files:
        raise BenchmarkError(f"the pull was not whole: {report.refused[:3]}")


def ssh(spec: BoxSpec, *options: str) -> str:
    """Return the command line of a login."""
    return (
        f"ssh -F none -i {spec.identity} -o UserKnownHostsFile={spec.known_hosts} -o "
        f"IdentitiesOnly=yes -o BatchMode=yes {shlex.join(options)} -p {spec.port}"
    )


def theirs(
    spec: BoxSpec, source: Path, target: Path, *more: str, options: Sequence[str] = CIPHER
) -> None:
    """Copy everything with rsync."""
    words = [
        "rsync",
        "-aW",
        *more,
        "-e",
        ssh(spec, *options),
        f"{spec.user}@{spec.host}:{source}/",
        f"{target}/",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"rsync: {done.stderr.strip()}")


HASHES = "cd {} && find . -type f -print0 | sort -z | xargs -0 openssl dgst -sha256 -r"


def theirs_proven(spec: BoxSpec, source: Path, target: Path) -> None:
    """Copy everything with rsync, to the disk, and compare the hashes of both sides."""
    theirs(spec, source, target, "--fsync")
    there = [
        *shlex.split(ssh(spec, *CIPHER)),
        f"{spec.user}@{spec.host}",
        HASHES.format(shlex.quote(str(source))),
    ]
    here = ["sh", "-c", HASHES.format(shlex.quote(str(target)))]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE) for words in (there, here)]
    first, second = [process.communicate()[0] for process in both]
    if not first or first != second or any(process.returncode for process in both):
        raise BenchmarkError("the hashes of what rsync has brought differ")


PARTS_THERE = "{{ {}; }} >&2 & tar -c -C {} . ; wait"
PARTS_HERE = "mkdir {0} && tar -x -C {0} && {{ {1}; }} && sync -f {0}"


def standard_parts(spec: BoxSpec, source: Path, target: Path) -> None:
    """Stream everything with tar while the box hashes it; hash it here, bring it to the disk, compare, rename it."""
    part, there = target / "part", shlex.quote(str(source))
    login = [*shlex.split(ssh(spec, *CIPHER)), f"{spec.user}@{spec.host}"]
    with tempfile.TemporaryFile() as said:
        sent = subprocess.Popen(
            [*login, PARTS_THERE.format(HASHES.format(there), there)],
            stdout=subprocess.PIPE,
            stderr=said,
        )
        here = HASHES.format(shlex.quote(str(part)))
        words = ["bash", "-c", PARTS_HERE.format(shlex.quote(str(part)), here)]
        taken = subprocess.run(words, stdin=sent.stdout, stdout=subprocess.PIPE, check=False)
        status = sent.wait()
        said.seek(0)
        if status or taken.returncode or not taken.stdout or said.read() != taken.stdout:
            raise BenchmarkError("the hashes of what tar has brought differ")
    part.rename(target / "files")


def bytes_alone(spec: BoxSpec, source: Path, target: Path) -> None:
    """Bring the bytes of all files, one behind the other, into one file: no names, no hashes, nothing synced."""
    there = f"cd {shlex.quote(str(source))} && find . -type f -exec cat {{}} +"
    with (target / "all").open("wb") as file:
        words = [*shlex.split(ssh(spec, *CIPHER)), f"{spec.user}@{spec.host}", there]
        done = subprocess.run(words, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    if done.returncode or (target / "all").stat().st_size != size:
        raise BenchmarkError(f"cat: {done.stderr.strip()}")


def hash_seconds(size: int) -> float:
    """Return the processor time that SHA-256 takes for so many bytes in memory."""
    block = bytes(HASHED_BYTES)
    begun = time.process_time()
    for _ in range(HASHED_BLOCKS):
        hashlib.sha256(block)
    return (time.process_time() - begun) * size / (HASHED_BYTES * HASHED_BLOCKS)


def processor_seconds(sshd: int) -> float:
    """Return what this process, the box, and all of both that has ended have used, once the last login has."""
    children = Path(f"/proc/{sshd}/task/{sshd}/children")
    deadline = time.monotonic() + PATIENCE_S
    while children.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    box = Path(f"/proc/{sshd}/stat").read_text().rpartition(")")[2].split()[11:15]
    return sum(os.times()[:4]) + sum(map(int, box)) / os.sysconf("SC_CLK_TCK")


class Took(NamedTuple):
    """What one copy has cost."""

    wall: float
    processor: float


def took(work: Callable[[Path], None], folder: Path, sshd: int) -> Took:
    """Return what a copy into a new directory takes; the disk is at rest before and after it.

    A single file is removed at once. Many stay until all is measured: ext4 steps over each inode
    that was freed a few seconds ago whenever it looks for a new one, which costs both sides more
    than the copying does.
    """
    target = Path(tempfile.mkdtemp(prefix="target-", dir=folder))
    os.sync()
    before = processor_seconds(sshd)
    begun = time.perf_counter()
    work(target)
    wall = time.perf_counter() - begun
    processor = processor_seconds(sshd) - before
    if sum(path.is_file() for path in target.rglob("*")) < FEW:
        shutil.rmtree(target)
    shutil.rmtree(folder / "state", ignore_errors=True)
    os.sync()
    return Took(wall, processor)


def side_by_side(
    name: str, spec: BoxSpec, source: Path, size: int, folder: Path, rounds: int
) -> list[Row]:
    """Measure all in turns."""
    env = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    sshd = int((folder / "sshd" / "sshd.pid").read_text())
    other_from, other = (math.inf, "own_client") if size >= SSH_FROM else (0.0, "through_ssh")
    ways: tuple[Callable[[Path], None], ...] = (
        lambda target: ours(spec, source, target, env, SSH_FROM),
        lambda target: theirs(spec, source, target),
        lambda target: theirs_proven(spec, source, target),
        lambda target: theirs(spec, source, target, options=()),
        lambda target: standard_parts(spec, source, target),
        lambda target: bytes_alone(spec, source, target),
        lambda target: ours(spec, source, target, env, other_from),
    )
    cores = len(os.sched_getaffinity(0))
    turns, least_walls = [], []
    for turn in range(rounds + 1):
        found = [took(way, folder, sshd) for way in ways]
        if turn:  # the first is to warm up
            turns.append(found)
            least_walls.append((found[5].processor + 2 * hash_seconds(size)) / cores)
            rates = [
                f"{size / one.wall / 1e6:.0f} MB/s in {one.processor:.2f} CPU-s" for one in found
            ]
            load = os.getloadavg()[0]
            found_out = (
                f"rgt {rates[0]}, rsync {rates[1]}, rsync and hashes {rates[2]}, rsync by itself "
                f"{rates[3]}, standard parts {rates[4]}, rgt {other} {rates[6]}, the bytes alone "
                f"{rates[5]}, with two hashes on {cores} cores {size / least_walls[-1] / 1e6:.0f} "
                "MB/s at the most"
            )
            say(f"{name}: {found_out}; load {load:.1f}")
    mine, rsync, proven, default, parts, bare, client = (
        Took(*(statistics.median(values) for values in zip(*costs, strict=True)))
        for costs in zip(*turns, strict=True)
    )
    ratio = statistics.median(turn[1].wall / turn[0].wall for turn in turns)
    same = statistics.median(turn[2].wall / turn[0].wall for turn in turns)
    plain = statistics.median(turn[3].wall / turn[0].wall for turn in turns)
    simple = statistics.median(turn[4].wall / turn[0].wall for turn in turns)
    longer = statistics.median(turn[6].wall / turn[0].wall for turn in turns)
    bound = statistics.median(
        turn[1].wall / wall for turn, wall in zip(turns, least_walls, strict=True)
    )
    work, least = mine.processor / rsync.processor, mine.processor / parts.processor
    return [
        Row(f"rsync_{name}", size / rsync.wall / 1e6, "MB/s"),
        Row(f"rsync_fsync_sha256_{name}", size / proven.wall / 1e6, "MB/s"),
        Row(f"rsync_default_{name}", size / default.wall / 1e6, "MB/s"),
        Row(f"rgt_{name}", size / mine.wall / 1e6, "MB/s"),
        Row(f"rgt_{name}_{other}", longer, "times as long", longer, "rgt"),
        Row(
            f"rgt_{name}_{other}_processor",
            client.processor,
            "CPU-s",
            client.processor / mine.processor,
            f"rgt ({mine.processor:.2f})",
        ),
        Row(
            f"pull_{name}_over_rsync", ratio, "times as fast", ratio, "rsync -W", ratio_least=LEAST
        ),
        Row(
            f"pull_{name}_bound",
            bound,
            "times as fast at the most",
            bound,
            "rsync -W, every core busy",
        ),
        Row(
            f"pull_{name}_over_proven_rsync",
            same,
            "times as fast",
            same,
            "rsync -W --fsync, openssl dgst",
        ),
        Row(
            f"pull_{name}_over_default_rsync",
            plain,
            "times as fast",
            plain,
            "rsync -W, ssh's own cipher",
        ),
        Row(f"pull_{name}_over_parts", simple, "times as fast", simple, "ssh, tar, openssl dgst"),
        Row(
            f"rgt_{name}_processor",
            mine.processor,
            "CPU-s",
            work,
            f"rsync -W ({rsync.processor:.2f})",
        ),
        Row(
            f"rgt_{name}_to_parts",
            mine.processor,
            "CPU-s",
            least,
            f"ssh, tar, openssl ({parts.processor:.2f})",
        ),
        Row(f"bytes_alone_{name}", bare.processor, "CPU-s"),
    ]


# A slow line, and whether packing pays there.


@contextmanager
def slow_line(port: int, rate: float) -> Iterator[int]:
    """Lead to a local port at so many bytes per second in each direction; yield the port to use."""
    listener = socket.create_server(("127.0.0.1", 0))
    buffered = 256 << 10
    ended = threading.Event()

    def forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(32 << 10):
                target.sendall(data)
                ended.wait(len(data) / rate)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", port))
                for one in (near, far):
                    for which in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                        one.setsockopt(socket.SOL_SOCKET, which, buffered)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=forward, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        listener.close()


def fill_logs(path: Path, size: int) -> None:
    """Write metrics as a training logs them."""
    draw = random.Random(2)
    with path.open("w") as file:
        step = 0
        while file.tell() < size:
            step += 1
            loss, norm = 2.5 / step**0.3 + draw.gauss(0, 0.01), draw.gauss(1, 0.2)
            file.write(f'{{"step": {step}, "loss": {loss:.6f}, "grad_norm": {norm:.4f}}}\n')


def fill_weights(path: Path, size: int) -> None:
    """Write weights as a checkpoint holds them: float32 of a normal distribution."""
    draw = np.random.default_rng(3)
    path.write_bytes(draw.normal(0, 0.02, size // 4).astype(np.float32).tobytes())


def fill_random(path: Path, size: int) -> None:
    """Write what is packed already."""
    path.write_bytes(random.Random(4).randbytes(size))


def packed_rows(spec: BoxSpec, folder: Path, quick: bool) -> list[Row]:
    """Pull logs, weights and packed data over 5 MB/s, with packing and without, in turns."""
    rate, size, rounds = 5e6, 30_000_000 if quick else 60_000_000, 1 if quick else 3
    rows = []
    known = Path(spec.known_hosts or "")
    env = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    with slow_line(spec.port or 22, rate) as port:
        key = known.read_text().split(" ", 1)[1]
        known.write_text(f"{known.read_text()}[127.0.0.1]:{port} {key}")
        slow = msgspec.structs.replace(spec, port=port)
        for name, fill in (
            ("logs", fill_logs),
            ("weights", fill_weights),
            ("packed data", fill_random),
        ):
            source = folder / "sshd" / "box" / "slow"
            source.mkdir(parents=True)
            fill(source / "file", size)
            walls: dict[bool, list[float]] = {True: [], False: []}
            line = 1.0
            for _ in range(rounds):
                for packs in (False, True):
                    target = Path(tempfile.mkdtemp(dir=folder))
                    request = PullRequest(
                        paths=(str(source),),
                        destination=target,
                        pack_from_s=0.0 if packs else math.inf,
                    )
                    begun = time.perf_counter()
                    report = asyncio.run(pull_box(slow, request, env=env))
                    walls[packs].append(time.perf_counter() - begun)
                    if not report.is_complete:
                        raise BenchmarkError(f"the pull was not whole: {report.refused[:3]}")
                    if packs:
                        line = report.packed_bytes / report.line_bytes
                    shutil.rmtree(target)
                    shutil.rmtree(folder / "state", ignore_errors=True)
            plain, packed = (statistics.median(walls[packs]) for packs in (False, True))
            say(f"{name} at 5 MB/s: {plain:.1f} s plain, {packed:.1f} s packed, {line:.2f}:1")
            label = name.replace(" ", "_")
            rows.append(
                Row(
                    f"pull_{label}_at_5MBs",
                    plain / packed,
                    "times as fast",
                    plain / packed,
                    "plain",
                )
            )
            rows.append(Row(f"pull_{label}_ratio", line, "bytes for one on the line"))
            shutil.rmtree(source)
    return rows


def run(quick: bool) -> list[Row]:
    """One big file and many small ones, both ways in turns; then over a slow line."""
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
            rows += packed_rows(spec, folder, quick)
    return rows


if __name__ == "__main__":
    sys.exit(main(NAME, run))
