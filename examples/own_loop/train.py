"""A training loop of your own that survives being killed: run the same command again, and it goes on.

rgt push --trainer lab
rgt run lab --push . -- python train.py --out '$RGT_OUT'
"""

import argparse
from pathlib import Path

import torch
from rgt_train import Run
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Fit a small classifier."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--out", type=Path, default=Path("run"))
    flags.add_argument("--epochs", type=int, default=6)
    given = flags.parse_args()

    torch.manual_seed(7)
    inputs = torch.randn(640, 16)
    data = TensorDataset(inputs, (inputs[:, :4].sum(dim=1) > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = given.epochs * len(data) // 32
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    run = Run(
        given.out,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        samples=len(data),
        batch_size=32,
        epochs=given.epochs,
    )
    with run:
        for _ in run.epochs():
            for batch, labels in DataLoader(data, batch_sampler=run.batches()):
                loss = torch.nn.functional.cross_entropy(model(batch), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                run.step(loss.item())
    print(f"done at step {run.step_now}", flush=True)


if __name__ == "__main__":
    main()
