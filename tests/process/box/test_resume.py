"""Cut the connection again and again, and count: nothing is lost and nothing comes twice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, make_job

ROUNDS = 20
WRITER = """
import json, os, sys, time
log, metrics = sys.argv[1:]
n = 0
with open(log, "w") as a, open(metrics, "w") as b:
    while True:
        for _ in range(1 + n * 7 % 5):
            n += 1
            text = "line %d\\n" % n
            a.write(text[:4]); a.flush()
            a.write(text[4:]); a.flush()
            b.write(json.dumps({"step": n, "time": 1.0, "epoch": 0.0, "loss": n / 2}) + "\\n"); b.flush()
        if os.getppid() == 1:
            break
        time.sleep(0.02)  # what a reader that is held up for seconds misses must not fill the agent's buffer
"""


def test_no_gap_and_no_duplicate_over_many_cuts(agent: Agent, tmp_path: Path) -> None:
    dice = random.Random(7)
    job = make_job(tmp_path / "job", ["true"], ["a"])
    (job / "logs").mkdir()
    (job / "out" / "a").mkdir(parents=True)
    log, metrics = job / "logs" / "a.log", job / "out" / "a" / "metrics.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(log), str(metrics)])
    lines: list[str] = []
    steps: list[int] = []
    numbers: list[int] = []
    cursors: dict[str, dict[str, protocol.FileCursor]] = {"log": {}, "scalar": {}}
    after: dict[str, object] | None = None
    try:
        for number in range(ROUNDS):
            if number == ROUNDS - 1:
                writer.kill()
                writer.wait()
            channel = agent.watch(
                interval=0.05,
                tail=1000000,
                jobs=[str(job)],
                samples_after=after,
                log_cursors={
                    path: {"inode": c.inode, "offset": c.offset}
                    for path, c in cursors["log"].items()
                },
                scalar_cursors={
                    path: {"inode": c.inode, "offset": c.offset}
                    for path, c in cursors["scalar"].items()
                },
            )
            budget = dice.randrange(1, 15)
            last_round = number == ROUNDS - 1
            for frame in channel.frames():
                if isinstance(frame, protocol.LogLines) and frame.path == str(log):
                    assert not frame.reset
                    assert frame.skipped == 0
                    lines += frame.lines
                    cursors["log"][frame.path] = protocol.FileCursor(
                        inode=frame.inode, offset=frame.end
                    )
                elif isinstance(frame, protocol.Scalars):
                    steps += [point.step for point in frame.points]
                    cursors["scalar"][frame.source] = protocol.FileCursor(
                        inode=frame.inode, offset=frame.end
                    )
                elif isinstance(frame, (protocol.Sample, protocol.BoxEvent)):
                    assert getattr(frame, "skipped", 0) == 0
                    numbers.append(frame.seq)
                    after = {"boot": frame.boot, "seq": frame.seq}
                budget -= 1
                if last_round and metrics_done(metrics, steps) and log_done(log, lines):
                    break
                if budget <= 0 and not last_round:
                    break
            channel.kill()
    finally:
        writer.kill()
        writer.wait()
    assert lines == [f"line {n}" for n in range(1, len(lines) + 1)]
    assert len(lines) == complete(log)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) == complete(metrics)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) > ROUNDS / 5


def complete(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def log_done(path: Path, lines: list[str]) -> bool:
    return len(lines) == complete(path)


def metrics_done(path: Path, steps: list[int]) -> bool:
    return len(steps) == complete(path)
