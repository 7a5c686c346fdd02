"""A person's own DDP loop: FOLDER/RANK holds what a rank does at its next step, so that a test can hold it up.

Words: ``sleep`` (in Python, for ever), ``poll`` (evaluates: works now and then, does not come to the next step until
the word is gone).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step = 0
    while True:
        if told(folder, rank) == "sleep":
            time.sleep(100_000)
        while told(folder, rank) == "poll":
            sum(number * number for number in range(20_000))
            time.sleep(0.01)
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        step += 1
        (folder / f"step-{rank}.new").write_text(str(step))
        (folder / f"step-{rank}.new").replace(folder / f"step-{rank}")
        time.sleep(0.02)


def told(folder: Path, rank: int) -> str:
    try:
        return (folder / str(rank)).read_text()
    except OSError:
        return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
