"""What a real agent sends, recorded from one, in a shape that a simulated box can send again and again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from benchmarks.agent import TRAINING, WORK
from benchmarks.agent_box import PackedAgent, write_trace
from benchmarks.report import BenchmarkError

ROUND = 30
"""Samples that are sent over and over."""
LOG_LINE = "step %d loss %.4f lr 3.0e-04 grad_norm 0.812 tok/s 41200"


def record(folder: Path, gpus: int, interval: float) -> Path:
    """Run a real agent over a training process, its log and its metrics; write down a round of its frames.

    Args:
        folder: Where everything happens.
        gpus: How many GPUs its trace has.
        interval: Seconds between samples.

    Returns:
        A file for `Recording`.

    Raises:
        BenchmarkError: the agent did not send what was expected.
    """
    agent = PackedAgent(folder)
    trace, run, log = (
        write_trace(folder / "trace.json", gpus),
        folder / "runs" / "base",
        folder / "train.log",
    )
    run.mkdir(parents=True)
    out = folder / "frames"
    training = subprocess.Popen([sys.executable, "-c", WORK, TRAINING])
    config = {"interval": interval, "gpu_trace": str(trace), "pattern": TRAINING}
    try:
        with (
            out.open("wb") as file,
            agent.watch(file.fileno(), **config, logs=[str(log)], runs=[str(run)]),
            log.open("w") as lines,
            (run / "metrics.jsonl").open("w") as metrics,
        ):
            deadline = time.monotonic() + (3 * ROUND + 5) * interval
            while out.read_bytes().count(b'"t":"sample"') < ROUND + 3:
                if time.monotonic() > deadline:
                    raise BenchmarkError("the recorded agent is too slow")
                write_step(lines, metrics)
                time.sleep(interval)
    finally:
        training.kill()
        training.wait()
        agent.stop()
    return choose(out)


def write_step(log: IO[str], metrics: IO[str]) -> None:
    """One step of a training loop, as its log and its metrics tell it."""
    step = log.tell() // 64
    log.write(LOG_LINE % (step, 3.0 - step / 1000) + "\n")
    log.flush()
    point = {
        "step": step,
        "loss": 3.0 - step / 1000,
        "lr": 3e-4,
        "grad_norm": 0.812,
        "tok_s": 41200.0,
    }
    metrics.write(json.dumps({"time": time.time(), **point}) + "\n")
    metrics.flush()


def choose(frames: Path) -> Path:
    """Keep a round of samples, and one frame of each other kind."""
    found: dict[str, list[bytes]] = {}
    samples: list[bytes] = []
    for line in frames.read_bytes().splitlines():
        kind = json.loads(line)["t"]
        if kind == "sample":
            samples.append(line)
        else:
            found.setdefault(kind, []).append(line)
    missing = [kind for kind in ("hello", "log", "scalar") if kind not in found]
    if missing or len(samples) < ROUND + 1:
        raise BenchmarkError(f"the recording lacks {', '.join(missing) or 'a round of samples'}")
    kept = [found["hello"][0], found["log"][-1], found["scalar"][-1], *samples[1 : ROUND + 1]]
    # The first sample of an agent's life lacks what needs two readings.
    path = frames.with_suffix(".jsonl")
    path.write_bytes(b"\n".join(kept) + b"\n")
    return path


class Recording:
    """Frames of a recording with a number, a time and a place in the file of one's own."""

    def __init__(self, path: Path) -> None:
        lines = path.read_bytes().splitlines()
        self._hello, self._log, self._scalar = (json.loads(line) for line in lines[:3])
        self._rest = [_rest(line) for line in lines[3:]]
        self.boot = str(self._hello["boot"])

    def hello(self, box: str, interval: float, **more: bool) -> bytes:
        """First frame of a channel; `more` says how what follows is packed."""
        return _line({**self._hello, "host": box, "at": time.time(), "interval": interval, **more})

    def sample(self, place: int, seq: int, at: float) -> bytes:
        """The sample of a place in the round."""
        head = b'{"t":"sample","boot":"%s","seq":%d,"at":%.3f,' % (self.boot.encode(), seq, at)
        return head + self._rest[place % len(self._rest)] + b"\n"

    def whole(self, seq: int) -> bytes:
        """A sample, for who asks for one at a time."""
        return self.sample(0, seq, time.time())

    def log(self, box: int, lines: int, first: int, offset: int) -> bytes:
        """So many lines of a log, unlike those of any other box."""
        loss = 2.0 + box / 1000
        text = tuple(LOG_LINE % (first + n, loss - (first + n) / 1e5) for n in range(lines))
        end = offset + sum(len(line) + 1 for line in text)
        return _line({**self._log, "start": offset, "end": end, "lines": text})

    def scalar(self, step: int, offset: int) -> bytes:
        """One point of a run's metrics."""
        values = dict(self._scalar["points"][0][3], loss=3.0 - step / 1e5)
        point = [step, time.time(), None, values]
        return _line({**self._scalar, "start": offset, "end": offset + 70, "points": [point]})


def _rest(line: bytes) -> bytes:
    """What follows behind kind, boot, number and time."""
    _, _, tail = line.partition(b'"at":')
    return tail.partition(b",")[2]


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"
