"""Two ranks train a sharded model with averaged weights and statistics of their own: FOLDER EPOCHS [trouble | full].

Each rank writes ``came-RANK.json`` and ``final-RANK.json``: fingerprints of what it holds as it was loaded and at the
end. With ``trouble`` the state of rank 0 cannot be stored at step 4, that of rank 1 not at step 6. With
``full`` the disk takes nothing after step 2.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import torch
from rgt_train import Options, Run, distributed
from rgt_train.checkpoint import CheckpointDraft
from rgt_train.ranks import replicated
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Averages:
    """A person's own averaged weights, held like the weights: in parts."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.shadow: dict[str, Any] = {
            name: p.detach().clone() for name, p in model.named_parameters()
        }

    @torch.no_grad()
    def update(self) -> None:
        for name, parameter in self._model.named_parameters():
            self.shadow[name].lerp_(parameter.detach(), 0.3)

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state["shadow"].items():
            self.shadow[name].copy_(value)


class Fickle:
    """Something with state that rank 0 cannot store at step 4, and rank 1 not at step 6."""

    step = 0

    def __init__(self, rank: int, *, trouble: bool) -> None:
        self._bad = {0: 4, 1: 6}[rank] if trouble else -1

    def state_dict(self) -> dict[str, Any]:
        return {"odd": object() if self.step == self._bad else 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["odd"] == 1


def fill_the_disk() -> None:
    """Refuse every directory of a checkpoint after step 2."""
    create = CheckpointDraft.create

    def refuse(store: Any, kind: str, step: int, *sizes: int) -> Any:
        if step > 2:
            raise OSError(errno.ENOSPC, "No space left on device", store.root)
        return create(store, kind, step, *sizes)

    CheckpointDraft.create = refuse  # type: ignore[method-assign,assignment]


def main() -> None:
    """Train to the end, from wherever FOLDER stands."""
    folder, epochs, trouble = Path(sys.argv[1]), int(sys.argv[2]), "trouble" in sys.argv
    ranks = distributed(timeout_s=120)
    if "full" in sys.argv:
        fill_the_disk()
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    )
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks.world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    averages = Averages(model)
    fickle = Fickle(ranks.rank, trouble=trouble)
    run = Run(
        folder / "run", model={"ranker": model}, optimizer=optimizer, ema=averages,
        scaler=fickle, samples=32, batch_size=4, epochs=epochs, ranks=ranks,
        options=Options(save_every=2, background=False),
    )  # fmt: skip

    def note(name: str) -> None:
        kinds = {type(value).__name__ for value in averages.shadow.values()}
        assert kinds == {"DTensor"}, kinds
        held = {
            key: replicated.hash_tensor(value.to_local()) for key, value in averages.shadow.items()
        }
        own = {key: replicated.hash_tensor(value) for key, value in model.named_buffers()}
        (folder / f"{name}-{ranks.rank}.json").write_text(
            json.dumps({"step": run.step_now, "held": held, "own": own})
        )

    note("came")
    with run:
        for _ in run.epochs():
            for indices in run.batches():
                x = torch.tensor(indices, dtype=torch.float32)[:, None] * torch.arange(6) / 50
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                averages.update()
                fickle.step = run.step_now + 1
                run.step(loss.item())
    note("final")


if __name__ == "__main__":
    main()
