"""A training with a DeepSpeed engine: OUT [options]; with a double of the engine where DeepSpeed is not installed.

The double has the calls, the names of the files and the counters of DeepSpeed 0.19 with ZeRO 1: each rank steps a part
of the optimizer's state and writes a file of its own. ``--real`` takes DeepSpeed itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from rgt_train import distributed
from rgt_train.callbacks import RgtDeepSpeed
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EngineDouble:
    """The part of DeepSpeed's engine that a training loop and a resume use."""

    def __init__(self, model: nn.Module, rank: int, world: int) -> None:
        self.module, self.rank, self.world = model, rank, world
        self.optimizer = torch.optim.AdamW(list(model.parameters())[rank::world], lr=1e-2)
        self.global_steps = 0

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.module(inputs))

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        for p in self.module.parameters():
            torch.distributed.all_reduce(p.grad)
        self.optimizer.step()
        for number, p in enumerate(self.module.parameters()):
            torch.distributed.broadcast(p.data, number % self.world)
        self.module.zero_grad()
        self.global_steps += 1

    def train_batch_size(self) -> int:
        return 4 * self.world

    def gradient_accumulation_steps(self) -> int:
        return 1

    def zero_optimization_stage(self) -> int:
        return 1

    def save_checkpoint(self, save_dir: str, tag: str, client_state: dict[str, Any]) -> None:
        folder = Path(save_dir) / tag
        folder.mkdir(parents=True, exist_ok=True)
        own = f"zero_pp_rank_{self.rank}_mp_rank_00_optim_states.pt"
        torch.save(self.optimizer.state_dict(), folder / own)
        if self.rank == 0:
            state = {"module": self.module.state_dict(), "global_steps": self.global_steps}
            torch.save({**state, **client_state}, folder / "mp_rank_00_model_states.pt")
            (Path(save_dir) / "latest").write_text(tag)

    def load_checkpoint(self, load_dir: str, tag: str) -> tuple[str, dict[str, Any]]:
        folder = Path(load_dir) / tag
        if (folder / f"zero_pp_rank_{self.world}_mp_rank_00_optim_states.pt").exists():
            raise RuntimeError("the checkpoint being loaded used a DP world size of another size")
        state = torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)
        self.module.load_state_dict(state.pop("module"))
        self.global_steps = state.pop("global_steps")
        own = f"zero_pp_rank_{self.rank}_mp_rank_00_optim_states.pt"
        self.optimizer.load_state_dict(torch.load(folder / own))
        return str(folder), state


def make_engine(model: nn.Module, rank: int, world: int, stage: int, *, real: bool) -> Any:
    """Return DeepSpeed's engine, or its double."""
    if not real:
        return EngineDouble(model, rank, world)
    import deepspeed  # type: ignore[import-not-found,unused-ignore]

    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def main() -> None:
    """Train to the end, from the newest good checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--mirror", default="")
    parser.add_argument("--die-at", type=int, default=0, help="rank 0 kills itself after this step")
    parser.add_argument(
        "--stop-at", type=int, default=0, help="rank 1 gets SIGTERM after this step"
    )
    o = parser.parse_args()
    torch.manual_seed(1)
    if o.real:
        import deepspeed  # type: ignore[import-not-found,unused-ignore]

        # It would compile a faster exchange, for minutes.
        vars(sys.modules["deepspeed.comm.torch"])["build_shm_op"] = lambda: None
        deepspeed.init_distributed(dist_backend="gloo")
    ranks = distributed()
    x = torch.randn(48, 8)
    data = TensorDataset(torch.arange(48), x, (x.sum(dim=1) > 0).long())
    loader = DataLoader(
        data, batch_size=4, sampler=DistributedSampler(data, ranks.world, ranks.rank)
    )
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    engine = make_engine(model, ranks.rank, ranks.world, o.stage, real=o.real)
    own = {"seen": 0}
    o.out.mkdir(parents=True, exist_ok=True)
    with (
        RgtDeepSpeed(
            o.out, engine, total_steps=18, save_every=5, mirror=o.mirror, extra=own
        ) as run,
        (o.out / f"seen-{ranks.rank}.jsonl").open("a") as seen,
    ):
        for numbers, inputs, labels in run.batches(loader, epochs=3):
            loss = nn.functional.cross_entropy(engine(inputs), labels)
            engine.backward(loss)
            engine.step()
            own["seen"] += len(numbers)
            line = {"step": run.step_now, "samples": numbers.tolist(), "loss": loss.item(), **own}
            seen.write(json.dumps(line) + "\n")
            seen.flush()
            if run.step_now == o.die_at and ranks.rank == 0:
                os.kill(os.getpid(), 9)
            if run.step_now == o.stop_at and ranks.rank == 1:
                os.kill(os.getpid(), 15)
            run.step(loss.item())


if __name__ == "__main__":
    main()
