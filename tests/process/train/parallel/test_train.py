"""Trainings of several ranks under the real torchrun: killed, stopped, moved to other numbers of ranks."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rgt_train.checkpoint import manifest, read_tensors
from rgt_train.export import export_weights
from rgt_train.ranks import choose
from rgt_train.tasks.char_lm import CharTransformer

from tests.free_ports import free_port
from tests.process.train import frameworks
from tests.process.train.harness import Zygote, events, losses, steps_kept
from tests.process.train.parallel import gradient_worker, train_worker, uneven_worker
from tests.process.train.parallel.forked import commanded, forked
from tests.process.train.parallel.launching import ROOT, torchrun

PATIENCE = 150.0
"""Seconds until a step must have come about: several processes that import torch, on a machine that does other work."""
ABORTS = "terminate called without an active exception"
"""What torch's threads say of some ends of plain loops; see `rgt_train.ranks.torch_ranks`."""
SLOW = ("--pace-ms", "20")
"""Slow enough for a signal to hit a step and not the end."""


def launch(trainers: Zygote, count: int, out: Path, *words: str) -> tuple[list[int], str]:
    ranks = forked(trainers, count, train_worker.__file__, str(out), *words)
    return ranks.wait(), ranks.text()


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
        *lines, _ = (
            (out / "metrics.jsonl").read_bytes().split(b"\n")
        )  # the last may not be whole yet
        return max(
            (json.loads(line).get("step", 0) for line in lines if line.startswith(b'{"step')),
            default=0,
        )
    return 0


def samples_of(out: Path) -> dict[int, list[int]]:
    """Return by epoch the samples that counted; of a step that was done again, those of its last attempt."""
    lines = [
        json.loads(row)
        for path in out.glob("seen-*.jsonl")
        for row in path.read_text().splitlines()
    ]
    last: dict[int, int] = {}
    for line in lines:
        last[line["step"]] = max(last.get(line["step"], 0), line["attempt"])
    found: dict[int, list[int]] = {}
    for line in lines:
        if line["attempt"] == last[line["step"]]:
            found.setdefault(line["epoch"], []).extend(line["samples"])
    return found


def test_torchrun_goes_on_after_kill_9_and_no_bit_changes(trainers: Zygote, tmp_path: Path) -> None:
    plain, out = tmp_path / "plain", tmp_path / "run"
    ended, text = launch(trainers, 2, plain, "--save-every", "30")
    assert ended == [0, 0], text
    words, options = ("--save-every", "2", *SLOW), ("--max-restarts=1",)
    draw, seed = drawn()
    stand = ("--stand-at", "60")
    with torchrun(2, train_worker.__file__, str(out), *words, *stand, options=options) as process:
        reach(process, out, draw.randint(5, 55))
        os.kill(int((out / f"pid-{draw.randrange(2)}").read_text()), signal.SIGKILL)
        told, _ = process.communicate()
    assert process.returncode == 0, f"seed {seed}\n{told.decode()}"
    assert len(events(out, "resume")) == 1, "torchrun has launched it anew by itself"
    same_end(out, plain, seed)
    same_when_launched_again(trainers, out, plain, *words)


def test_sharded_ranks_that_are_killed_change_no_bit(trainers: Zygote, tmp_path: Path) -> None:
    plain, out = tmp_path / "plain", tmp_path / "run"
    ended, text = launch(trainers, 2, plain, "--parallel", "fsdp", "--save-every", "30")
    assert ended == [0, 0], text
    words = ("--parallel", "fsdp", "--save-every", "2", *SLOW)
    draw, seed = drawn()
    for target in (draw.randint(5, 25), draw.randint(35, 60)):
        ranks = forked(trainers, 2, train_worker.__file__, str(out), *words, brake=target + 4)
        ranks.each[0].wait_line(rf"^step {target} ")
        ranks.each[draw.randrange(2)].kill()
        assert sorted(ranks.wait()) == [-signal.SIGKILL, 1], f"seed {seed}\n{ranks.text()}"
    ended, text = launch(trainers, 2, out, *words)
    assert ended == [0, 0], f"seed {seed}\n{text}"
    assert len(events(out, "resume")) == 2
    same_end(out, plain, seed)
    best = manifest.verify_checkpoint(out / "best")["files"]
    assert {".metadata", "__0_0.distcp", "__1_0.distcp", "state.json"} <= set(best)
    for name, facts in best.items():
        assert facts["sha256"] == hashlib.sha256((out / "best" / name).read_bytes()).hexdigest(), (
            "copies are compared"
        )
    same_when_launched_again(trainers, out, plain, *words)


