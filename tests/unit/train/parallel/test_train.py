"""Trainings of several ranks under the real torchrun: killed, stopped, moved to other numbers of ranks."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rgt_train.export import export
from rgt_train.layout import read
from rgt_train.tasks.transformer import CharTransformer

from tests.unit.train import frameworks
from tests.unit.train.harness import Zygote, events, losses
from tests.unit.train.parallel import train_worker, uneven_worker
from tests.unit.train.parallel.forked import forked
from tests.unit.train.parallel.launching import ROOT, torchrun

PATIENCE = 150.0
"""Seconds until a step must have come about: several processes that import torch, on a machine that does other work."""
ABORTS = "terminate called without an active exception"
"""What torch's threads say of some ends of plain loops; see `rgt_train.parallel.settling`."""
SLOW = ("--pace-ms", "20")
"""Slow enough for a signal to hit a step and not the end."""


def launch(count: int, out: Path, *words: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    with torchrun(count, train_worker.__file__, str(out), *words, options=options) as process:
        text, _ = process.communicate()
    return process.returncode, text.decode()


def reach(process: subprocess.Popen[bytes], out: Path, target: int) -> None:
    """Wait until a step is logged."""
    deadline = time.monotonic() + PATIENCE
    while steps_logged(out) < target and process.poll() is None:
        assert time.monotonic() < deadline, f"step {target} did not come about"
        time.sleep(0.01)  # another process's file is all there is to look at


def finals(out: Path, count: int, name: str = "final") -> list[dict[str, Any]]:
    return [json.loads((out / f"{name}-{rank}.json").read_text()) for rank in range(count)]


def steps_logged(out: Path) -> int:
    with suppress(OSError):
        lines = (out / "metrics.jsonl").read_bytes().splitlines()
        return max(
            (json.loads(line).get("step", 0) for line in lines if line.startswith(b'{"step')), default=0
        )
    return 0


def codes(out: Path, count: int) -> list[int]:
    return [int((out / f"code-{rank}").read_text().split()[0]) for rank in range(count)]


def samples_of(out: Path) -> dict[int, list[int]]:
    """Return by epoch the samples that counted; of a step that was done again, those of its last attempt."""
    lines = [json.loads(row) for path in out.glob("seen-*.jsonl") for row in path.read_text().splitlines()]
    last: dict[int, int] = {}
    for line in lines:
        last[line["step"]] = max(last.get(line["step"], 0), line["attempt"])
    found: dict[int, list[int]] = {}
    for line in lines:
        if line["attempt"] == last[line["step"]]:
            found.setdefault(line["epoch"], []).extend(line["samples"])
    return found


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_kill_9_of_random_ranks_changes_no_bit(tmp_path: Path, kind: str) -> None:
    plain, out = tmp_path / "plain", tmp_path / "run"
    code, text = launch(2, plain, "--parallel", kind, "--save-every", "30")
    assert code == 0, text
    seed = random.SystemRandom().randrange(2**32)
    draw, kills = random.Random(seed), 0
    words = ("--parallel", kind, "--save-every", "2", *SLOW)
    with torchrun(2, train_worker.__file__, str(out), *words, options=("--max-restarts=2",)) as process:
        for target in (draw.randint(5, 25), draw.randint(35, 60)):
            reach(process, out, target)
            os.kill(int((out / f"pid-{draw.randrange(2)}").read_text()), signal.SIGKILL)
            kills += 1
        told, _ = process.communicate()
    assert process.returncode == 0, f"seed {seed}\n{told.decode()}"
    assert len(events(out, "resume")) == kills, "torchrun has launched it anew by itself"
    assert finals(out, 2) == finals(plain, 2), f"seed {seed}"
    assert losses(out) == losses(plain), f"seed {seed}"
    assert (out / "result.json").read_text() == (plain / "result.json").read_text()
    assert finals(out, 2)[0]["state"] == finals(out, 2)[1]["state"]
    assert finals(out, 2)[0]["random"] != finals(out, 2)[1]["random"], "each rank has random state of its own"


def stopped(count: int, out: Path, target: int, *words: str) -> str:
    """Train on `count` ranks, SIGTERM the last one when `target` steps are done; all must leave together."""
    with torchrun(count, train_worker.__file__, str(out), *words) as process:
        reach(process, out, target)
        os.kill(int((out / f"pid-{count - 1}").read_text()), signal.SIGTERM)
        told, _ = process.communicate()
    text = told.decode()
    assert process.returncode == 1, "torchrun's own code, whatever the ranks' codes are"
    assert codes(out, count) == [75] * count, text
    left = finals(out, count, "left")
    assert len({each["step"] for each in left}) == 1, text
    assert all(each["state"] == left[0]["state"] for each in left)
    assert list((out / "checkpoints").glob(f"step-{left[0]['step']:08d}-*")), text
    return text


def test_sharded_state_moves_from_2_to_1_to_4_ranks_and_past_damage(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--parallel", "fsdp", "--save-every", "4", *SLOW)
    stopped(2, out, 10, *words)
    first = finals(out, 1, "left")[0]
    text = stopped(1, out, first["step"] + 8, *words)
    assert finals(out, 1, "came")[0]["step"] == first["step"]
    assert finals(out, 1, "came")[0]["state"] == first["state"]
    assert "random state (another number of ranks): seeded anew" in text
    assert "ranks 2 → 1" in text
    second = finals(out, 1, "left")[0]
    hybrid = ("--parallel", "hsdp", "--save-every", "4", *SLOW)
    text = stopped(4, out, second["step"] + 8, *hybrid)
    for came in finals(out, 4, "came"):
        assert (came["step"], came["state"]) == (second["step"], second["state"])
    third = finals(out, 1, "left")[0]["step"]
    assert f"SIGTERM at step {third}" in text or f"a signal to another rank at step {third}" in text
    newest = next((out / "checkpoints").glob(f"step-{third:08d}-*"))
    path = newest / "__1_0.distcp"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    code, text = launch(2, out, *words[:-2])
    assert code == 0, text
    assert re.search(rf"checkpoint {newest} is damaged, not used: __1_0\.distcp: crc32", text)
    assert finals(out, 2, "came")[0]["step"] < third
    for epoch, samples in samples_of(out).items():
        assert sorted(samples) == list(range(train_worker.SAMPLES)), f"epoch {epoch}: each sample once"


def test_a_replica_that_has_drifted_is_named_and_not_saved(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, text = launch(2, out, "--corrupt", "7")
    assert code == 1
    assert codes(out, 2) == [1, 1], text
    named = r"out of step at step \d+, not saved: rank 1 has other bits than rank 0 in model/0\.weight"
    assert re.search(named, text), text
    assert all(int(path.name[5:13]) < 7 for path in (out / "checkpoints").glob("step-*"))
    assert "out of step" in events(out, "stop")[0]["reason"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_command_trains_on_several_ranks(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "run"
    words = [
        "--task", "char_lm", "--parallel", kind, "--out", str(out), "--epochs", "1", "--steps-per-epoch", "8",
        "--set", "width=16", "--set", "corpus=4000", "--set", "context=16", "--set", "batch=6",
    ]  # fmt: skip
    with torchrun(2, "-m", "rgt_train", *words) as process:
        told, _ = process.communicate()
    text = told.decode()
    assert process.returncode == 0, text
    assert text.count("done: step 8") == 1, "one rank speaks for all"
    assert json.loads((out / "run.json").read_text())["last"]["world_size"] == 2
    assert json.loads((out / "best.json").read_text())["value"] < 5
    assert export(str(out), str(tmp_path / "w.safetensors")).startswith("exported ")
    found = read(memoryview((tmp_path / "w.safetensors").read_bytes()))
    model = CharTransformer(40, 16, 2, 4, 16, 0.1).state_dict()
    assert set(found) == set(model)
    assert all(tensor.isfinite().all() and tensor.any() for tensor in found.values())


def test_data_of_different_length_leave_the_replicas_alike(trainers: Zygote, tmp_path: Path) -> None:
    ranks = forked(trainers, 2, uneven_worker.__file__, str(tmp_path))
    assert ranks.wait() == [0, 0], ranks.text()
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert "rank 1 has other bits than rank 0 in optimizer" in found["alone"][0], (
            "what Join alone leaves behind"
        )
        assert found["together"] == []


@pytest.mark.parametrize("name", ["before", "ddp", "fsdp"])
def test_the_documented_loops_run(tmp_path: Path, name: str) -> None:
    page = (ROOT / "docs" / "distributed.md").read_text()
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", page, re.S)
    assert found
    (tmp_path / "train.py").write_text(found.group(1))
    with torchrun(2, "train.py", cwd=tmp_path) as process:
        told, _ = process.communicate()
    if name == "before" and ABORTS in told.decode():
        return  # the page says so of a plain loop; it has come to its end by then
    assert process.returncode == 0, told.decode()
    assert name == "before" or "done: step 60" in told.decode()


ACCELERATE = """
import sys, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from rgt_train import Run
from rgt_train.parallel.adapters import of_accelerate

accelerator = Accelerator(cpu=True)
torch.manual_seed(2)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
parts = of_accelerate(accelerator, model, optimizer, scheduler)
run = Run("run", samples=64, batch_size=8, epochs=int(sys.argv[1]), **parts)
with run:
    for epoch in run.epochs():
        for x, y in DataLoader(data, batch_sampler=run.batches()):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            run.step(loss.item())
assert run.step_now == 8 * int(sys.argv[1])
print("parts", sorted(parts), accelerator.num_processes)
"""


def test_an_accelerate_loop_on_two_ranks_goes_on(tmp_path: Path) -> None:
    python = frameworks.require()
    script = tmp_path / "train.py"
    script.write_text(ACCELERATE)
    for epochs in (1, 2):
        with torchrun(
            2, str(script), str(epochs), python=str(python), cwd=tmp_path, HOME=str(tmp_path)
        ) as process:
            told, _ = process.communicate()
        text = told.decode()
        assert process.returncode == 0, text
        assert text.count("parts ['model', 'optimizer', 'scheduler'] 2") == 2, text
    assert "resume: at step 8 of 16" in text
    assert "resume: restored model, optimizer, scheduler" in text
