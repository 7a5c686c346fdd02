"""Trains a small FSDP2 model on some ranks, saves it sharded, loads it on others: SCENARIO FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rgt_train.ranks import dcp_reader, replicated, sharded_state
from rgt_train.ranks.torch_ranks import TorchRanks
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build(world: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3))
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(4, 8, generator=generator)
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    """Fingerprints of the unsharded tensors."""
    full = {
        name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in tensors.items()
    }
    return {name: replicated.hash_tensor(tensor) for name, tensor in full.items()}


def save(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    model, optimizer = build(ranks.world)
    for number in range(3):
        step(model, optimizer, number)
    tensors, plain = sharded_state.collect_values(
        {"model": model}, {"optimizer": ("model", optimizer)}
    )
    save_sharded(dict(tensors), checkpoint_id=str(folder / "ckpt"), process_group=ranks.group)
    if ranks.is_writer:
        (folder / "plain.json").write_text(json.dumps(plain))
    return whole(tensors)


def load(ranks: TorchRanks, folder: Path) -> dict[str, Any]:
    model, optimizer = build(ranks.world)
    step(model, optimizer, 99)
    tensors, _ = sharded_state.collect_values({"model": model}, {"optimizer": ("model", optimizer)})
    load_sharded(
        dict(tensors),
        storage_reader=dcp_reader.SafeReader(folder / "ckpt"),
        process_group=ranks.group,
    )
    plain = json.loads((folder / "plain.json").read_text())
    sharded_state.load_values({"model": model}, {"optimizer": ("model", optimizer)}, tensors, plain)
    again, _ = sharded_state.collect_values({"model": model}, {"optimizer": ("model", optimizer)})
    return whole(again)


def main() -> None:
    """Run a scenario."""
    folder = Path(sys.argv[2])
    ranks = TorchRanks(timeout_s=60)
    result = {"save": save, "load": load}[sys.argv[1]](ranks, folder)
    (folder / f"{sys.argv[1]}-{ranks.world}-{ranks.rank}.json").write_text(json.dumps(result))
    ranks.close()
    assert not dist.is_initialized()


if __name__ == "__main__":
    main()