def same_when_launched_again(trainers: Zygote, out: Path, plain: Path, *words: str) -> None:
    """A finished run trains nothing, and what stands behind the loop has the weights of all ranks."""
    for path in out.glob("final-*.json"):
        path.unlink()
    ended, text = launch(trainers, 2, out, *words)
    assert ended == [0, 0], text
    assert text.count("already finished") == 1
    same_end(out, plain, 0)


def drawn() -> tuple[random.Random, int]:
    """Return a source of random places, and the seed to find them again."""
    seed = random.SystemRandom().randrange(2**32)
    return random.Random(seed), seed


def same_end(out: Path, plain: Path, seed: int) -> None:
    assert finals(out, 2) == finals(plain, 2), f"seed {seed}"
    assert losses(out) == losses(plain), f"seed {seed}"
    assert (out / "result.json").read_text() == (plain / "result.json").read_text()
    assert finals(out, 2)[0]["state"] == finals(out, 2)[1]["state"]
    assert finals(out, 2)[0]["random"] != finals(out, 2)[1]["random"], (
        "each rank has random state of its own"
    )


def stopped(trainers: Zygote, count: int, out: Path, target: int, *words: str) -> str:
    """Train on `count` ranks, SIGTERM the last one when `target` steps are done; all must leave together."""
    ranks = forked(trainers, count, train_worker.__file__, str(out), *words, brake=target + 4)
    ranks.each[0].wait_line(rf"^step {target} ")
    ranks.each[-1].signal(signal.SIGTERM)
    assert ranks.wait() == [75] * count, ranks.text()
    left = finals(out, count, "left")
    assert len({each["step"] for each in left}) == 1, ranks.text()
    assert all(each["state"] == left[0]["state"] for each in left)
    assert list((out / "checkpoints").glob(f"step-{left[0]['step']:08d}-*")), ranks.text()
    return ranks.text()


