"""A DDP loop around our own `Run`: FOLDER/RANK holds what a rank does at its next step, so that a test can hold it up.

Words: ``sleep`` and ``spin`` (in the forward pass), ``own`` (spins in the loop's own code), ``data`` (its loader waits
at a pipe), ``evaluate`` (alone); each until the word is gone. The one that holds it stands in FOLDER/held-RANK.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rgt_train import Options, Run, distributed
from torch.nn.parallel import DistributedDataParallel

from tests.process.train.parallel.hang_worker import told


def main(folder: Path) -> None:
    ranks = distributed()
    model = torch.nn.Linear(8, 8)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    options = Options(save_every=1_000_000, log_every=20, stall_factor=0, background=False)
    run = Run(
        folder / "run",
        model=model,
        optimizer=optimizer,
        samples=60_000,
        batch_size=3,
        epochs=1000,
        options=options,
    )

    reader, _ = os.pipe()

    def loaded() -> Iterator[list[Any]]:
        for indices in run.batches():
            while held(folder, ranks.rank, "data"):
                select.select([reader], [], [], 1.0)
            yield indices

    with run:
        for _ in run.epochs():
            for _ in run.loading(loaded()):
                word = told(folder, ranks.rank)
                while held(folder, ranks.rank, "own"):
                    pass
                run.phase("forward")
                while held(folder, ranks.rank, "sleep"):
                    time.sleep(1.0)
                while held(folder, ranks.rank, "spin"):
                    pass
                loss = wrapped(torch.ones(1, 8)).sum()
                run.phase("backward")
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if word == "evaluate":
                    with run.evaluating():
                        while held(folder, ranks.rank, "evaluate"):
                            time.sleep(0.01)
                run.step(loss.detach())
                time.sleep(0.01)


def held(folder: Path, rank: int, word: str) -> bool:
    """Tell whether it is to stand here, and write down that it does."""
    if told(folder, rank) != word:
        return False
    note = folder / f"held-{rank}"
    if not note.exists() or note.read_text() != word:
        note.write_text(word)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
