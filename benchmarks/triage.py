"""Triage of a large log with every pattern of the handbook, beside ``grep`` of those and of their literals."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row, main, say
from rgt_tui.handbook import shipped_pages, triage_file

NAME = "triage"
GOAL_MB_S = 150.0
QUICK_MIB, FULL_MIB = 64, 1024
QUICK_STEP = 4
"""One pattern of so many is given to ``grep -E`` where it must be quick: all of them take it
minutes.
"""
FAILURES = (
    "OSError: [Errno 28] No space left on device: '/data/x'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "ModuleNotFoundError: No module named 'einops'",
)


def write_log(path: Path, mebibytes: int) -> None:
    """Write a log as trainings write them, with a handful of failures in it."""
    rng = random.Random(1)
    lines = []
    for step in range(40_000):
        kind = rng.random()
        if kind < 0.9:
            lines.append(
                f"2026-11-22 12:00:{step % 60:02d} | INFO | step {step} epoch 3 "
                f"loss={rng.random():.4f} lr=3.0e-4 grad_norm={rng.random():.3f} tok/s=51234 "
                "mem=23.4GB eta 3:21:10"
            )
        elif kind < 0.98:
            lines.append(
                f"[rank{step % 8}] INFO: bucket {step} ready, shard {step} written, reader at "
                f"{step * 7}"
            )
        else:
            lines.append(
                f"WARNING: worker {step % 16} is slow: {rng.random():.2f} s a batch; going on, "
                "code 0"
            )
    block = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        for number in range(max(1, (mebibytes << 20) // len(block))):
            file.write(block)
            if number % 16 == 7:
                file.write(f"{FAILURES[number // 16 % len(FAILURES)]}\n".encode())


def as_ere(pattern: str) -> str | None:
    """Return a pattern as ``grep -E`` knows it, which looks at one line at a time; None where little of it is left.

    Lookarounds, flags and laziness are left out, and what stands behind a line end: it may match a
    little more.
    """
    text = re.sub(r"\(\?[aimsx]+\)", "", pattern)
    text = re.sub(r"\(\?<?[=!](?:[^()\\]|\\.|\([^()]*\))*\)", "", text)
    text = re.sub(r"\[\\s\\S\]\{\d+,\d+\}\??", ".*", text.replace("(?:", "("))
    text = re.sub(r"([*+?}])\?", r"\1", text).replace(r"\d", "[0-9]").replace(r"[^\n]", ".")
    text = re.sub(r"\[\^([^\]\n]*)\\n([^\]\n]*)\]", r"[^\1\2]", text)
    if r"\n" in text or r"\r" in text:
        return None
    tried = subprocess.run(
        ["grep", "-E", "-c", "-e", text], input=b"x\n", capture_output=True, check=False
    )
    if tried.returncode < 2 and not tried.stderr:
        return text
    return None


def grepped(log: Path, how: str, patterns: Sequence[str]) -> float:
    """Return the CPU seconds that ``grep`` takes for all of `patterns`."""
    listed = log.with_name("patterns")
    listed.write_text("".join(f"{pattern}\n" for pattern in patterns))
    before = os.times().children_user + os.times().children_system
    command = ["grep", *how.split(), "-c", "-f", str(listed), str(log)]
    subprocess.run(command, env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=False)
    return os.times().children_user + os.times().children_system - before


def run(quick: bool) -> list[Row]:
    """Measure; returns the table."""
    pages = shipped_pages()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        write_log(log, QUICK_MIB if quick else FULL_MIB)
        size = log.stat().st_size / 1e6
        start = time.process_time()
        found = triage_file(log, pages)
        ours = time.process_time() - start
        theirs = grepped(
            log, "-F -i", sorted({needle for page in pages.values() for needle in page.needles})
        )
        every = [pattern for page in pages.values() for pattern in page.patterns]
        tried = every[:: QUICK_STEP if quick else 1]
        known = [ere for pattern in tried if (ere := as_ere(pattern)) is not None]
        same = grepped(log, "-E", known)
    say(f"{NAME}: {size:,.0f} MB; found: {', '.join(one.gotcha for one in found)}")
    return [
        Row(
            "triage_mb_per_s",
            size / ours,
            "MB/s",
            (size / ours) / (size / theirs),
            "grep -F -i of the same literals, CPU seconds",
            least=GOAL_MB_S,
        ),
        Row(
            "triage_over_grep",
            same / ours,
            "×",
            same / ours,
            f"grep -E of {len(known)} of the {len(every)} patterns, CPU seconds",
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