def test_sharded_state_moves_from_2_to_1_to_4_ranks_and_past_damage(
    trainers: Zygote, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("--parallel", "fsdp", "--save-every", "4", *SLOW)
    stopped(trainers, 2, out, 10, *words)
    first = finals(out, 1, "left")[0]
    text = stopped(trainers, 1, out, first["step"] + 8, *words)
    assert finals(out, 1, "came")[0]["step"] == first["step"]
    assert finals(out, 1, "came")[0]["state"] == first["state"]
    assert "random state (another number of ranks): seeded again" in text
    assert "ranks 2 → 1" in text
    second = finals(out, 1, "left")[0]
    hybrid = ("--parallel", "hsdp", "--save-every", "4", *SLOW)
    text = stopped(trainers, 4, out, second["step"] + 8, *hybrid)
    for came in finals(out, 4, "came"):
        assert (came["step"], came["state"]) == (second["step"], second["state"])
    third = finals(out, 1, "left")[0]["step"]
    assert f"SIGTERM at step {third}" in text or f"a signal to another rank at step {third}" in text
    newest = next((out / "checkpoints").glob(f"step-{third:08d}-*"))
    path = newest / "__1_0.distcp"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    ended, text = launch(trainers, 2, out, *words[:-2])
    assert ended == [0, 0], text
    assert re.search(rf"checkpoint {newest} is damaged, not used: __1_0\.distcp: crc32", text)
    assert finals(out, 2, "came")[0]["step"] < third
    for epoch, samples in samples_of(out).items():
        assert sorted(samples) == list(range(train_worker.SAMPLES)), (
            f"epoch {epoch}: each sample once"
        )


def test_a_signal_to_one_of_four_and_ranks_that_are_lost_at_every_stage(
    trainers: Zygote, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped(trainers, 4, out, 7, *SLOW)
    stood = finals(out, 1, "left")[0]["step"]
    assert steps_kept(out)[-1] == stood
    for lost in ("load", "backward", "validation", "stuck"):
        words = (
            "--lost",
            lost,
            "--timeout",
            "15" if lost == "stuck" else "60",
            "--save-every",
            "1000",
        )
        ranks = forked(trainers, 2, train_worker.__file__, str(out), *words)
        assert ranks.each[0].wait() == 1, ranks.text()
        if lost == "stuck":
            ranks.each[1].kill()
        assert ranks.each[1].wait() == -signal.SIGKILL, ranks.text()
        assert re.search(
            r"rank 0 of 2: (rank 1 has not come|all had come, but one)", ranks.text()
        ), ranks.text()
        assert steps_kept(out)[-1] == stood, "nothing was saved without the other rank"


def test_a_replica_that_has_drifted_is_named_and_not_saved(
    trainers: Zygote, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ended, text = launch(trainers, 2, out, "--corrupt", "7")
    assert ended == [1, 1], text
    named = (
        r"out of step at step \d+, not saved: rank 1 has other bits than rank 0 in model/0\.weight"
    )
    assert re.search(named, text), text
    assert all(int(path.name[5:13]) < 7 for path in (out / "checkpoints").glob("step-*"))
    assert "out of step" in events(out, "stop")[0]["reason"]


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "shard_grad_op"])
def test_the_command_trains_on_several_ranks(trainers: Zygote, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "run"
    words = [
        "--task", "char_lm", "--parallel", kind, "--out", str(out), "--epochs", "1", "--steps-per-epoch", "8",
        "--set", "width=16", "--set", "corpus=4000", "--set", "context=16", "--set", "batch=6",
    ]  # fmt: skip
    ranks = commanded(trainers, 2, *words)
    assert ranks.wait() == [0, 0], ranks.text()
    text = ranks.text()
    assert text.count("done: step 8") == 1, "one rank speaks for all"
    assert json.loads((out / "run.json").read_text())["last"]["world_size"] == 2
    assert json.loads((out / "best.json").read_text())["value"] < 5
    assert export_weights(str(out), str(tmp_path / "w.safetensors")).startswith("exported ")
    found = read_tensors(memoryview((tmp_path / "w.safetensors").read_bytes()))
    model = CharTransformer(40, 16, 2, 4, 16, 0.1).state_dict()
    assert set(found) == set(model)
    assert all(tensor.isfinite().all() and tensor.any() for tensor in found.values())


def test_data_of_different_length_leave_the_replicas_alike(
    trainers: Zygote, tmp_path: Path
) -> None:
    ranks = forked(trainers, 2, uneven_worker.__file__, str(tmp_path))
    assert ranks.wait() == [0, 0], ranks.text()
    for rank in range(2):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert "rank 1 has other bits than rank 0 in optimizer" in found["alone"][0], (
            "what Join alone leaves behind"
        )
        assert found["together"] == []


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", ["own", "given", "zeroed"])
def test_gradients_that_the_loop_of_several_ranks_accumulates_are_named(
    trainers: Zygote, tmp_path: Path, kind: str, wrap: str
) -> None:
    told = "not given gradients (they outlive a step, and no rank has those of all: "
    receipt = told.replace("given ", "given: ")
    texts = []
    for stop_at in (
        "2",
        "5",
    ):  # a checkpoint of step 2 is one before the first step of the optimizer
        ranks = forked(
            trainers, 2, gradient_worker.__file__, kind, str(tmp_path / "run"), stop_at, wrap
        )
        assert ranks.wait() == [0, 0], ranks.text()
        texts.append(ranks.text())
    if wrap == "ddp":
        assert (f"step 2: the run was {told}" in texts[0]) == (kind == "own"), texts[0]
        assert (f"resume: {receipt}" in texts[1]) == (kind == "own"), texts[1]
    else:
        assert (f": the run was {told}" in texts[0] + texts[1]) == (kind == "own"), texts
    assert ("outlive" in texts[0] + texts[1]) == (kind == "own"), texts


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", ["later", "skipped"])
def test_an_accumulation_that_begins_later_is_named_and_skipped_steps_are_not(
    trainers: Zygote, tmp_path: Path, kind: str, wrap: str
) -> None:
    texts = []
    for stop_at in ("14", "15"):
        ranks = forked(
            trainers, 2, gradient_worker.__file__, kind, str(tmp_path / "run"), stop_at, wrap
        )
        assert ranks.wait() == [0, 0], ranks.text()
        texts.append(ranks.text())
    if kind == "skipped":
        assert "outlive" not in texts[0] + texts[1], texts
    else:
        named = r"step 1[0-4]: the run was not given gradients \(they outlive a step"
        assert re.search(named, texts[0]), texts[0]
        assert "resume: not given: gradients (they outlive a step" in texts[1], texts[1]


def test_the_documented_loop_runs(trainers: Zygote, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(documented("ddp"))
    ranks = forked(trainers, 2, tmp_path / "train.py")
    assert ranks.wait() == [0, 0], ranks.text()
    assert "done: step 60" in ranks.text()


def test_the_documented_plain_loop_runs(trainers: Zygote, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(documented("before"))
    ranks = forked(trainers, 2, tmp_path / "train.py")
    if any(ranks.wait()) and ABORTS in ranks.text():
        return  # as the page says of a plain loop: it had come to its end by then
    assert ranks.wait() == [0, 0], ranks.text()


def test_the_documented_sharded_loop_runs(trainers: Zygote, tmp_path: Path) -> None:
    """Block by block: a root that is wrapped alone gathers the whole model at once, and saves no memory."""
    gathered = """
from torch.distributed.fsdp import FSDPModule
units = [module._get_fsdp_state()._fsdp_param_group for module in model.modules() if isinstance(module, FSDPModule)]
print("gathered at a time:", sorted(len(unit.fsdp_params) for unit in units if unit))
"""
    (tmp_path / "train.py").write_text(documented("fsdp") + gathered)
    ranks = forked(trainers, 2, tmp_path / "train.py")
    assert ranks.wait() == [0, 0], ranks.text()
    assert "done: step 60" in ranks.text()
    assert "gathered at a time: [2, 2]" in ranks.text()


def documented(name: str) -> str:
    page = (ROOT / "docs" / "distributed.md").read_text()
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", page, re.S)
    assert found
    return found.group(1)


ACCELERATE = """
import os, sys, torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from rgt_train import Run
from rgt_train.ranks.choose import of_accelerate

def train(epochs):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(2)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    parts = of_accelerate(accelerator, model, optimizer, scheduler)
    run = Run("run", samples=64, batch_size=8, epochs=epochs, **parts)
    with run:
        for epoch in run.epochs():
            for x, y in DataLoader(data, batch_sampler=run.batches()):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                run.step(loss.item())
    assert run.step_now == 8 * epochs
    said = f"parts {sorted(parts)} {accelerator.num_processes} {type(model).__name__}\\n"
    os.write(1, said.encode())  # in one go: two ranks write

def rank(number, epochs, port):  # forked: importing all this is what takes the time
    pid = os.fork()
    if pid == 0:
        os.environ.update({name: str(number) for name in ("RANK", "LOCAL_RANK")}, MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=port, **{name: "2" for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")})
        code = 1
        try:
            train(epochs)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid

for epochs, port in enumerate(sys.argv[1:], 1):
    assert [os.waitpid(pid, 0)[1] for pid in [rank(number, epochs, port) for number in range(2)]] == [0, 0]
"""


def test_an_accelerate_loop_on_two_ranks_goes_on(tmp_path: Path) -> None:
    text = frameworks.run(ACCELERATE, tmp_path, str(free_port()), str(free_port())).stdout
    assert text.count("parts ['model', 'optimizer', 'scheduler'] 2 DistributedDataParallel") == 4, (
        text
    )
    assert "resume: at step 8 of 16" in text
    assert "resume: restored model, optimizer, scheduler" in text


def test_synced_batch_norm_is_that_of_the_whole_batch(trainers: Zygote, tmp_path: Path) -> None:
    """Two ranks train as one process does on both halves of each batch; plain batch normalisation does not."""

    def first_losses(world: int, norm: str) -> list[float]:
        out = tmp_path / f"{norm}{world}"
        words = [
            "--task", "image_classifier", "--out", str(out), "--epochs", "1", "--steps-per-epoch", "6", "--parallel",
            "ddp" if world > 1 else "none", "--set", f"norm={norm}", "--set", "dropout=0", "--set", "images=200",
            "--set", "batch=8", "--set", "warmup=0",
        ]  # fmt: skip
        ranks = commanded(trainers, world, *words)
        assert ranks.wait() == [0] * world, ranks.text()
        return list(losses(out).values())

    alone = first_losses(1, "batch")
    assert first_losses(2, "sync") == pytest.approx(alone, rel=1e-3)
    assert first_losses(2, "batch") != pytest.approx(alone, rel=1e-2)
    assert first_losses(1, "sync") == alone


@contextmanager
def elastic_group(port: int, out: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start one of up to two groups of one rank each that find each other at `port`."""
    options = [
        "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=20", "--rdzv-backend=c10d", "--rdzv-id=elastic",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1",
        "--monitor-interval=0.2",
    ]  # fmt: skip
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *options,
            train_worker.__file__,
            str(out),
            *words,
        ],
        stdout=subprocess.DEVNULL,
        stderr=(out.parent / f"said-{time.monotonic_ns()}").open("wb"),
        env=os.environ
        | {
            "PYTHONPATH": f"{ROOT / 'remote'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.full
def test_a_group_that_joins_or_is_lost_changes_no_sample(tmp_path: Path) -> None:
    """``--nnodes=1:2``: alone, joined by a second group, which is killed, and joined again."""
    out, port = tmp_path / "run", free_port()
    words = ("--epochs", "400", "--save-every", "3", "--pace-ms", "20", "--timeout", "60")

    def reach_with(world: int, process: subprocess.Popen[bytes], more: int = 4) -> None:
        """Wait until ranks of this number have made steps of their own."""
        deadline, first = time.monotonic() + PATIENCE, 0
        while time.monotonic() < deadline:
            assert process.poll() is None, [path.read_text() for path in tmp_path.glob("said-*")]
            with suppress(OSError, ValueError, KeyError):
                launched = json.loads((out / "run.json").read_text())["last"]
                if launched["world_size"] == world:
                    first = first or steps_logged(out)
                    if steps_logged(out) >= first + more:
                        return
            time.sleep(0.02)  # another process's file is all there is to look at
        raise AssertionError([path.read_text() for path in tmp_path.glob("said-*")])

    with elastic_group(port, out, *words) as host:
        reach_with(1, host)
        with elastic_group(port, out, *words):
            reach_with(2, host)
        reach_with(1, host)
        with elastic_group(port, out, *words):
            reach_with(2, host)
            host.terminate()
            host.wait()
    assert len(events(out, "resume")) >= 3
    found = samples_of(out)
    last = max(found)
    for epoch, samples in found.items():
        if epoch < last:
            assert sorted(samples) == list(range(train_worker.SAMPLES)), f"epoch {epoch}"
    assert len(set(found[last])) == len(found[last]), "no sample twice"


def test_shard_grad_op_keeps_the_weights_until_the_backward_pass() -> None:
    from torch import distributed, nn

    def gathered_after_forward(kind: str) -> bool:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        alone: Any = SimpleNamespace(world=1)
        wrapped = choose.wrap_model(model, kind, alone)
        loss = wrapped(torch.randn(2, 4)).sum()
        gathered = not any(type(p).__name__ == "DTensor" for p in model[0].parameters())
        loss.backward()
        assert all(type(p).__name__ == "DTensor" for p in model[0].parameters())
        return gathered

    distributed.init_process_group(
        "gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1
    )
    try:
        assert gathered_after_forward("shard_grad_op") and not gathered_after_forward("fsdp")
    finally:
        distributed.destroy_process_group()
