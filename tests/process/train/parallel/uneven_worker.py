"""Two ranks with data of different length, under torch's Join alone and under the run's own: FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from rgt_train import Options, Run, distributed
from rgt_train.ranks import replicated
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

AVERAGING = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)  # type: ignore[no-untyped-call]


def main() -> None:
    """Train both ways; write what differs between the ranks afterwards."""
    folder, ranks = Path(sys.argv[1]), distributed()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    ema = torch.optim.swa_utils.AveragedModel(model.module, multi_avg_fn=AVERAGING)

    def some() -> None:
        for _ in range(3 + 2 * ranks.rank):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
            ema.update_parameters(model.module)

    torch.manual_seed(ranks.rank)
    with Join([model]):
        some()
    parts = {"model": model}, {"optimizer": optimizer}, {"ema": ema}
    alone = replicated.differences(ranks, 0, *parts)
    run = Run(
        folder / "run", model=model, optimizer=optimizer, ema=ema, samples=3, epochs=1,
        options=Options(save_every=1),
    )  # fmt: skip
    with run:
        for _ in run.epochs():
            for _ in run.batches():
                with run.uneven(model):
                    some()
                run.step(0.5 + ranks.rank)
    together = replicated.differences(ranks, 0, *parts)
    (folder / f"rank-{ranks.rank}.json").write_text(
        json.dumps({"alone": alone, "together": together})
    )


if __name__ == "__main__":
    main()
