"""FSDP2 (`fully_shard`) on all GPUs of a box, killed and launched again at will, also on fewer of them.

rgt push --trainer lab
rgt run lab --push . -- torchrun --standalone --nproc-per-node 8 train.py --out '$RGT_OUT'
"""

import argparse
from pathlib import Path

import torch
from rgt_train import Run, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Train a small classifier, sharded over the ranks."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--out", type=Path, default=Path("run"))
    flags.add_argument("--epochs", type=int, default=3)
    given = flags.parse_args()

    ranks = distributed()
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    torch.manual_seed(7)
    inputs = torch.randn(640, 16)
    data = TensorDataset(inputs, (inputs[:, :4].sum(dim=1) > 0).long())
    first, last = torch.nn.Linear(16, 32), torch.nn.Linear(32, 2)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), last).to(ranks.device)
    for block in (first, last):  # of a transformer: for block in model.layers
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    run = Run(
        given.out,
        model=model,
        optimizer=optimizer,
        samples=len(data),
        batch_size=32,
        epochs=given.epochs,
        ranks=ranks,
    )
    with run:
        for _ in run.epochs():
            for batch, labels in DataLoader(data, batch_sampler=run.batches()):
                scores = model(batch.to(ranks.device))
                loss = torch.nn.functional.cross_entropy(scores, labels.to(ranks.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss.item())


if __name__ == "__main__":
    main()
