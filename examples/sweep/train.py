"""One cell of the sweep: a small model, fitted with one seed. It knows nothing of rgt.

It writes metrics.jsonl (a line per step), latest.pt after each epoch, from which it resumes, and best.pt.
"""

import argparse
import json
import time
from pathlib import Path

import torch


def save(state: dict, path: Path) -> None:
    """Write a checkpoint that is never half there: a kill leaves the old one or the new one."""
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def main() -> None:
    """Fit the model, from the newest checkpoint on."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--config", required=True)
    flags.add_argument("--epochs", type=int, default=4)
    flags.add_argument("--out", type=Path, required=True)
    flags.add_argument("--steps", type=int, default=20, help="per epoch")
    given = flags.parse_args()
    config = json.loads(Path(given.config).read_text())
    given.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    inputs = torch.randn(256, 8)
    targets = inputs.sin().sum(dim=1, keepdim=True)
    torch.manual_seed(config["seed"])
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    first, best = 0, float("inf")
    latest = given.out / "latest.pt"
    if latest.exists():
        state = torch.load(latest)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, best = state["epoch"] + 1, state["best"]
        print(f"resumed after epoch {state['epoch']}", flush=True)
    with (given.out / "metrics.jsonl").open("a", buffering=1) as metrics:
        for epoch in range(first, given.epochs):
            for step in range(given.steps):
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(config["step_seconds"])  # stands for the work of a real step
                row = {"step": epoch * given.steps + step + 1, "epoch": epoch, "loss": loss.item()}
                metrics.write(json.dumps(row) + "\n")
            print(f"epoch {epoch + 1}/{given.epochs} loss {loss.item():.4f}", flush=True)
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
            }
            save({**state, "best": min(best, loss.item())}, latest)
            if loss.item() < best:
                best = loss.item()
                save(
                    {"model": model.state_dict(), "loss": best, "config": config},
                    given.out / "best.pt",
                )


if __name__ == "__main__":
    main()
