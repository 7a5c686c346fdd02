"""Ranks of one model that accumulate gradients by themselves, or zero them in place: KIND OUT STOP_AT WRAP."""

from __future__ import annotations

import sys

import torch
from rgt_train import Options, Run, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def train_ranks() -> None:
    """Train as KIND says; leave the loop after step STOP_AT.

    KIND is ``own``, ``later`` (accumulates from step 9 on), ``given``, ``zeroed`` or ``skipped`` (two
    steps without an update, whose gradients are dropped).

    WRAP is ``ddp`` or ``fsdp``.
    """
    kind, out, stop_at, wrap = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    ranks = distributed()
    torch.manual_seed(1)
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    if wrap == "ddp":
        model = DistributedDataParallel(model)
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks.world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    accumulate = 4 if kind == "given" else 1
    run = Run(
        out, model=model, optimizer=optimizer, samples=48, batch_size=2, epochs=1, accumulate=accumulate,
        options=Options(save_every=2, log_every=0), ranks=ranks,
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for number, indices in run.enumerate(run.batches()):
                loss = model(torch.tensor(indices).float()[:, None].expand(-1, 4)).square().mean()
                loss.backward()
                if kind == "given" and not run.micro():
                    continue
                due = number % 4 == 3 or kind not in ("own", "later")
                if due or (kind == "later" and number < 8):
                    if kind != "skipped" or number not in (5, 6):
                        optimizer.step()
                    optimizer.zero_grad(set_to_none=kind != "zeroed" and number != 6)
                run.step(loss)
                if run.step_now == stop_at:
                    return


if __name__ == "__main__":
    train_ranks()
