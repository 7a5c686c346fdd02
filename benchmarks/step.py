"""What `rgt_train` adds to a training: the call `run.step`, a save at every step, the way back after a kill.

A step is a small model's (the call: its mean, because some calls write the lines of several) or
200 ms of waiting (the saves, as a GPU would keep the processor free). Beside the call stands a loop
that writes one JSON line and one console line a step, beside the saves the same run without any.
Beside the way back, from the built model to the end of its first step, stands `torch.load` and
`load_state_dict` of the same state: each in a process of its own, because memory that an earlier
load has freed makes a later one faster.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import BenchmarkError, Row, main

NAME = "step"
ROOT = Path(__file__).resolve().parent.parent

CALL = """
import json, sys, tempfile, time
import torch
from rgt_train import Options, Run

steps, every, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
VALUES = {"lr": 3e-4, "grad_norm": 0.51, "tok_s": 41200.0}
torch.set_num_threads(1)
model, x = torch.nn.Linear(16, 2), torch.randn(4, 16)
optimizer = torch.optim.AdamW(model.parameters())
spent = []

def train(log):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    begin = time.perf_counter()
    log()
    spent.append(time.perf_counter() - begin)

with tempfile.TemporaryDirectory() as folder:
    if kind == "plain":
        with open(folder + "/metrics.jsonl", "w") as file:
            def log():
                step = len(spent)
                line = {"step": step, "epoch": 0.5, "time": time.time(), "loss": 1.25, **VALUES}
                file.write(json.dumps(line) + "\\n")
                file.flush()
                print(f"step {step}  loss {1.25:.4f}", flush=True)
            for _ in range(steps):
                train(log)
    else:
        options = Options(save_every=10**9, log_every=every)
        run = Run(folder + "/run", model=model, optimizer=optimizer, samples=4 * steps, batch_size=4, epochs=1,
                  options=options)
        with run:
            for _ in run.epochs():
                for _ in run.batches():
                    train(lambda: run.step(1.25, **VALUES))
spent = sorted(spent[100:])
usual = spent[: len(spent) * 99 // 100]  # other processes make a few slow
print(json.dumps(sum(usual) / len(usual) * 1e6))
"""

SAVES = """
import json, sys, tempfile, time
import torch
from rgt_train import Options, Run

steps, save_every = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
width = 2900  # 8.4 million weights; with AdamW's state 101 MB
model = torch.nn.Linear(width, width)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(1, width)).sum().backward()
optimizer.step()
begin = 0.0
with tempfile.TemporaryDirectory() as folder:
    options = Options(save_every=save_every, log_every=1)
    run = Run(folder + "/run", model=model, optimizer=optimizer, samples=steps, batch_size=1, epochs=1, options=options)
    with run:
        for _ in run.epochs():
            for _ in run.batches():
                if run.step_now == 3:  # the first saves write more than the later ones
                    begin = time.perf_counter()
                time.sleep(0.2)
                with torch.no_grad():
                    model.weight.mul_(1.0001)
                run.step(1.0)
            took = time.perf_counter() - begin
print(json.dumps(took / (steps - 3) * 1000))
"""

RESUME = """
import json, sys, time
import torch
from rgt_train import Options, Run

folder, layers, width, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
optimizer = torch.optim.AdamW(model.parameters())

def train():
    optimizer.zero_grad()
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()

if kind == "write":
    options = Options(save_every=1, background=False)
    run = Run(folder + "/run", model=model, optimizer=optimizer, samples=9, batch_size=1, epochs=1, options=options)
    with run:
        for _ in run.epochs():
            for _ in run.batches():
                train()
                run.step(1.0)
                if run.step_now == 2:
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(state, folder + "/plain.pt")
                    import os
                    print(0.0, flush=True)
                    os._exit(0)
begin = time.perf_counter()
if kind == "plain":
    state = torch.load(folder + "/plain.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train()
    print(json.dumps((time.perf_counter() - begin) * 1000))
else:
    options = Options(save_every=10**9)
    run = Run(folder + "/run", model=model, optimizer=optimizer, samples=9, batch_size=1, epochs=1, options=options)
    with run:
        for _ in run.epochs():
            for _ in run.batches():
                train()
                run.step(1.0)
                took = (time.perf_counter() - begin) * 1000
                import os
                print(json.dumps(took), flush=True)
                os._exit(0)
"""


def _measure(script: str, arguments: Sequence[object]) -> float:
    """Run a training in a process of its own, its console going to a pipe; return what it measured."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "remote"), "PATH": "/usr/bin:/bin"},
    )
    if done.returncode != 0:
        raise BenchmarkError(f"the measurement ended with {done.returncode}: {done.stderr[-500:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def _resume(layers: int, width: int, rounds: int) -> Row:
    """Compare the time to the first step after a kill with that of `torch.load`, in turn."""
    taken: dict[str, list[float]] = {"ours": [], "plain": []}
    with tempfile.TemporaryDirectory() as folder:
        _measure(RESUME, (folder, layers, width, "write"))
        megabytes = Path(folder, "plain.pt").stat().st_size / 1e6
        for number in range(rounds):
            for kind in sorted(taken, reverse=bool(number % 2)):
                taken[kind].append(_measure(RESUME, (folder, layers, width, kind)))
    pairs = zip(taken["ours"], taken["plain"], strict=True)
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    return Row(
        f"first_step_after_kill_{megabytes:.0f}mb",
        statistics.median(taken["ours"]),
        "ms from the built model on",
        ratio,
        "torch.load and load_state_dict",
        ratio_goal=1.2,
    )


def run(quick: bool) -> list[Row]:
    """Measure each kind in turn; medians over the rounds."""
    rounds, steps, saves, goal_us, goal_ratio = 3, 3000, 40, 15.0, 1.05
    if quick:
        rounds, steps, saves = 1, 1500, 25
    never = 10**9
    calls: dict[str, list[float]] = {"line": [], "no line": [], "plain": []}
    ratios = []
    for number in range(rounds):
        calls["line"].append(_measure(CALL, (steps, 1, "ours")))
        calls["no line"].append(_measure(CALL, (steps, 0, "ours")))
        calls["plain"].append(_measure(CALL, (steps, 1, "plain")))
        order = (1, never) if number % 2 else (never, 1)
        took = {every: _measure(SAVES, (saves, every)) for every in order}
        ratios.append(took[1] / took[never])
    back = [_resume(layers, 1024, 3 if quick else 7) for layers in (1, 2, 24)]
    middle = {kind: statistics.median(values) for kind, values in calls.items()}
    return [
        Row(
            "run_step_us",
            middle["line"],
            "us, a point and a console line each step",
            middle["line"] / middle["plain"],
            "json.dumps, write, flush and print in a bare loop",
            goal=goal_us,
        ),
        Row("run_step_without_line_us", middle["no line"], "us, log_every=0"),
        Row(
            "save_every_step",
            100 * (statistics.median(ratios) - 1),
            "% slower: 101 MB at 200 ms a step",
            statistics.median(ratios),
            "the same run without saves",
            ratio_goal=goal_ratio,
        ),
        *back,
    ]


if __name__ == "__main__":
    sys.exit(main(NAME, run))
