"""A training of several ranks, wrapped as a person would wrap it: kill it, launch it again, compare what it printed.

Started by torchrun (or alone)::

    torchrun --standalone --nproc-per-node 2 train_worker.py OUT --parallel ddp|fsdp|hsdp|none [options]

Every option has a default; a step takes a few milliseconds. Each rank writes into OUT:

- ``pid-RANK``: its process id, as soon as it has joined the others;
- ``seen-RANK.jsonl``: one line a step: ``{"step", "epoch", "attempt", "samples"}``, the samples of this rank that count
  (after a resume the steps after the checkpoint come again: the lines of the highest attempt hold);
- ``came-RANK.json`` and ``left-RANK.json``: step and fingerprints as they were loaded, and as a signal found them;
- ``code-RANK``: its exit code, the moment it leaves by itself;
- ``final-RANK.json`` at the end: fingerprints of weights and optimizer state, and of this rank's random state.

The loss log is the trainer's own ``metrics.jsonl``. With ``--corrupt STEP`` rank 1 flips a bit of a weight there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from rgt_train import Options, Run, distributed
from rgt_train.checkpoint import RunState
from rgt_train.data import rng
from rgt_train.ranks import replicated
from torch import nn

SAMPLES = 200


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--parallel", default="ddp", choices=("none", "ddp", "fsdp", "hsdp"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=9)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps-per-epoch", type=int)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--pace-ms", type=float, default=0.0)
    parser.add_argument("--desync-every", type=int, default=1)
    parser.add_argument("--corrupt", type=int, default=0)
    parser.add_argument(
        "--die-once",
        type=int,
        default=0,
        help="rank 1 kills itself at this step, in the first launch",
    )
    parser.add_argument(
        "--stand-at",
        type=int,
        default=0,
        help="the first launch stands at this step until it is killed",
    )
    parser.add_argument("--timeout", type=float, help="of the agreements, in seconds")
    parser.add_argument(
        "--lost", choices=("load", "backward", "validation", "stuck"), help="how rank 1 ends"
    )
    return parser.parse_args()


def network(width: int) -> nn.Module:
    """Return a small network with dropout and batch normalisation's like: everything a resume can get wrong."""
    return nn.Sequential(
        nn.Linear(8, width), nn.LayerNorm(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 3),
    )  # fmt: skip


def wrapped(model: nn.Module, kind: str, world: int) -> nn.Module:
    """Return the model as its ranks hold it."""
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind in ("fsdp", "hsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        shape, names = (
            ((2, world // 2), ("replicate", "shard")) if kind == "hsdp" else ((world,), ("shard",))
        )
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in model.children():
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def whole(state: Any, path: str = "") -> dict[str, int]:
    """Return the fingerprints of all tensors of a state, put together again. Collective."""
    if isinstance(state, torch.Tensor):
        full: torch.Tensor = state.full_tensor() if hasattr(state, "full_tensor") else state
        return {path.replace("module.", ""): replicated.hash_tensor(full)}
    items = (
        state.items()
        if isinstance(state, dict)
        else enumerate(state)
        if isinstance(state, list)
        else ()
    )
    return {
        name: found for key, value in items for name, found in whole(value, f"{path}/{key}").items()
    }


def lose(where: str) -> None:
    """End this process, or let it stand still for ever."""
    if where == "stuck":
        threading.Event().wait()
    os.kill(os.getpid(), 9)


def train(o: argparse.Namespace) -> None:
    """Train to the end, from wherever OUT stands."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    ranks = distributed(timeout_s=o.timeout) if o.parallel != "none" else None
    rank, world = (ranks.rank, ranks.world) if ranks else (0, 1)
    lost = o.lost if rank == 1 else None
    if lost == "load":
        RunState.restore = lambda *_: lose("load")  # type: ignore[method-assign,assignment]
    o.out.mkdir(parents=True, exist_ok=True)
    (o.out / f"pid-{rank}").write_text(str(os.getpid()))
    x = torch.randn(SAMPLES, 8)
    y = (x[:, :3].abs().argmax(dim=1)).long()
    model = wrapped(network(o.width), o.parallel, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    run = Run(
        o.out, model=model, optimizer=optimizer, scheduler=scheduler, samples=SAMPLES, batch_size=o.batch,
        epochs=o.epochs, steps_per_epoch=o.steps_per_epoch, accumulate=o.accumulate, seed=3,
        options=Options(save_every=o.save_every, pace_s=o.pace_ms / 1000, desync_every=o.desync_every),
    )  # fmt: skip
    first = run.step_now == 0

    def note(name: str) -> None:
        states = {
            **whole(model.state_dict(), "model"),
            **whole(optimizer.state_dict(), "optimizer"),
        }
        random = hashlib.sha256(json.dumps(rng.capture_states()).encode()).hexdigest()
        body = {"step": run.step_now, "state": states, "random": random}
        (o.out / f"{name}-{rank}.json").write_text(json.dumps(body))

    note("came")
    try:
        loop(
            o,
            run,
            model,
            optimizer,
            scheduler,
            x,
            y,
            rank,
            die=o.die_once if first else 0,
            lost=lost,
        )
    except SystemExit as stop:
        if stop.code == 75:
            note("left")
        raise
    note("final")


def loop(
    o: argparse.Namespace, run: Run, model: nn.Module, optimizer: Any, scheduler: Any, x: torch.Tensor, y: torch.Tensor,
    rank: int, die: int, lost: str | None,
) -> None:  # fmt: skip
    """Run the steps that are left."""
    attempt = run._files.run_log.attempt if not run.finished else 0
    with run, (o.out / f"seen-{rank}.jsonl").open("a") as seen:
        for epoch in run.epochs():
            samples: list[int] = []
            for indices, part in run.parts(run.batches()):
                loss = (
                    nn.functional.cross_entropy(
                        model(x[indices][: part.real]), y[indices][: part.real]
                    )
                    * part.share
                )
                if lost == "backward":
                    lose(lost)
                (loss / o.accumulate).backward()
                samples += indices[: part.real] if part.share else []
                if not run.micro():
                    continue
                if run.healthy(loss.item()):
                    optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                step = run.step_now + 1
                if o.corrupt == step and rank == 1:
                    next(model.parameters()).data.view(torch.int32)[3, 1] ^= 1
                if die == step and rank == 1:
                    os.kill(os.getpid(), 9)
                if o.stand_at == step and attempt == 1:
                    threading.Event().wait()
                seen.write(
                    json.dumps(
                        {"step": step, "epoch": epoch, "attempt": attempt, "samples": samples}
                    )
                    + "\n"
                )
                seen.flush()
                samples = []
                run.step(loss.item())
            if lost in ("validation", "stuck"):
                lose(lost)
            total, count = run.total(float(rank + 1), 1.0)
            run.validated(total / count)


def main() -> None:
    """Train, and leave the exit code behind."""
    o, code = options(), 1
    try:
        train(o)
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
        raise
    finally:
        (o.out / f"code-{os.environ.get('RANK', '0')}").write_text(f"{code} {time.time()}")


if __name__ == "__main__":
    main()
    sys.exit(0)
